//! Side outputs of an operator, while the job is put together and when it is built.

use std::any::{Any, type_name};
use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_state::Record;
use tidegate_types::OperatorId;
use timely::dataflow::operators::Capability;

use super::JobPlan;
use super::edge::Unlinked;
use super::node::typed;
use crate::output::{Collector, Side, SideHandle, SideOutput, SideOutputTypeError};

/// A side output of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SideOutputId {
    operator: OperatorId,
    index: u32,
}

/// Where an edge begins: an operator's main output, or a side output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    pub(super) operator: OperatorId,
    /// Which side output, if it isn't the main one.
    pub(super) side: Option<u32>,
}

impl Output {
    /// The operator whose output it is.
    pub fn operator(self) -> OperatorId {
        self.operator
    }
}

impl From<OperatorId> for Output {
    fn from(operator: OperatorId) -> Self {
        Output {
            operator,
            side: None,
        }
    }
}

impl From<SideOutputId> for Output {
    fn from(SideOutputId { operator, index }: SideOutputId) -> Self {
        Output {
            operator,
            side: Some(index),
        }
    }
}

/// A side output as the operator is built with it.
#[derive(Clone)]
pub(super) struct PlannedSide {
    pub(super) tag: String,
    pub(super) factory: Arc<dyn SideFactory>,
}

/// The sending end of an edge, whatever its type, with the capability it takes to send there.
pub(super) type LinkableEnd = (Box<dyn Any>, Option<Capability<u64>>);

/// Opens a side output once its edges are connected.
pub(super) trait SideFactory: Send + Sync {
    fn open(
        &self,
        edges: Vec<LinkableEnd>,
        full_count: &Rc<Cell<u32>>,
    ) -> (Box<dyn SideOutput>, SideHandle);

    /// Type of the records.
    fn records(&self) -> &'static str;
}

struct TypedSide<T>(PhantomData<fn(T)>);

impl<T: Record> SideFactory for TypedSide<T> {
    fn open(
        &self,
        edges: Vec<LinkableEnd>,
        full_count: &Rc<Cell<u32>>,
    ) -> (Box<dyn SideOutput>, SideHandle) {
        let link = |(edge, capability)| typed::<Unlinked<T>>(edge).link(capability);
        let edges = edges.into_iter().map(link).collect();
        Side::open(Collector::new(edges), full_count)
    }

    fn records(&self) -> &'static str {
        type_name::<T>()
    }
}

impl JobPlan {
    /// Declares that records of type `T` are to be taken from a side output of `operator`, and
    /// returns where edges from it begin. The operator's logic finds it by its tag, with
    /// [`SubtaskContext::side_output`], and has to take it there: otherwise the attempt fails with
    /// an [`UnknownSideOutputError`]. The same tag is the same output.
    ///
    /// [`SubtaskContext::side_output`]: crate::SubtaskContext::side_output
    /// [`UnknownSideOutputError`]: crate::UnknownSideOutputError
    ///
    /// # Errors
    /// If the tag has been declared with another type.
    pub fn side_output<T: Record>(
        &mut self,
        operator: OperatorId,
        tag: &str,
    ) -> Result<SideOutputId, SideOutputTypeError> {
        let sides = &mut self.sides[operator.0 as usize];
        let known = sides.iter().position(|side| side.tag == tag);
        let index = known.unwrap_or(sides.len());
        if known.is_none() {
            sides.push(PlannedSide {
                tag: tag.to_owned(),
                factory: Arc::new(TypedSide::<T>(PhantomData)),
            });
        }
        let (declared, wanted) = (sides[index].factory.records(), type_name::<T>());
        if declared != wanted {
            return Err(SideOutputTypeError {
                tag: tag.to_owned(),
                declared,
                wanted,
            });
        }
        Ok(SideOutputId {
            operator,
            index: index as u32,
        })
    }
}

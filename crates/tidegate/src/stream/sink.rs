//! Where streams end.

use std::cell::RefCell;
use std::rc::Rc;

use tidegate_runtime::JobPlan;
use tidegate_runtime::sink::{Sink, TwoPhaseSink};
use tidegate_state::Record;
use tidegate_types::OperatorId;
use tidegate_types::graph::OperatorSpec;

use super::Draft;

/// A sink that has been added to the job.
pub struct SinkHandle {
    pub(super) draft: Rc<RefCell<Draft>>,
    pub(super) operator: OperatorId,
}

impl SinkHandle {
    /// Sets the sink's number of subtasks. It keeps it when the job is rescaled.
    pub fn parallelism(self, parallelism: u32) -> Self {
        let mut draft = self.draft.borrow_mut();
        draft.choose_parallelism(self.operator, parallelism);
        drop(draft);
        self
    }
}

/// Marks sinks that write as they go.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

/// Marks sinks that commit with checkpoints.
#[derive(Clone, Copy, Debug)]
pub struct Committing;

/// What a stream can end in: any [`Sink`] and any [`TwoPhaseSink`]. `Kind` tells which of the two;
/// it is inferred.
pub trait IntoSink<T, Kind> {
    /// Adds the sink as an operator of a plan.
    fn add_to(self, plan: &mut JobPlan, spec: OperatorSpec) -> OperatorId;
}

impl<T: Record, S: Sink<T>> IntoSink<T, Plain> for S {
    fn add_to(self, plan: &mut JobPlan, spec: OperatorSpec) -> OperatorId {
        plan.sink(spec, self)
    }
}

impl<T: Record, S: TwoPhaseSink<T>> IntoSink<T, Committing> for S {
    fn add_to(self, plan: &mut JobPlan, spec: OperatorSpec) -> OperatorId {
        plan.two_phase_sink(spec, self)
    }
}

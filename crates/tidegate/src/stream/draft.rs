//! The job as it grows: operators and edges, before what depends on all of them is settled.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_runtime::{EdgeKind, JobPlan, Output, Route, RouteContext};
use tidegate_state::Record;
use tidegate_types::graph::{OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::{MaxParallelism, OperatorId, OperatorUid, Scaling};

/// Makes the router of one sending subtask.
pub(super) type MakeRoute<T> = Arc<dyn Fn(RouteContext) -> Box<dyn Route<T>> + Send + Sync>;

/// How records find their receiver.
pub(super) type RoutedBy<T> = (Partitioning, MakeRoute<T>);

/// The job that streams add to.
#[derive(Default)]
pub(crate) struct Draft {
    pub(crate) plan: JobPlan,
    pub(crate) parallelism: u32,
    /// Operators whose parallelism was chosen by the user.
    pub(super) chosen: Vec<OperatorId>,
    /// Edges that become forward edges if both sides turn out to be equally parallel.
    pub(super) flexible: Vec<usize>,
    /// Operators whose number of key groups was chosen by the user.
    pub(super) fixed_max: Vec<OperatorId>,
}

impl Draft {
    pub(crate) fn new(parallelism: u32) -> Rc<RefCell<Draft>> {
        Rc::new(RefCell::new(Draft {
            parallelism,
            ..Draft::default()
        }))
    }

    pub(crate) fn spec(&self, name: &str) -> OperatorSpec {
        OperatorSpec {
            uid: OperatorUid(name.to_owned()),
            parallelism: self.parallelism,
            max_parallelism: MaxParallelism::derive(self.parallelism),
            max_parallelism_derived: true,
            role: OperatorRole::Transform,
        }
    }

    /// Sets how many subtasks an operator has, however parallel the job is.
    pub(super) fn choose_parallelism(&mut self, id: OperatorId, parallelism: u32) {
        self.plan.operator_mut(id).parallelism = parallelism;
        self.chosen.push(id);
    }

    /// Settles what depends on every operator's final parallelism.
    pub(crate) fn into_plan(self) -> JobPlan {
        let Draft {
            mut plan,
            chosen,
            flexible,
            fixed_max,
            ..
        } = self;
        for id in plan.graph().operator_ids() {
            let spec = plan.operator_mut(id);
            spec.max_parallelism_derived = !fixed_max.contains(&id);
            if spec.max_parallelism_derived {
                spec.max_parallelism = MaxParallelism::derive(spec.parallelism);
            }
        }
        let scaling = Scaling::new(plan.graph().clone(), chosen, &flexible);
        plan.with_scaling(scaling)
    }

    pub(super) fn connect<T: Record>(
        &mut self,
        upstream: &[Output],
        to: OperatorId,
        (partitioning, route): RoutedBy<T>,
    ) {
        for from in upstream {
            let route = Arc::clone(&route);
            let route = move |context: RouteContext| route(context);
            self.plan
                .connect((*from, to), partitioning, EdgeKind::Records, route);
        }
    }

    /// As [`connect`](Self::connect), to an operator whose records are of another type.
    pub(super) fn connect_as<T: Record, In: Record>(
        &mut self,
        upstream: &[Output],
        to: OperatorId,
        (partitioning, route): RoutedBy<T>,
        convert: fn(T) -> In,
    ) {
        for from in upstream {
            let route = Arc::clone(&route);
            let route = move |context: RouteContext| route(context);
            let ends = (*from, to);
            self.plan
                .connect_as(ends, partitioning, EdgeKind::Records, route, convert);
        }
    }
}

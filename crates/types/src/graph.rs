//! The job graph: which operators there are, how parallel each is, and how they are connected.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ids::{OperatorId, OperatorUid, SubtaskId};
use crate::key_group::{KeyGroupError, MaxParallelism};

/// The part an operator plays in a checkpoint and at the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperatorRole {
    /// Has no inputs: discovers and assigns splits. The coordinator triggers it.
    Enumerator,
    /// Reads the splits that its enumerator assigns; reports when it has read the last one.
    Reader,
    /// Neither source nor sink.
    Transform,
    /// Has no outputs and nothing to commit.
    Sink,
    /// Has no outputs; commits its transactions when a checkpoint completes, and reports that.
    CommittingSink,
}

/// How records travel along an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partitioning {
    /// Subtask *i* to subtask *i*; both sides have the same parallelism.
    Forward,
    /// By the key group of the record's key.
    KeyGroups,
    /// Evenly to all, preferring subtasks that keep up.
    Rebalance,
    /// Every record to every subtask.
    Broadcast,
}

/// One operator of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorSpec {
    /// Stable, unique name that keys the operator's state.
    pub uid: OperatorUid,
    /// Number of subtasks; at least 1.
    pub parallelism: u32,
    /// Number of key groups; at least `parallelism`.
    pub max_parallelism: MaxParallelism,
    /// Whether nobody chose `max_parallelism`: then a restore takes the checkpoint's.
    pub max_parallelism_derived: bool,
    /// Its part in checkpoints.
    pub role: OperatorRole,
}

/// One connection. Several edges into one operator are separate inputs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// Where records come from.
    pub from: OperatorId,
    /// Where they go.
    pub to: OperatorId,
    /// How they are spread over the receiver's subtasks.
    pub partitioning: Partitioning,
}

/// Why a job graph can't run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// There is nothing to run.
    #[error("the job has no sources; add one with `Environment::source`")]
    Empty,
    /// Two operators would share their state.
    #[error("two operators have the uid `{uid}`; names must be unique within a job")]
    DuplicateUid {
        /// The name that is used twice.
        uid: OperatorUid,
    },
    /// Parallelism and max parallelism don't fit.
    #[error("operator `{uid}`")]
    Parallelism {
        /// The operator.
        uid: OperatorUid,
        /// What doesn't fit.
        #[source]
        cause: KeyGroupError,
    },
    /// A forward edge between different parallelisms.
    #[error(
        "forward edge from `{from}` (parallelism {from_parallelism}) to `{to}` (parallelism \
         {to_parallelism}) needs equal parallelism"
    )]
    ForwardMismatch {
        /// Upstream operator.
        from: OperatorUid,
        /// Its parallelism.
        from_parallelism: u32,
        /// Downstream operator.
        to: OperatorUid,
        /// Its parallelism.
        to_parallelism: u32,
    },
    /// Barriers can't be aligned in a loop.
    #[error(
        "the job graph has a cycle through `{}`; cyclic jobs can't be checkpointed",
        names(.operators)
    )]
    Cycle {
        /// The operators on cycles, in graph order.
        operators: Vec<OperatorUid>,
    },
    /// An edge names an operator that isn't there.
    #[error("an edge refers to `{operator}`, but the job has {count} operators")]
    UnknownOperator {
        /// The id out of range.
        operator: OperatorId,
        /// How many operators there are.
        count: usize,
    },
    /// An operator that isn't a source gets no input.
    #[error("operator `{uid}` is no source and has no input")]
    NoInput {
        /// The operator.
        uid: OperatorUid,
    },
}

fn names(operators: &[OperatorUid]) -> String {
    operators
        .iter()
        .map(|uid| uid.0.as_str())
        .collect::<Vec<_>>()
        .join("`, `")
}

/// The operators of a job and the edges between them.
///
/// Operators are addressed by position ([`OperatorId`]) within one attempt and by uid for ever.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct JobGraph {
    /// Operators by [`OperatorId`].
    pub operators: Vec<OperatorSpec>,
    /// Connections, in the order in which inputs were attached.
    pub edges: Vec<Edge>,
}

impl JobGraph {
    /// The operator with this id.
    ///
    /// # Panics
    /// If the id is not of this graph.
    pub fn operator(&self, id: OperatorId) -> &OperatorSpec {
        &self.operators[id.0 as usize]
    }

    /// Ids of all operators in order.
    pub fn operator_ids(&self) -> impl Iterator<Item = OperatorId> + use<> {
        (0..self.operators.len() as u32).map(OperatorId)
    }

    /// All subtasks of `operator`.
    pub fn subtasks_of(&self, operator: OperatorId) -> impl Iterator<Item = SubtaskId> + use<> {
        let parallelism = self.operator(operator).parallelism;
        (0..parallelism).map(move |index| SubtaskId { operator, index })
    }

    /// All subtasks of all operators that `keep` accepts, in order.
    pub fn subtasks_where(&self, keep: impl Fn(&OperatorSpec) -> bool) -> Vec<SubtaskId> {
        self.operator_ids()
            .filter(|id| keep(self.operator(*id)))
            .flat_map(|id| self.subtasks_of(id))
            .collect()
    }

    /// All subtasks.
    pub fn subtasks(&self) -> Vec<SubtaskId> {
        self.subtasks_where(|_| true)
    }

    /// Edges into `operator`, in input order.
    pub fn inputs_of(&self, operator: OperatorId) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.to == operator)
    }

    /// Edges out of `operator`, in output order.
    pub fn outputs_of(&self, operator: OperatorId) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.from == operator)
    }

    /// The largest parallelism of any operator: how many workers an attempt needs.
    pub fn parallelism_max(&self) -> u32 {
        self.operators
            .iter()
            .map(|op| op.parallelism)
            .max()
            .unwrap_or(1)
    }

    /// Name of a subtask as people read it: `count[1]`.
    pub fn display(&self, subtask: SubtaskId) -> SubtaskName<'_> {
        SubtaskName {
            uid: &self.operator(subtask.operator).uid,
            index: subtask.index,
        }
    }

    /// Checks everything that must hold before the job may run.
    ///
    /// # Errors
    /// The first [`GraphError`] found.
    pub fn validate(&self) -> Result<(), GraphError> {
        if !self
            .operators
            .iter()
            .any(|op| op.role == OperatorRole::Enumerator)
        {
            return Err(GraphError::Empty);
        }
        self.check_operators()?;
        self.check_edges()?;
        self.check_acyclic()
    }

    fn check_operators(&self) -> Result<(), GraphError> {
        let mut seen = BTreeSet::new();
        for op in &self.operators {
            if !seen.insert(&op.uid) {
                return Err(GraphError::DuplicateUid {
                    uid: op.uid.clone(),
                });
            }
            op.max_parallelism
                .range(0, op.parallelism)
                .map_err(|cause| GraphError::Parallelism {
                    uid: op.uid.clone(),
                    cause,
                })?;
        }
        Ok(())
    }

    fn check_edges(&self) -> Result<(), GraphError> {
        let count = self.operators.len();
        for edge in &self.edges {
            for operator in [edge.from, edge.to] {
                if operator.0 as usize >= count {
                    return Err(GraphError::UnknownOperator { operator, count });
                }
            }
            let (from, to) = (self.operator(edge.from), self.operator(edge.to));
            let forward = edge.partitioning == Partitioning::Forward;
            if forward && from.parallelism != to.parallelism {
                return Err(GraphError::ForwardMismatch {
                    from: from.uid.clone(),
                    from_parallelism: from.parallelism,
                    to: to.uid.clone(),
                    to_parallelism: to.parallelism,
                });
            }
        }
        let orphan = self.operator_ids().find(|id| {
            self.operator(*id).role != OperatorRole::Enumerator
                && self.inputs_of(*id).next().is_none()
        });
        match orphan {
            Some(id) => Err(GraphError::NoInput {
                uid: self.operator(id).uid.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Kahn's algorithm: whatever can't be removed source by source lies on, or behind, a cycle.
    fn check_acyclic(&self) -> Result<(), GraphError> {
        let mut inputs_left: BTreeMap<OperatorId, usize> = self
            .operator_ids()
            .map(|id| (id, self.inputs_of(id).count()))
            .collect();
        let mut ready: Vec<OperatorId> = inputs_left
            .iter()
            .filter(|(_, left)| **left == 0)
            .map(|(id, _)| *id)
            .collect();
        while let Some(id) = ready.pop() {
            inputs_left.remove(&id);
            for edge in self.outputs_of(id) {
                if let Some(left) = inputs_left.get_mut(&edge.to) {
                    *left -= 1;
                    if *left == 0 {
                        ready.push(edge.to);
                    }
                }
            }
        }
        if inputs_left.is_empty() {
            return Ok(());
        }
        let operators = inputs_left
            .keys()
            .map(|id| self.operator(*id).uid.clone())
            .collect();
        Err(GraphError::Cycle { operators })
    }
}

/// Displays a subtask by its operator's uid: `count[1]`.
#[derive(Clone, Copy, Debug)]
pub struct SubtaskName<'a> {
    uid: &'a OperatorUid,
    index: u32,
}

impl fmt::Display for SubtaskName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.uid, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(operators: &[(&str, OperatorRole)], edges: &[(u32, u32)]) -> JobGraph {
        JobGraph {
            operators: operators
                .iter()
                .map(|(uid, role)| OperatorSpec {
                    uid: OperatorUid((*uid).to_owned()),
                    parallelism: 2,
                    max_parallelism: MaxParallelism::derive(2),
                    max_parallelism_derived: true,
                    role: *role,
                })
                .collect(),
            edges: edges
                .iter()
                .map(|(from, to)| Edge {
                    from: OperatorId(*from),
                    to: OperatorId(*to),
                    partitioning: Partitioning::Rebalance,
                })
                .collect(),
        }
    }

    use OperatorRole::{Enumerator, Sink, Transform};

    #[test]
    fn a_diamond_is_fine() {
        let roles = [
            ("s", Enumerator),
            ("a", Transform),
            ("b", Transform),
            ("sink", Sink),
        ];
        let diamond = graph(&roles, &[(0, 1), (0, 2), (1, 3), (2, 3)]);
        assert_eq!(diamond.validate(), Ok(()));
        assert_eq!(diamond.subtasks().len(), 8);
    }

    // BC-59
    #[test]
    fn a_cycle_is_refused_by_name() {
        let roles = [("s", Enumerator), ("a", Transform), ("b", Transform)];
        let error = graph(&roles, &[(0, 1), (1, 2), (2, 1)])
            .validate()
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the job graph has a cycle through `a`, `b`; cyclic jobs can't be checkpointed"
        );
    }

    #[test]
    fn duplicate_uids_missing_inputs_and_empty_jobs_are_refused() {
        let twice = graph(&[("s", Enumerator), ("s", Sink)], &[(0, 1)]);
        assert!(matches!(
            twice.validate(),
            Err(GraphError::DuplicateUid { .. })
        ));
        let orphan = graph(&[("s", Enumerator), ("sink", Sink)], &[]);
        assert!(matches!(orphan.validate(), Err(GraphError::NoInput { .. })));
        assert_eq!(JobGraph::default().validate(), Err(GraphError::Empty));
    }

    #[test]
    fn forward_edges_need_equal_parallelism() {
        let mut job = graph(&[("s", Enumerator), ("sink", Sink)], &[(0, 1)]);
        job.edges[0].partitioning = Partitioning::Forward;
        job.operators[1].parallelism = 3;
        assert!(matches!(
            job.validate(),
            Err(GraphError::ForwardMismatch { .. })
        ));
    }
}

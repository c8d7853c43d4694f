//! How parallel the operators of a job are when the job is run larger or smaller than it was
//! written.
//!
//! Everything but the number of subtasks stays as it is: operators, edges, key groups. So state
//! finds its place by the same rules as after a restart with another `--parallelism`.

use crate::graph::{JobGraph, OperatorRole, Partitioning};
use crate::ids::OperatorId;

/// How large to run a job. The default is as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Scale {
    /// Number of subtasks of every operator whose parallelism nobody chose; at least 1. `None` is
    /// what the job was started with.
    pub parallelism: Option<u32>,
    /// No operator has more subtasks than this, whoever chose its parallelism; at least 1.
    pub at_most: Option<u32>,
}

/// A parallelism that somebody asked for while the job ran. It is recorded, and holds for whoever
/// goes on with the job, until it is started with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AskedParallelism {
    /// What the job had been started with; at least 1.
    pub declared: u32,
    /// What was asked for; at least 1.
    pub asked: u32,
}

/// What of a job graph depends on its scale. The default has nothing chosen: every operator but
/// enumerators follows the job's parallelism, and no edge changes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Scaling {
    /// The graph as the job was written.
    declared: JobGraph,
    /// Operators whose parallelism was chosen.
    chosen: Vec<OperatorId>,
    /// Edges, by index, that are forward edges where both sides are equally parallel, and this
    /// elsewhere.
    flexible: Vec<(usize, Partitioning)>,
}

impl Scaling {
    /// Of a graph whose flexible edges are not settled yet: they are as they would be between
    /// operators of different parallelism.
    pub fn new(declared: JobGraph, chosen: Vec<OperatorId>, flexible: &[usize]) -> Self {
        let unequal = |&at: &usize| (at, declared.edges[at].partitioning);
        Scaling {
            flexible: flexible.iter().map(unequal).collect(),
            chosen,
            declared,
        }
    }

    /// The parallelism that the job was written or started with, which operators follow unless
    /// theirs was chosen. `None` if no operator follows it.
    pub fn followed(&self) -> Option<u32> {
        let ids = self.declared.operator_ids().zip(&self.declared.operators);
        let mut follow = ids.filter(|(id, operator)| self.follows(*id, operator.role));
        follow.next().map(|(_, operator)| operator.parallelism)
    }

    fn follows(&self, id: OperatorId, role: OperatorRole) -> bool {
        role != OperatorRole::Enumerator && !self.chosen.contains(&id)
    }

    /// Gives `graph`, which is that of the job at any scale, another scale. Key groups stay.
    pub fn apply(&self, graph: &JobGraph, scale: Scale) -> JobGraph {
        let mut graph = graph.clone();
        for (id, declared) in graph.operator_ids().zip(&self.declared.operators) {
            let follows = self.follows(id, declared.role);
            let followed = scale.parallelism.filter(|_| follows);
            let parallelism = followed.unwrap_or(declared.parallelism);
            let most = scale.at_most.unwrap_or(u32::MAX);
            graph.operators[id.0 as usize].parallelism = parallelism.min(most).max(1);
        }
        for &(at, otherwise) in &self.flexible {
            let edge = graph.edges[at];
            let [from, to] = [edge.from, edge.to].map(|id| graph.operator(id).parallelism);
            graph.edges[at].partitioning = match from == to {
                true => Partitioning::Forward,
                false => otherwise,
            };
        }
        graph
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Edge, OperatorSpec};
    use crate::{MaxParallelism, OperatorUid};

    const SOURCE: u32 = 3;
    const SINK: u32 = 2;

    /// Splits, a source that follows, and a sink whose parallelism was chosen.
    fn scaling() -> (Scaling, JobGraph) {
        let operator = |uid: &str, parallelism, role| OperatorSpec {
            uid: OperatorUid(uid.to_owned()),
            parallelism,
            max_parallelism: MaxParallelism::derive(parallelism),
            max_parallelism_derived: true,
            role,
        };
        let edge = |from, to| Edge {
            from: OperatorId(from),
            to: OperatorId(to),
            partitioning: Partitioning::Rebalance,
        };
        let graph = JobGraph {
            operators: vec![
                operator("splits", 1, OperatorRole::Enumerator),
                operator("source", SOURCE, OperatorRole::Reader),
                operator("sink", SINK, OperatorRole::Sink),
            ],
            edges: vec![edge(0, 1), edge(1, 2)],
        };
        let scaling = Scaling::new(graph.clone(), vec![OperatorId(2)], &[1]);
        (scaling, graph)
    }

    fn at(parallelism: Option<u32>, at_most: Option<u32>) -> (Vec<u32>, Partitioning) {
        let (scaling, graph) = scaling();
        let scale = Scale {
            parallelism,
            at_most,
        };
        let scaled = scaling.apply(&graph, scale);
        let back = scaling.apply(&scaled, Scale::default());
        assert_eq!(back, scaling.apply(&graph, Scale::default()));
        let parallelism = scaled.operators.iter().map(|op| op.parallelism);
        (parallelism.collect(), scaled.edges[1].partitioning)
    }

    #[test]
    fn what_was_chosen_stays_and_everything_else_follows() {
        let rebalance = Partitioning::Rebalance;
        assert_eq!(at(None, None), (vec![1, SOURCE, SINK], rebalance));
        assert_eq!(at(Some(5), None), (vec![1, 5, SINK], rebalance));
        assert_eq!(at(Some(1), None), (vec![1, 1, SINK], rebalance));
    }

    #[test]
    fn what_is_followed_is_what_the_job_was_started_with() {
        let (scaling, graph) = scaling();
        assert_eq!(scaling.followed(), Some(SOURCE));
        let all_chosen = Scaling::new(graph.clone(), vec![OperatorId(1), OperatorId(2)], &[]);
        assert_eq!(all_chosen.followed(), None);
        assert_eq!(Scaling::default().followed(), None);
    }

    #[test]
    fn a_bound_holds_for_all_and_raises_nobody() {
        let rebalance = Partitioning::Rebalance;
        assert_eq!(at(None, Some(1)), (vec![1, 1, 1], Partitioning::Forward));
        assert_eq!(at(None, Some(9)), (vec![1, SOURCE, SINK], rebalance));
        assert_eq!(at(Some(9), Some(4)), (vec![1, 4, SINK], rebalance));
    }

    #[test]
    fn edges_go_forward_where_both_sides_are_equal() {
        assert_eq!(
            at(Some(SINK), None),
            (vec![1, SINK, SINK], Partitioning::Forward)
        );
    }

    #[test]
    fn key_groups_are_those_of_the_graph() {
        let (scaling, mut graph) = scaling();
        graph.operators[1].max_parallelism = MaxParallelism::derive(300);
        let scale = Scale {
            parallelism: Some(7),
            at_most: None,
        };
        let scaled = scaling.apply(&graph, scale);
        let max = scaled.operators[1].max_parallelism;
        assert_eq!(max, MaxParallelism::derive(300));
    }
}

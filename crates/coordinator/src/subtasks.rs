//! The subtasks of a job in one row, so that whatever is kept for each of them is an array.
//!
//! A subtask's position is the number of subtasks of all operators before its own, plus its index.
//! Positions are those of one job graph and are never written down.

use std::ops::Range;

use tidegate_types::graph::JobGraph;
use tidegate_types::{OperatorId, OperatorUid, SubtaskId};

/// Where each subtask of a job graph has its place. Made once per job, shared by all checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubtaskTable {
    uids: Vec<OperatorUid>,
    /// Position of each operator's first subtask, and at the end the number of all subtasks.
    starts: Vec<usize>,
}

impl SubtaskTable {
    pub(crate) fn new(graph: &JobGraph) -> Self {
        let mut end = 0;
        let ends = graph.operators.iter().map(|operator| {
            end += operator.parallelism as usize;
            end
        });
        SubtaskTable {
            starts: std::iter::once(0).chain(ends).collect(),
            uids: graph.operators.iter().map(|op| op.uid.clone()).collect(),
        }
    }

    /// How many subtasks there are.
    pub(crate) fn count(&self) -> usize {
        *self.starts.last().expect("the end is always there")
    }

    /// The place of a subtask; `None` if it isn't one of the job. Takes constant time.
    pub(crate) fn position(&self, subtask: SubtaskId) -> Option<usize> {
        let operator = subtask.operator.0 as usize;
        let (start, end) = (*self.starts.get(operator)?, *self.starts.get(operator + 1)?);
        let position = start.checked_add(subtask.index as usize)?;
        (position < end).then_some(position)
    }

    /// The subtask with this place.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn subtask(&self, position: usize) -> SubtaskId {
        assert!(position < self.count(), "position {position} is taken");
        let operator = self.starts.partition_point(|start| *start <= position) - 1;
        SubtaskId {
            operator: OperatorId(operator as u32),
            index: (position - self.starts[operator]) as u32,
        }
    }

    /// Every operator's uid and the places of its subtasks, in graph order.
    pub(crate) fn operators(&self) -> impl Iterator<Item = (&OperatorUid, Range<usize>)> {
        let ranges = self.starts.windows(2).map(|pair| pair[0]..pair[1]);
        self.uids.iter().zip(ranges)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::MaxParallelism;
    use tidegate_types::graph::{OperatorRole, OperatorSpec};

    use super::*;

    fn table(parallelisms: &[u32]) -> (JobGraph, SubtaskTable) {
        let operator = |(index, parallelism): (usize, &u32)| OperatorSpec {
            uid: OperatorUid(format!("op{index}")),
            parallelism: *parallelism,
            max_parallelism: MaxParallelism::derive(*parallelism),
            max_parallelism_derived: true,
            role: OperatorRole::Transform,
        };
        let graph = JobGraph {
            operators: parallelisms.iter().enumerate().map(operator).collect(),
            edges: vec![],
        };
        let table = SubtaskTable::new(&graph);
        (graph, table)
    }

    #[test]
    fn positions_follow_the_order_of_the_graph_and_lead_back() {
        let (graph, table) = table(&[1, 3, 2]);
        let subtasks = graph.subtasks();
        assert_eq!(table.count(), subtasks.len());
        for (position, subtask) in subtasks.into_iter().enumerate() {
            assert_eq!(table.position(subtask), Some(position));
            assert_eq!(table.subtask(position), subtask);
        }
        let ranges: Vec<_> = table.operators().map(|(_, range)| range).collect();
        assert_eq!(ranges, [0..1, 1..4, 4..6]);
    }

    // What another process sends is looked up, never taken for granted.
    #[test]
    fn strangers_have_no_position() {
        let (_, table) = table(&[1, 3]);
        for (operator, index) in [(0, 1), (1, 3), (2, 0), (u32::MAX, u32::MAX), (1, u32::MAX)] {
            let operator = OperatorId(operator);
            assert_eq!(table.position(SubtaskId { operator, index }), None);
        }
        assert_eq!(self::table(&[]).1.count(), 0);
    }
}

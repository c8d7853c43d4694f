//! The subtasks of a job in one row, so that whatever is kept for each of them is an array.
//!
//! A subtask's position is the number of subtasks of all operators before its own, plus its index.
//! Positions are those of one job graph and are never written down.
//!
//! What subtasks hand in is large and comes in any order. [`Arrivals`] appends it, so that taking
//! something in touches memory that is in the cache, also with 100 000 subtasks; only a small
//! number goes to the subtask's own place.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

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

/// Some subtasks: a bit for each of the job, and those that the job doesn't know by themselves.
#[derive(Clone, Debug)]
pub(crate) struct SubtaskSet {
    table: Arc<SubtaskTable>,
    bits: Vec<u64>,
    strangers: BTreeSet<SubtaskId>,
}

impl SubtaskSet {
    /// None.
    pub(crate) fn new(table: Arc<SubtaskTable>) -> Self {
        SubtaskSet {
            bits: vec![0; table.count().div_ceil(64)],
            table,
            strangers: BTreeSet::new(),
        }
    }

    /// Adds one; false if it was there. Takes constant time for subtasks of the job.
    pub(crate) fn insert(&mut self, subtask: SubtaskId) -> bool {
        let Some(position) = self.table.position(subtask) else {
            return self.strangers.insert(subtask);
        };
        let (word, bit) = (&mut self.bits[position / 64], 1 << (position % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

impl Extend<SubtaskId> for SubtaskSet {
    fn extend<I: IntoIterator<Item = SubtaskId>>(&mut self, subtasks: I) {
        for subtask in subtasks {
            self.insert(subtask);
        }
    }
}

/// In place of a number: nothing has come yet.
const MISSING: u32 = u32::MAX;

/// At most one value for each position. Two allocations, made at once.
///
/// Invariant: the numbers that are not `MISSING` are those of all values, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrivals<T> {
    /// By position, the number of its value.
    numbers: Vec<u32>,
    /// In order of arrival.
    values: Vec<T>,
}

impl<T> Arrivals<T> {
    /// Nothing yet for any of `count` positions.
    pub(crate) fn new(count: usize) -> Self {
        assert!(count < MISSING as usize, "{count} subtasks can be numbered");
        Arrivals {
            numbers: vec![MISSING; count],
            values: Vec::with_capacity(count),
        }
    }

    /// How many positions there are.
    pub(crate) fn positions(&self) -> usize {
        self.numbers.len()
    }

    /// How many of them have no value.
    pub(crate) fn missing(&self) -> usize {
        self.numbers.len() - self.values.len()
    }

    /// Takes in a value unless the position has one. Takes constant time.
    ///
    /// # Panics
    /// If there is no such position.
    pub(crate) fn insert(&mut self, position: usize, value: T) -> bool {
        let number = &mut self.numbers[position];
        if *number != MISSING {
            return false;
        }
        *number = self.values.len() as u32;
        self.values.push(value);
        true
    }

    /// The values of some positions, in order of positions.
    ///
    /// # Panics
    /// If there are no such positions.
    pub(crate) fn range(&self, positions: Range<usize>) -> ArrivalsOf<'_, T> {
        ArrivalsOf {
            numbers: &self.numbers[positions],
            values: &self.values,
        }
    }

    /// The values of all positions.
    pub(crate) fn all(&self) -> ArrivalsOf<'_, T> {
        self.range(0..self.positions())
    }

    /// The values in order of positions; there must be one for each.
    pub(crate) fn into_ordered(mut self) -> impl Iterator<Item = T>
    where
        T: Default,
    {
        let numbers = self.numbers.into_iter();
        numbers.map(move |number| std::mem::take(&mut self.values[number as usize]))
    }
}

/// The values of adjacent positions.
#[derive(Debug)]
pub(crate) struct ArrivalsOf<'a, T> {
    numbers: &'a [u32],
    values: &'a [T],
}

impl<T> Clone for ArrivalsOf<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ArrivalsOf<'_, T> {}

impl<'a, T> ArrivalsOf<'a, T> {
    /// By position; `None` where nothing has come.
    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = Option<&'a T>> + 'a {
        let values = self.values;
        self.numbers
            .iter()
            .map(|number| values.get(*number as usize))
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

    #[test]
    fn arrivals_are_found_by_position_and_counted_once() {
        let mut arrivals = Arrivals::new(3);
        assert!(arrivals.insert(2, "c") && arrivals.insert(0, "a"));
        assert!(!arrivals.insert(2, "other"));
        assert_eq!((arrivals.positions(), arrivals.missing()), (3, 1));
        let all: Vec<_> = arrivals.all().iter().collect();
        assert_eq!(all, [Some(&"a"), None, Some(&"c")]);
        assert_eq!(arrivals.range(1..3).iter().flatten().count(), 1);
        assert!(arrivals.insert(1, "b"));
        assert_eq!(arrivals.into_ordered().collect::<String>(), "abc");
    }
}

//! Counters that anyone may read while the job runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_types::SubtaskId;
use tidegate_types::graph::JobGraph;

#[derive(Debug, Default)]
struct Counters {
    records_in: AtomicU64,
    records_out: AtomicU64,
}

/// Record counts of every subtask of one attempt. Cheap to clone; clones share the counters.
#[derive(Clone, Debug)]
pub struct AttemptMetrics {
    /// By operator, by subtask index.
    operators: Arc<Vec<Vec<Arc<Counters>>>>,
}

impl AttemptMetrics {
    /// All zero, for the subtasks of `graph`.
    pub fn new(graph: &JobGraph) -> Self {
        let counters = |op: &tidegate_types::graph::OperatorSpec| {
            (0..op.parallelism)
                .map(|_| Arc::new(Counters::default()))
                .collect()
        };
        AttemptMetrics {
            operators: Arc::new(graph.operators.iter().map(counters).collect()),
        }
    }

    /// Records that a subtask has taken in this attempt.
    pub fn records_in(&self, subtask: SubtaskId) -> u64 {
        self.counters(subtask).records_in.load(Ordering::Relaxed)
    }

    /// Records that a subtask has emitted in this attempt.
    pub fn records_out(&self, subtask: SubtaskId) -> u64 {
        self.counters(subtask).records_out.load(Ordering::Relaxed)
    }

    fn counters(&self, subtask: SubtaskId) -> &Arc<Counters> {
        &self.operators[subtask.operator.0 as usize][subtask.index as usize]
    }

    pub(crate) fn of(&self, subtask: SubtaskId) -> SubtaskMetrics {
        SubtaskMetrics {
            counters: Arc::clone(self.counters(subtask)),
        }
    }
}

/// One subtask's own counters.
pub(crate) struct SubtaskMetrics {
    counters: Arc<Counters>,
}

impl SubtaskMetrics {
    pub(crate) fn update(&self, records_in: u64, records_out: u64) {
        self.counters
            .records_in
            .store(records_in, Ordering::Relaxed);
        self.counters
            .records_out
            .store(records_out, Ordering::Relaxed);
    }
}

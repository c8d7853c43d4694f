//! The most recent checkpoints, in bounded memory.
//!
//! Whatever is under way is listed; of what has ended, the newest few. Entries are behind
//! reference counts: a picture of the history shares them, and an entry that changes afterwards is
//! copied first.
//!
//! Invariants: ids ascend; entries that have ended ≤ size.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_types::CheckpointId;

use super::checkpoint::CheckpointStatistics;

/// Checkpoints by id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct History {
    size: usize,
    /// Ascending by id.
    entries: VecDeque<Arc<CheckpointStatistics>>,
}

impl History {
    pub(super) fn new(size: usize) -> Self {
        let entries = VecDeque::new();
        History { size, entries }
    }

    pub(super) fn newest_first(
        &self,
    ) -> impl DoubleEndedIterator<Item = &Arc<CheckpointStatistics>> {
        self.entries.iter().rev()
    }

    pub(super) fn get(&self, checkpoint: CheckpointId) -> Option<&Arc<CheckpointStatistics>> {
        let index = self.index(checkpoint)?;
        Some(&self.entries[index])
    }

    pub(super) fn get_mut(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Option<&mut CheckpointStatistics> {
        let index = self.index(checkpoint)?;
        Some(Arc::make_mut(&mut self.entries[index]))
    }

    fn index(&self, checkpoint: CheckpointId) -> Option<usize> {
        let id = |entry: &Arc<CheckpointStatistics>| entry.checkpoint;
        self.entries.binary_search_by_key(&checkpoint, id).ok()
    }

    /// Lists a checkpoint that has just been triggered: its id is above all others.
    pub(super) fn begin(&mut self, entry: CheckpointStatistics) {
        self.entries.push_back(Arc::new(entry));
    }

    /// Lets `change` note how a checkpoint ended, and forgets the oldest if there are too many.
    pub(super) fn end(
        &mut self,
        checkpoint: CheckpointId,
        change: impl FnOnce(&mut CheckpointStatistics),
    ) {
        if let Some(entry) = self.get_mut(checkpoint) {
            change(entry);
        }
        let ended = |entry: &Arc<CheckpointStatistics>| !entry.is_in_progress();
        if self.entries.iter().filter(|entry| ended(entry)).count() > self.size
            && let Some(oldest) = self.entries.iter().position(ended)
        {
            self.entries.remove(oldest);
        }
    }

    pub(super) fn check_invariants(&self, in_progress: u64) {
        let ids = self.entries.iter().map(|entry| entry.checkpoint);
        assert!(ids.is_sorted_by(|a, b| a < b), "ids ascend");
        let under_way = self.entries.iter().filter(|entry| entry.is_in_progress());
        let under_way = under_way.count();
        assert_eq!(under_way as u64, in_progress, "what is under way is listed");
        assert!(self.entries.len() - under_way <= self.size, "it is bounded");
    }
}

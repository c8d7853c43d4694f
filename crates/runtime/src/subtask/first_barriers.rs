//! What is measured when the first barrier of a checkpoint reaches a subtask, kept until the last
//! one does.
//!
//! Invariant: ids grow, and every one noted is one that alignment has not yet decided.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_types::{CheckpointBarrier, CheckpointId, UnixMillis};

#[derive(Debug)]
struct First {
    checkpoint: CheckpointId,
    start_delay: Duration,
    /// Bytes of records that the subtask had processed by then.
    bytes_before: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct FirstBarriers(VecDeque<First>);

/// From a trigger to this moment, by wall clocks, which may disagree between machines.
pub(super) fn start_delay(barrier: &CheckpointBarrier, now: UnixMillis) -> Duration {
    Duration::from_millis(now.0.saturating_sub(barrier.created.0))
}

impl FirstBarriers {
    /// Takes note of a barrier, unless it is not the first of its checkpoint. `bytes` is what the
    /// subtask has processed so far.
    pub(super) fn note(&mut self, barrier: &CheckpointBarrier, now: UnixMillis, bytes: u64) {
        let checkpoint = barrier.checkpoint;
        if self
            .0
            .back()
            .is_some_and(|last| last.checkpoint >= checkpoint)
        {
            return;
        }
        self.0.push_back(First {
            checkpoint,
            start_delay: start_delay(barrier, now),
            bytes_before: bytes,
        });
    }

    /// The last barrier has come: returns the delay of the first and the bytes processed since.
    /// What is older won't complete.
    pub(super) fn on_last(&mut self, checkpoint: CheckpointId, bytes: u64) -> (Duration, u64) {
        while self
            .0
            .front()
            .is_some_and(|first| first.checkpoint < checkpoint)
        {
            self.0.pop_front();
        }
        let first = self.0.pop_front_if(|first| first.checkpoint == checkpoint);
        let first = first.expect("noted before alignment saw it");
        (first.start_delay, bytes - first.bytes_before)
    }

    pub(super) fn on_aborted(&mut self, checkpoint: CheckpointId) {
        self.0.retain(|first| first.checkpoint != checkpoint);
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::{SnapshotFormat, SnapshotKind};

    use super::*;

    fn barrier(id: u64) -> CheckpointBarrier {
        CheckpointBarrier {
            checkpoint: CheckpointId(id),
            kind: SnapshotKind::Checkpoint,
            format: SnapshotFormat::Full,
            base: None,
            location: None,
            created: UnixMillis(1000),
        }
    }

    // AL-06
    #[test]
    fn delay_and_bytes_are_those_of_the_first_barrier() {
        let mut firsts = FirstBarriers::default();
        firsts.note(&barrier(1), UnixMillis(1250), 100);
        firsts.note(&barrier(1), UnixMillis(9999), 900);
        let expected = (Duration::from_millis(250), 950);
        assert_eq!(firsts.on_last(CheckpointId(1), 1050), expected);
    }

    // A sender's clock that is ahead must not make a delay of centuries.
    #[test]
    fn a_delay_is_never_negative() {
        assert_eq!(start_delay(&barrier(1), UnixMillis(400)), Duration::ZERO);
    }

    // Counting mode tracks several at once, and drops or aborts some of them.
    #[test]
    fn nothing_is_left_of_what_was_dropped() {
        let mut firsts = FirstBarriers::default();
        for id in 1..=4 {
            firsts.note(&barrier(id), UnixMillis(1000 + id), id);
        }
        firsts.on_aborted(CheckpointId(4));
        assert_eq!(
            firsts.on_last(CheckpointId(2), 10),
            (Duration::from_millis(2), 8)
        );
        assert_eq!(firsts.0.len(), 1);
        assert_eq!(
            firsts.on_last(CheckpointId(3), 10),
            (Duration::from_millis(3), 7)
        );
        assert!(firsts.0.is_empty());
    }
}

//! The snapshots that a subtask has taken in this attempt and that are not yet decided, as far as
//! it knows: which notices concern it, and which writing to stop.
//!
//! A notice of completion says something about this subtask's transactions only if it took that
//! snapshot. Nobody tells a subtask what became of a plain savepoint, so that is forgotten once it
//! is written. Frozen state that waits to be written is kept here, not with the writer, who may be
//! stuck: it goes as soon as nobody wants it. Invariants: ids grow; at most [`TAKEN_MAX`] are kept.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_types::{CheckpointId, SnapshotKind};

use crate::chains::KeyedSnapshot;

/// Snapshots that a subtask remembers at most; older ones have long been decided.
const TAKEN_MAX: usize = 256;

#[derive(Debug, Default)]
struct State {
    cancelled: AtomicBool,
    over: AtomicBool,
    /// What is to be written, until the writer gets to it.
    waiting: Mutex<Option<KeyedSnapshot>>,
}

impl State {
    fn waiting(&self) -> MutexGuard<'_, Option<KeyedSnapshot>> {
        // A panic while it was locked can have left nothing half done.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer's end: whether anybody still wants the snapshot. Dropped when the writing is over,
/// whatever came of it.
#[derive(Debug)]
pub(crate) struct SnapshotWrite(Arc<State>);

impl SnapshotWrite {
    /// Whether nobody wants the snapshot any more.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Relaxed)
    }

    /// Keeps what is to be written, as long as it is wanted.
    pub(crate) fn hold(&self, keyed: KeyedSnapshot) {
        *self.0.waiting() = Some(keyed);
    }

    /// What was kept; nothing if it [was cancelled](Self::is_cancelled).
    pub(crate) fn take(&self) -> Option<KeyedSnapshot> {
        self.0.waiting().take()
    }
}

impl Drop for SnapshotWrite {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Taken {
    checkpoint: CheckpointId,
    kind: SnapshotKind,
    state: Arc<State>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct TakenSnapshots {
    taken: VecDeque<Taken>,
    /// Not asked for yet by [`take_cancelled`](Self::take_cancelled).
    cancelled: Vec<CheckpointId>,
}

impl TakenSnapshots {
    /// Remembers a snapshot that is about to be written.
    pub(crate) fn insert(&mut self, checkpoint: CheckpointId, kind: SnapshotKind) -> SnapshotWrite {
        debug_assert!(
            self.taken
                .back()
                .is_none_or(|last| last.checkpoint < checkpoint)
        );
        self.forget_written_savepoints();
        if self.taken.len() == TAKEN_MAX {
            self.taken.pop_front();
        }
        let state = Arc::new(State::default());
        self.taken.push_back(Taken {
            checkpoint,
            kind,
            state: Arc::clone(&state),
        });
        SnapshotWrite(state)
    }

    /// Takes note that a checkpoint is durable, and stops the writing of what it subsumes. Returns
    /// whether this subtask took it and did not know yet: only then may it commit.
    pub(crate) fn on_completed(&mut self, checkpoint: CheckpointId) -> bool {
        let known = self
            .taken
            .iter()
            .any(|taken| taken.checkpoint == checkpoint);
        if known {
            self.taken.retain(|taken| taken.checkpoint != checkpoint);
            self.forget_before(checkpoint);
        }
        known
    }

    /// Stops the writing of an aborted snapshot. What is older than `latest_completed` is subsumed,
    /// should the notice of that have been missed.
    pub(crate) fn on_aborted(&mut self, checkpoint: CheckpointId, latest_completed: CheckpointId) {
        self.cancel_where(|taken| taken.checkpoint == checkpoint);
        self.forget_before(latest_completed);
    }

    /// Stops all writing.
    pub(crate) fn cancel_all(&mut self) {
        self.cancel_where(|_| true);
    }

    /// A completed checkpoint subsumes all older ones but savepoints, which live on their own. What
    /// they pre-committed is part of the completed one.
    fn forget_before(&mut self, checkpoint: CheckpointId) {
        self.cancel_where(|taken| taken.checkpoint < checkpoint && !taken.kind.is_savepoint());
        self.forget_written_savepoints();
    }

    /// The snapshots that have been cancelled since the last call.
    pub(crate) fn take_cancelled(&mut self) -> Vec<CheckpointId> {
        std::mem::take(&mut self.cancelled)
    }

    fn cancel_where(&mut self, unwanted: impl Fn(&Taken) -> bool) {
        self.taken.retain(|taken| {
            let unwanted = unwanted(taken);
            if unwanted {
                // Ordering: a writer that finds nothing to write must know why.
                taken.state.cancelled.store(true, Ordering::Relaxed);
                taken.state.waiting().take();
                self.cancelled.push(taken.checkpoint);
            }
            !unwanted
        });
    }

    fn forget_written_savepoints(&mut self) {
        self.taken.retain(|taken| {
            let heard_of_again = taken.kind.commits();
            heard_of_again || !taken.state.over.load(Ordering::Relaxed)
        });
    }

    #[cfg(test)]
    fn ids(&self) -> Vec<u64> {
        self.taken.iter().map(|taken| taken.checkpoint.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SnapshotKind::{Checkpoint, Savepoint, StopWithSavepoint};

    fn taken(snapshots: &[(u64, SnapshotKind)]) -> (TakenSnapshots, Vec<SnapshotWrite>) {
        let mut taken = TakenSnapshots::default();
        let insert = |(id, kind): &(u64, SnapshotKind)| taken.insert(CheckpointId(*id), *kind);
        let writes = snapshots.iter().map(insert).collect();
        (taken, writes)
    }

    // SC-13
    #[test]
    fn only_what_was_taken_is_completed_and_only_once() {
        let (mut taken, writes) = taken(&[(4, Checkpoint), (6, Checkpoint), (7, Checkpoint)]);
        assert!(!taken.on_completed(CheckpointId(5)));
        assert_eq!(taken.ids(), [4, 6, 7], "an unknown id settles nothing");
        assert!(taken.on_completed(CheckpointId(6)));
        assert_eq!(taken.ids(), [7]);
        let cancelled: Vec<_> = writes.iter().map(SnapshotWrite::is_cancelled).collect();
        assert_eq!(cancelled, [true, false, false], "4 is subsumed");
        assert!(!taken.on_completed(CheckpointId(6)));
        assert!(!taken.on_completed(CheckpointId(4)));
    }

    // SC-02
    #[test]
    fn an_abort_stops_the_writing_of_that_snapshot_alone() {
        let (mut taken, writes) = taken(&[(1, Checkpoint), (2, Checkpoint)]);
        taken.on_aborted(CheckpointId(1), CheckpointId::NONE);
        assert_eq!(taken.ids(), [2]);
        let cancelled: Vec<_> = writes.iter().map(SnapshotWrite::is_cancelled).collect();
        assert_eq!(cancelled, [true, false]);
        assert_eq!(taken.take_cancelled(), [CheckpointId(1)]);
        assert_eq!(taken.take_cancelled(), []);
        taken.cancel_all();
        assert!(writes[1].is_cancelled());
    }

    // The notice of 3 was missed: it commits nothing, and what is older is settled all the same.
    #[test]
    fn an_abort_tells_of_a_missed_completion() {
        let (mut taken, writes) = taken(&[
            (1, Checkpoint),
            (2, Savepoint),
            (3, Checkpoint),
            (4, Checkpoint),
            (5, Checkpoint),
        ]);
        taken.on_aborted(CheckpointId(5), CheckpointId(3));
        assert_eq!(taken.ids(), [2, 3, 4]);
        let cancelled: Vec<_> = writes.iter().map(SnapshotWrite::is_cancelled).collect();
        assert_eq!(cancelled, [true, false, false, false, true]);
        assert!(taken.on_completed(CheckpointId(3)), "should it come late");
    }

    // A savepoint under way outlives newer checkpoints, and can be aborted after them.
    #[test]
    fn savepoints_are_not_settled_by_checkpoints() {
        let stop = StopWithSavepoint { drain: false };
        let (mut taken, writes) = taken(&[(1, Savepoint), (2, stop), (3, Checkpoint)]);
        assert!(taken.on_completed(CheckpointId(3)));
        assert_eq!(taken.ids(), [1, 2]);
        assert!(!writes[0].is_cancelled());
        taken.on_aborted(CheckpointId(1), CheckpointId(3));
        assert!(writes[0].is_cancelled());
        assert!(taken.on_completed(CheckpointId(2)));
    }

    // There is never a notice that a plain savepoint is complete.
    #[test]
    fn savepoints_are_forgotten_once_they_are_written() {
        let (mut taken, mut writes) = taken(&[(1, Checkpoint), (2, Savepoint)]);
        for id in 3..10_000 {
            drop(writes.pop());
            writes.push(taken.insert(CheckpointId(id), Savepoint));
        }
        assert_eq!(taken.ids(), [1, 9_999], "the checkpoint isn't crowded out");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut taken, mut writes) = taken(&[]);
        for id in 1..=300 {
            writes.push(taken.insert(CheckpointId(id), Checkpoint));
        }
        assert_eq!(taken.taken.len(), TAKEN_MAX);
        assert!(!taken.on_completed(CheckpointId(44)));
        assert!(taken.on_completed(CheckpointId(45)));
    }
}

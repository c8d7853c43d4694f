//! Requests for snapshots that wait for their turn.
//!
//! Savepoints come first, then checkpoints, each in the order in which they were asked for. The
//! queue is bounded, and what waits in it was asked for by somebody: a newcomer is turned away
//! rather than anybody evicted (Flink's `CheckpointRequestDecider`). Periodic checkpoints don't
//! wait here; they come due again anyway.

use std::collections::VecDeque;

use tidegate_types::{Millis, SnapshotFormat, SnapshotKind, SnapshotLocation};

use crate::request::RequestId;

/// How many requests may wait.
const QUEUED_MAX: usize = 1000;

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    /// Who asked; `None` if the job itself did.
    pub(crate) request: Option<RequestId>,
    pub(crate) kind: SnapshotKind,
    pub(crate) format: SnapshotFormat,
    /// The folder to make a savepoint in; `None` for checkpoints.
    pub(crate) directory: Option<SnapshotLocation>,
    /// When it has waited too long.
    pub(crate) deadline: Millis,
}

/// Requests in the order in which they get their turns.
#[derive(Debug, Default)]
pub(crate) struct RequestQueue {
    savepoints: VecDeque<Queued>,
    checkpoints: VecDeque<Queued>,
}

impl RequestQueue {
    /// Whether one more request may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < QUEUED_MAX
    }

    /// Queues a request behind those that go before it.
    ///
    /// # Panics
    /// If there is no room.
    pub(crate) fn push(&mut self, queued: Queued) {
        assert!(self.has_room(), "nobody who waits is evicted");
        match queued.kind.is_savepoint() {
            true => self.savepoints.push_back(queued),
            false => self.checkpoints.push_back(queued),
        }
    }

    /// Whose turn it is. Only savepoints are exempt from the limits that `has_room` stands for.
    pub(crate) fn first(&self, has_room: bool) -> Option<&Queued> {
        let checkpoint = self.checkpoints.front().filter(|_| has_room);
        self.savepoints.front().or(checkpoint)
    }

    /// Takes out what [`first`](Self::first) returns.
    pub(crate) fn pop(&mut self, has_room: bool) -> Option<Queued> {
        match self.savepoints.pop_front() {
            None if has_room => self.checkpoints.pop_front(),
            savepoint => savepoint,
        }
    }

    /// Takes out all that have waited too long.
    pub(crate) fn expire(&mut self, now: Millis) -> Vec<RequestId> {
        let mut expired = Vec::new();
        for queue in [&mut self.savepoints, &mut self.checkpoints] {
            queue.retain(|queued| {
                let waits_on = queued.deadline > now;
                if !waits_on {
                    expired.extend(queued.request);
                }
                waits_on
            });
        }
        expired
    }

    /// Takes out everything.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = RequestId> + use<> {
        let RequestQueue {
            savepoints,
            checkpoints,
        } = std::mem::take(self);
        let queued = savepoints.into_iter().chain(checkpoints);
        queued.filter_map(|queued| queued.request)
    }

    /// Whether a savepoint waits.
    pub(crate) fn has_savepoints(&self) -> bool {
        !self.savepoints.is_empty()
    }

    /// Takes out what the job itself has asked for.
    pub(crate) fn withdraw_own(&mut self) {
        self.checkpoints.retain(|queued| queued.request.is_some());
    }

    /// Whether a stop waits.
    pub(crate) fn stops(&self) -> bool {
        self.savepoints.iter().any(|queued| queued.kind.stops())
    }

    /// When the next one has waited too long. All wait equally long, so the oldest come first.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        let heads = [self.savepoints.front(), self.checkpoints.front()];
        heads.into_iter().flatten().map(|head| head.deadline).min()
    }

    pub(crate) fn len(&self) -> usize {
        self.savepoints.len() + self.checkpoints.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(request: u64, kind: SnapshotKind) -> Queued {
        Queued {
            request: Some(RequestId(request)),
            kind,
            format: SnapshotFormat::Full,
            directory: None,
            deadline: Millis(100 + request),
        }
    }

    fn filled(kinds: &[SnapshotKind]) -> RequestQueue {
        let mut queue = RequestQueue::default();
        for (request, kind) in (1..).zip(kinds) {
            queue.push(queued(request, *kind));
        }
        queue
    }

    const CHECKPOINT: SnapshotKind = SnapshotKind::Checkpoint;
    const SAVEPOINT: SnapshotKind = SnapshotKind::Savepoint;
    const STOP: SnapshotKind = SnapshotKind::StopWithSavepoint { drain: false };

    fn turns(mut queue: RequestQueue, has_room: bool) -> Vec<u64> {
        let mut turns = Vec::new();
        while let Some(first) = queue.first(has_room).cloned() {
            assert_eq!(queue.pop(has_room), Some(first.clone()));
            turns.extend(first.request.map(|request| request.0));
        }
        assert_eq!(queue.pop(has_room), None);
        turns
    }

    // RD-06, RD-13, D4
    #[test]
    fn savepoints_go_first_and_older_before_newer() {
        let kinds = [CHECKPOINT, SAVEPOINT, CHECKPOINT, STOP];
        assert_eq!(turns(filled(&kinds), true), [2, 4, 1, 3]);
    }

    // RD-01, RD-02, D7
    #[test]
    fn without_room_only_savepoints_get_their_turn() {
        let kinds = [CHECKPOINT, SAVEPOINT, STOP];
        assert_eq!(turns(filled(&kinds), false), [2, 3]);
    }

    // RD-09
    #[test]
    fn a_full_queue_has_no_room_until_somebody_has_had_a_turn() {
        let mut queue = filled(&[CHECKPOINT; QUEUED_MAX]);
        assert!(!queue.has_room());
        assert_eq!(queue.len(), QUEUED_MAX);
        queue.pop(true);
        assert!(queue.has_room());
    }

    #[test]
    fn who_waits_too_long_is_taken_out() {
        let mut queue = filled(&[CHECKPOINT, SAVEPOINT, CHECKPOINT]);
        assert_eq!(queue.deadline(), Some(Millis(101)));
        assert_eq!(queue.expire(Millis(100)), []);
        assert_eq!(queue.expire(Millis(102)), [RequestId(2), RequestId(1)]);
        assert_eq!(queue.deadline(), Some(Millis(103)));
        assert!(!queue.stops());
        assert_eq!(queue.drain().collect::<Vec<_>>(), [RequestId(3)]);
        assert_eq!((queue.len(), queue.deadline()), (0, None));
    }

    #[test]
    fn a_waiting_stop_is_seen() {
        assert!(filled(&[CHECKPOINT, SAVEPOINT, STOP]).stops());
    }
}

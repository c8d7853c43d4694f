//! Alignment: when does a subtask with several input channels snapshot, and which channels must
//! wait until it has?
//!
//! Every channel delivers the barrier of checkpoint *n* after all data that belongs before it. A
//! subtask takes its snapshot once the barrier has arrived on every channel. In exactly-once mode
//! a channel that has delivered it is *blocked* meanwhile: the caller leaves its queue alone, so no
//! record from behind the barrier gets into the snapshot. In at-least-once mode barriers are only
//! counted. The algorithm is asynchronous barrier snapshotting (Carbone et al., "Lightweight
//! Asynchronous Snapshots for Distributed Dataflows", 2015); behaviour at the edges follows
//! Flink's `SingleCheckpointBarrierHandler` and `CheckpointBarrierTracker`.
//!
//! [`Alignment`] performs no IO and reads no clock. The caller feeds it each control item as it
//! reaches the *head* of a channel's queue, never one of a blocked channel, and performs the
//! [`AlignmentAction`]s before it touches the next item. A blocked channel keeps the barrier of
//! the next checkpoint in its queue, so several checkpoints may be in flight, and a barrier newer
//! than the one being aligned is seen only if the channel's upstream has skipped the older one.
//!
//! Invariants:
//! - snapshotted ids strictly grow; every id is snapshotted or aborted at most once, never both;
//! - pending ids grow from front to back and are ≤ [`latest`](Alignment::latest); at most 1 is
//!   pending in exactly-once mode, at most [`TRACKED_MAX`] in at-least-once mode;
//! - a channel is blocked ⇔ the pending checkpoint is exactly-once and its barrier has arrived
//!   there; a pending checkpoint always waits for an open, unblocked channel, hence no deadlock;
//! - aborts remembered ahead of their barriers are > `latest` and at most
//!   [`EARLY_ABORTS_MAX`].
//!
//! It doesn't know what a record is, how queues are held, or what a snapshot costs. Unaligned
//! checkpoints fit in as a third mode that acts on the first barrier: a pending entry already
//! records on which channels the barrier is still outstanding, which is exactly where channel
//! state must be captured.

mod early_aborts;
#[cfg(test)]
mod harness;
mod pending;
#[cfg(test)]
mod properties;
mod stream_corrupt;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tidegate_types::message::DeclineReason;
use tidegate_types::{AlignmentMode, CheckpointBarrier, CheckpointId};

use early_aborts::EarlyAborts;
use pending::Pending;

pub use early_aborts::EARLY_ABORTS_MAX;
pub use stream_corrupt::StreamCorrupt;

/// How many checkpoints at-least-once mode tracks at once; beyond that the oldest is aborted.
pub const TRACKED_MAX: usize = 50;

/// Number of an input channel of one subtask: (input port, origin subtask), flattened by whoever
/// builds the operator, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelIndex(pub u32);

impl ChannelIndex {
    /// Position of the channel in a slice that holds something per channel.
    #[inline]
    pub fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ChannelIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel-{}", self.0)
    }
}

/// What the subtask must do now, before it takes another item from any channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlignmentAction {
    /// Snapshot the state as it is, then forward the barrier to every output.
    Snapshot {
        /// The barrier, as its first channel delivered it.
        barrier: CheckpointBarrier,
        /// Time from the first channel's barrier to the last one's.
        alignment: Duration,
    },
    /// Decline the checkpoint to the coordinator and forward `Cancel(checkpoint)` to every output.
    /// Nothing was or will be snapshotted for it here.
    Abort {
        /// The checkpoint given up.
        checkpoint: CheckpointId,
        /// Why. [`CancelledUpstream`](DeclineReason::CancelledUpstream) also stands for a notice
        /// of the coordinator, which then ignores the decline.
        reason: DeclineReason,
    },
}

/// What is known of one channel.
#[derive(Debug)]
struct Channel {
    /// Checkpoint of the newest barrier it has delivered.
    latest_barrier: CheckpointId,
    /// Whether it will never deliver anything again.
    closed: bool,
}

/// Aligns the barriers of all input channels of one subtask; see the [module](self).
#[derive(Debug)]
pub struct Alignment {
    mode: AlignmentMode,
    channels: Vec<Channel>,
    /// Channels not closed.
    open_count: usize,
    /// Per channel, apart from `channels` so that the test on the hot path touches one byte.
    blocked: Vec<bool>,
    blocked_count: usize,
    /// Checkpoints of which some but not all barriers have arrived, oldest first.
    pending: VecDeque<Pending>,
    latest: CheckpointId,
    early_aborts: EarlyAborts,
}

impl Alignment {
    /// Starts with nothing pending and every channel open.
    pub fn new(mode: AlignmentMode, channels: u32) -> Self {
        let channel = || Channel {
            latest_barrier: CheckpointId::NONE,
            closed: false,
        };
        Self {
            mode,
            channels: (0..channels).map(|_| channel()).collect(),
            open_count: channels as usize,
            blocked: vec![false; channels as usize],
            blocked_count: 0,
            pending: VecDeque::new(),
            latest: CheckpointId::NONE,
            early_aborts: EarlyAborts::default(),
        }
    }

    /// Takes a barrier from the head of `channel`. `now` is monotonic since any fixed origin.
    ///
    /// A barrier of a checkpoint already snapshotted or aborted here is ignored.
    ///
    /// # Errors
    /// [`StreamCorrupt`], with nothing changed; fail the attempt.
    ///
    /// # Panics
    /// If the channel is blocked: its queue must be left alone.
    pub fn on_barrier(
        &mut self,
        channel: ChannelIndex,
        barrier: CheckpointBarrier,
        now: Duration,
        actions: &mut Vec<AlignmentAction>,
    ) -> Result<(), StreamCorrupt> {
        let checkpoint = barrier.checkpoint;
        let position = self.position_of(checkpoint);
        self.check_stream(channel, &barrier, position)?;
        self.assert_unblocked(channel);
        self.channels[channel.as_usize()].latest_barrier = checkpoint;
        match position {
            Some(position) => self.arrive(position, channel, now, actions),
            None if checkpoint > self.latest => self.start(channel, barrier, now, actions),
            None => {} // Trails a checkpoint that is already decided.
        }
        self.debug_check();
        Ok(())
    }

    /// Takes an in-band cancel marker from the head of `channel`: upstream there couldn't snapshot
    /// `checkpoint`, so it can't complete. Aborts it and what is pending before it, each once.
    ///
    /// # Panics
    /// If the channel is blocked.
    pub fn on_cancel(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
        actions: &mut Vec<AlignmentAction>,
    ) {
        self.assert_unblocked(channel);
        let is_pending = self.position_of(checkpoint).is_some();
        if !is_pending && checkpoint <= self.latest {
            return; // Already snapshotted or aborted.
        }
        self.abort_before(checkpoint, &DeclineReason::CancelledUpstream, actions);
        if is_pending {
            self.pending.pop_front();
            self.unblock_all();
        }
        self.advance_latest(checkpoint);
        actions.push(cancelled(checkpoint));
        self.debug_check();
    }

    /// Takes the coordinator's word, out of band, that `checkpoint` won't complete.
    ///
    /// Releases an alignment of it at once. If none of its barriers has arrived yet, the abort is
    /// remembered and carried out when the first one does.
    pub fn on_abort_notice(
        &mut self,
        checkpoint: CheckpointId,
        actions: &mut Vec<AlignmentAction>,
    ) {
        if let Some(position) = self.position_of(checkpoint) {
            self.pending.remove(position);
            self.unblock_all();
            actions.push(cancelled(checkpoint));
        } else if checkpoint > self.latest {
            self.early_aborts.insert(checkpoint);
        }
        self.debug_check();
    }

    /// Takes note that `channel` will never deliver anything again: it counts as having delivered
    /// every barrier. Of several checkpoints that this completes only the newest is snapshotted.
    ///
    /// The end of data is not this: an ended source stays and goes on delivering barriers.
    pub fn on_channel_closed(
        &mut self,
        channel: ChannelIndex,
        now: Duration,
        actions: &mut Vec<AlignmentAction>,
    ) {
        let state = &mut self.channels[channel.as_usize()];
        if state.closed {
            return;
        }
        state.closed = true;
        self.open_count -= 1;
        for position in (0..self.pending.len()).rev() {
            self.pending[position].arrive(channel);
            if self.pending[position].is_complete() {
                self.complete(position, now, actions);
                break;
            }
        }
        self.debug_check();
    }

    /// Whether the queue of `channel` must be left alone for now. O(1), one byte read.
    #[inline]
    pub fn is_blocked(&self, channel: ChannelIndex) -> bool {
        self.blocked[channel.as_usize()]
    }

    /// Whether any channel is blocked.
    #[inline]
    pub fn blocked_any(&self) -> bool {
        self.blocked_count > 0
    }

    /// The oldest pending checkpoint and the channels that still owe its barrier; for people who
    /// ask what a checkpoint is waiting for.
    pub fn waiting_for(&self) -> Option<(CheckpointId, Vec<ChannelIndex>)> {
        let pending = self.pending.front()?;
        Some((pending.checkpoint(), pending.outstanding().collect()))
    }

    /// The newest checkpoint that was started, snapshotted or aborted here;
    /// [`CheckpointId::NONE`] before the first.
    pub fn latest(&self) -> CheckpointId {
        self.latest
    }

    fn check_stream(
        &self,
        channel: ChannelIndex,
        barrier: &CheckpointBarrier,
        position: Option<usize>,
    ) -> Result<(), StreamCorrupt> {
        let checkpoint = barrier.checkpoint;
        let state = &self.channels[channel.as_usize()];
        let previous = state.latest_barrier;
        if state.closed {
            return Err(StreamCorrupt::AfterClose {
                channel,
                checkpoint,
            });
        }
        match checkpoint.cmp(&previous) {
            Ordering::Greater => {}
            Ordering::Equal => {
                return Err(StreamCorrupt::Repeated {
                    channel,
                    checkpoint,
                });
            }
            Ordering::Less => {
                return Err(StreamCorrupt::Backwards {
                    channel,
                    checkpoint,
                    previous,
                });
            }
        }
        let first_kind = position.map_or(barrier.kind, |at| self.pending[at].barrier.kind);
        if first_kind != barrier.kind {
            return Err(StreamCorrupt::KindMismatch {
                channel,
                checkpoint,
                kind: barrier.kind,
                first_kind,
            });
        }
        Ok(())
    }

    /// Handles the first barrier of a checkpoint newer than all before.
    fn start(
        &mut self,
        channel: ChannelIndex,
        barrier: CheckpointBarrier,
        now: Duration,
        actions: &mut Vec<AlignmentAction>,
    ) {
        let checkpoint = barrier.checkpoint;
        if self.mode == AlignmentMode::ExactlyOnce {
            let newer = checkpoint;
            self.abort_before(
                checkpoint,
                &DeclineReason::SubsumedByBarrier { newer },
                actions,
            );
        }
        let aborted = self.early_aborts.contains(checkpoint);
        self.advance_latest(checkpoint);
        if aborted {
            actions.push(cancelled(checkpoint));
        } else if self.open_count == 1 {
            // This channel is the only one that can deliver: nothing to wait for or to block.
            self.pending.clear();
            actions.push(AlignmentAction::Snapshot {
                barrier,
                alignment: Duration::ZERO,
            });
        } else {
            self.track(channel, barrier, now, actions);
        }
    }

    fn track(
        &mut self,
        channel: ChannelIndex,
        barrier: CheckpointBarrier,
        now: Duration,
        actions: &mut Vec<AlignmentAction>,
    ) {
        let closed = self.channels.iter().map(|state| state.closed);
        let newer = barrier.checkpoint;
        let mut pending = Pending::new(barrier, now, closed);
        pending.arrive(channel);
        self.pending.push_back(pending);
        self.block(channel);
        if self.pending.len() > TRACKED_MAX
            && let Some(oldest) = self.pending.pop_front()
        {
            actions.push(AlignmentAction::Abort {
                checkpoint: oldest.checkpoint(),
                reason: DeclineReason::SubsumedByBarrier { newer },
            });
        }
    }

    /// Counts a further barrier of a pending checkpoint.
    fn arrive(
        &mut self,
        position: usize,
        channel: ChannelIndex,
        now: Duration,
        actions: &mut Vec<AlignmentAction>,
    ) {
        self.pending[position].arrive(channel);
        if self.pending[position].is_complete() {
            self.complete(position, now, actions);
        } else {
            self.block(channel);
        }
    }

    /// Snapshots the checkpoint at `position`; older pending ones can't complete any more.
    fn complete(&mut self, position: usize, now: Duration, actions: &mut Vec<AlignmentAction>) {
        let completed = self.pending.drain(..=position).next_back();
        let completed = completed.expect("`position` is that of a pending checkpoint");
        self.unblock_all();
        actions.push(AlignmentAction::Snapshot {
            barrier: completed.barrier,
            alignment: now.saturating_sub(completed.first_arrival),
        });
    }

    fn abort_before(
        &mut self,
        checkpoint: CheckpointId,
        reason: &DeclineReason,
        actions: &mut Vec<AlignmentAction>,
    ) {
        while let Some(older) = self
            .pending
            .pop_front_if(|older| older.checkpoint() < checkpoint)
        {
            self.unblock_all();
            actions.push(AlignmentAction::Abort {
                checkpoint: older.checkpoint(),
                reason: reason.clone(),
            });
        }
    }

    fn advance_latest(&mut self, checkpoint: CheckpointId) {
        self.latest = self.latest.max(checkpoint);
        self.early_aborts.forget_up_to(self.latest);
    }

    fn position_of(&self, checkpoint: CheckpointId) -> Option<usize> {
        self.pending
            .iter()
            .position(|pending| pending.checkpoint() == checkpoint)
    }

    fn block(&mut self, channel: ChannelIndex) {
        if self.mode == AlignmentMode::ExactlyOnce {
            self.blocked[channel.as_usize()] = true;
            self.blocked_count += 1;
        }
    }

    fn unblock_all(&mut self) {
        if self.blocked_any() {
            self.blocked.fill(false);
            self.blocked_count = 0;
        }
    }

    fn assert_unblocked(&self, channel: ChannelIndex) {
        assert!(
            !self.is_blocked(channel),
            "an item was taken from `{channel}`, which waits for `{}`",
            self.latest
        );
    }

    fn debug_check(&self) {
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    /// Checks what the [module](self) promises. Called after every event in debug builds.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_invariants(&self) {
        let exactly_once = self.mode == AlignmentMode::ExactlyOnce;
        let pending_max = if exactly_once { 1 } else { TRACKED_MAX };
        assert!(self.pending.len() <= pending_max);
        assert!(self.pending.iter().is_sorted_by_key(Pending::checkpoint));
        for pending in &self.pending {
            assert!(pending.checkpoint() <= self.latest);
            pending.check_invariants();
            assert!(
                pending.outstanding().all(|channel| {
                    !self.channels[channel.as_usize()].closed && !self.is_blocked(channel)
                }),
                "`{}` waits for a channel that can't deliver",
                pending.checkpoint()
            );
        }
        for (index, blocked) in self.blocked.iter().enumerate() {
            let newest = self.channels[index].latest_barrier;
            let delivered = |pending: &Pending| newest == pending.checkpoint();
            assert_eq!(*blocked, exactly_once && self.pending.iter().any(delivered));
        }
        let blocked_count = self.blocked.iter().filter(|blocked| **blocked).count();
        assert_eq!(self.blocked_count, blocked_count);
        let open_count = self.channels.iter().filter(|state| !state.closed).count();
        assert_eq!(self.open_count, open_count);
        self.early_aborts.check_invariants(self.latest);
    }
}

fn cancelled(checkpoint: CheckpointId) -> AlignmentAction {
    AlignmentAction::Abort {
        checkpoint,
        reason: DeclineReason::CancelledUpstream,
    }
}

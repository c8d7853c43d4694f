//! One checkpoint of which some, but not all, barriers have arrived.
//!
//! Invariant: `outstanding_count` = number of channels not arrived; it is ≥ 1 while the entry is
//! kept between events.

use std::time::Duration;

use tidegate_types::{CheckpointBarrier, CheckpointId};

use super::ChannelIndex;

/// Where the barrier of a checkpoint has arrived so far.
#[derive(Debug)]
pub(super) struct Pending {
    /// The barrier as the first channel delivered it.
    pub(super) barrier: CheckpointBarrier,
    /// When that was.
    pub(super) first_arrival: Duration,
    arrived: Vec<bool>,
    outstanding_count: usize,
}

impl Pending {
    /// Starts with no barrier counted but those of closed channels. `closed` is per channel.
    pub(super) fn new(
        barrier: CheckpointBarrier,
        first_arrival: Duration,
        closed: impl Iterator<Item = bool>,
    ) -> Self {
        let arrived: Vec<bool> = closed.collect();
        let outstanding_count = arrived.iter().filter(|arrived| !**arrived).count();
        Self {
            barrier,
            first_arrival,
            arrived,
            outstanding_count,
        }
    }

    pub(super) fn checkpoint(&self) -> CheckpointId {
        self.barrier.checkpoint
    }

    /// Counts `channel`, once.
    pub(super) fn arrive(&mut self, channel: ChannelIndex) {
        let arrived = &mut self.arrived[channel.as_usize()];
        if !*arrived {
            *arrived = true;
            self.outstanding_count -= 1;
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.outstanding_count == 0
    }

    /// Channels that still owe the barrier.
    pub(super) fn outstanding(&self) -> impl Iterator<Item = ChannelIndex> {
        self.arrived
            .iter()
            .enumerate()
            .filter(|(_, arrived)| !**arrived)
            .map(|(index, _)| ChannelIndex(index as u32))
    }

    pub(super) fn check_invariants(&self) {
        assert_eq!(self.outstanding().count(), self.outstanding_count);
        assert!(!self.is_complete(), "complete, but kept as pending");
    }
}

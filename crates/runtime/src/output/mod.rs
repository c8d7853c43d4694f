//! The sending side of an operator: records are staged, routed to the receiving subtasks, batched
//! per subtask, and sent as far as the receivers' credit reaches.
//!
//! A record is staged in a small buffer that stays in the cache, and routed in a tight loop per
//! staged run: one dynamic call per run and edge, none per record. Batches leave when they are as
//! large as the channel's credit advises, when the operator has nothing more at hand, after the
//! buffer timeout, and before any marker. Markers need no credit, and the records that they take
//! along are sent on overdrawn credit if need be, which counts as if they still waited here.
//!
//! Invariants: what was emitted before a marker is sent before it, on every channel. Of an operator
//! that stops when the collector is full, no channel holds more than a window and a batch, beside
//! what was staged before fullness showed, whatever markers it sends.

#[cfg(test)]
pub(crate) mod by_hand;
mod by_tag;
mod event_time;
mod route;
mod side;
mod targets;
mod testing;
#[cfg(test)]
mod tests;
mod weigh;

pub(crate) use by_tag::{SideHandle, SideOutputs};
pub use by_tag::{SideOutputTypeError, UnknownSideOutputError};
pub use route::{
    Broadcast, ByKeyGroup, ByReference, ByValue, Forward, KeySelector, Rebalance, Route,
};
pub use side::SideCollector;
pub(crate) use side::{Side, SideOutput};
pub use targets::Targets;
pub(crate) use targets::{CreditMessage, Link, Wire};
pub(crate) use weigh::Weighing;

use tidegate_state::Record;
use tidegate_types::{CheckpointBarrier, CheckpointId, EventTime};

use crate::item::Marker;

use event_time::Said;
use side::Sides;
use weigh::{bytes_each, bytes_of};

/// A staged run is routed when it has this many records, or as many bytes as the smallest batch
/// that some receiver wants: what is staged has not yet been counted against anybody's window.
const STAGED_RECORDS_MAX: usize = 512;
/// No staged run is larger than this, in bytes, so that it stays in the cache.
const STAGED_BYTES_MAX: usize = 16 << 10;

/// One outgoing edge of a subtask.
pub(crate) struct EdgeOutput<T> {
    pub(crate) route: Box<dyn Route<T>>,
    pub(crate) targets: Targets<T>,
}

/// Takes the records that an operator emits.
///
/// Emitting never blocks and never fails. When [`is_full`](Self::is_full) says so, the operator
/// should return and leave its input alone; it is called again when there is room.
pub struct Collector<T> {
    edges: Vec<EdgeOutput<T>>,
    staged: Vec<T>,
    /// The run is routed when it has this many records,
    staged_records_max: usize,
    /// or, if they don't all weigh the same, when they have
    staged_bytes: usize,
    /// this many bytes.
    staged_bytes_max: usize,
    full: bool,
    emitted: u64,
    said: Said,
    sides: Sides,
    /// Where records go that are only to be looked at; see [`Collector::collecting`].
    kept: Option<testing::Kept<T>>,
}

impl<T: Record> Collector<T> {
    pub(crate) fn new(edges: Vec<EdgeOutput<T>>) -> Self {
        let mut collector = Collector {
            edges,
            staged: Vec::with_capacity(STAGED_RECORDS_MAX),
            staged_records_max: STAGED_RECORDS_MAX,
            staged_bytes: 0,
            staged_bytes_max: STAGED_BYTES_MAX,
            full: false,
            emitted: 0,
            said: Said::default(),
            sides: Sides::default(),
            kept: None,
        };
        collector.update_limits();
        collector
    }

    /// Sends `record` downstream, on every outgoing edge.
    #[inline]
    pub fn emit(&mut self, record: T) {
        let weighs_alike = bytes_each::<T>().is_some();
        self.staged.push(record);
        // Where it is now: to look into a record that is being moved takes it apart.
        if !weighs_alike && let Some(record) = self.staged.last() {
            self.staged_bytes += bytes_of(record);
        }
        if self.staged.len() >= self.staged_records_max
            || (!weighs_alike && self.staged_bytes >= self.staged_bytes_max)
        {
            self.route_staged();
        }
    }

    /// Emits records until there are none left or this collector [is full](Self::is_full), and
    /// returns how many; no further one is asked for then. As [`emit`](Self::emit) for each, but
    /// faster for types that own nothing on the heap: fullness, which shows when a run is routed,
    /// is looked at once per run.
    #[inline]
    pub fn emit_while_room(&mut self, records: impl IntoIterator<Item = T>) -> u64 {
        let mut records = records.into_iter();
        let mut emitted = 0;
        while !self.is_full() {
            if bytes_each::<T>().is_none() {
                // What it weighs is known only when it is there.
                let Some(record) = records.next() else { break };
                self.emit(record);
                emitted += 1;
                continue;
            }
            let before = self.staged.len();
            let room = self.staged_records_max.saturating_sub(before);
            self.staged.extend(records.by_ref().take(room));
            let taken = self.staged.len() - before;
            emitted += taken as u64;
            if taken < room {
                break;
            }
            self.route_staged();
        }
        emitted
    }

    /// Whether a receiver can't take more at the moment, of side outputs too. Checked after each
    /// record, it keeps an operator that makes many records of one from running far ahead.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.full || self.sides.any_full()
    }

    /// Records emitted since the attempt began.
    pub(crate) fn emitted(&self) -> u64 {
        self.emitted + self.staged.len() as u64 + self.sides.emitted()
    }

    #[inline(never)]
    fn route_staged(&mut self) {
        self.emitted += self.staged.len() as u64;
        self.staged_bytes = 0;
        if let Some(kept) = &mut self.kept {
            self.full = kept.take_in(&mut self.staged);
            return;
        }
        if self.staged.is_empty() {
            // A flush or a marker by itself is no run: it is nobody's turn, and nothing is copied.
            return;
        }
        if let Some((last, others)) = self.edges.split_last_mut() {
            for edge in others {
                let mut copy = edge.targets.spare(self.staged.len());
                copy.records.extend_from_slice(&self.staged);
                edge.route.route(&mut copy.records, &mut edge.targets);
                edge.targets.put_spare(copy);
            }
            last.route.route(&mut self.staged, &mut last.targets);
        }
        self.staged.clear();
        self.update_limits();
    }

    fn update_limits(&mut self) {
        if self.kept.is_some() {
            return;
        }
        self.full = self
            .edges
            .iter()
            .any(|edge| edge.route.is_full(&edge.targets));
        let smallest = self
            .edges
            .iter()
            .map(|edge| edge.targets.smallest_batch())
            .min();
        let smallest = smallest.map_or(STAGED_BYTES_MAX, |bytes| bytes as usize);
        self.staged_bytes_max = smallest.min(STAGED_BYTES_MAX);
        if let Some(each) = bytes_each::<T>() {
            let records_max = self.staged_bytes_max.div_ceil(each);
            self.staged_records_max = records_max.clamp(1, STAGED_RECORDS_MAX);
        }
    }

    /// Sends everything that credit allows, partial batches too.
    pub(crate) fn flush(&mut self) {
        self.route_staged();
        for edge in &mut self.edges {
            edge.targets.flush();
        }
        self.update_limits();
        self.sides.each(|side| side.flush());
    }

    /// Whether records wait here, for credit or to be flushed.
    pub(crate) fn holds_records(&self) -> bool {
        !self.staged.is_empty()
            || self.edges.iter().any(|edge| edge.targets.holds_records())
            || self.sides.hold_records()
    }

    /// Takes in the credit that receivers have returned, and sends what waited for it.
    pub(crate) fn receive_credit(&mut self) {
        let mut received = false;
        for edge in &mut self.edges {
            received |= edge.targets.receive_credit();
        }
        if received {
            self.update_limits();
        }
        self.sides.each(|side| side.receive_credit());
    }

    /// Sends a barrier on every channel, behind all that was emitted before it, and moves this
    /// operator's timely capability up to the checkpoint.
    pub(crate) fn send_barrier(&mut self, barrier: CheckpointBarrier) {
        self.send_marker(&Marker::Barrier(barrier));
    }

    /// Tells every receiver not to wait for the barrier of `checkpoint`.
    pub(crate) fn send_cancel(&mut self, checkpoint: CheckpointId) {
        self.send_marker(&Marker::Cancel(checkpoint));
    }

    /// Tells every receiver that no data follows, and that event time has come to its end.
    pub(crate) fn send_end_of_data(&mut self) {
        self.emit_watermark(EventTime::MAX);
        self.send_marker(&Marker::EndOfData);
    }

    /// On side outputs, too: a marker stands at the same place of the stream on each.
    fn send_marker(&mut self, marker: &Marker) {
        self.route_staged();
        for edge in &mut self.edges {
            edge.targets.send_marker(marker);
            if let Marker::Barrier(barrier) = marker {
                edge.targets.advance_to(barrier.checkpoint);
            }
        }
        self.update_limits();
        self.sides.each(|side| side.send_marker(marker));
    }
}

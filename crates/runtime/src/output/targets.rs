//! The receiving subtasks of one edge, as the sender sees them: a batch in the making, credit and
//! a sequence number for each.

use serde::{Deserialize, Serialize};
use tidegate_state::Record;
use tidegate_types::CheckpointId;
use timely::Bincode;
use timely::communication::Pull;
use timely::dataflow::channels::pushers;
use timely::dataflow::operators::Capability;

use crate::batch::{BatchBuffer, SpareBuffers, emptied};
use crate::chaining::ChainedSender;
use crate::credit::{CreditSettings, Grant, SendCredit};
use crate::item::{Item, Marker, Packet, Payload};

use super::weigh::Weighing;

/// For a receiver that wants batches below this nothing is prepared while it has no credit: one
/// record may be a second's work for it.
const SMALL_BATCH_BYTES: u64 = 1 << 10;

/// Credit on its way from a receiving subtask back to the sender.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct CreditMessage {
    /// Index of the subtask that returns it.
    pub(crate) target: u32,
    pub(crate) grant: Grant,
}

/// How items get to their receivers.
pub(crate) enum Wire<T> {
    /// Through timely, to any worker.
    Timely {
        output: pushers::Output<u64, Packet<T>>,
        /// Held from the start of the attempt to its end, and moved up with each barrier.
        capability: Option<Capability<u64>>,
    },
    /// By calling the only receiver.
    Chained {
        sender: ChainedSender<T>,
        /// The checkpoint that was sent last, as a capability would have it.
        time: u64,
    },
}

impl<T: Record> Wire<T> {
    fn send(&mut self, item: Item<T>) {
        match self {
            Wire::Timely { output, capability } => {
                let capability = capability.as_ref().expect("held until the attempt ends");
                output.activate().give(capability, &mut Packet::new(item));
            }
            Wire::Chained { sender, time } => sender.send(*time, item),
        }
    }

    fn advance_to(&mut self, checkpoint: CheckpointId) {
        match self {
            Wire::Timely { capability, .. } => {
                if let Some(capability) = capability {
                    capability.downgrade(&checkpoint.0);
                }
            }
            Wire::Chained { time, .. } => *time = checkpoint.0,
        }
    }
}

/// What connects a sending subtask with its receivers.
pub(crate) struct Link<T> {
    pub(crate) wire: Wire<T>,
    pub(crate) credit: Box<dyn Pull<Bincode<CreditMessage>>>,
    /// Index of the sending subtask.
    pub(crate) origin: u32,
    /// What batches are put together in.
    pub(crate) spare: SpareBuffers<T>,
}

struct Target<T> {
    index: u32,
    batch: BatchBuffer<T>,
    /// What the batch weighs, as far as it has been weighed:
    batch_bytes: u64,
    /// so many of its records, all but while some are being added.
    weighed: usize,
    /// A batch of this weight is sent at once; follows what the credit advises.
    batch_bytes_max: u64,
    credit: SendCredit,
    sequence: u64,
}

impl<T: Record> Target<T> {
    /// Weighs what has come to the batch: at once, since to look at each record as it comes is to
    /// wait until it has been written.
    #[inline]
    fn weigh(&mut self, weighing: Weighing) {
        let records = &self.batch.records[self.weighed..];
        self.batch_bytes += weighing.of_all(records) as u64;
        self.weighed = self.batch.records.len();
    }
}

/// Calls `take` with each record, and leaves the empty buffer behind. As `run.drain(..)`, without
/// an `Option` around each record: where that hides in a byte of the record, as with texts,
/// compilers take the record apart to look at the byte.
#[inline]
fn drain_in_one_piece<T>(run: &mut Vec<T>, take: impl FnMut(T)) {
    let mut records = std::mem::take(run).into_iter();
    records.by_ref().for_each(take);
    *run = emptied(records);
}

/// All receiving subtasks of one edge.
pub struct Targets<T> {
    targets: Vec<Target<T>>,
    link: Link<T>,
    weighing: Weighing,
}

impl<T: Record> Targets<T> {
    /// The targets are the subtasks with these indexes: all of the receiver's for most edges, the
    /// one with the sender's own index for a forward edge.
    pub(crate) fn new(
        indexes: impl Iterator<Item = u32>,
        link: Link<T>,
        settings: &CreditSettings,
        weighing: Weighing,
    ) -> Self {
        let target = |index| {
            let credit = SendCredit::new(settings);
            Target {
                index,
                batch: BatchBuffer::default(),
                batch_bytes: 0,
                weighed: 0,
                batch_bytes_max: credit.batch_bytes() as u64,
                credit,
                sequence: 0,
            }
        };
        Targets {
            targets: indexes.map(target).collect(),
            link,
            weighing,
        }
    }

    /// An empty buffer, from those that have come back with batches.
    pub(super) fn spare(&self, capacity: usize) -> BatchBuffer<T> {
        self.link.spare.take(capacity)
    }

    /// Takes back an emptied buffer.
    pub(super) fn put_spare(&self, buffer: BatchBuffer<T>) {
        self.link.spare.put(buffer);
    }

    /// Number of receiving subtasks.
    pub fn count(&self) -> usize {
        self.targets.len()
    }

    /// Moves each record of a run to the batch for the target whose position (0 ..<
    /// [`count`](Self::count)) `position_of` gives. Each record is written once.
    #[inline]
    pub fn scatter(&mut self, run: &mut Vec<T>, position_of: impl Fn(&T) -> usize) {
        let targets = &mut self.targets[..];
        drain_in_one_piece(run, |record| {
            targets[position_of(&record)].batch.records.push(record);
        });
        self.weigh();
        self.send_full();
    }

    /// As [`scatter`](Self::scatter) by the hashes of the records' keys, which go with them. An
    /// edge has all of its records scattered this way, or none.
    #[inline]
    pub(super) fn scatter_hashed(
        &mut self,
        run: &mut Vec<T>,
        hashes: &[u64],
        position_of: impl Fn(u64) -> usize,
    ) {
        assert_eq!(run.len(), hashes.len(), "one for each record");
        let targets = &mut self.targets[..];
        let mut hashes = hashes.iter();
        drain_in_one_piece(run, |record| {
            let hash = *hashes.next().expect("there is one for each record");
            let batch = &mut targets[position_of(hash)].batch;
            batch.key_hashes.push(hash);
            batch.records.push(record);
        });
        self.weigh();
        self.send_full();
    }

    fn weigh(&mut self) {
        for target in &mut self.targets {
            target.weigh(self.weighing);
        }
    }

    fn send_full(&mut self) {
        for position in 0..self.targets.len() {
            self.send_if_full(position);
        }
    }

    /// Moves a run to the batch for the target at this position. `run` is empty afterwards, and may
    /// be another buffer.
    pub fn append(&mut self, position: usize, run: &mut Vec<T>) {
        let chained = self.is_chained();
        let target = &mut self.targets[position];
        let records = &mut target.batch.records;
        if chained && records.is_empty() {
            std::mem::swap(records, run);
        } else {
            records.append(run);
        }
        target.weigh(self.weighing);
        if chained {
            // The run as it is, while it is in the cache.
            self.send_batch(position);
        } else {
            self.send_if_full(position);
        }
    }

    /// Adds clones of a run to the batch for the target at this position.
    pub fn append_clones(&mut self, position: usize, run: &[T]) {
        let target = &mut self.targets[position];
        target.batch.records.extend_from_slice(run);
        target.weigh(self.weighing);
        self.send_if_full(position);
    }

    /// After a run rather than after each record: a batch is larger than wanted by a part of a run
    /// at most.
    #[inline]
    fn send_if_full(&mut self, position: usize) {
        let target = &self.targets[position];
        if target.batch_bytes >= target.batch_bytes_max {
            self.send_batch(position);
        }
    }

    /// Whether this target has no credit, and as much has been made for it in advance as makes
    /// sense: a batch, or nothing at all if it is so slow that batches have become small.
    ///
    /// What was sent on overdrawn credit counts as much as what waits: a marker takes the records
    /// before it along, and would make room for as many again otherwise, each time. So what is in
    /// flight and what waits are a window and a batch at most, with its last record, whatever
    /// markers there are.
    #[inline]
    pub fn is_full(&self, position: usize) -> bool {
        let target = &self.targets[position];
        if target.credit.is_open() {
            return false;
        }
        let overdrawn = target.credit.available().unsigned_abs();
        let ahead = overdrawn.saturating_add(target.batch_bytes);
        target.batch_bytes_max < SMALL_BATCH_BYTES || ahead >= target.batch_bytes_max
    }

    /// Size of the smallest batch that any target wants now, in the unit of its window.
    pub(super) fn smallest_batch(&self) -> u64 {
        let wanted = self.targets.iter().map(|target| target.batch_bytes_max);
        wanted.min().unwrap_or(u64::MAX)
    }

    /// Whether nothing waits for this target.
    pub(super) fn is_empty(&self, position: usize) -> bool {
        self.targets[position].batch.records.is_empty()
    }

    #[inline(never)]
    fn send_batch(&mut self, position: usize) {
        if self.targets[position].credit.is_open() {
            self.send_batch_regardless(position);
        }
    }

    fn send_batch_regardless(&mut self, position: usize) {
        let target = &mut self.targets[position];
        let count = target.batch.records.len();
        if count == 0 {
            return;
        }
        // With room for a part of a run beyond what is wanted.
        let capacity = count + count / 4;
        let next = self.link.spare.take(capacity);
        let records = std::mem::replace(&mut target.batch, next);
        let bytes = std::mem::take(&mut target.batch_bytes);
        target.weighed = 0;
        target.credit.spend(bytes);
        target.batch_bytes_max = target.credit.batch_bytes() as u64;
        self.send(position, Payload::Data { records, bytes });
    }

    fn send(&mut self, position: usize, payload: Payload<T>) {
        let target = &mut self.targets[position];
        let sequence = target.sequence;
        target.sequence += 1;
        self.link.wire.send(Item {
            target: target.index,
            origin: self.link.origin,
            sequence,
            payload,
        });
        if self.is_chained() {
            // What has been worked off within the call has come back already.
            self.receive_credit();
        }
    }

    fn is_chained(&self) -> bool {
        matches!(self.link.wire, Wire::Chained { .. })
    }

    /// Sends everything that credit allows, and what receivers hold for theirs that are called.
    pub(crate) fn flush(&mut self) {
        for position in 0..self.targets.len() {
            self.send_batch(position);
        }
        if let Wire::Chained { sender, .. } = &self.link.wire {
            sender.flush();
        }
    }

    /// Whether records wait here, or at a receiver that is called.
    pub(crate) fn holds_records(&self) -> bool {
        let mut targets = self.targets.iter();
        let here = targets.any(|target| !target.batch.records.is_empty());
        here || match &self.link.wire {
            Wire::Timely { .. } => false,
            Wire::Chained { sender, .. } => sender.holds_records(),
        }
    }

    /// Returns whether any credit came.
    pub(crate) fn receive_credit(&mut self) -> bool {
        let mut received = false;
        while let Some(message) = self.link.credit.recv() {
            received = true;
            let CreditMessage { target, grant } = message.payload;
            let position = self
                .targets
                .iter()
                .position(|candidate| candidate.index == target)
                .expect("credit comes only from receivers of this edge");
            let target = &mut self.targets[position];
            target.credit.receive(grant);
            target.batch_bytes_max = target.credit.batch_bytes() as u64;
            self.send_if_full(position);
        }
        received
    }

    pub(crate) fn send_marker(&mut self, marker: &Marker) {
        for position in 0..self.targets.len() {
            // Ordering: data before the marker goes first, on overdrawn credit if need be.
            self.send_batch_regardless(position);
            self.send(position, Payload::Marker(marker.clone()));
        }
    }

    pub(crate) fn advance_to(&mut self, checkpoint: CheckpointId) {
        self.link.wire.advance_to(checkpoint);
    }
}

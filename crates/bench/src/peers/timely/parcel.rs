//! Batches on their way, whole, and on their way back, empty.

use timely::Accountable;
use timely::bytes::arc::Bytes;
use timely::communication::{Bytesable, Push};
use timely::dataflow::channels::pushers::exchange::Distributor;
use timely::dataflow::channels::{ContainerBytes, Message};
use timely::progress::Stamp;

/// What a source fills and an operator empties.
pub(super) trait Batch: Send + 'static {
    /// Records at which it is sent, as fast as any: batches of 1024, 4096, 16384 and 65536 were
    /// tried in turn, on two cores.
    const RECORDS: usize;

    /// With room for so many records, and what a step of the source adds at most.
    fn with_capacity(records: usize) -> Self;

    /// How many records are in it.
    fn len(&self) -> usize;

    /// Drops the records, keeps the memory.
    fn clear(&mut self);
}

/// A batch from one worker to another. `None` stands for what has been taken out.
pub(super) struct Parcel<B> {
    pub(super) origin: usize,
    pub(super) target: usize,
    pub(super) batch: Option<B>,
}

impl<B> Default for Parcel<B> {
    fn default() -> Self {
        Parcel {
            origin: 0,
            target: 0,
            batch: None,
        }
    }
}

/// A batch counts as one record: timely counts what it moves.
impl<B> Accountable for Parcel<B> {
    fn record_count(&self) -> i64 {
        i64::from(self.batch.is_some())
    }
}

const ONE_PROCESS: &str = "workers are threads of one process: nothing is serialised";

impl<B> ContainerBytes for Parcel<B> {
    fn from_bytes(_bytes: Bytes) -> Self {
        unreachable!("{ONE_PROCESS}")
    }

    fn length_in_bytes(&self) -> usize {
        unreachable!("{ONE_PROCESS}")
    }

    fn into_bytes<W: std::io::Write>(&self, _writer: &mut W) {
        unreachable!("{ONE_PROCESS}")
    }
}

/// Sends each parcel to its target, without a look at what is in it.
pub(super) struct ToTarget;

impl<B> Distributor<Parcel<B>> for ToTarget {
    fn partition<T: Clone, P: Push<Message<T, Parcel<B>>>>(
        &mut self,
        parcel: &mut Parcel<B>,
        stamp: &Stamp<T>,
        pushers: &mut [P],
    ) {
        let target = parcel.target;
        Message::push_at(parcel, stamp.clone(), &mut pushers[target]);
        parcel.batch = None;
    }

    fn flush<T: Clone, P: Push<Message<T, Parcel<B>>>>(
        &mut self,
        _stamp: &Stamp<T>,
        _pushers: &mut [P],
    ) {
        // Nothing is held back.
    }
}

/// An emptied batch that goes back to its source, which may fill it again: this is both the
/// permission to send more and the memory for it.
pub(super) struct Emptied<B> {
    pub(super) target: usize,
    pub(super) batch: B,
}

impl<B> Bytesable for Emptied<B> {
    fn from_bytes(_bytes: Bytes) -> Self {
        unreachable!("{ONE_PROCESS}")
    }

    fn length_in_bytes(&self) -> usize {
        unreachable!("{ONE_PROCESS}")
    }

    fn into_bytes<W: std::io::Write>(&self, _writer: &mut W) {
        unreachable!("{ONE_PROCESS}")
    }
}

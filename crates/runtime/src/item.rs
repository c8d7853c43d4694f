//! What travels on the edges between operators: batches of records and, in-band with them, the
//! markers of checkpoints, of event time and of the end.
//!
//! Every [`Item`] names the subtask it is for, the subtask it comes from, and its place in that
//! channel's sequence. Timely moves whole items, so its cost is per batch and never per record.

use std::cell::Cell;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidegate_types::{CheckpointBarrier, CheckpointId, EventTime};
use timely::Accountable;
use timely::bytes::arc::Bytes;
use timely::communication::Push;
use timely::dataflow::channels::pushers::exchange::Distributor;
use timely::dataflow::channels::{ContainerBytes, Message};
use timely::progress::Stamp;

use crate::batch::BatchBuffer;
use crate::encoding::Encoded;

/// One message on one channel. A channel is (input port, origin subtask).
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Item<T> {
    /// Receiving subtask's index.
    pub(crate) target: u32,
    /// Sending subtask's index.
    pub(crate) origin: u32,
    /// Counts the items of this channel from 0; the receiver asserts it.
    pub(crate) sequence: u64,
    pub(crate) payload: Payload<T>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Payload<T> {
    /// Records and what they weigh in the channel's window, in bytes.
    Data {
        records: BatchBuffer<T>,
        bytes: u64,
    },
    Marker(Marker),
}

/// What is sent on all channels of an operator alike, whatever the type of their records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Marker {
    Barrier(CheckpointBarrier),
    /// This checkpoint won't complete: nobody should wait for its barrier.
    Cancel(CheckpointId),
    /// How far event time has got in the data before. [`EventTime::MAX`] precedes the end of data.
    Watermark(EventTime),
    /// Nobody should wait for watermarks of this channel.
    Idle,
    /// The watermarks of this channel count again.
    Active,
    /// No more data on this channel. Markers of checkpoints still follow: an ended sender goes on
    /// taking part in them until the job is over.
    EndOfData,
}

impl Marker {
    /// Whether no data may follow it on its channel.
    pub(crate) fn ends_data(&self) -> bool {
        match self {
            Marker::EndOfData => true,
            Marker::Barrier(barrier) => barrier.kind.stops(),
            Marker::Cancel(_) | Marker::Watermark(_) | Marker::Idle | Marker::Active => false,
        }
    }
}

impl<T> Item<T> {
    /// The same item with its records, if it has any, as others: as many, with the same keys.
    pub(crate) fn convert<U>(self, convert: impl FnOnce(Vec<T>) -> Vec<U>) -> Item<U> {
        let payload = match self.payload {
            Payload::Data { records, bytes } => Payload::Data {
                records: BatchBuffer {
                    records: convert(records.records),
                    key_hashes: records.key_hashes,
                },
                bytes,
            },
            Payload::Marker(marker) => Payload::Marker(marker),
        };
        Item {
            target: self.target,
            origin: self.origin,
            sequence: self.sequence,
            payload,
        }
    }
}

impl<T> Payload<T> {
    /// Whether it is worked off only when the operator can take records: what operators do about
    /// event time makes records.
    pub(crate) fn waits_for_room(&self) -> bool {
        match self {
            Payload::Data { .. }
            | Payload::Marker(Marker::Watermark(_) | Marker::Idle | Marker::Active) => true,
            Payload::Marker(Marker::Barrier(_) | Marker::Cancel(_) | Marker::EndOfData) => false,
        }
    }
}

/// The container that timely sees: one item, counted as one record whatever it carries, since
/// timely drops containers that claim to be empty.
pub(crate) struct Packet<T> {
    pub(crate) item: Option<Item<T>>,
    /// What it is as bytes, from when timely asks how many they are until it takes them.
    encoded: Cell<Option<Encoded>>,
}

impl<T> Packet<T> {
    pub(crate) fn new(item: Item<T>) -> Self {
        Packet {
            item: Some(item),
            encoded: Cell::new(None),
        }
    }
}

impl<T: Serialize> Packet<T> {
    fn encode(&self) -> Encoded {
        let item = self.item.as_ref().expect("empty packets are never sent");
        Encoded::new(item).expect("records serialise")
    }
}

impl<T> Default for Packet<T> {
    fn default() -> Self {
        Packet {
            item: None,
            encoded: Cell::new(None),
        }
    }
}

impl<T> Accountable for Packet<T> {
    fn record_count(&self) -> i64 {
        i64::from(self.item.is_some())
    }
}

/// Between processes packets travel as postcard bytes behind their length, padded to 8 bytes.
impl<T: Serialize + DeserializeOwned> ContainerBytes for Packet<T> {
    fn from_bytes(bytes: Bytes) -> Self {
        let (length, rest) = bytes.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("split at 8 bytes"));
        let encoded = &rest[..length as usize];
        // A peer that ran our handshake sends what it encoded itself; anything else means that the
        // connection can't be trusted, and timely offers no way out but a panic, which ends the
        // attempt.
        Packet::new(postcard::from_bytes(encoded).expect("peer sent a well-formed item"))
    }

    fn length_in_bytes(&self) -> usize {
        let encoded = self.encode();
        let length = 8 + encoded.bytes().len().next_multiple_of(8);
        self.encoded.set(Some(encoded));
        length
    }

    fn into_bytes<W: std::io::Write>(&self, writer: &mut W) {
        let encoded = self.encoded.take().unwrap_or_else(|| self.encode());
        let encoded = encoded.bytes();
        let padding = encoded.len().next_multiple_of(8) - encoded.len();
        let length = (encoded.len() as u64).to_le_bytes();
        let written = writer
            .write_all(&length)
            .and_then(|()| writer.write_all(encoded))
            .and_then(|()| writer.write_all(&[0; 8][..padding]));
        written.expect("timely reserved length_in_bytes() for us");
    }
}

/// Sends each packet whole to the worker of its target subtask.
pub(crate) struct ToTarget;

impl<T> Distributor<Packet<T>> for ToTarget {
    fn partition<Time: Clone, P: Push<Message<Time, Packet<T>>>>(
        &mut self,
        packet: &mut Packet<T>,
        stamp: &Stamp<Time>,
        pushers: &mut [P],
    ) {
        if let Some(item) = &packet.item {
            // Subtask i runs on worker i, and there are never more subtasks than workers.
            let worker = item.target as usize;
            Message::push_at(packet, stamp.clone(), &mut pushers[worker]);
            packet.item = None;
        }
    }

    fn flush<Time: Clone, P: Push<Message<Time, Packet<T>>>>(
        &mut self,
        _stamp: &Stamp<Time>,
        _pushers: &mut [P],
    ) {
        // Nothing is ever held back.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_crosses_processes_unchanged() {
        let item = Item {
            target: 1,
            origin: 2,
            sequence: 3,
            payload: Payload::Data {
                records: vec!["a".to_owned(), String::new()].into(),
                bytes: 49,
            },
        };
        let packet = Packet::new(item);
        let mut bytes = Vec::new();
        packet.into_bytes(&mut bytes);
        for _ in 0..2 {
            assert_eq!(packet.length_in_bytes(), bytes.len());
            let mut again = Vec::new();
            packet.into_bytes(&mut again);
            assert_eq!(again, bytes);
        }
        let bytes = timely::bytes::arc::BytesMut::from(bytes).freeze();
        let item = Packet::<String>::from_bytes(bytes).item.unwrap();
        assert_eq!((item.target, item.origin, item.sequence), (1, 2, 3));
        let Payload::Data { records, bytes } = item.payload else {
            panic!("not data")
        };
        assert_eq!(records.records, ["a", ""]);
        assert_eq!(bytes, 49);
    }
}

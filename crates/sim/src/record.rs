//! What flows through a simulated job: records, the splits they come from, and how both travel.

use std::collections::{BTreeMap, VecDeque};

use tidegate_types::{CheckpointBarrier, CheckpointId};

use crate::rng::split_mix;

/// One record. The id says where it was read, and with it everything else about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) key: u32,
    /// The part of a whole that this copy is: a broadcast divides it among the receivers.
    pub(crate) share: u32,
    /// Which way it has come, and as which copy of each broadcast on the way.
    pub(crate) path: u64,
    /// What the last counting operator made of it; 0 before the first.
    pub(crate) count: u64,
}

/// The share of a record that has not been broadcast: divisible by every parallelism, hop by hop.
pub(crate) const WHOLE: u32 = 6 * 6 * 6;

impl Record {
    /// The record behind one edge of the graph, as copy `copy` of `of`.
    pub(crate) fn along(self, edge: u32, copy: usize, of: usize) -> Record {
        let way = u64::from(edge) << 16 | (copy as u64) << 8 | of as u64;
        let mut state = self.path ^ way.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let share = self.share / of as u32;
        assert_eq!(share * of as u32, self.share, "shares divide evenly");
        Record {
            share,
            path: split_mix(&mut state),
            ..self
        }
    }
}

/// A part of a source and how far it has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) source: u32,
    pub(crate) index: u32,
    pub(crate) position: u64,
    pub(crate) length: u64,
}

/// The record at a place, the same whenever it is read.
pub(crate) fn record_at(source: u32, split: u32, position: u64, keys: u32) -> Record {
    let id = u64::from(source) << 48 | u64::from(split) << 32 | position;
    let mut state = id;
    let key = (split_mix(&mut state) % u64::from(keys)) as u32;
    Record {
        id,
        key,
        share: WHOLE,
        path: 0,
        count: 0,
    }
}

impl Split {
    pub(crate) fn is_finished(&self) -> bool {
        self.position >= self.length
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Split {
            source,
            index,
            position,
            length,
        } = *self;
        encode(&[u64::from(source), u64::from(index), position, length])
    }

    pub(crate) fn decode(bytes: &[u8]) -> Split {
        let [source, index, position, length] = decode(bytes);
        Split {
            source: source as u32,
            index: index as u32,
            position,
            length,
        }
    }
}

/// Numbers as a list state's element.
pub(crate) fn encode(numbers: &[u64]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

/// The opposite of [`encode`]. Elements come from the simulation's own store.
pub(crate) fn decode<const N: usize>(bytes: &[u8]) -> [u64; N] {
    assert_eq!(bytes.len(), 8 * N, "an element has {N} numbers");
    std::array::from_fn(|at| {
        let number = bytes[8 * at..8 * at + 8].try_into();
        u64::from_le_bytes(number.expect("8 bytes"))
    })
}

#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Records(VecDeque<Record>),
    Split(Split),
    Barrier(CheckpointBarrier),
    Cancel(CheckpointId),
    EndOfData,
}

impl Payload {
    pub(crate) fn is_data(&self) -> bool {
        matches!(self, Payload::Records(_) | Payload::Split(_))
    }

    /// How many records or splits it carries.
    fn data(&self) -> u64 {
        match self {
            Payload::Records(records) => records.len() as u64,
            Payload::Split(_) => 1,
            _ => 0,
        }
    }
}

/// One channel: first in, first out, from one subtask to another.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    queue: VecDeque<(u64, Payload)>,
    sequence: u64,
    expected: u64,
    sent: u64,
    /// Records and splits that the receiver has worked on.
    pub(crate) processed: u64,
    /// What counts against the window: emitted, but not worked off.
    pub(crate) outstanding: u64,
    /// A barrier that was sent a second time.
    pub(crate) repeated: Option<CheckpointId>,
    /// The barrier of a stop that was sent, and whether data came after it.
    pub(crate) stop: Option<(CheckpointId, bool)>,
    /// How much was sent before each barrier.
    before: BTreeMap<CheckpointId, u64>,
}

impl Channel {
    pub(crate) fn send(&mut self, payload: Payload) {
        if let Payload::Barrier(barrier) = &payload {
            if self.before.contains_key(&barrier.checkpoint) {
                self.repeated = Some(barrier.checkpoint);
            }
            self.before.entry(barrier.checkpoint).or_insert(self.sent);
        }
        if let Payload::Barrier(barrier) = &payload
            && barrier.kind.stops()
        {
            self.stop = Some((barrier.checkpoint, false));
        } else if let Some((_, data_after)) = &mut self.stop {
            *data_after |= payload.is_data();
        }
        self.sent += payload.data();
        self.queue.push_back((self.sequence, payload));
        self.sequence += 1;
    }

    pub(crate) fn head(&self) -> Option<&Payload> {
        self.queue.front().map(|(_, payload)| payload)
    }

    /// The next item, and whether it is the one that was due.
    pub(crate) fn take(&mut self) -> Option<(bool, Payload)> {
        let (sequence, payload) = self.queue.pop_front()?;
        let in_order = sequence == self.expected;
        self.expected = sequence + 1;
        Some((in_order, payload))
    }

    /// Lets the second item overtake the first.
    pub(crate) fn overtake(&mut self) {
        if self.queue.len() > 1 {
            self.queue.swap(0, 1);
        }
    }

    /// How much the sender had sent before its barrier of `checkpoint`.
    pub(crate) fn sent_before(&self, checkpoint: CheckpointId) -> Option<u64> {
        self.before.get(&checkpoint).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_survive_a_checkpoint() {
        let split = Split {
            source: 1,
            index: 2,
            position: 3,
            length: 4,
        };
        assert_eq!(Split::decode(&split.encode()), split);
    }
}

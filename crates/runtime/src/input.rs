//! The receiving side of a subtask: one queue per input channel, and the credit that goes back.
//!
//! Timely's inputs are drained into these queues at once, whatever the operator is doing, so that
//! progress never stalls; the operator works from the queues. A channel that alignment blocks is
//! simply left alone: its credit runs out and its sender slows down.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use tidegate_types::{CheckpointId, SubtaskId};
use timely::Bincode;
use timely::communication::Push;

use crate::alignment::{Alignment, ChannelIndex, StreamCorrupt};
use crate::batch::{Batch, SpareBuffers};
use crate::chaining::Receiver;
use crate::clock::Ticks;
use crate::credit::{CreditSettings, ReceiveCredit};
use crate::item::{Item, Marker, Payload};
use crate::output::CreditMessage;

/// How often windows are adapted of a subtask that is called, by its busy time.
const CALLED_ADAPT_PERIOD: Duration = Duration::from_millis(1);

/// Drains one timely input, handing out each item with the timestamp it was sent at.
pub(crate) type Puller<T> = Box<dyn FnMut(&mut dyn FnMut(u64, Item<T>))>;

/// One input of a subtask: an edge of the job graph.
pub(crate) struct InputPort<T> {
    pub(crate) pull: Puller<T>,
    /// Where credit for each sending subtask goes.
    pub(crate) credit: Vec<Box<dyn Push<Bincode<CreditMessage>>>>,
    /// Indexes of the sending subtasks, in ascending order.
    pub(crate) origins: std::ops::Range<u32>,
    /// What the sender calls, if the edge is chained.
    pub(crate) chained: Option<Rc<Receiver>>,
    /// Where the memory of its batches goes.
    pub(crate) spare: SpareBuffers<T>,
}

struct Channel<T> {
    port: usize,
    origin: u32,
    queue: VecDeque<Payload<T>>,
    sequence: u64,
    /// Its end of data has been taken from the queue.
    ended: bool,
    /// After which marker, if any has arrived, no data may follow.
    last: Option<LastData>,
}

/// Markers that no data may follow, no watermark, nor another end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastData {
    /// The end of data.
    End,
    /// The barrier of a stop.
    Stop(CheckpointId),
}

impl fmt::Display for LastData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LastData::End => f.write_str("the end of data"),
            LastData::Stop(checkpoint) => write!(f, "the stop at `{checkpoint}`"),
        }
    }
}

/// What a sender did that the protocol doesn't allow; the attempt can't be trusted any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error("item {got} arrived where {expected} was due, from subtask {origin} on input {port}")]
    Sequence {
        port: usize,
        origin: u32,
        expected: u64,
        got: u64,
    },
    #[error(
        "a message sent before `{passed}` arrived after it, from subtask {origin} on input {port}"
    )]
    Late {
        port: usize,
        origin: u32,
        passed: CheckpointId,
    },
    #[error("data arrived behind {last}, from subtask {origin} on input {port}")]
    DataBehind {
        port: usize,
        origin: u32,
        last: LastData,
    },
    #[error("corrupt stream from subtask {origin} on input {port}")]
    Corrupt {
        port: usize,
        origin: u32,
        #[source]
        cause: StreamCorrupt,
    },
}

/// All input channels of one subtask.
pub(crate) struct Inputs<T> {
    ports: Vec<InputPort<T>>,
    channels: Vec<Channel<T>>,
    /// First channel of each port.
    bases: Vec<u32>,
    credit: ReceiveCredit,
    index: u32,
    /// Channel to look at first, so that all get their turn.
    next: usize,
    is_called: bool,
}

impl<T> Inputs<T> {
    pub(crate) fn new(
        subtask: SubtaskId,
        ports: Vec<InputPort<T>>,
        settings: &CreditSettings,
        now: Ticks,
    ) -> Self {
        let mut channels = Vec::new();
        let mut bases = Vec::new();
        for (port, input) in ports.iter().enumerate() {
            bases.push(channels.len() as u32);
            channels.extend(input.origins.clone().map(|origin| Channel {
                port,
                origin,
                queue: VecDeque::new(),
                sequence: 0,
                ended: false,
                last: None,
            }));
        }
        let is_called = ports.iter().any(|port| port.chained.is_some());
        let (mut settings, mut now) = (settings.clone(), now.0);
        if is_called {
            (settings.adapt_period, now) = (CALLED_ADAPT_PERIOD, Duration::ZERO);
        }
        let credit = ReceiveCredit::new(settings, channels.len() as u32, now);
        Inputs {
            is_called,
            ports,
            channels,
            bases,
            credit,
            index: subtask.index,
            next: 0,
        }
    }

    pub(crate) fn channel_count(&self) -> u32 {
        self.channels.len() as u32
    }

    /// Whether a sender hands over its records by calling.
    pub(crate) fn is_called(&self) -> bool {
        self.is_called
    }

    /// Names the sender of what alignment could not accept.
    pub(crate) fn corrupt(&self, channel: ChannelIndex, cause: StreamCorrupt) -> ChannelError {
        let channel = &self.channels[channel.0 as usize];
        ChannelError::Corrupt {
            port: channel.port,
            origin: channel.origin,
            cause,
        }
    }

    /// Moves everything that has arrived into the queues.
    ///
    /// `passed` is the newest checkpoint whose barrier every channel has delivered: nothing that
    /// was sent before it may still arrive. This cross-checks the in-band barriers against
    /// timely's own timestamps.
    pub(crate) fn pull(&mut self, passed: CheckpointId) -> Result<(), ChannelError> {
        let Inputs {
            ports,
            channels,
            bases,
            ..
        } = self;
        let mut error = None;
        for (port, input) in ports.iter_mut().enumerate() {
            let (base, first) = (bases[port], input.origins.start);
            (input.pull)(&mut |time, item| {
                let channel = &mut channels[(base + item.origin - first) as usize];
                if let Err(cause) = channel.accept(time, item, passed) {
                    error.get_or_insert(cause);
                }
            });
        }
        error.map_or(Ok(()), Err)
    }

    /// The next item of a channel that isn't blocked. With `markers_only`, data and what belongs to
    /// event time is left queued; the channel `busy` is left alone, since an item of it is half
    /// done.
    pub(crate) fn next(
        &mut self,
        alignment: &Alignment,
        markers_only: bool,
        busy: Option<ChannelIndex>,
    ) -> Option<(ChannelIndex, Payload<T>)> {
        let count = self.channels.len();
        for step in 0..count {
            let at = (self.next + step) % count;
            let channel = &mut self.channels[at];
            let Some(head) = channel.queue.front() else {
                continue;
            };
            let index = ChannelIndex(at as u32);
            if alignment.is_blocked(index) || busy == Some(index) {
                continue;
            }
            if markers_only && head.waits_for_room() {
                continue;
            }
            self.next = (at + 1) % count;
            let payload = channel.queue.pop_front().expect("has a head");
            if matches!(payload, Payload::Marker(Marker::EndOfData)) {
                channel.ended = true;
            }
            return Some((index, payload));
        }
        None
    }

    /// Whether `next` would find something.
    pub(crate) fn has_ready(&self, alignment: &Alignment) -> bool {
        self.channels.iter().enumerate().any(|(at, channel)| {
            !channel.queue.is_empty() && !alignment.is_blocked(ChannelIndex(at as u32))
        })
    }

    /// Whether something has arrived that alignment holds back.
    pub(crate) fn has_blocked(&self, alignment: &Alignment) -> bool {
        self.channels.iter().enumerate().any(|(at, channel)| {
            !channel.queue.is_empty() && alignment.is_blocked(ChannelIndex(at as u32))
        })
    }

    /// Whether every channel has delivered its last data.
    pub(crate) fn all_ended(&self) -> bool {
        self.channels.iter().all(|channel| channel.ended)
    }

    /// Notes that this much of a channel's window has been worked off.
    pub(crate) fn processed(&mut self, channel: ChannelIndex, bytes: u64) {
        self.credit.on_processed(channel, bytes);
    }

    /// Takes back the memory of a batch that came on this channel.
    pub(crate) fn recycle(&self, channel: ChannelIndex, batch: Batch<T>) {
        let port = self.channels[channel.0 as usize].port;
        self.ports[port].spare.put(batch.into_buffer());
    }

    /// Sends credit back, with windows adapted to the speed at which this subtask works.
    /// `backlogged` says that it has left work undone.
    pub(crate) fn return_credit(&mut self, now: Duration, backlogged: bool) {
        self.credit.adapt(now, backlogged);
        let Inputs {
            ports,
            channels,
            credit,
            index,
            ..
        } = self;
        credit.take_grants(|channel, grant| {
            let channel = &channels[channel.0 as usize];
            let port = &mut ports[channel.port];
            let pusher = &mut port.credit[(channel.origin - port.origins.start) as usize];
            pusher.send(Bincode::from(CreditMessage {
                target: *index,
                grant,
            }));
            pusher.done();
        });
    }
}

impl<T> Channel<T> {
    fn accept(
        &mut self,
        time: u64,
        item: Item<T>,
        passed: CheckpointId,
    ) -> Result<(), ChannelError> {
        let (port, origin, expected) = (self.port, self.origin, self.sequence);
        if item.sequence != expected {
            return Err(ChannelError::Sequence {
                port,
                origin,
                expected,
                got: item.sequence,
            });
        }
        if time < passed.0 {
            return Err(ChannelError::Late {
                port,
                origin,
                passed,
            });
        }
        match (&item.payload, self.last) {
            (Payload::Marker(Marker::Barrier(barrier)), _) if barrier.kind.stops() => {
                self.last = Some(LastData::Stop(barrier.checkpoint));
            }
            (Payload::Marker(Marker::Barrier(_) | Marker::Cancel(_)), _) => {}
            (_, Some(last)) => {
                return Err(ChannelError::DataBehind { port, origin, last });
            }
            (Payload::Marker(Marker::EndOfData), None) => self.last = Some(LastData::End),
            (_, None) => {}
        }
        self.sequence += 1;
        self.queue.push_back(item.payload);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::{CheckpointBarrier, EventTime, SnapshotFormat, SnapshotKind, UnixMillis};

    use super::*;

    fn channel() -> Channel<u64> {
        Channel {
            port: 1,
            origin: 2,
            queue: VecDeque::new(),
            sequence: 0,
            ended: false,
            last: None,
        }
    }

    fn data() -> Payload<u64> {
        Payload::Data {
            records: vec![1].into(),
            bytes: 8,
        }
    }

    fn barrier(id: u64, kind: SnapshotKind) -> Payload<u64> {
        Payload::Marker(Marker::Barrier(CheckpointBarrier {
            checkpoint: CheckpointId(id),
            kind,
            format: SnapshotFormat::Canonical,
            base: None,
            location: None,
            created: UnixMillis(0),
        }))
    }

    fn end() -> Payload<u64> {
        Payload::Marker(Marker::EndOfData)
    }

    /// What is said to the last of the payloads, if all before are accepted.
    fn complaint(payloads: impl IntoIterator<Item = Payload<u64>>) -> Option<String> {
        let mut channel = channel();
        let mut complaint = None;
        for (sequence, payload) in payloads.into_iter().enumerate() {
            assert_eq!(complaint, None, "before the last");
            let item = Item {
                target: 0,
                origin: 2,
                sequence: sequence as u64,
                payload,
            };
            let accepted = channel.accept(9, item, CheckpointId(9));
            complaint = accepted.err().map(|error| error.to_string());
        }
        complaint
    }

    // DESIGN 4: a source emits nothing behind the barrier of a stop; whatever comes nevertheless
    // would be in no snapshot. Markers go on.
    #[test]
    fn data_behind_a_stop_or_an_end_is_corrupt() {
        let stop = || barrier(10, SnapshotKind::StopWithSavepoint { drain: false });
        let checkpoint = |id| barrier(id, SnapshotKind::Checkpoint);
        let behind = |last| {
            Some(format!(
                "data arrived behind {last}, from subtask 2 on input 1"
            ))
        };
        assert_eq!(complaint([data(), stop(), checkpoint(11), stop()]), None);
        assert_eq!(complaint([stop(), data()]), behind("the stop at `chk-10`"));
        let markers_between = [
            stop(),
            checkpoint(11),
            Payload::Marker(Marker::Cancel(CheckpointId(12))),
            data(),
        ];
        assert_eq!(complaint(markers_between), behind("the stop at `chk-10`"));
        assert_eq!(complaint([stop(), end()]), behind("the stop at `chk-10`"));

        assert_eq!(complaint([data(), end(), checkpoint(10), stop()]), None);
        assert_eq!(complaint([end(), data()]), behind("the end of data"));
        assert_eq!(complaint([end(), end()]), behind("the end of data"));
        for event_time in [
            Marker::Watermark(EventTime::MAX),
            Marker::Idle,
            Marker::Active,
        ] {
            assert_eq!(
                complaint([stop(), Payload::Marker(event_time)]),
                behind("the stop at `chk-10`")
            );
        }
        assert_eq!(complaint([checkpoint(10), data()]), None);
    }

    #[test]
    fn items_out_of_sequence_or_time_are_corrupt() {
        let mut channel = channel();
        let mut accept = |time, sequence| {
            let (target, origin) = (0, 2);
            let item = Item {
                target,
                origin,
                sequence,
                payload: data(),
            };
            let accepted = channel.accept(time, item, CheckpointId(9));
            accepted.err().map(|error| error.to_string())
        };
        let missing = "item 1 arrived where 0 was due, from subtask 2 on input 1";
        assert_eq!(accept(9, 1).as_deref(), Some(missing));
        let late = "a message sent before `chk-9` arrived after it, from subtask 2 on input 1";
        assert_eq!(accept(8, 0).as_deref(), Some(late));
        assert_eq!(accept(9, 0), None);
        assert_eq!(accept(10, 1), None);
    }
}

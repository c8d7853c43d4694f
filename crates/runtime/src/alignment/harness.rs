//! A subtask in miniature around the real [`Alignment`]: one queue per channel, a log of what
//! happens, and a small language in which a test is one line of arrivals and one of events.
//!
//! Arrivals, separated by spaces, one millisecond apart: `0:a` is data on channel 0, `0:#7` the
//! barrier of checkpoint 7, `0:~7` its cancel marker, `0:$` the close of the channel, `*~7` the
//! coordinator's abort notice. Events: `0:a` data processed, `S7` snapshot, `A7` abort because of
//! a cancel or notice, `A7<8` abort because the barrier of 8 came first.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_types::message::DeclineReason;
use tidegate_types::{
    AlignmentMode, CheckpointBarrier, CheckpointId, SnapshotFormat, SnapshotKind, UnixMillis,
};

use super::{Alignment, AlignmentAction, ChannelIndex, StreamCorrupt};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Data(String),
    Barrier(CheckpointBarrier),
    Cancel(CheckpointId),
    Close,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Data(usize, String),
    Action(AlignmentAction),
}

impl Event {
    fn text(&self) -> String {
        match self {
            Event::Data(channel, data) => format!("{channel}:{data}"),
            Event::Action(AlignmentAction::Snapshot { barrier, .. }) => {
                format!("S{}", barrier.checkpoint.0)
            }
            Event::Action(AlignmentAction::Abort { checkpoint, reason }) => match reason {
                DeclineReason::CancelledUpstream => format!("A{}", checkpoint.0),
                DeclineReason::SubsumedByBarrier { newer } => {
                    format!("A{}<{}", checkpoint.0, newer.0)
                }
                other => panic!("alignment never gives the reason {other:?}"),
            },
        }
    }
}

pub(super) fn barrier(id: u64) -> CheckpointBarrier {
    CheckpointBarrier {
        checkpoint: CheckpointId(id),
        kind: SnapshotKind::Checkpoint,
        format: SnapshotFormat::Full,
        base: None,
        location: None,
        created: UnixMillis(0),
    }
}

pub(super) struct Subtask {
    pub(super) alignment: Alignment,
    /// Items with the order of their arrival.
    queues: Vec<VecDeque<(u64, Item)>>,
    arrivals: u64,
    now: Duration,
    pub(super) log: Vec<Event>,
}

impl Subtask {
    pub(super) fn new(mode: AlignmentMode, channels: u32) -> Self {
        Self {
            alignment: Alignment::new(mode, channels),
            queues: vec![VecDeque::new(); channels as usize],
            arrivals: 0,
            now: Duration::ZERO,
            log: Vec::new(),
        }
    }

    pub(super) fn enqueue(&mut self, channel: usize, item: Item) {
        self.queues[channel].push_back((self.arrivals, item));
        self.arrivals += 1;
    }

    pub(super) fn notify_abort(&mut self, checkpoint: CheckpointId) {
        let mut actions = Vec::new();
        self.alignment.on_abort_notice(checkpoint, &mut actions);
        self.log.extend(actions.into_iter().map(Event::Action));
    }

    /// Channels that have something queued and may be read.
    pub(super) fn readable(&self) -> Vec<usize> {
        (0..self.queues.len())
            .filter(|index| !self.queues[*index].is_empty())
            .filter(|index| !self.alignment.is_blocked(ChannelIndex(*index as u32)))
            .collect()
    }

    pub(super) fn queued_any(&self) -> bool {
        self.queues.iter().any(|queue| !queue.is_empty())
    }

    /// Takes one item off the head of a readable channel.
    pub(super) fn take_from(&mut self, channel: usize) -> Result<(), StreamCorrupt> {
        let (_, item) = self.queues[channel].pop_front().unwrap();
        let index = ChannelIndex(channel as u32);
        let mut actions = Vec::new();
        match item {
            Item::Data(data) => self.log.push(Event::Data(channel, data)),
            Item::Barrier(barrier) => {
                self.alignment
                    .on_barrier(index, barrier, self.now, &mut actions)?
            }
            Item::Cancel(id) => self.alignment.on_cancel(index, id, &mut actions),
            Item::Close => self
                .alignment
                .on_channel_closed(index, self.now, &mut actions),
        }
        self.log.extend(actions.into_iter().map(Event::Action));
        Ok(())
    }

    /// Processes what is readable, in order of arrival, until nothing is.
    fn drain(&mut self) -> Result<(), StreamCorrupt> {
        let oldest = |this: &Self| {
            let readable = this.readable().into_iter();
            readable.min_by_key(|index| this.queues[*index][0].0)
        };
        while let Some(channel) = oldest(self) {
            self.take_from(channel)?;
        }
        Ok(())
    }

    /// Runs a script and returns the events it caused.
    pub(super) fn try_run(&mut self, script: &str) -> Result<String, StreamCorrupt> {
        let start = self.log.len();
        for token in script.split_whitespace() {
            self.now += Duration::from_millis(1);
            match token.strip_prefix("*~") {
                Some(id) => self.notify_abort(CheckpointId(id.parse().unwrap())),
                None => {
                    let (channel, item) = parse(token);
                    self.enqueue(channel, item);
                }
            }
            self.drain()?;
        }
        let texts: Vec<String> = self.log[start..].iter().map(Event::text).collect();
        Ok(texts.join(" "))
    }

    pub(super) fn run(&mut self, script: &str) -> String {
        self.try_run(script).unwrap()
    }

    pub(super) fn blocked(&self) -> Vec<u32> {
        (0..self.queues.len() as u32)
            .filter(|index| self.alignment.is_blocked(ChannelIndex(*index)))
            .collect()
    }

    /// Nothing blocked, pending or queued.
    pub(super) fn is_settled(&self) -> bool {
        !self.alignment.blocked_any()
            && self.blocked().is_empty()
            && self.alignment.waiting_for().is_none()
            && !self.queued_any()
    }

    /// Alignment times in milliseconds of the snapshots so far.
    pub(super) fn alignment_times(&self) -> Vec<u128> {
        let time = |event: &Event| match event {
            Event::Action(AlignmentAction::Snapshot { alignment, .. }) => {
                Some(alignment.as_millis())
            }
            _ => None,
        };
        self.log.iter().filter_map(time).collect()
    }
}

fn parse(token: &str) -> (usize, Item) {
    let (channel, item) = token.split_once(':').unwrap();
    let item = match item.split_at(1) {
        ("#", id) => Item::Barrier(barrier(id.parse().unwrap())),
        ("~", id) => Item::Cancel(CheckpointId(id.parse().unwrap())),
        ("$", "") => Item::Close,
        _ => Item::Data(item.to_owned()),
    };
    (channel.parse().unwrap(), item)
}

//! The sending side of a simulated subtask: batches per channel, sent before any marker.

use std::collections::VecDeque;

use tidegate_types::graph::{Edge, JobGraph, Partitioning};
use tidegate_types::{MaxParallelism, hash_bytes};

use crate::mutation::Mutation;
use crate::outside::Outside;
use crate::record::{Channel, Payload, Record};
use crate::rng::Rng;

/// One outgoing edge of a subtask.
#[derive(Debug)]
pub(super) struct EdgeOutput {
    /// Number of the edge in the graph.
    edge: u32,
    partitioning: Partitioning,
    max_parallelism: MaxParallelism,
    pub(super) channels: Vec<usize>,
    batches: Vec<VecDeque<Record>>,
}

impl EdgeOutput {
    pub(super) fn new(graph: &JobGraph, number: usize, edge: &Edge) -> Self {
        EdgeOutput {
            edge: number as u32,
            partitioning: edge.partitioning,
            max_parallelism: graph.operator(edge.to).max_parallelism,
            channels: Vec::new(),
            batches: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, channel: usize) {
        self.channels.push(channel);
        self.batches.push(VecDeque::new());
    }

    /// Whether the next record may have nowhere to go.
    pub(super) fn is_full(&self, channels: &[Channel], window: u64) -> bool {
        let mut full = self
            .channels
            .iter()
            .map(|at| channels[*at].outstanding >= window);
        match self.partitioning {
            Partitioning::Rebalance => full.all(|full| full),
            _ => full.any(|full| full),
        }
    }

    pub(super) fn holds_records(&self) -> bool {
        self.batches.iter().any(|batch| !batch.is_empty())
    }

    /// The position of the channel that a record with this key goes to.
    fn route(&self, key: u32, channels: &[Channel], window: u64, rng: &mut Rng) -> usize {
        let count = self.channels.len();
        match self.partitioning {
            Partitioning::Forward => 0,
            Partitioning::KeyGroups => {
                let group = self
                    .max_parallelism
                    .key_group(hash_bytes(&key.to_le_bytes()));
                self.max_parallelism.owner(group, count as u32) as usize
            }
            Partitioning::Broadcast => unreachable!("a broadcast goes everywhere"),
            Partitioning::Rebalance => {
                let first = rng.below(count);
                let mut turns = (0..count).map(|step| (first + step) % count);
                let free = turns.find(|at| channels[self.channels[*at]].outstanding < window);
                free.unwrap_or(first)
            }
        }
    }

    pub(super) fn emit(
        &mut self,
        record: Record,
        channels: &mut [Channel],
        (window, batch): (u64, usize),
        Outside { rng, mutation, .. }: &mut Outside,
    ) {
        if self.partitioning == Partitioning::Broadcast {
            let of = self.channels.len();
            let skips = *mutation == Some(Mutation::BroadcastSkipsOne) && rng.chance(0.02);
            for copy in usize::from(skips)..of {
                self.put(copy, record.along(self.edge, copy, of), channels, batch);
            }
        } else {
            let at = self.route(record.key, channels, window, rng);
            self.put(at, record.along(self.edge, 0, 1), channels, batch);
        }
    }

    fn put(&mut self, at: usize, record: Record, channels: &mut [Channel], batch: usize) {
        channels[self.channels[at]].outstanding += 1;
        self.batches[at].push_back(record);
        if self.batches[at].len() >= batch {
            self.flush_one(at, channels);
        }
    }

    /// Sends an item of its own to a channel that has room.
    pub(super) fn assign(
        &mut self,
        payload: Payload,
        channels: &mut [Channel],
        window: u64,
        rng: &mut Rng,
    ) {
        let at = self.route(0, channels, window, rng);
        let channel = &mut channels[self.channels[at]];
        channel.outstanding += 1;
        channel.send(payload);
    }

    fn flush_one(&mut self, at: usize, channels: &mut [Channel]) {
        if !self.batches[at].is_empty() {
            let batch = std::mem::take(&mut self.batches[at]);
            channels[self.channels[at]].send(Payload::Records(batch));
        }
    }

    pub(super) fn flush(&mut self, channels: &mut [Channel]) {
        (0..self.channels.len()).for_each(|at| self.flush_one(at, channels));
    }

    /// Sends a marker on every channel. The caller has flushed.
    pub(super) fn send_marker(&self, payload: &Payload, channels: &mut [Channel]) {
        for at in &self.channels {
            channels[*at].send(payload.clone());
        }
    }
}

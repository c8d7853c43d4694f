//! The job of a run: which operators there are and how they are connected. It is the same for all
//! processes of a run; how parallel each operator is, every process draws anew.

use tidegate_types::graph::{Edge, JobGraph, OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::{MaxParallelism, OperatorId, OperatorUid};

use crate::rng::Rng;

/// Number of key groups of every operator: few, so that ranges of all sizes come up.
const KEY_GROUPS: u32 = 8;
const PARALLELISM_MAX: u64 = 3;

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Enumerator { source: u32 },
    Reader { source: u32 },
    Map,
    Count,
    Sink,
    PlainSink,
}

impl Kind {
    fn role(self) -> OperatorRole {
        match self {
            Kind::Enumerator { .. } => OperatorRole::Enumerator,
            Kind::Reader { .. } => OperatorRole::Reader,
            Kind::Map | Kind::Count => OperatorRole::Transform,
            Kind::Sink => OperatorRole::CommittingSink,
            Kind::PlainSink => OperatorRole::Sink,
        }
    }
}

/// The operators of a job and the edges between them, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    pub(crate) kinds: Vec<Kind>,
    edges: Vec<(usize, usize)>,
}

impl Topology {
    pub(crate) fn draw(rng: &mut Rng, sources: u32) -> Self {
        let mut topology = Topology::default();
        let mut streams: Vec<usize> = (0..sources).map(|s| topology.source(s)).collect();
        for stream in &mut streams {
            if rng.chance(0.3) {
                *stream = topology.operator(Kind::Map, &[*stream]);
            }
        }
        let raw = streams[0];
        if rng.chance(0.3) {
            let left = topology.operator(Kind::Map, &[raw]);
            let right = topology.operator(Kind::Map, &[raw]);
            streams.splice(0..1, [left, right]);
        }
        let mut last = topology.operator(Kind::Count, &streams);
        if rng.chance(0.2) {
            last = topology.operator(Kind::Count, &[last]);
        }
        topology.operator(Kind::Sink, &[last]);
        if rng.chance(0.3) {
            let from = if rng.chance(0.5) { last } else { raw };
            topology.operator(Kind::Sink, &[from]);
        }
        if rng.chance(0.2) {
            topology.operator(Kind::PlainSink, &[raw]);
        }
        topology
    }

    fn source(&mut self, source: u32) -> usize {
        let enumerator = self.operator(Kind::Enumerator { source }, &[]);
        self.operator(Kind::Reader { source }, &[enumerator])
    }

    fn operator(&mut self, kind: Kind, inputs: &[usize]) -> usize {
        let index = self.kinds.len();
        self.kinds.push(kind);
        self.edges.extend(inputs.iter().map(|from| (*from, index)));
        index
    }

    /// The graph with a parallelism for each operator.
    pub(crate) fn graph(&self, rng: &mut Rng) -> JobGraph {
        let max_parallelism = self.key_groups();
        let operators: Vec<OperatorSpec> = self
            .kinds
            .iter()
            .enumerate()
            .map(|(index, kind)| OperatorSpec {
                uid: OperatorUid(format!("{}{index}", name(*kind))),
                parallelism: match kind {
                    Kind::Enumerator { .. } => 1,
                    _ => rng.between(1, PARALLELISM_MAX) as u32,
                },
                max_parallelism,
                max_parallelism_derived: false,
                role: kind.role(),
            })
            .collect();
        let edge = |&(from, to): &(usize, usize)| {
            let equal = operators[from].parallelism == operators[to].parallelism;
            let partitioning = match (self.kinds[from], self.kinds[to]) {
                (_, Kind::Count) => Partitioning::KeyGroups,
                (Kind::Enumerator { .. }, _) => Partitioning::Rebalance,
                _ if equal && rng.chance(0.5) => Partitioning::Forward,
                _ => Partitioning::Rebalance,
            };
            let (from, to) = (OperatorId(from as u32), OperatorId(to as u32));
            Edge {
                from,
                to,
                partitioning,
            }
        };
        let edges = self.edges.iter().map(edge).collect();
        JobGraph { operators, edges }
    }

    /// The number of key groups of every operator.
    pub(crate) fn key_groups(&self) -> MaxParallelism {
        MaxParallelism::new(KEY_GROUPS).expect("a few are allowed")
    }

    /// In how many copies a record of `source` arrives at `operator`.
    pub(crate) fn copies(&self, source: u32, operator: usize) -> u64 {
        if self.kinds[operator] == (Kind::Reader { source }) {
            return 1;
        }
        self.inputs(operator)
            .map(|from| self.copies(source, from))
            .sum()
    }

    /// The operators whose output goes to `operator`.
    pub(crate) fn inputs(&self, operator: usize) -> impl Iterator<Item = usize> {
        let edges = self.edges.iter().filter(move |(_, to)| *to == operator);
        edges.map(|(from, _)| *from)
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Enumerator { .. } => "enumerate",
        Kind::Reader { .. } => "read",
        Kind::Map => "map",
        Kind::Count => "count",
        Kind::Sink => "sink",
        Kind::PlainSink => "print",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drawn_graph_is_valid() {
        for seed in 0..500 {
            let mut rng = Rng::new(seed, 0);
            let sources = rng.between(1, 2) as u32;
            let topology = Topology::draw(&mut rng, sources);
            assert_eq!(topology.graph(&mut rng).validate(), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn a_diamond_doubles_what_comes_through_both_sides() {
        let mut topology = Topology::default();
        let read = topology.source(0);
        let left = topology.operator(Kind::Map, &[read]);
        let right = topology.operator(Kind::Map, &[read]);
        let count = topology.operator(Kind::Count, &[left, right]);
        assert_eq!(topology.copies(0, count), 2);
        assert_eq!(topology.copies(1, count), 0);
    }
}

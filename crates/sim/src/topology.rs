//! The job of a run: which operators there are and how they are connected. It is the same for all
//! processes of a run; how parallel each operator is, every process draws anew.
//!
//! The graph is drawn operator by operator. Each takes its inputs from any that came before it, so
//! that chains, unions, branches and diamonds come about by themselves; what nobody reads gets a
//! sink in the end.
//!
//! Invariants: *edges lead to later operators · no operator is reached in more than
//! [`COPIES_MAX`] physical copies per record · at most [`HOPS_MAX`] broadcasts lie on a path*.

use tidegate_types::graph::{Edge, JobGraph, OperatorRole, OperatorSpec, Partitioning};
use tidegate_types::{MaxParallelism, OperatorId, OperatorUid, Scale, Scaling};

use crate::rng::Rng;

/// Number of key groups of every operator: few, so that ranges of all sizes come up.
const KEY_GROUPS: u32 = 8;
pub(crate) const PARALLELISM_MAX: u32 = 3;
const COPIES_MAX: u64 = 12;
const HOPS_MAX: u32 = 2;

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Enumerator {
        source: u32,
    },
    Reader {
        source: u32,
    },
    Map,
    /// Numbers the records of each key, in keyed state.
    Count,
    /// Gets every record in every subtask and sums them up, in broadcast state.
    Shared,
    Sink,
    PlainSink,
}

impl Kind {
    fn role(self) -> OperatorRole {
        match self {
            Kind::Enumerator { .. } => OperatorRole::Enumerator,
            Kind::Reader { .. } => OperatorRole::Reader,
            Kind::Map | Kind::Count | Kind::Shared => OperatorRole::Transform,
            Kind::Sink => OperatorRole::CommittingSink,
            Kind::PlainSink => OperatorRole::Sink,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Enumerator { .. } => "enumerate",
            Kind::Reader { .. } => "read",
            Kind::Map => "map",
            Kind::Count => "count",
            Kind::Shared => "share",
            Kind::Sink => "sink",
            Kind::PlainSink => "print",
        }
    }
}

/// How records travel, as far as the job says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exchange {
    /// Forward or evenly, as the parallelism allows.
    Any,
    Keyed,
    Broadcast,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    from: usize,
    to: usize,
    exchange: Exchange,
}

/// How records reach an operator.
#[derive(Clone, Debug, Default)]
struct Reach {
    /// On how many paths, by source.
    paths: Vec<u64>,
    /// The most physical copies of one record.
    copies: u64,
    /// The most broadcasts on one path.
    hops: u32,
}

/// The operators of a job and the edges between them, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    pub(crate) kinds: Vec<Kind>,
    links: Vec<Link>,
    reaches: Vec<Reach>,
}

impl Topology {
    pub(crate) fn draw(rng: &mut Rng, sources: u32) -> Self {
        let mut topology = Topology::default();
        (0..sources).for_each(|source| topology.source(source));
        let transforms = *rng.pick(&[1, 1, 2, 3, 4, 6]);
        (0..transforms).for_each(|_| topology.draw_transform(rng));
        topology.draw_sinks(rng);
        topology
    }

    fn source(&mut self, source: u32) {
        let enumerator = self.operator(Kind::Enumerator { source }, &[], Exchange::Any);
        self.operator(Kind::Reader { source }, &[enumerator], Exchange::Any);
    }

    fn draw_transform(&mut self, rng: &mut Rng) {
        let (kind, exchange) = match rng.below(10) {
            0..=4 => (Kind::Count, Exchange::Keyed),
            5..=6 => (Kind::Map, Exchange::Any),
            7 => (Kind::Map, Exchange::Broadcast),
            8 => (Kind::Shared, Exchange::Broadcast),
            _ => (Kind::Map, Exchange::Keyed),
        };
        let inputs = self.draw_inputs(rng, exchange);
        if !inputs.is_empty() {
            self.operator(kind, &inputs, exchange);
        }
    }

    /// Any number of streams that together stay within the bounds; the same one may come twice.
    fn draw_inputs(&self, rng: &mut Rng, exchange: Exchange) -> Vec<usize> {
        let streams = self.streams();
        let count = *rng.pick(&[1, 1, 1, 2, 2, 3, 4]);
        let mut inputs = Vec::new();
        for _ in 0..count {
            // What was made last more often than not, for depth.
            let from = match rng.chance(0.5) {
                true => *streams.last().expect("there is a source"),
                false => *rng.pick(&streams),
            };
            inputs.push(from);
            let reach = self.reach(&inputs, exchange);
            if reach.copies > COPIES_MAX || reach.hops > HOPS_MAX {
                inputs.pop();
            }
        }
        inputs
    }

    fn draw_sinks(&mut self, rng: &mut Rng) {
        let is_read = |from: &usize| self.links.iter().any(|link| link.from == *from);
        let (read, mut unread): (Vec<usize>, Vec<usize>) =
            self.streams().into_iter().partition(is_read);
        if rng.chance(0.4) && !read.is_empty() {
            unread.push(*rng.pick(&read));
        }
        let mut commits = false;
        while let Some(from) = unread.pop() {
            let mut inputs = vec![from];
            // Several streams may share a sink.
            while rng.chance(0.2) && !unread.is_empty() {
                inputs.extend(unread.pop());
            }
            let last = unread.is_empty() && !commits;
            let kind = match last || rng.chance(0.75) {
                true => Kind::Sink,
                false => Kind::PlainSink,
            };
            commits |= kind == Kind::Sink;
            let exchange = match rng.below(8) {
                0 if self.reach(&inputs, Exchange::Broadcast).hops <= HOPS_MAX => {
                    Exchange::Broadcast
                }
                1 => Exchange::Keyed,
                _ => Exchange::Any,
            };
            self.operator(kind, &inputs, exchange);
        }
    }

    /// Operators that emit records.
    fn streams(&self) -> Vec<usize> {
        let emits = |at: &usize| {
            let kind = self.kinds[*at];
            !matches!(kind, Kind::Enumerator { .. } | Kind::Sink | Kind::PlainSink)
        };
        (0..self.kinds.len()).filter(emits).collect()
    }

    fn operator(&mut self, kind: Kind, inputs: &[usize], exchange: Exchange) -> usize {
        let to = self.kinds.len();
        let reach = match kind {
            Kind::Enumerator { .. } => Reach::default(),
            Kind::Reader { source } => {
                let mut paths = vec![0; source as usize + 1];
                paths[source as usize] = 1;
                Reach {
                    paths,
                    copies: 1,
                    hops: 0,
                }
            }
            _ => self.reach(inputs, exchange),
        };
        self.kinds.push(kind);
        self.reaches.push(reach);
        let link = |from: &usize| Link {
            from: *from,
            to,
            exchange,
        };
        self.links.extend(inputs.iter().map(link));
        to
    }

    /// How records would reach an operator with these inputs.
    fn reach(&self, inputs: &[usize], exchange: Exchange) -> Reach {
        let broadcast = exchange == Exchange::Broadcast;
        let mut reach = Reach::default();
        for from in inputs.iter().map(|from| &self.reaches[*from]) {
            let sources = reach.paths.len().max(from.paths.len());
            reach.paths.resize(sources, 0);
            for (paths, more) in reach.paths.iter_mut().zip(&from.paths) {
                *paths += more;
            }
            reach.copies += from.copies
                * if broadcast {
                    u64::from(PARALLELISM_MAX)
                } else {
                    1
                };
            reach.hops = reach.hops.max(from.hops + u32::from(broadcast));
        }
        reach
    }

    /// The graph with a parallelism for each operator, and how it changes when the job is rescaled.
    pub(crate) fn graph(&self, rng: &mut Rng) -> (JobGraph, Scaling) {
        let max_parallelism = self.key_groups();
        let operators: Vec<OperatorSpec> = self
            .kinds
            .iter()
            .enumerate()
            .map(|(index, kind)| OperatorSpec {
                uid: OperatorUid(format!("{}{index}", kind.name())),
                parallelism: match kind {
                    Kind::Enumerator { .. } => 1,
                    _ => rng.between(1, u64::from(PARALLELISM_MAX)) as u32,
                },
                max_parallelism,
                max_parallelism_derived: false,
                role: kind.role(),
            })
            .collect();
        let edge = |link: &Link| {
            let partitioning = match link.exchange {
                Exchange::Keyed => Partitioning::KeyGroups,
                Exchange::Broadcast => Partitioning::Broadcast,
                Exchange::Any => Partitioning::Rebalance,
            };
            Edge {
                from: OperatorId(link.from as u32),
                to: OperatorId(link.to as u32),
                partitioning,
            }
        };
        let edges = self.links.iter().map(edge).collect();
        let graph = JobGraph { operators, edges };
        let flexible = self.draw_flexible(rng);
        let chosen = graph.operator_ids().filter(|_| rng.chance(0.2)).collect();
        let scaling = Scaling::new(graph.clone(), chosen, &flexible);
        (scaling.apply(&graph, Scale::default()), scaling)
    }

    /// Edges that are forward edges where both sides are equally parallel.
    fn draw_flexible(&self, rng: &mut Rng) -> Vec<usize> {
        let mut flexible = Vec::new();
        for (at, link) in self.links.iter().enumerate() {
            let is_assignment = matches!(self.kinds[link.from], Kind::Enumerator { .. });
            if link.exchange == Exchange::Any && !is_assignment && rng.chance(0.5) {
                flexible.push(at);
            }
        }
        flexible
    }

    /// The number of key groups of every operator.
    pub(crate) fn key_groups(&self) -> MaxParallelism {
        MaxParallelism::new(KEY_GROUPS).expect("a few are allowed")
    }

    /// On how many paths a record of `source` arrives at `operator`; a broadcast counts as one
    /// path, whose copies share one whole between them.
    pub(crate) fn paths(&self, source: u32, operator: usize) -> u64 {
        let paths = self.reaches[operator].paths.get(source as usize);
        paths.copied().unwrap_or(0)
    }

    /// Whether everything that arrives at `operator` has come straight from one counting operator,
    /// in one copy.
    pub(crate) fn is_behind_count(&self, operator: usize) -> bool {
        let mut links = self.links.iter().filter(|link| link.to == operator);
        let (first, second) = (links.next(), links.next());
        first.is_some_and(|link| {
            self.kinds[link.from] == Kind::Count && link.exchange != Exchange::Broadcast
        }) && second.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn() -> impl Iterator<Item = (u64, Topology, JobGraph)> {
        (0..2_000).map(|seed| {
            let mut rng = Rng::new(seed, 0);
            let sources = rng.between(1, 3) as u32;
            let topology = Topology::draw(&mut rng, sources);
            let (graph, _) = topology.graph(&mut rng);
            (seed, topology, graph)
        })
    }

    #[test]
    fn every_drawn_graph_is_valid_and_within_bounds() {
        for (seed, topology, graph) in drawn() {
            assert_eq!(graph.validate(), Ok(()), "seed {seed}");
            assert!(topology.kinds.contains(&Kind::Sink), "seed {seed}");
            for reach in &topology.reaches {
                assert!(reach.hops <= HOPS_MAX + 1 && reach.copies <= 4 * COPIES_MAX * 3);
            }
        }
    }

    #[test]
    fn all_shapes_come_up() {
        let has = |wanted: fn(&Topology, &JobGraph) -> bool| {
            drawn()
                .filter(|(_, topology, graph)| wanted(topology, graph))
                .count()
                >= 50
        };
        for partitioning in [
            Partitioning::Forward,
            Partitioning::KeyGroups,
            Partitioning::Rebalance,
            Partitioning::Broadcast,
        ] {
            let uses = drawn().filter(|(_, _, graph)| {
                graph
                    .edges
                    .iter()
                    .any(|edge| edge.partitioning == partitioning)
            });
            assert!(uses.count() >= 50, "{partitioning:?}");
        }
        assert!(has(|topology, _| topology.kinds.contains(&Kind::Shared)));
        assert!(has(|topology, _| topology.kinds.contains(&Kind::PlainSink)));
        let sinks =
            |topology: &Topology| topology.kinds.iter().filter(|k| **k == Kind::Sink).count();
        assert!(has(|topology, _| topology.kinds.len() >= 12));
        assert_eq!(sinks(&drawn().next().unwrap().1).min(1), 1);
        // A union, a branch, a diamond.
        assert!(has(|_, graph| graph
            .operator_ids()
            .any(|op| graph.inputs_of(op).count() >= 3)));
        assert!(has(|_, graph| graph
            .operator_ids()
            .any(|op| graph.outputs_of(op).count() >= 3)));
        assert!(has(|topology, _| topology
            .reaches
            .iter()
            .any(|reach| reach.paths.contains(&2))));
    }

    #[test]
    fn a_diamond_doubles_what_comes_through_both_sides() {
        let mut topology = Topology::default();
        topology.source(0);
        let left = topology.operator(Kind::Map, &[1], Exchange::Any);
        let right = topology.operator(Kind::Map, &[1], Exchange::Broadcast);
        let count = topology.operator(Kind::Count, &[left, right], Exchange::Keyed);
        assert_eq!((topology.paths(0, count), topology.paths(1, count)), (2, 0));
        assert_eq!(
            topology.reaches[count].copies,
            1 + u64::from(PARALLELISM_MAX)
        );
    }
}

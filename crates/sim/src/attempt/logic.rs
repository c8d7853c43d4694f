//! What the simulated operators do: restore, process, freeze.

use std::collections::VecDeque;

use tidegate_types::{
    CheckpointId, ListState, Redistribution, SubtaskId, SubtaskRestore, hash_bytes,
};

use crate::external::{State, TransactionId};
use crate::invariants::{ENUMERATOR, SHARED, SPLITS, TRANSACTIONS, mixed};
use crate::mutation::Mutation;
use crate::outside::Outside;
use crate::record::{Record, Split, decode, encode};
use crate::store::Counts;
use crate::topology::Kind;

use super::{Hands, Stop};

/// A split at a reader, and whether it was assigned in this attempt.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) split: Split,
    pub(super) assigned: bool,
}

/// The broadcast state of one subtask among `parallelism`, each of which gets every record.
#[derive(Debug)]
pub(super) struct Shared {
    parallelism: u64,
    /// Shares of all that has arrived, as they were before the broadcast.
    wholes: u64,
    /// A sum over which records those were, as often as they count.
    sum: u64,
}

/// The transactions of a sink.
#[derive(Debug, Default)]
pub(super) struct Sink {
    /// Written since the last barrier.
    pub(super) open: Vec<Record>,
    /// Pre-committed and not known to be committed, oldest first.
    pub(super) pending: Vec<TransactionId>,
    pub(super) cleans_up: bool,
}

#[derive(Debug)]
pub(super) enum Logic {
    Enumerator { source: u32, next: u64 },
    Reader { held: VecDeque<Held> },
    Map,
    Count(Counts),
    Shared(Shared),
    Sink(Sink),
    Plain,
}

/// Everything a subtask puts into a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Frozen {
    pub(super) keyed: Option<Counts>,
    pub(super) lists: Vec<ListState>,
    pub(super) seals: VecDeque<TransactionId>,
}

fn list(name: &str, elements: Vec<Vec<u8>>) -> Vec<ListState> {
    let name = name.to_owned();
    let redistribution = match name == SHARED {
        true => Redistribution::Broadcast,
        false => Redistribution::Split,
    };
    vec![ListState {
        name,
        redistribution,
        elements,
    }]
}

fn restored<'a>(restore: &'a SubtaskRestore, name: &str) -> &'a [Vec<u8>] {
    let list = restore.lists.iter().find(|list| list.name == name);
    list.map_or(&[], |list| &list.elements)
}

impl Logic {
    /// Restores, and commits what a restored checkpoint has promised.
    pub(super) fn open(
        kind: Kind,
        id: SubtaskId,
        parallelism: u32,
        restore: &SubtaskRestore,
        hands: &mut Hands<'_>,
    ) -> Result<Logic, Stop> {
        Ok(match kind {
            Kind::Enumerator { source } => {
                let state = restored(restore, ENUMERATOR).first();
                let next = state.map_or(0, |element| decode::<1>(element)[0]);
                Logic::Enumerator { source, next }
            }
            Kind::Reader { .. } => {
                let splits = restored(restore, SPLITS).iter();
                let held = splits.map(|e| Held {
                    split: Split::decode(e),
                    assigned: false,
                });
                Logic::Reader {
                    held: held.collect(),
                }
            }
            Kind::Map => Logic::Map,
            Kind::Count => Logic::Count(read_counts(restore, hands.outside)?),
            Kind::Shared => {
                let state = restored(restore, SHARED).first();
                let [wholes, sum] = state.map_or([0, 0], |element| decode::<2>(element));
                Logic::Shared(Shared {
                    parallelism: u64::from(parallelism),
                    wholes,
                    sum,
                })
            }
            Kind::Sink => {
                for element in restored(restore, TRANSACTIONS) {
                    hands.survive()?;
                    if !hands.outside.has(Mutation::RestoreForgetsCommit) {
                        let transaction = TransactionId::decode(element);
                        super::background::commit(transaction, hands.attempt, hands.outside)?;
                    }
                }
                Logic::Sink(Sink {
                    cleans_up: id.index == 0,
                    ..Sink::default()
                })
            }
            Kind::PlainSink => Logic::Plain,
        })
    }

    /// Works on one record; what is returned is emitted.
    pub(super) fn process(&mut self, record: Record) -> Option<Record> {
        match self {
            Logic::Map => Some(record),
            Logic::Count(counts) => {
                let (count, shares) = counts.entry(record.key).or_default();
                *count += 1;
                *shares += u64::from(record.share);
                Some(Record {
                    count: *count,
                    ..record
                })
            }
            Logic::Shared(shared) => {
                let whole = u64::from(record.share) * shared.parallelism;
                shared.wholes += whole;
                let weighed = mixed(record.id).wrapping_mul(whole);
                shared.sum = shared.sum.wrapping_add(weighed);
                Some(record)
            }
            Logic::Sink(sink) => {
                sink.open.push(record);
                None
            }
            Logic::Plain => None,
            Logic::Enumerator { .. } | Logic::Reader { .. } => unreachable!("they get no records"),
        }
    }

    pub(super) fn freeze(
        &mut self,
        id: SubtaskId,
        checkpoint: CheckpointId,
        hands: &mut Hands<'_>,
    ) -> Frozen {
        match self {
            Logic::Enumerator { next, .. } => Frozen {
                lists: list(ENUMERATOR, vec![encode(&[*next])]),
                ..Frozen::default()
            },
            Logic::Reader { held } => {
                let from_start = hands.outside.has(Mutation::SplitFromStart);
                let kept = |held: &Held| match from_start {
                    true => Split {
                        position: 0,
                        ..held.split
                    }
                    .encode(),
                    false => held.split.encode(),
                };
                let splits = held.iter().map(kept).collect();
                Frozen {
                    lists: list(SPLITS, splits),
                    ..Frozen::default()
                }
            }
            Logic::Count(counts) => Frozen {
                keyed: Some(counts.clone()),
                ..Frozen::default()
            },
            Logic::Shared(Shared { wholes, sum, .. }) => Frozen {
                lists: list(SHARED, vec![encode(&[*wholes, *sum])]),
                ..Frozen::default()
            },
            Logic::Sink(sink) => sink.freeze(id, checkpoint, hands),
            Logic::Map | Logic::Plain => Frozen::default(),
        }
    }
}

/// Reads every handle and keeps what lies in the subtask's own key groups.
fn read_counts(restore: &SubtaskRestore, outside: &mut Outside) -> Result<Counts, Stop> {
    let mut all = Counts::new();
    let files = match outside.has(Mutation::FirstFileOnly) {
        true => restore.keyed.len().min(1),
        false => restore.keyed.len(),
    };
    let groups = outside.scenario.topology.key_groups();
    for handle in &restore.keyed[..files] {
        if outside.rng.chance(outside.faults.read) {
            return Err(Stop::Failed(format!("{handle:?} can't be read")));
        }
        let Some(counts) = outside.store.read_state(handle) else {
            return Err(Stop::Failed(format!("some of {handle:?} is gone")));
        };
        let own = counts.iter().filter(|(key, _)| {
            let group = groups.key_group(hash_bytes(&key.to_le_bytes()));
            restore.key_groups.contains(group) && handle.key_groups.contains(group)
        });
        all.extend(own.map(|(key, count)| (*key, *count)));
    }
    Ok(all)
}

impl Sink {
    fn freeze(&mut self, id: SubtaskId, checkpoint: CheckpointId, hands: &mut Hands<'_>) -> Frozen {
        let outside = &mut *hands.outside;
        let own = TransactionId {
            namespace: outside.store.namespace,
            attempt: hands.attempt,
            operator: id.operator.0,
            subtask: id.index,
            checkpoint,
        };
        if !self.open.is_empty() {
            outside.external.write(own, std::mem::take(&mut self.open));
            self.pending.push(own);
        }
        let only_own = outside.has(Mutation::ForgetEarlierTransactions);
        let kept = self
            .pending
            .iter()
            .filter(|transaction| !only_own || **transaction == own);
        let elements = kept.map(TransactionId::encode).collect();
        let only_own = outside.has(Mutation::SealsLostOnAbort);
        let unsealed = self.pending.iter().filter(|transaction| {
            let state = outside.external.state(**transaction);
            let sealed = matches!(state, Some(State::Sealed | State::Committed));
            !sealed && (!only_own || **transaction == own)
        });
        Frozen {
            keyed: None,
            lists: list(TRANSACTIONS, elements),
            seals: unsealed.copied().collect(),
        }
    }
}

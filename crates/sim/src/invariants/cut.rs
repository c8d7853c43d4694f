//! A completed checkpoint is a consistent cut: what the sources have let out is exactly what has
//! arrived in every state and in everything that sinks have promised, no more and no less.
//!
//! Source: Chandy and Lamport, "Distributed Snapshots" (1985); Carbone et al. (2015), section 4;
//! IT-02, the counts of which are exact at every checkpoint and not only at the end; BC-27, a
//! checkpoint of another number of parts. Says nothing about at-least-once jobs.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{AlignmentMode, CheckpointId, CompletedCheckpoint, OperatorCheckpoint};

use super::transactions::listed;
use super::{Checked, ensure};
use crate::external::{External, TransactionId};
use crate::record::{Split, WHOLE, decode, record_at};
use crate::rng::split_mix;
use crate::scenario::Scenario;
use crate::store::Store;
use crate::topology::Kind;

const NAME: &str = "cut";

/// Names of list states.
pub(crate) const ENUMERATOR: &str = "enumerator";
pub(crate) const SPLITS: &str = "splits";
pub(crate) const SHARED: &str = "shared";

/// What sinks have promised so far.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    counted: BTreeSet<TransactionId>,
    promised: Promised,
    newest: Option<CheckpointId>,
}

/// Shares by key, by sink.
type Promised = BTreeMap<u32, BTreeMap<u32, u64>>;

/// What the sources have let out.
pub(super) struct Prefix {
    /// How far each split has been read, by source and number.
    pub(super) read: BTreeMap<(u32, u32), u64>,
    /// Records per key, by source.
    by_key: Vec<BTreeMap<u32, u64>>,
    /// A sum over the records, by source.
    mixed: Vec<u64>,
}

/// The number by which a record counts in a sum over many.
pub(crate) fn mixed(id: u64) -> u64 {
    let mut state = id;
    split_mix(&mut state)
}

fn elements<'a>(
    operator: &'a OperatorCheckpoint,
    name: &'a str,
) -> impl Iterator<Item = &'a Vec<u8>> {
    let lists = operator.subtasks.iter().flat_map(|subtask| &subtask.lists);
    lists
        .filter(move |list| list.name == name)
        .flat_map(|list| &list.elements)
}

impl Prefix {
    pub(super) fn of(checkpoint: &CompletedCheckpoint, scenario: &Scenario) -> Self {
        let sources = scenario.splits.len();
        let mut assigned = vec![0; sources];
        let mut held: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for (kind, operator) in scenario.topology.kinds.iter().zip(&checkpoint.operators) {
            if let Kind::Enumerator { source } = kind {
                let next = elements(operator, ENUMERATOR).next();
                assigned[*source as usize] = next.map_or(0, |element| decode::<1>(element)[0]);
            }
            for element in elements(operator, SPLITS) {
                let split = Split::decode(element);
                held.insert((split.source, split.index), split.position);
            }
        }
        let mut prefix = Prefix {
            read: BTreeMap::new(),
            by_key: vec![BTreeMap::new(); sources],
            mixed: vec![0; sources],
        };
        for (source, splits) in scenario.splits.iter().enumerate() {
            let splits = splits.iter().enumerate().take(assigned[source] as usize);
            for (index, length) in splits {
                // A split that nobody holds has been read.
                let split = (source as u32, index as u32);
                let read = held.get(&split).unwrap_or(length);
                prefix.read.insert(split, *read);
                for position in 0..*read {
                    let record = record_at(source as u32, index as u32, position, scenario.keys);
                    *prefix.by_key[source].entry(record.key).or_default() += 1;
                    prefix.mixed[source] = prefix.mixed[source].wrapping_add(mixed(record.id));
                }
            }
        }
        prefix
    }

    /// What must have arrived at an operator: shares by key, nothing of keys without any.
    fn at(&self, operator: usize, scenario: &Scenario) -> BTreeMap<u32, u64> {
        let mut shares = BTreeMap::new();
        for (source, by_key) in self.by_key.iter().enumerate() {
            let paths = scenario.topology.paths(source as u32, operator);
            for (key, records) in by_key.iter().filter(|_| paths > 0) {
                *shares.entry(*key).or_default() += records * paths * u64::from(WHOLE);
            }
        }
        shares
    }

    /// The same as the two numbers that broadcast state keeps.
    fn shared(&self, operator: usize, scenario: &Scenario) -> [u64; 2] {
        let wholes = self.at(operator, scenario).values().sum();
        let mut sum = 0u64;
        for (source, mixed) in self.mixed.iter().enumerate() {
            let weight = scenario.topology.paths(source as u32, operator) * u64::from(WHOLE);
            sum = sum.wrapping_add(mixed.wrapping_mul(weight));
        }
        [wholes, sum]
    }
}

impl Cut {
    /// A checkpoint has completed, whether anybody knows or not.
    pub(crate) fn on_pointer(
        &mut self,
        checkpoint: &CompletedCheckpoint,
        scenario: &Scenario,
        store: &Store,
        external: &External,
    ) -> Checked {
        self.take_promises(checkpoint, external);
        if Some(checkpoint.id) < self.newest {
            // Its pointer was in doubt while a newer one was stored.
            let promised = self.promised_up_to(checkpoint, external);
            return self.check(checkpoint, &promised, scenario, store);
        }
        self.newest = Some(checkpoint.id);
        self.check(checkpoint, &self.promised, scenario, store)
    }

    /// A plain savepoint has completed: it promises nothing, but whoever starts from it finds what
    /// was promised before it, and publishes the rest.
    pub(crate) fn on_savepoint(
        &self,
        savepoint: &CompletedCheckpoint,
        scenario: &Scenario,
        store: &Store,
        external: &External,
    ) -> Checked {
        // Its attempt may have died since: the next one has removed what nobody was promised.
        if listed(savepoint).any(|id| external.state(id).is_none()) {
            return Ok(());
        }
        let promised = self.promised_up_to(savepoint, external);
        self.check(savepoint, &promised, scenario, store)
    }

    /// What had been promised when a snapshot was taken, and what it lists.
    fn promised_up_to(&self, snapshot: &CompletedCheckpoint, external: &External) -> Promised {
        let is_older = |id: &&TransactionId| id.checkpoint <= snapshot.id;
        let before = self.counted.iter().filter(is_older).copied();
        let ids: BTreeSet<TransactionId> = before.chain(listed(snapshot)).collect();
        let mut promised = Promised::new();
        for id in ids {
            add(id, external, &mut promised);
        }
        promised
    }

    fn check(
        &self,
        checkpoint: &CompletedCheckpoint,
        promised: &Promised,
        scenario: &Scenario,
        store: &Store,
    ) -> Checked {
        if scenario.mode == AlignmentMode::AtLeastOnce {
            return Ok(());
        }
        let id = checkpoint.id;
        let prefix = Prefix::of(checkpoint, scenario);
        let kinds = scenario.topology.kinds.iter().enumerate();
        for ((at, kind), operator) in kinds.zip(&checkpoint.operators) {
            let expected = prefix.at(at, scenario);
            let found = match kind {
                Kind::Count => counted(operator, store),
                Kind::Sink => promised.get(&(at as u32)).cloned().unwrap_or_default(),
                Kind::Shared => {
                    let expected = prefix.shared(at, scenario);
                    let mut states = elements(operator, SHARED).map(|state| decode::<2>(state));
                    let other = states.find(|state| *state != expected);
                    ensure(other.is_none(), NAME, || {
                        format!("{id}: op{at} has been shared {other:?}, not {expected:?}")
                    })?;
                    continue;
                }
                _ => continue,
            };
            ensure(found == expected, NAME, || {
                format!("{id}: shares by key at op{at} are {found:?}, not {expected:?}")
            })?;
        }
        Ok(())
    }

    fn take_promises(&mut self, checkpoint: &CompletedCheckpoint, external: &External) {
        for id in listed(checkpoint) {
            if self.counted.insert(id) {
                add(id, external, &mut self.promised);
            }
        }
    }
}

fn add(id: TransactionId, external: &External, promised: &mut Promised) {
    let shares = promised.entry(id.operator).or_default();
    let transaction = external.transactions.get(&id);
    for record in transaction.into_iter().flat_map(|found| &found.records) {
        *shares.entry(record.key).or_default() += u64::from(record.share);
    }
}

/// Shares by key in the keyed state of an operator.
fn counted(operator: &OperatorCheckpoint, store: &Store) -> BTreeMap<u32, u64> {
    let mut shares = BTreeMap::new();
    for handle in operator.subtasks.iter().filter_map(|s| s.keyed.as_ref()) {
        for (key, (_, share)) in store.read_state(handle).into_iter().flatten() {
            *shares.entry(key).or_default() += share;
        }
    }
    shares
}

//! No record is lost or doubled in committed output (exactly once); none is lost (at least once).
//!
//! Source: the promise of design's first page; IT-02. The oracle is a plain count over all splits:
//! which records must arrive at a sink, on how many ways, and with which running counts per key.
//!
//! How many copies a broadcast makes depends on the parallelism of the attempt that made them, and
//! that varies. So each copy carries its share of the whole: whatever the parallelism was, shares
//! add up to the number of ways only if every copy of exactly one attempt is there; and no copy
//! comes twice on the same way.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{AlignmentMode, CompletedCheckpoint};

use super::cut::Prefix;
use super::{Checked, ensure};
use crate::external::{External, State};
use crate::record::{Record, WHOLE, record_at};
use crate::scenario::Scenario;
use crate::topology::Kind;

const NAME: &str = "output";

/// What has become visible at a sink.
#[derive(Debug, Default)]
struct Visible {
    /// Which records on which way.
    ways: BTreeSet<(u64, u64)>,
    /// Sum of shares by record.
    shares: BTreeMap<u64, u64>,
}

/// What has become visible, by sink.
#[derive(Debug, Default)]
pub(crate) struct Output {
    visible: BTreeMap<u32, Visible>,
    /// The checkpoint that the job has finished with.
    last: Option<CompletedCheckpoint>,
    /// Sources have come to their end early, and stay there whatever is restored.
    drained: bool,
}

impl Output {
    /// A transaction becomes visible.
    pub(crate) fn on_commit(
        &mut self,
        scenario: &Scenario,
        sink: u32,
        records: &[Record],
    ) -> Checked {
        let exact = scenario.mode == AlignmentMode::ExactlyOnce;
        let visible = self.visible.entry(sink).or_default();
        for record in records {
            let Record { id, path, .. } = *record;
            let first = visible.ways.insert((id, path));
            ensure(first || !exact, NAME, || {
                format!("record {id:#x} is visible a second time at op{sink} on one way")
            })?;
            let shares = visible.shares.entry(id).or_default();
            *shares += u64::from(record.share);
            let whole = whole(scenario, id, sink as usize);
            ensure(*shares <= whole || !exact, NAME, || {
                format!("shares of record {id:#x} at op{sink} are {shares}, more than {whole}")
            })?;
        }
        Ok(())
    }

    /// A checkpoint has completed, whether anybody knows or not.
    pub(crate) fn on_pointer(&mut self, checkpoint: &CompletedCheckpoint) {
        self.drained |= checkpoint.kind.drains();
    }

    /// The job is to be marked as finished with this checkpoint.
    pub(crate) fn on_last(&mut self, last: &CompletedCheckpoint) {
        self.last = Some(last.clone());
    }

    /// The job has finished: everything must be there. If it was drained, everything up to where
    /// its sources were then.
    pub(crate) fn on_finished(&self, scenario: &Scenario, external: &External) -> Checked {
        let kinds = scenario.topology.kinds.iter().enumerate();
        for (sink, _) in kinds.filter(|(_, kind)| **kind == Kind::Sink) {
            self.check_lost(scenario, sink)?;
            check_counts(scenario, external, sink)?;
        }
        Ok(())
    }

    fn check_lost(&self, scenario: &Scenario, sink: usize) -> Checked {
        let visible = self.visible.get(&(sink as u32));
        let Some(last) = &self.last else {
            return ensure(false, NAME, || {
                "the job has finished with nothing".to_owned()
            });
        };
        let prefix = Prefix::of(last, scenario);
        for record in all_records(scenario) {
            let Record { id, .. } = record;
            let split = ((id >> 48) as u32, (id >> 32) as u32 & 0xffff);
            let read = prefix.read.get(&split).copied().unwrap_or(0);
            let is_read = (id & 0xffff_ffff) < read;
            ensure(is_read || self.drained, NAME, || {
                format!("record {id:#x} was never read")
            })?;
            if !is_read {
                continue;
            }
            let whole = whole(scenario, record.id, sink);
            let shares = visible.and_then(|visible| visible.shares.get(&record.id));
            let shares = shares.copied().unwrap_or(0);
            ensure(shares >= whole, NAME, || {
                let id = record.id;
                format!("shares of record {id:#x} at op{sink} are {shares}, less than {whole}")
            })?;
        }
        Ok(())
    }
}

/// What the shares of a record must add up to at a sink.
fn whole(scenario: &Scenario, id: u64, sink: usize) -> u64 {
    scenario.topology.paths((id >> 48) as u32, sink) * u64::from(WHOLE)
}

fn all_records(scenario: &Scenario) -> Vec<Record> {
    let mut records = Vec::new();
    for (source, splits) in scenario.splits.iter().enumerate() {
        for (split, length) in splits.iter().enumerate() {
            let at = |position| record_at(source as u32, split as u32, position, scenario.keys);
            records.extend((0..*length).map(at));
        }
    }
    records
}

/// Behind a counting operator the counts of each key are 1, 2, …, n, each once. At least once says
/// nothing about them: a replayed record is counted again.
fn check_counts(scenario: &Scenario, external: &External, sink: usize) -> Checked {
    let counted = scenario.topology.is_behind_count(sink);
    if !counted || scenario.mode == AlignmentMode::AtLeastOnce {
        return Ok(());
    }
    let mut counts: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (id, transaction) in &external.transactions {
        if id.operator == sink as u32 && transaction.state == State::Committed {
            for record in &transaction.records {
                counts.entry(record.key).or_default().push(record.count);
            }
        }
    }
    for (key, counts) in &mut counts {
        counts.sort_unstable();
        let in_order = counts.iter().copied().eq(1..=counts.len() as u64);
        ensure(in_order, NAME, || {
            format!("the counts of key {key} at op{sink} are {counts:?}")
        })?;
    }
    Ok(())
}

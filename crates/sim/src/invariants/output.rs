//! No record is lost or doubled in committed output (exactly once); none is lost (at least once).
//!
//! Source: the promise of design's first page. The oracle is a plain count over all splits: which
//! records must arrive at a sink, in how many copies, and with which running counts per key.

use std::collections::BTreeMap;

use tidegate_types::AlignmentMode;

use super::{Checked, ensure};
use crate::external::{External, State};
use crate::record::{Record, record_at};
use crate::scenario::Scenario;
use crate::topology::Kind;

const NAME: &str = "output";

/// What has become visible, by sink.
#[derive(Debug, Default)]
pub(crate) struct Output {
    visible: BTreeMap<u32, BTreeMap<u64, u64>>,
}

impl Output {
    /// A transaction becomes visible.
    pub(crate) fn on_commit(
        &mut self,
        scenario: &Scenario,
        sink: u32,
        records: &[Record],
    ) -> Checked {
        for record in records {
            let visible = self
                .visible
                .entry(sink)
                .or_default()
                .entry(record.id)
                .or_default();
            *visible += 1;
            let source = (record.id >> 48) as u32;
            let copies = scenario.topology.copies(source, sink as usize);
            let doubled = scenario.mode == AlignmentMode::ExactlyOnce && *visible > copies;
            ensure(!doubled, NAME, || {
                format!(
                    "record {:#x} is visible {visible} times at op{sink}, not {copies}",
                    { record.id }
                )
            })?;
        }
        Ok(())
    }

    /// The job has finished: everything must be there.
    pub(crate) fn on_finished(&self, scenario: &Scenario, external: &External) -> Checked {
        let kinds = scenario.topology.kinds.iter().enumerate();
        for (sink, _) in kinds.filter(|(_, kind)| **kind == Kind::Sink) {
            self.check_lost(scenario, sink)?;
            check_counts(scenario, external, sink)?;
        }
        Ok(())
    }

    fn check_lost(&self, scenario: &Scenario, sink: usize) -> Checked {
        let none = BTreeMap::new();
        let visible = self.visible.get(&(sink as u32)).unwrap_or(&none);
        for record in all_records(scenario) {
            let copies = scenario.topology.copies((record.id >> 48) as u32, sink);
            let has = visible.get(&record.id).copied().unwrap_or(0);
            ensure(has >= copies, NAME, || {
                format!(
                    "record {:#x} is visible {has} times at op{sink}, not {copies}",
                    record.id
                )
            })?;
        }
        Ok(())
    }
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
    let topology = &scenario.topology;
    let counted = topology
        .inputs(sink)
        .all(|from| topology.kinds[from] == Kind::Count);
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

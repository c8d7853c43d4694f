//! The peer that says what is possible: operators written by hand for timely dataflow.
//!
//! No checkpoints, no state that could be restored, no key groups: a source fills a batch per
//! worker, a channel moves whole batches, and an operator counts in a flat table. Numbers are
//! generated and hashed as the job on Tidegate does it; texts are packed into plain memory
//! ([`crate::packed`]), and then treated as numbers are. Memory is bounded, since a source has a
//! fixed number of batches and goes on when emptied ones come back.

mod flow;
mod generated;
mod parcel;
mod records;
mod table;
mod words;

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::measure::{Arrivals, Meter};
use crate::options::Common;
use crate::outcome::{Outcome, Verified, millis};

use flow::Tally;

/// Generates numbers and drops them.
///
/// # Errors
/// As for [`keyed_count`].
pub(crate) fn source(records: u64, common: &Common) -> Result<Outcome> {
    measure("source", records, common, move |arrivals, workers| {
        flow::run(workers, arrivals, move |worker| {
            let part = part(records, worker.index, worker.peers);
            let only = worker.index..worker.index + 1;
            (
                generated::Mixed::new(part),
                records::Dropped::default(),
                only,
            )
        })
    })
}

/// Counts numbers by key.
///
/// # Errors
/// If timely can't run, or the counts are wrong.
pub(crate) fn keyed_count(records: u64, keys: u64, common: &Common) -> Result<Outcome> {
    let mut outcome = measure("keyed-count", records, common, move |arrivals, workers| {
        flow::run(workers, arrivals, move |worker| {
            let part = part(records, worker.index, worker.peers);
            let counts = records::Counted::new(keys.div_ceil(worker.peers as u64));
            (generated::numbers(part, keys), counts, 0..worker.peers)
        })
    })?;
    outcome.keys = Some(keys);
    Ok(outcome)
}

/// Counts texts by key.
///
/// # Errors
/// As for [`keyed_count`].
pub(crate) fn keyed_strings(records: u64, keys: u64, common: &Common) -> Result<Outcome> {
    let texts = generated::texts_of(keys);
    let mut outcome = measure(
        "keyed-strings",
        records,
        common,
        move |arrivals, workers| {
            flow::run(workers, arrivals, move |worker| {
                let part = part(records, worker.index, worker.peers);
                let counts = records::Counted::new(keys.div_ceil(worker.peers as u64));
                let source = generated::texts(part, Arc::clone(&texts));
                (source, counts, 0..worker.peers)
            })
        },
    )?;
    outcome.keys = Some(keys);
    Ok(outcome)
}

/// Counts the words of files.
///
/// # Errors
/// As for [`keyed_count`], or if a file can't be read.
pub(crate) fn wordcount(records: u64, files: Vec<PathBuf>, common: &Common) -> Result<Outcome> {
    // Whatever can't be opened is told before anything runs.
    for path in &files {
        std::fs::File::open(path).map_err(Error::io("open", path))?;
    }
    measure("wordcount", records, common, move |arrivals, workers| {
        flow::run(workers, arrivals, move |worker| {
            let own = files.iter().skip(worker.index).step_by(worker.peers);
            let words = words::Words::new(own.cloned().collect());
            let vocabulary = crate::corpus::VOCABULARY as u64;
            let counts = records::Counted::new(vocabulary.div_ceil(worker.peers as u64));
            (words, counts, 0..worker.peers)
        })
    })
}

/// The indexes that one of so many workers generates.
fn part(records: u64, index: usize, peers: usize) -> std::ops::Range<u64> {
    let at = |index: usize| {
        let part = u128::from(records) * index as u128 / peers as u128;
        u64::try_from(part).expect("a part is not more than the whole")
    };
    at(index)..at(index + 1)
}

fn measure(
    workload: &str,
    records: u64,
    common: &Common,
    run: impl FnOnce(Arrivals, usize) -> Result<Tally>,
) -> Result<Outcome> {
    let arrivals = Arrivals::default();
    let meter = Meter::start();
    let tally = run(arrivals.clone(), common.parallelism as usize)?;
    let usage = meter.stop()?;
    Error::unless_equal("sum of counts", records, tally.sum_of_counts)?;
    let mut outcome = Outcome::new((workload, "timely"), records, common.parallelism, usage);
    outcome.start_to_first_record_ms = arrivals.first().map(millis);
    outcome.verified = Some(Verified {
        distinct_keys: tally.distinct_keys,
        sum_of_counts: tally.sum_of_counts,
    });
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_up_the_whole() {
        for (records, peers) in [(10, 3), (2, 4), (1_000_001, 2)] {
            let parts: Vec<_> = (0..peers)
                .map(|index| part(records, index, peers))
                .collect();
            assert_eq!(parts[0].start, 0);
            assert_eq!(parts[peers - 1].end, records);
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }
}

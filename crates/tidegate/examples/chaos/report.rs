//! What was survived, and how fast the job was back.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::faults::{KINDS, Kind};
use crate::recovery::Recovery;

/// What became of faults of one kind.
#[derive(Debug, Default)]
struct Tally {
    survived: u32,
    /// Of those that made the job restart, and didn't overlap with another.
    recoveries: Vec<Recovery>,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    kinds: BTreeMap<Kind, Tally>,
    overlapping: u32,
}

impl Report {
    /// A fault was survived; with `recovery` if it made the job restart.
    pub(crate) fn survived(&mut self, kind: Kind, recovery: Option<Recovery>) {
        let tally = self.kinds.entry(kind).or_default();
        tally.survived += 1;
        tally.recoveries.extend(recovery);
    }

    /// A fault was survived that struck before another one had been recovered from.
    pub(crate) fn survived_within_another(&mut self, kind: Kind) {
        self.survived(kind, None);
        self.overlapping += 1;
    }

    pub(crate) fn add(&mut self, other: Report) {
        for (kind, tally) in other.kinds {
            let sum = self.kinds.entry(kind).or_default();
            sum.survived += tally.survived;
            sum.recoveries.extend(tally.recoveries);
        }
        self.overlapping += other.overlapping;
    }

    pub(crate) fn total(&self) -> u32 {
        self.kinds.values().map(|tally| tally.survived).sum()
    }

    /// A line for each kind: how often it was survived; how often the job restarted; and p50, p99
    /// and maximum, in milliseconds, of the three times.
    pub(crate) fn print(&self) {
        println!(
            "{:<43}{:>9}{:>9}  {:^17}  {:^17}  {:^17}",
            "fault", "survived", "restarts", "subtasks run", "first record", "first output"
        );
        for kind in KINDS {
            let Some(tally) = self.kinds.get(&kind) else {
                continue;
            };
            let of = |time: &dyn Fn(&Recovery) -> Option<Duration>| {
                distribution(tally.recoveries.iter().filter_map(time).collect())
            };
            println!(
                "{:<43}{:>9}{:>9}  {:>17}  {:>17}  {:>17}",
                kind.label(),
                tally.survived,
                tally.recoveries.len(),
                of(&|recovery| Some(recovery.running)),
                of(&|recovery| recovery.record),
                of(&|recovery| Some(recovery.output)),
            );
        }
        println!(
            "times in ms after the fault (after its end for ZooKeeper): p50/p99/max; {} of {} \
             faults struck while another was being recovered from",
            self.overlapping,
            self.total()
        );
    }
}

fn distribution(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: f64| {
        let rank = (times.len() as f64 * share).ceil() as usize;
        times.get(rank.max(1) - 1).map(Duration::as_millis)
    };
    match (at(0.5), at(0.99), at(1.0)) {
        (Some(p50), Some(p99), Some(max)) => format!("{p50}/{p99}/{max}"),
        _ => "-".to_owned(),
    }
}

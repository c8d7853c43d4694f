//! What is compared: which job, how long, what of it is shown, and between whom.

use std::time::Duration;

use clap::ValueEnum;

use super::metric::Metric;

/// A line of the comparison: a workload and what sets it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// Numbers are generated and discarded.
    Source,
    /// Numbers are counted, of which a thousand are different: state fits the cache.
    #[value(name = "keyed-count-1k")]
    KeyedCount1k,
    /// A million are different: state doesn't.
    #[value(name = "keyed-count-1m")]
    KeyedCount1m,
    /// Strings of mixed length are counted.
    KeyedStrings,
    /// The words of a text are counted.
    Wordcount,
    /// From a kill until all subtasks run again.
    Recovery,
    /// How long a start takes and how much memory a job, with a thousand keys.
    #[value(name = "footprint-1k")]
    Footprint1k,
    /// The same with a million keys.
    #[value(name = "footprint-1m")]
    Footprint1m,
    /// What checkpoints cost Tidegate, with a thousand keys.
    #[value(name = "checkpoints-1k")]
    Checkpoints1k,
    /// The same with a million keys.
    #[value(name = "checkpoints-1m")]
    Checkpoints1m,
}

impl Case {
    /// All that `compare` runs unless it is told otherwise.
    pub(crate) const DEFAULT: [Case; 9] = [
        Case::KeyedCount1k,
        Case::KeyedCount1m,
        Case::KeyedStrings,
        Case::Wordcount,
        Case::Footprint1k,
        Case::Footprint1m,
        Case::Recovery,
        Case::Checkpoints1k,
        Case::Checkpoints1m,
    ];

    /// Its name on the command line, and in JSON.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    /// What readers of a table see.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Case::Source => "generate and discard",
            Case::KeyedCount1k => "keyed count, 1 k keys",
            Case::KeyedCount1m => "keyed count, 1 M keys",
            Case::KeyedStrings => "keyed count, strings",
            Case::Wordcount => "word count",
            Case::Recovery => "recovery, 1 M keys",
            Case::Footprint1k => "a job alone, 1 k keys",
            Case::Footprint1m => "a job alone, 1 M keys",
            Case::Checkpoints1k => "keyed count, 1 k keys",
            Case::Checkpoints1m => "keyed count, 1 M keys",
        }
    }

    /// The suite's workload that it runs.
    pub(crate) fn workload(self) -> &'static str {
        match self {
            Case::Source => "source",
            Case::KeyedStrings => "keyed-strings",
            Case::Wordcount => "wordcount",
            Case::Recovery => "recovery",
            _ => "keyed-count",
        }
    }

    /// How many different keys; `None` where the text decides, or nothing.
    pub(crate) fn keys(self) -> Option<u64> {
        match self {
            Case::KeyedCount1k | Case::Footprint1k | Case::Checkpoints1k => Some(1_000),
            Case::KeyedCount1m | Case::Footprint1m | Case::Checkpoints1m | Case::Recovery => {
                Some(1_000_000)
            }
            Case::KeyedStrings => Some(100_000),
            Case::Source | Case::Wordcount => None,
        }
    }

    /// How many records take a few seconds; `None` where there is no end.
    pub(crate) fn records(self, system: System) -> Option<u64> {
        let (by_most, by_renoir, by_flink) = match self {
            Case::Source => (1_500, 1_500, 300),
            Case::KeyedCount1k | Case::Checkpoints1k => (500, 250, 60),
            Case::KeyedCount1m | Case::Checkpoints1m => (200, 80, 20),
            Case::KeyedStrings => (150, 50, 30),
            Case::Footprint1k => (400, 400, 40),
            Case::Footprint1m => (150, 150, 15),
            // About 200 MB: the text's whole length, for all systems.
            Case::Wordcount => (27, 27, 27),
            Case::Recovery => return None,
        };
        let millions: u64 = match system {
            System::Tidegate | System::Timely => by_most,
            System::Renoir | System::RenoirPacked => by_renoir,
            System::Flink => by_flink,
        };
        Some(millions * 1_000_000)
    }

    /// What is shown of it, most important first.
    pub(crate) fn metrics(self) -> &'static [Metric] {
        match self {
            Case::Source => &[Metric::Rate, Metric::RatePerCpu],
            Case::Recovery => &[Metric::Recovery],
            Case::Footprint1k => &[Metric::Start, Metric::PeakMemory],
            Case::Footprint1m => &[Metric::PeakMemory],
            Case::Checkpoints1k | Case::Checkpoints1m => &[Metric::Rate],
            _ => &[Metric::Rate, Metric::RatePerCpu, Metric::CheckpointDuration],
        }
    }

    /// By how much Tidegate is to be ahead of `other` in what is shown first, at least.
    pub(crate) fn goal(self, metric: Metric, other: System) -> Option<f64> {
        match (self, metric, other) {
            (Case::KeyedCount1k | Case::Wordcount, Metric::Rate, System::Flink) => Some(8.0),
            (Case::KeyedCount1m, Metric::Rate, System::Flink) => Some(12.0),
            (_, Metric::PeakMemory, System::Flink) => Some(15.0),
            (_, Metric::Recovery, System::Flink) => Some(10.0),
            (Case::KeyedCount1k | Case::KeyedCount1m, Metric::Rate, System::Timely) => Some(0.7),
            _ => None,
        }
    }

    /// Whether it compares intervals between checkpoints, and no systems.
    pub(crate) fn of_intervals(self) -> bool {
        matches!(self, Case::Checkpoints1k | Case::Checkpoints1m)
    }

    /// Who takes turns at it, Tidegate (or no checkpoints) first, if these peers are wanted.
    pub(crate) fn contenders(self, peers: &[System]) -> Vec<Contender> {
        let every = |millis| Some(Duration::from_millis(millis));
        if self.of_intervals() {
            return [None, every(1_000), every(100)]
                .map(|interval| Contender {
                    system: System::Tidegate,
                    interval,
                })
                .to_vec();
        }
        let offered = peers.iter().filter(|peer| peer.offers(self));
        std::iter::once(&System::Tidegate)
            .chain(offered)
            .map(|&system| Contender {
                system,
                interval: every(1_000).filter(|_| system.has_checkpoints()),
            })
            .collect()
    }
}

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum System {
    /// What this is all about. It is always there.
    #[value(skip)]
    Tidegate,
    /// An operator written by hand for timely dataflow.
    Timely,
    /// Apache Flink.
    Flink,
    /// renoir, without checkpoints.
    Renoir,
    /// The same with texts that are packed into plain memory.
    RenoirPacked,
}

impl System {
    /// Its name on the command line, and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            System::Tidegate => "tidegate",
            System::Timely => "timely",
            System::Flink => "flink",
            System::Renoir => "renoir",
            System::RenoirPacked => "renoir-packed",
        }
    }

    /// What readers of a table see.
    pub(crate) fn title(self) -> &'static str {
        match self {
            System::Tidegate => "Tidegate",
            System::Timely => "timely, by hand",
            System::Flink => "Flink 2.3",
            System::Renoir => "renoir 0.6",
            System::RenoirPacked => "renoir 0.6, packed",
        }
    }

    fn has_checkpoints(self) -> bool {
        matches!(self, System::Tidegate | System::Flink)
    }

    /// Whether it can do what is compared.
    fn offers(self, case: Case) -> bool {
        let of_numbers = matches!(case, Case::Source | Case::KeyedCount1k | Case::KeyedCount1m);
        let of_texts = matches!(case, Case::KeyedStrings | Case::Wordcount);
        match self {
            System::Tidegate | System::Flink => true,
            System::Timely | System::Renoir => of_numbers || of_texts,
            System::RenoirPacked => of_texts,
        }
    }
}

/// Who takes a turn: a system at an interval between checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contender {
    /// Who.
    pub(crate) system: System,
    /// Time between checkpoints; `None` without.
    pub(crate) interval: Option<Duration>,
}

impl Contender {
    /// The interval as the command line has it.
    pub(crate) fn interval_name(&self) -> String {
        match self.interval {
            None => "off".to_owned(),
            Some(interval) => humantime::format_duration(interval).to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: [System; 3] = [System::Timely, System::Flink, System::Renoir];

    fn names(case: Case, peers: &[System]) -> Vec<String> {
        let contenders = case.contenders(peers);
        let name = |one: &Contender| format!("{} {}", one.system.name(), one.interval_name());
        contenders.iter().map(name).collect()
    }

    #[test]
    fn tidegate_comes_first_and_has_the_checkpoints_that_flink_has() {
        let expected = ["tidegate 1s", "timely off", "flink 1s", "renoir off"];
        assert_eq!(names(Case::KeyedCount1m, &PEERS), expected);
        assert_eq!(names(Case::KeyedCount1m, &[]), ["tidegate 1s"]);
    }

    #[test]
    fn only_texts_can_be_packed() {
        let peers = [System::RenoirPacked];
        let expected = ["tidegate 1s", "renoir-packed off"];
        assert_eq!(names(Case::Wordcount, &peers), expected);
        assert_eq!(names(Case::KeyedCount1k, &peers), ["tidegate 1s"]);
    }

    #[test]
    fn who_cannot_recover_is_not_asked_to() {
        assert_eq!(names(Case::Recovery, &PEERS), ["tidegate 1s", "flink 1s"]);
    }

    #[test]
    fn the_cost_of_checkpoints_is_tidegates_own() {
        let expected = ["tidegate off", "tidegate 1s", "tidegate 100ms"];
        assert_eq!(names(Case::Checkpoints1k, &PEERS), expected);
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        for case in Case::value_variants() {
            assert_eq!(Case::from_str(&case.name(), false), Ok(*case));
        }
        assert_eq!(Case::KeyedCount1k.name(), "keyed-count-1k");
    }
}

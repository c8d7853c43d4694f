//! From runs to figures: medians, and how far Tidegate is ahead.

use super::case::{Case, Contender, System};
use super::metric::Metric;
use super::schedule::disturbed;
use crate::outcome::Outcome;

/// A run and what disturbed it.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// What it took.
    pub(crate) outcome: Outcome,
    /// How many cores others used meanwhile.
    pub(crate) foreign_cores: f64,
}

/// All runs of one contender at one case.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Who ran.
    pub(crate) contender: Contender,
    /// In the order of time.
    pub(crate) samples: Vec<Sample>,
}

/// All runs of a case, by contender, in the order of turns.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// What was run.
    pub(crate) case: Case,
    /// By whom.
    pub(crate) series: Vec<Series>,
}

/// What it came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Middle {
    /// The median of the runs that count.
    pub(crate) value: f64,
    /// Whether all runs were disturbed, so that the median is over disturbed ones.
    pub(crate) disturbed: bool,
}

/// One metric of one case, for all contenders.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// What was run.
    pub(crate) case: Case,
    /// What was measured.
    pub(crate) metric: Metric,
    /// In the order of turns; `None` for whoever doesn't have it.
    pub(crate) cells: Vec<(Contender, Option<Middle>)>,
}

impl Row {
    /// The value of a contender.
    pub(crate) fn of(&self, wanted: impl Fn(&Contender) -> bool) -> Option<Middle> {
        self.cells
            .iter()
            .find(|(contender, _)| wanted(contender))?
            .1
    }

    /// The value of a system.
    pub(crate) fn of_system(&self, system: System) -> Option<Middle> {
        self.of(|contender| contender.system == system)
    }

    /// How many times better Tidegate is than `other`.
    pub(crate) fn advantage(&self, other: System) -> Option<f64> {
        let ours = self.of_system(System::Tidegate)?.value;
        self.metric.advantage(ours, self.of_system(other)?.value)
    }
}

/// A row for each metric of each case.
pub(crate) fn rows(comparisons: &[Comparison]) -> Vec<Row> {
    let row = |comparison: &Comparison, metric| Row {
        case: comparison.case,
        metric,
        cells: comparison
            .series
            .iter()
            .map(|series| (series.contender, middle(&series.samples, metric)))
            .collect(),
    };
    comparisons
        .iter()
        .flat_map(|one| {
            one.case
                .metrics()
                .iter()
                .map(move |&metric| row(one, metric))
        })
        .collect()
}

/// The median over the undisturbed runs; over all of them if there are none.
fn middle(samples: &[Sample], metric: Metric) -> Option<Middle> {
    let values = |all: bool| -> Vec<f64> {
        let counting = samples
            .iter()
            .filter(|one| all || !disturbed(one.foreign_cores));
        counting.filter_map(|one| metric.of(&one.outcome)).collect()
    };
    let undisturbed = median(values(false)).map(|value| Middle {
        value,
        disturbed: false,
    });
    undisturbed.or_else(|| {
        median(values(true)).map(|value| Middle {
            value,
            disturbed: true,
        })
    })
}

/// The value in the middle, or between the two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[upper]),
        _ => Some((values[upper - 1] + values[upper]) / 2.0),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::outcome::Usage;

    /// A series of runs of these rates, and these foreign cores.
    pub(in super::super) fn series(contender: Contender, runs: &[(f64, f64)]) -> Series {
        let usage = Usage {
            seconds: 1.0,
            cpu_seconds: 2.0,
            peak_memory_bytes: 1_000_000,
        };
        let sample = |&(rate, foreign_cores): &(f64, f64)| Sample {
            outcome: Outcome::new(
                ("keyed-count", contender.system.name()),
                rate as u64,
                2,
                usage,
            ),
            foreign_cores,
        };
        Series {
            contender,
            samples: runs.iter().map(sample).collect(),
        }
    }

    /// A case at which contenders had these rates, undisturbed.
    pub(in super::super) fn comparison(case: Case, peers: &[System], rates: &[f64]) -> Comparison {
        let contenders = case.contenders(peers);
        assert_eq!(contenders.len(), rates.len());
        Comparison {
            case,
            series: contenders
                .into_iter()
                .zip(rates)
                .map(|(contender, &rate)| series(contender, &[(rate, 0.0)]))
                .collect(),
        }
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn disturbed_runs_count_only_if_there_are_no_others() {
        let tidegate = Case::KeyedCount1k.contenders(&[])[0];
        let of = |runs: &[(f64, f64)]| middle(&series(tidegate, runs).samples, Metric::Rate);
        let mixed = of(&[(1e6, 0.9), (3e6, 0.1), (5e6, 0.0)]).unwrap();
        assert_eq!((mixed.value, mixed.disturbed), (4e6, false));
        let all = of(&[(1e6, 0.9), (3e6, 0.8)]).unwrap();
        assert_eq!((all.value, all.disturbed), (2e6, true));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn advantages_are_against_tidegate() {
        let peers = [System::Timely, System::Flink];
        let rates = [100e6, 125e6, 10e6];
        let rows = rows(&[comparison(Case::KeyedCount1k, &peers, &rates)]);
        assert_eq!(rows.len(), Case::KeyedCount1k.metrics().len());
        assert_eq!(rows[0].advantage(System::Flink), Some(10.0));
        assert_eq!(rows[0].advantage(System::Timely), Some(0.8));
        // Without checkpoints there is nothing to tell of them.
        assert_eq!(rows[2].metric, Metric::CheckpointDuration);
        assert_eq!(rows[2].advantage(System::Flink), None);
    }
}

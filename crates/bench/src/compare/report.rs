//! Everything that a comparison has found out, as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::case::{Contender, System};
use super::machine::{Machine, Versions};
use super::schedule::disturbed;
use super::summary::{Comparison, Row};
use crate::outcome::Outcome;

/// The document.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// When it was finished, in UTC.
    pub(crate) date: String,
    /// Where.
    pub(crate) machine: Machine,
    /// With what.
    pub(crate) versions: Versions,
    /// Subtasks of each operator.
    pub(crate) parallelism: u32,
    /// Every run.
    pub(crate) cases: Vec<CaseRuns>,
    /// What they came to.
    pub(crate) medians: Vec<Medians>,
}

/// Every run of one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseRuns {
    case: String,
    contenders: Vec<ContenderRuns>,
}

/// Every run of one contender.
#[derive(Clone, Debug, Serialize)]
struct ContenderRuns {
    contender: String,
    runs: Vec<Run>,
}

#[derive(Clone, Debug, Serialize)]
struct Run {
    foreign_cores: f64,
    disturbed: bool,
    outcome: Outcome,
}

/// The medians of one metric of one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Medians {
    case: String,
    metric: &'static str,
    values: BTreeMap<String, f64>,
    /// How many times better Tidegate is than each peer.
    tidegate_ahead: BTreeMap<&'static str, f64>,
}

/// All runs, in the order of time.
pub(crate) fn runs(comparisons: &[Comparison]) -> Vec<CaseRuns> {
    let contenders = |comparison: &Comparison| {
        let series = comparison.series.iter();
        series
            .map(|series| ContenderRuns {
                contender: name(&series.contender),
                runs: series
                    .samples
                    .iter()
                    .map(|sample| Run {
                        foreign_cores: sample.foreign_cores,
                        disturbed: disturbed(sample.foreign_cores),
                        outcome: sample.outcome.clone(),
                    })
                    .collect(),
            })
            .collect()
    };
    comparisons
        .iter()
        .map(|comparison| CaseRuns {
            case: comparison.case.name(),
            contenders: contenders(comparison),
        })
        .collect()
}

/// All medians and ratios.
pub(crate) fn medians(rows: &[Row]) -> Vec<Medians> {
    rows.iter()
        .map(|row| {
            let values = row.cells.iter();
            let peers = row.cells.iter().map(|(contender, _)| contender.system);
            Medians {
                case: row.case.name(),
                metric: row.metric.name(),
                values: values
                    .filter_map(|(one, value)| Some((name(one), value.as_ref()?.value)))
                    .collect(),
                tidegate_ahead: peers
                    .filter(|&peer| peer != System::Tidegate)
                    .filter_map(|peer| Some((peer.name(), row.advantage(peer)?)))
                    .collect(),
            }
        })
        .collect()
}

fn name(contender: &Contender) -> String {
    let checkpoints = contender.interval_name();
    format!("{}, checkpoints {checkpoints}", contender.system.name())
}

#[cfg(test)]
mod tests {
    use super::super::case::Case;
    use super::super::summary::rows;
    use super::super::summary::tests::comparison;
    use super::*;

    #[test]
    fn medians_name_who_and_by_how_much() {
        let compared = [comparison(
            Case::KeyedCount1k,
            &[System::Flink],
            &[100e6, 10e6],
        )];
        let medians = medians(&rows(&compared));
        let first = serde_json::to_value(&medians[0]).unwrap();
        let expected = serde_json::json!({
            "case": "keyed-count-1k",
            "metric": "records_per_second",
            "values": {"tidegate, checkpoints 1s": 100e6, "flink, checkpoints 1s": 10e6},
            "tidegate_ahead": {"flink": 10.0},
        });
        assert_eq!(first, expected);
    }

    #[test]
    fn every_run_is_there() {
        let compared = [comparison(Case::Checkpoints1k, &[], &[3e6, 2e6, 1e6])];
        let runs = serde_json::to_value(runs(&compared)).unwrap();
        let third = &runs[0]["contenders"][2];
        assert_eq!(third["contender"], "tidegate, checkpoints 100ms");
        assert_eq!(third["runs"][0]["outcome"]["records_per_second"], 1e6);
        assert_eq!(third["runs"][0]["disturbed"], false);
    }
}

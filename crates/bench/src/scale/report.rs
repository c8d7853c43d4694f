//! What was measured at all sizes, as a table for people and as JSON for programs.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::figures::Figures;
use super::fit::Fit;
use super::processes::{Load, Processes};
use crate::compare::Machine;

/// A formula that fits worse than this is marked, and nothing is concluded from it.
const MISS_MAX: f64 = 0.15;

/// Nor from one that would have foretold the largest cluster worse than this.
const MISS_AT_LAST_MAX: f64 = 0.3;

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    /// Programs that ran or waited when it began, as the kernel counts them over a minute.
    load_average: f64,
    /// For how long each was looked at, at least.
    seconds: u64,
    loads: Vec<OfLoad>,
    #[serde(skip)]
    extrapolate: Vec<u32>,
}

/// With one thing to do.
#[derive(Debug, Serialize)]
struct OfLoad {
    load: String,
    figures: Vec<Figure>,
}

/// One figure.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    /// By the number of processes, in the order in which they were measured.
    measured: Vec<(u32, f64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Model>,
}

/// What fits it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Model {
    /// Factors of 1, N and N².
    terms: Vec<f64>,
    #[serde(skip)]
    formula: String,
    /// By how much it misses what it misses most, in parts of that.
    error: f64,
    /// By how much the largest cluster is missed by a formula that knows the smaller ones alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_at_last: Option<f64>,
    /// Nothing for any number if it fits badly.
    extrapolated: BTreeMap<u32, Option<f64>>,
}

impl Report {
    pub(super) fn new(options: &Processes) -> Report {
        let average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let average = average.split_whitespace().next().map(str::parse);
        Report {
            machine: Machine::this(),
            load_average: average.and_then(|parsed| parsed.ok()).unwrap_or(0.0),
            seconds: options.seconds,
            loads: Vec::new(),
            extrapolate: options.extrapolate.clone(),
        }
    }

    /// Adds what a cluster of so many processes has taken, and fits anew.
    pub(super) fn add(&mut self, load: Load, processes: u32, figures: Figures) {
        let load = load.to_string();
        if self.loads.last().is_none_or(|last| last.load != load) {
            let figures = Vec::new();
            self.loads.push(OfLoad { load, figures });
        }
        let known = self
            .loads
            .last_mut()
            .expect("it was pushed if there was none");
        for (name, value) in figures {
            let figure = match known.figures.iter().position(|figure| figure.name == name) {
                Some(position) => &mut known.figures[position],
                None => {
                    known.figures.push(Figure {
                        name,
                        measured: Vec::new(),
                        model: None,
                    });
                    known.figures.last_mut().expect("it was just pushed")
                }
            };
            figure.measured.push((processes, value));
            figure.model = Model::of(&figure.measured, &self.extrapolate);
        }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("every field has a JSON form")
    }
}

impl Model {
    fn of(measured: &[(u32, f64)], extrapolate: &[u32]) -> Option<Model> {
        let mut points: Vec<(f64, f64)> = measured
            .iter()
            .map(|(n, value)| (f64::from(*n), *value))
            .collect();
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let fit = Fit::of(&points)?;
        let (error, error_at_last) = (fit.error(&points), fit.error_at_last(&points));
        let carries = error_at_last.is_some_and(|miss| miss.abs() <= MISS_AT_LAST_MAX);
        let at = |n: u32| Some(fit.at(f64::from(n))).filter(|_| carries && error <= MISS_MAX);
        Some(Model {
            terms: fit.terms().to_vec(),
            formula: fit.to_string(),
            error,
            error_at_last,
            extrapolated: extrapolate.iter().map(|n| (*n, at(*n))).collect(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (machine, average) = (self.machine.text(), self.load_average);
        writeln!(f, "{machine}; load average {average} at the start")?;
        for load in &self.loads {
            writeln!(f, "\n{}", load.load)?;
            for line in load.lines() {
                writeln!(f, "  {line}")?;
            }
        }
        Ok(())
    }
}

impl OfLoad {
    fn lines(&self) -> Vec<String> {
        let Some(first) = self.figures.first() else {
            return Vec::new();
        };
        let mut head = format!("{:36}", "N");
        for (processes, _) in &first.measured {
            head += &format!("{processes:>9}");
        }
        for processes in first.model.iter().flat_map(|m| m.extrapolated.keys()) {
            head += &format!("{:>10}", format!("→ {processes}"));
        }
        let lines = self.figures.iter().map(Figure::line);
        std::iter::once(head + "  fit, its error, that at the last N without it")
            .chain(lines)
            .collect()
    }
}

impl Figure {
    fn line(&self) -> String {
        let mut line = format!("{:36}", self.name);
        for (_, value) in &self.measured {
            line += &format!("{:>9}", short(*value));
        }
        let Some(model) = &self.model else {
            return line;
        };
        for value in model.extrapolated.values() {
            let value = value.map_or("–".to_owned(), short);
            line += &format!("{value:>10}");
        }
        let percent = |part: f64| format!("{:+.0} %", part * 100.0);
        let at_last = model.error_at_last.map_or("–".to_owned(), percent);
        let bad = if model.error > MISS_MAX {
            ", a bad fit"
        } else {
            ""
        };
        let error = percent(model.error);
        line + &format!(
            "  {}; {}; {at_last}{bad}",
            model.formula,
            error.replace('+', "±")
        )
    }
}

/// Three digits, or all that stand before the point.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report {
            machine: Machine::this(),
            load_average: 0.5,
            seconds: 1,
            loads: Vec::new(),
            extrapolate: vec![64],
        };
        for load in [Load::Nothing, Load::Records(7)] {
            for n in [2, 4, 8, 16] {
                let size = f64::from(n);
                let figures = vec![("threads", 5.0 + 2.0 * size), ("wild", 1.5_f64.powf(size))];
                report.add(load, n, figures);
            }
        }
        report
    }

    #[test]
    fn each_load_has_a_table_with_what_fits() {
        let text = report().to_string();
        let tables: Vec<&str> = text.split("\n\n").skip(1).collect();
        assert_eq!(tables.len(), 2, "{text}");
        assert!(
            tables[1].starts_with("7 records of each process and a checkpoint a second\n"),
            "{text}"
        );
        let threads = tables[0]
            .lines()
            .find(|line| line.contains("threads"))
            .unwrap();
        let words: Vec<&str> = threads.split_whitespace().collect();
        assert_eq!(words[1..6], ["9.00", "13.0", "21.0", "37.0", "133"]);
        assert!(threads.ends_with("5.000 +2.000·N; ±0 %; +0 %") || threads.ends_with("-0 %"));
        let wild = tables[0]
            .lines()
            .find(|line| line.contains("wild"))
            .unwrap();
        assert!(wild.ends_with(", a bad fit"), "{wild}");
        assert!(
            wild.contains(" –  "),
            "and nothing is concluded from it: {wild}"
        );
    }

    #[test]
    fn programs_read_the_same() {
        let json: serde_json::Value = serde_json::from_str(&report().to_json()).unwrap();
        let threads = &json["loads"][1]["figures"][0];
        assert_eq!(threads["measured"][3], serde_json::json!([16, 37.0]));
        let foretold = threads["model"]["extrapolated"]["64"].as_f64().unwrap();
        assert!((foretold - 133.0).abs() < 1e-6, "{foretold}");
    }
}

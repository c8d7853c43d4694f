//! The figures as tables, for a terminal and for the README.

use std::fmt::Write;

use super::case::{Contender, System};
use super::metric::{Metric, three_digits};
use super::summary::{Middle, Row};

/// Cells of text under a head, all rows of the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Medians of all systems, and how far Tidegate is ahead of each; without the goals for a README.
/// `None` if no systems were compared.
pub(crate) fn of_systems(rows: &[Row], goals: bool) -> Option<Table> {
    let rows: Vec<&Row> = rows.iter().filter(|row| !row.case.of_intervals()).collect();
    let mut systems: Vec<System> = Vec::new();
    for (contender, _) in rows.iter().flat_map(|row| &row.cells) {
        if !systems.contains(&contender.system) {
            systems.push(contender.system);
        }
    }
    let peers: Vec<System> = systems
        .iter()
        .copied()
        .filter(|&one| one != System::Tidegate)
        .collect();
    let mut head = vec![String::new()];
    head.extend(systems.iter().map(|system| system.title().to_owned()));
    head.extend(
        peers
            .iter()
            .map(|peer| format!("Tidegate : {}", peer.title())),
    );
    let line = |row: &&Row| {
        let mut line = vec![format!("{}: {}", row.case.title(), row.metric.title())];
        let values = systems.iter().map(|&system| row.of_system(system));
        line.extend(values.map(|value| cell(row.metric, value)));
        line.extend(peers.iter().map(|&peer| ahead(row, peer, goals)));
        line
    };
    (!rows.is_empty()).then(|| Table {
        head,
        rows: rows.iter().map(line).collect(),
    })
}

/// What checkpoints cost Tidegate: rates at each interval, and the share that is lost.
/// `None` if that wasn't measured.
pub(crate) fn of_intervals(rows: &[Row]) -> Option<Table> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.case.of_intervals()).collect();
    let contenders: Vec<Contender> = rows.first()?.cells.iter().map(|(one, _)| *one).collect();
    let mut head = vec!["checkpoints".to_owned()];
    head.extend(contenders.iter().map(Contender::interval_name));
    let with = || contenders.iter().filter(|one| one.interval.is_some());
    head.extend(with().map(|one| format!("{} costs", one.interval_name())));
    let line = |row: &&Row| {
        let mut line = vec![format!("{}: {}", row.case.title(), row.metric.title())];
        line.extend(row.cells.iter().map(|(_, value)| cell(row.metric, *value)));
        let off = row.of(|one| one.interval.is_none());
        line.extend(with().map(|&one| cost(off, row.of(|other| *other == one))));
        line
    };
    Some(Table {
        head,
        rows: rows.iter().map(line).collect(),
    })
}

fn cell(metric: Metric, value: Option<Middle>) -> String {
    match value {
        None => "–".to_owned(),
        Some(Middle { value, disturbed }) => {
            format!("{}{}", metric.text(value), if disturbed { "*" } else { "" })
        }
    }
}

fn ahead(row: &Row, peer: System, goals: bool) -> String {
    let goal = row.case.goal(row.metric, peer).filter(|_| goals);
    match (row.advantage(peer), goal) {
        (None, _) => "–".to_owned(),
        (Some(ahead), None) => format!("{} ×", three_digits(ahead)),
        (Some(ahead), Some(goal)) => {
            let met = if ahead >= goal { "met" } else { "not met" };
            format!("{} × (goal {goal}: {met})", three_digits(ahead))
        }
    }
}

fn cost(off: Option<Middle>, with: Option<Middle>) -> String {
    match (off, with) {
        (Some(off), Some(with)) if off.value > 0.0 => {
            format!("{:.1} %", (1.0 - with.value / off.value) * 100.0)
        }
        _ => "–".to_owned(),
    }
}

/// What a star means, if there is one.
pub(crate) fn footnote(rows: &[Row]) -> Option<&'static str> {
    let mut cells = rows.iter().flat_map(|row| &row.cells);
    cells
        .any(|(_, value)| value.is_some_and(|value| value.disturbed))
        .then_some("* others used more than 0.2 cores during every one of these runs")
}

impl Table {
    /// Aligned, for a terminal.
    pub(crate) fn to_text(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| {
            all()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        for row in all() {
            let mut line = String::new();
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match at {
                    0 => write!(line, "{cell:<width$}"),
                    _ => write!(line, "  {cell:>width$}"),
                }
                .expect("writing to memory succeeds");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// For a README.
    pub(crate) fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = line(&self.head);
        text.push_str("|---|");
        text.push_str(&"---:|".repeat(self.head.len() - 1));
        text.push('\n');
        for row in &self.rows {
            text.push_str(&line(row));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::Case;
    use super::super::summary::rows;
    use super::super::summary::tests::{comparison, series};
    use super::*;
    use crate::compare::summary::Comparison;

    #[test]
    fn systems_are_columns_and_so_are_ratios() {
        let peers = [System::Timely, System::Flink, System::Renoir];
        let compared = [
            comparison(Case::KeyedCount1k, &peers, &[100e6, 125e6, 10e6, 50e6]),
            comparison(Case::Footprint1m, &peers, &[1e6, 1e6]),
        ];
        let table = of_systems(&rows(&compared), false).unwrap();
        assert_eq!(
            table.to_markdown(),
            "|  | Tidegate | timely, by hand | Flink 2.3 | renoir 0.6 | \
             Tidegate : timely, by hand | Tidegate : Flink 2.3 | Tidegate : renoir 0.6 |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|\n\
             | keyed count, 1 k keys: records/s | 100 M | 125 M | 10.0 M | 50.0 M | \
             0.80 × | 10.0 × | 2.00 × |\n\
             | keyed count, 1 k keys: records/CPU s | 50.0 M | 62.5 M | 5.00 M | 25.0 M | \
             0.80 × | 10.0 × | 2.00 × |\n\
             | keyed count, 1 k keys: checkpoint p50 | – | – | – | – | – | – | – |\n\
             | a job alone, 1 M keys: peak memory | 1.00 MB | – | 1.00 MB | – | – | 1.00 × | – |\n"
        );
    }

    #[test]
    fn goals_are_met_or_not() {
        let compared = |flink| {
            let compared = comparison(Case::KeyedCount1k, &[System::Flink], &[100e6, flink]);
            of_systems(&rows(&[compared]), true).unwrap().rows[0][3].clone()
        };
        assert_eq!(compared(12.5e6), "8.00 × (goal 8: met)");
        assert_eq!(compared(20e6), "5.00 × (goal 8: not met)");
    }

    #[test]
    fn checkpoints_cost_a_share() {
        let compared = comparison(Case::Checkpoints1k, &[], &[100e6, 96e6, 101e6]);
        let rows = rows(&[compared]);
        assert_eq!(of_systems(&rows, true), None);
        let table = of_intervals(&rows).unwrap();
        assert_eq!(
            table.to_text(),
            "checkpoints                         off      1s  100ms  1s costs  100ms costs\n\
             keyed count, 1 k keys: records/s  100 M  96.0 M  101 M     4.0 %       -1.0 %\n"
        );
    }

    #[test]
    fn a_star_says_that_nothing_undisturbed_is_behind_it() {
        let tidegate = Case::KeyedCount1k.contenders(&[])[0];
        let starred = |foreign| {
            rows(&[Comparison {
                case: Case::KeyedCount1k,
                series: vec![series(tidegate, &[(1e6, foreign)])],
            }])
        };
        assert_eq!(footnote(&starred(0.1)), None);
        assert!(footnote(&starred(0.3)).is_some());
        let table = of_systems(&starred(0.3), true).unwrap();
        assert_eq!(table.rows[0][1], "1.00 M*");
    }
}

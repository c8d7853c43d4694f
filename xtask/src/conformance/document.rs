//! Writes `docs/conformance.md`: how many rows are covered, then every row with what covers it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{Claim, Conformance, Decision, Group, Row};

const HEAD: &str = "\
# Conformance

<!-- Generated from comments of the tests, don't edit: CONTRIBUTING.md says how to update it. -->

What a system with Flink's kind of checkpoints must do, behaviour by behaviour, and which tests of
Tidegate show it. The rows are retold from Flink's own tests (*scenarios*), from bugs that such
systems had (*bugs of others*), and from a walk through Flink's sources (*checklist*). **Core** rows
are those whose origin was read line by line. A row is

- *covered*, by tests that would fail if the behaviour were violated;
- *not applicable*, for a reason that lies in how Tidegate is built;
- *open*: it waits for a capability that isn't there yet.
";

/// How many rows are in which state.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    covered: usize,
    not_applicable: usize,
    open: usize,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.covered += other.covered;
        self.not_applicable += other.not_applicable;
        self.open += other.open;
    }
}

/// Renders the whole document. A row that is neither covered nor decided is shown as undecided.
pub fn render(conformance: &Conformance) -> String {
    let claims = conformance.claims();
    let mut text = HEAD.to_owned();
    text.push_str("\n## Totals\n\n");
    text.push_str("| Group | | Core: covered | not applicable | open ");
    text.push_str("| All: covered | not applicable | open |\n");
    text.push_str("|---|---|--:|--:|--:|--:|--:|--:|\n");
    let mut totals = [Tally::default(); 2];
    for group in conformance.groups() {
        let tallies = [true, false].map(|core| tally(conformance, &claims, group, core));
        let link = format!("[{}](#{})", group.name, group.name.to_lowercase());
        push_totals(&mut text, &link, &group.title, tallies);
        totals
            .iter_mut()
            .zip(tallies)
            .for_each(|(total, tally)| total.add(tally));
    }
    push_totals(&mut text, "", "all", totals);
    push_capabilities(&mut text, conformance);
    for section in &conformance.sections {
        let _ = write!(text, "\n## {}\n", section.title);
        for group in &section.groups {
            push_group(&mut text, conformance, &claims, group);
        }
    }
    text
}

fn tally(
    conformance: &Conformance,
    claims: &BTreeMap<&str, BTreeSet<&Claim>>,
    group: &Group,
    core_only: bool,
) -> Tally {
    let mut tally = Tally::default();
    for row in group.rows.iter().filter(|row| row.is_core || !core_only) {
        let decision = conformance.decisions.by_id.get(&row.id);
        match decision {
            _ if claims.contains_key(row.id.as_str()) => tally.covered += 1,
            Some((_, Decision::NotApplicable { .. })) => tally.not_applicable += 1,
            Some((_, Decision::Open { .. })) | None => tally.open += 1,
        }
    }
    tally
}

fn push_totals(text: &mut String, name: &str, title: &str, [core, all]: [Tally; 2]) {
    let _ = writeln!(
        text,
        "| {name} | {title} | {} | {} | {} | {} | {} | {} |",
        core.covered, core.not_applicable, core.open, all.covered, all.not_applicable, all.open
    );
}

fn push_capabilities(text: &mut String, conformance: &Conformance) {
    text.push_str("\n## What open rows wait for\n\n| Capability | | Rows |\n|---|---|---|\n");
    for capability in &conformance.decisions.capabilities {
        let waits = |row: &&Row| {
            let decision = conformance.decisions.by_id.get(&row.id);
            decision.is_some_and(|(_, decision)| {
                *decision
                    == Decision::Open {
                        capability: capability.name.clone(),
                    }
            })
        };
        let ids: Vec<&str> = conformance
            .rows()
            .filter(waits)
            .map(|r| r.id.as_str())
            .collect();
        if !ids.is_empty() {
            let (name, meaning) = (&capability.name, &capability.meaning);
            let _ = writeln!(text, "| {name} | {meaning} | {} |", ids.join(", "));
        }
    }
}

fn push_group(
    text: &mut String,
    conformance: &Conformance,
    claims: &BTreeMap<&str, BTreeSet<&Claim>>,
    group: &Group,
) {
    let (name, title) = (&group.name, &group.title);
    let _ = write!(
        text,
        "\n### {name}\n\nOn {title}.\n\n| Id | Behaviour | State |\n|---|---|---|\n"
    );
    for row in &group.rows {
        let core = if row.is_core { " **core**" } else { "" };
        let state = match claims.get(row.id.as_str()) {
            Some(claims) => covered(claims),
            None => decided(conformance, &row.id),
        };
        let wording = row.wording.replace('|', "\\|");
        let _ = writeln!(text, "| {}{core} | {wording} | {state} |", row.id);
    }
}

/// The files that cover a row, each with its tests.
fn covered(claims: &BTreeSet<&Claim>) -> String {
    let mut by_path: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for claim in claims {
        let tests = by_path.entry(&claim.path).or_default();
        tests.extend(claim.test.as_deref());
    }
    let show = |(path, tests): (&str, Vec<&str>)| {
        let label = path.strip_prefix("crates/").unwrap_or(path);
        let file = format!("[{label}](../{path})");
        match tests.is_empty() {
            true => file,
            false => format!("{file} `{}`", tests.join("`, `")),
        }
    };
    by_path.into_iter().map(show).collect::<Vec<_>>().join("; ")
}

fn decided(conformance: &Conformance, id: &str) -> String {
    match conformance.decisions.by_id.get(id) {
        Some((_, Decision::NotApplicable { reason })) => {
            format!("*not applicable*: {}", reason.replace('|', "\\|"))
        }
        Some((_, Decision::Open { capability })) => format!("*open*: {capability}"),
        None => "*undecided*".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Decisions, Section, mentions, rows};
    use super::*;
    use crate::tidy::SourceFile;

    #[test]
    fn every_row_shows_its_state_and_is_counted() {
        let mut malformed = Vec::new();
        let text = "## CC: triggers\nCC-01* one | 1\nCC-02* two\nCC-03 three\nCC-04 four\n";
        let path = "rows.txt";
        let groups = rows::parse(path, text, &mut malformed);
        let capabilities = ("c.txt", "savepoints: made by users\nunused: not shown\n");
        let decisions = "CC-02 not applicable: no hooks\nCC-03 open: savepoints\n";
        let source = "// CC-01\n#[test]\nfn b() {}\n// CC-01\n#[test]\nfn a() {}\n";
        let scenario = SourceFile::new("crates/z/tests/scenarios/c.txt", "# CC-01\n");
        let document = render(&Conformance {
            sections: vec![Section {
                title: "Rows",
                path,
                groups,
            }],
            decisions: Decisions::parse(capabilities, ("d.txt", decisions), &mut malformed),
            mentions: mentions(&[SourceFile::new("crates/a/tests/t.rs", source), scenario]),
            malformed,
        });
        for line in [
            "| [CC](#cc) | triggers | 1 | 1 | 0 | 1 | 1 | 2 |",
            "|  | all | 1 | 1 | 0 | 1 | 1 | 2 |",
            "| savepoints | made by users | CC-03 |",
            "| CC-01 **core** | one \\| 1 | [a/tests/t.rs](../crates/a/tests/t.rs) `a`, `b`; \
             [z/tests/scenarios/c.txt](../crates/z/tests/scenarios/c.txt) |",
            "| CC-02 **core** | two | *not applicable*: no hooks |",
            "| CC-03 | three | *open*: savepoints |",
            "| CC-04 | four | *undecided* |",
        ] {
            assert!(
                document.lines().any(|found| found == line),
                "{line}\n{document}"
            );
        }
        assert!(!document.contains("not shown"), "{document}");
    }
}

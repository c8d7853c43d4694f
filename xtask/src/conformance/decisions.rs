//! Decisions about rows that no test covers.
//!
//! `CC-52 not applicable: reason` says for good why a behaviour has no meaning here.
//! `UA-01 open: unaligned checkpoints` says which capability it waits for; capabilities are listed
//! with a line of explanation each, so that a mistyped one is noticed. A row that is open leaves
//! the list as soon as a test names it.

use std::collections::{BTreeMap, BTreeSet};

use super::claims::is_id;
use super::rows::Group;
use crate::tidy::Violation;

const NOT_APPLICABLE: &str = "not applicable";
const OPEN: &str = "open";
const HEAD: &str = "\
# What was decided about rows that no test covers, in the order of the rows.
# `CC-52 not applicable: reason`, or `SP-01 open: capability` with a name from `capabilities.txt`.
# A row that a test names must not be here; `UPDATE=1 cargo test -p xtask` removes open ones.
";

/// What was decided about a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It has no meaning here.
    NotApplicable {
        /// Why, in a sentence.
        reason: String,
    },
    /// It waits.
    Open {
        /// For what: the name of a [`Capability`].
        capability: String,
    },
}

/// Something that isn't there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    /// The name that decisions use.
    pub name: String,
    /// What it will bring.
    pub meaning: String,
}

/// All decisions, and the capabilities that they name.
#[derive(Debug, Default)]
pub struct Decisions {
    /// By id: the line (from 1) and the decision.
    pub by_id: BTreeMap<String, (usize, Decision)>,
    /// In the order of their file.
    pub capabilities: Vec<Capability>,
}

impl Decisions {
    /// Reads both files, each given as path and text; reports lines that can't be read.
    pub fn parse(
        capabilities: (&str, &str),
        decisions: (&str, &str),
        malformed: &mut Vec<Violation>,
    ) -> Self {
        let mut read = Self::default();
        for (line, text) in content(capabilities.1) {
            match text.split_once(": ") {
                Some((name, meaning)) => read.capabilities.push(Capability {
                    name: name.to_owned(),
                    meaning: meaning.to_owned(),
                }),
                None => malformed.push(Violation::new(
                    capabilities.0,
                    line,
                    "write `name: what it will bring`",
                )),
            }
        }
        for (line, text) in content(decisions.1) {
            if let Err(message) = read.add(line, text) {
                malformed.push(Violation::new(decisions.0, line, message));
            }
        }
        read
    }

    fn add(&mut self, line: usize, text: &str) -> Result<(), String> {
        let (id, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (verdict, why) = rest.split_once(": ").unwrap_or((rest, ""));
        let why = why.trim().to_owned();
        let decision = match verdict {
            NOT_APPLICABLE if !why.is_empty() => Decision::NotApplicable { reason: why },
            OPEN if self.capabilities.iter().any(|c| c.name == why) => {
                Decision::Open { capability: why }
            }
            OPEN => return Err(format!("`{why}` is not among the capabilities")),
            _ => return Err("write `CC-52 not applicable: reason` or `… open: capability`".into()),
        };
        if !is_id(id) {
            return Err(format!("`{id}` is not like `CC-05` or `G14`"));
        }
        // Equal lines come from merging; they say the same.
        match self.by_id.get(id) {
            Some((earlier, other)) if *other != decision => {
                return Err(format!("`{id}` is decided otherwise in line {earlier}"));
            }
            Some(_) => {}
            None => drop(self.by_id.insert(id.to_owned(), (line, decision))),
        }
        Ok(())
    }

    /// Removes the open rows that are covered by now. What is not applicable stays: a contradiction
    /// is for people to solve.
    pub fn close(&mut self, covered: &BTreeSet<String>) {
        let is_open = |decision: &Decision| matches!(decision, Decision::Open { .. });
        self.by_id
            .retain(|id, (_, decision)| !(is_open(decision) && covered.contains(id)));
    }

    /// The file of decisions, in the order of the rows.
    pub fn render<'a>(&self, groups: impl Iterator<Item = &'a Group>) -> String {
        let mut text = HEAD.to_owned();
        for group in groups {
            let decided = group.rows.iter().filter_map(|row| {
                let (_, decision) = self.by_id.get(&row.id)?;
                Some(match decision {
                    Decision::NotApplicable { reason } => {
                        format!("{} {NOT_APPLICABLE}: {reason}\n", row.id)
                    }
                    Decision::Open { capability } => format!("{} {OPEN}: {capability}\n", row.id),
                })
            });
            let lines: String = decided.collect();
            if !lines.is_empty() {
                text.push('\n');
                text.push_str(&lines);
            }
        }
        text
    }
}

/// The lines that are neither blank nor comments, numbered from 1.
fn content(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line));
    numbered.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(decisions: &str) -> (Decisions, Vec<Violation>) {
        let mut malformed = Vec::new();
        let capabilities = ("c.txt", "savepoints: made by users\n");
        let read = Decisions::parse(capabilities, ("d.txt", decisions), &mut malformed);
        (read, malformed)
    }

    #[test]
    fn reads_both_kinds() {
        let (read, malformed) =
            parse("# note\nCC-52 not applicable: no hooks: none\nSP-01 open: savepoints\n");
        assert_eq!(malformed, []);
        let reason = "no hooks: none".to_owned();
        assert_eq!(read.by_id["CC-52"], (2, Decision::NotApplicable { reason }));
        let capability = "savepoints".to_owned();
        assert_eq!(read.by_id["SP-01"], (3, Decision::Open { capability }));
    }

    #[test]
    fn reports_what_is_no_decision() {
        let bad = [
            "CC-52 not applicable:",
            "CC-52 not applicable",
            "SP-01 open: something else",
            "SP-01 later: savepoints",
            "SP01 open: savepoints",
            "SP-01 open: savepoints\nSP-01 not applicable: no",
        ];
        for text in bad {
            assert_eq!(parse(text).1.len(), 1, "{text}");
        }
    }

    #[test]
    fn covered_rows_are_no_longer_open() {
        let (mut read, malformed) = parse(
            "SP-03 open: savepoints\nSP-02 open: savepoints\nSP-01 open: savepoints\n\n\n\
             SP-01 open: savepoints\nCC-52 not applicable: no hooks\n",
        );
        assert_eq!(malformed, []);
        read.close(&["SP-02", "CC-52"].map(str::to_owned).into());
        let rows = "## CC: a\nCC-52 x\n## ZK: b\nZK-01 x\n## SP: c\nSP-01 x\nSP-02 x\nSP-03 x\n";
        let groups = super::super::rows::parse("rows.txt", rows, &mut Vec::new());
        let expected = "\nCC-52 not applicable: no hooks\n\n\
                        SP-01 open: savepoints\nSP-03 open: savepoints\n";
        assert_eq!(read.render(groups.iter()), format!("{HEAD}{expected}"));
    }
}

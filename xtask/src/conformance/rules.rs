//! What must hold between rows, decisions and claims.

use super::{Conformance, DECISIONS, Decision, Mention};
use crate::tidy::Violation;

/// The groups of rows about what the checkpoint coordinator decides.
pub const COORDINATOR_GROUPS: [&str; 11] = [
    "CC", "RD", "PC", "FM", "ST", "ZK", "ID", "CO", "RS", "PL", "MH",
];
/// How many of the core rows of those groups may be not applicable, of a hundred.
const NOT_APPLICABLE_PERCENT_MAX: usize = 15;

/// Checks that each row is covered or decided, not both, and that all ids have a row.
pub fn check(conformance: &Conformance) -> Vec<Violation> {
    let mut found = conformance.malformed.clone();
    let is_row = |id: &str| conformance.rows().any(|row| row.id == id);
    for mention in &conformance.mentions {
        found.extend(check_mention(mention, is_row(&mention.id)));
    }
    for (id, (line, _)) in &conformance.decisions.by_id {
        if !is_row(id) {
            let message = format!("`{id}` is the id of no row");
            found.push(Violation::new(DECISIONS, *line, message));
        }
    }
    found.extend(check_rows(conformance));
    found
}

fn check_mention(mention: &Mention, is_row: bool) -> Option<Violation> {
    let id = &mention.id;
    let message = match (is_row, mention.is_range) {
        (false, _) => format!("`{id}` is the id of no row in docs/conformance"),
        (true, true) => format!("write out each id of the range that begins with `{id}`"),
        (true, false) => return None,
    };
    Some(Violation::new(&mention.path, mention.line, message))
}

fn check_rows(conformance: &Conformance) -> Vec<Violation> {
    let claims = conformance.claims();
    let mut found = Vec::new();
    for section in &conformance.sections {
        for row in section.groups.iter().flat_map(|group| &group.rows) {
            let id = &row.id;
            let decision = conformance.decisions.by_id.get(id);
            match (claims.get(id.as_str()), decision) {
                (None, None) => {
                    let message =
                        format!("`{id}` is neither named by a test nor decided in {DECISIONS}");
                    found.push(Violation::new(section.path, 0, message));
                }
                (Some(claims), Some((line, decision))) => {
                    let message = contradiction(id, &claims.first().expect("claimed").path);
                    let remedy = match decision {
                        Decision::Open { .. } => "`UPDATE=1` removes this line",
                        Decision::NotApplicable { .. } => "remove one of the two",
                    };
                    found.push(Violation::new(
                        DECISIONS,
                        *line,
                        format!("{message}: {remedy}"),
                    ));
                }
                (Some(_), None) | (None, Some(_)) => {}
            }
        }
    }
    found
}

fn contradiction(id: &str, path: &str) -> String {
    format!("`{id}` is decided here, but `{path}` covers it")
}

/// Checks that not too many core rows of the coordinator are said to have no meaning here.
pub fn check_share(conformance: &Conformance) -> Result<(), String> {
    let core = core_rows(conformance);
    let is_not_applicable = |id: &&str| {
        let decision = conformance.decisions.by_id.get(*id);
        matches!(decision, Some((_, Decision::NotApplicable { .. })))
    };
    let count = core.iter().filter(|id| is_not_applicable(id)).count();
    let max = core.len() * NOT_APPLICABLE_PERCENT_MAX / 100;
    if count <= max {
        return Ok(());
    }
    Err(format!(
        "{count} of the coordinator's {} core rows are not applicable, at most {max} may be",
        core.len()
    ))
}

/// The core rows of the coordinator that are open, each with the capability it waits for.
pub fn waiting_core_rows(conformance: &Conformance) -> Vec<(&str, &str)> {
    let core = core_rows(conformance).into_iter();
    core.filter_map(|id| match conformance.decisions.by_id.get(id) {
        Some((_, Decision::Open { capability })) => Some((id, capability.as_str())),
        _ => None,
    })
    .collect()
}

fn core_rows(conformance: &Conformance) -> Vec<&str> {
    let groups = conformance.groups();
    groups
        .filter(|group| COORDINATOR_GROUPS.contains(&group.name.as_str()))
        .flat_map(|group| &group.rows)
        .filter(|row| row.is_core)
        .map(|row| row.id.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Decisions, Section, mentions, rows};
    use super::*;
    use crate::tidy::SourceFile;

    fn conformance(rows: &str, decisions: &str, source: &str) -> Conformance {
        let mut malformed = Vec::new();
        let groups = rows::parse("rows.txt", rows, &mut malformed);
        let path = "rows.txt";
        let capabilities = ("c.txt", "savepoints: made by users\n");
        let read = Decisions::parse(capabilities, (DECISIONS, decisions), &mut malformed);
        Conformance {
            sections: vec![Section {
                title: "Rows",
                path,
                groups,
            }],
            decisions: read,
            mentions: mentions(&[SourceFile::new("crates/a/tests/b.rs", source)]),
            malformed,
        }
    }

    #[track_caller]
    fn expect_one(conformance: &Conformance, path: &str, part: &str) {
        let found = check(conformance);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].path == path && found[0].message.contains(part),
            "{}",
            found[0]
        );
    }

    #[test]
    fn a_row_is_covered_or_decided() {
        let rows = "## CC: triggers\nCC-01 one\nCC-02 two\n";
        let good = conformance(rows, "CC-02 open: savepoints\n", "// CC-01\n");
        assert_eq!(check(&good), []);
        expect_one(
            &conformance(rows, "", "// CC-01\n"),
            "rows.txt",
            "`CC-02` is neither",
        );
    }

    #[test]
    fn a_row_is_not_covered_and_decided() {
        let rows = "## CC: triggers\nCC-01 one\n";
        let open = conformance(rows, "CC-01 open: savepoints\n", "// CC-01\n");
        expect_one(&open, DECISIONS, "UPDATE=1");
        let none = conformance(rows, "CC-01 not applicable: no\n", "// CC-01\n");
        expect_one(&none, DECISIONS, "remove one");
    }

    #[test]
    fn an_id_without_row_is_found_wherever_it_stands() {
        let rows = "## CC: triggers\nCC-01 one\n";
        let source = "// CC-01, CC-99\n";
        expect_one(
            &conformance(rows, "", source),
            "crates/a/tests/b.rs",
            "`CC-99`",
        );
        let decisions = "CC-98 not applicable: no\n";
        expect_one(
            &conformance(rows, decisions, "// CC-01\n"),
            DECISIONS,
            "`CC-98`",
        );
        let range = "// CC-01..03\n";
        expect_one(
            &conformance(rows, "", range),
            "crates/a/tests/b.rs",
            "write out",
        );
    }

    #[test]
    fn few_core_rows_of_the_coordinator_are_not_applicable() {
        let rows: String = (1..=20).map(|n| format!("CC-{n:02}* x\n")).collect();
        let rows = format!("## CC: triggers\n{rows}## AL: barriers\nAL-01* x\n");
        let decide = |last: usize| -> String {
            let ids = (1..=last).map(|n| format!("CC-{n:02} not applicable: no\n"));
            ids.chain(["AL-01 not applicable: no\n".to_owned()])
                .collect()
        };
        assert_eq!(check_share(&conformance(&rows, &decide(3), "")), Ok(()));
        assert!(check_share(&conformance(&rows, &decide(4), "")).is_err());
    }

    #[test]
    fn core_rows_that_wait_are_listed() {
        let rows = "## CC: triggers\nCC-01* x\nCC-02 x\nCC-03* x\n## AL: barriers\nAL-01* x\n";
        let decisions = "CC-01 open: savepoints\nCC-02 open: savepoints\n\
                         AL-01 open: savepoints\nCC-03 not applicable: no\n";
        let read = conformance(rows, decisions, "");
        assert_eq!(waiting_core_rows(&read), [("CC-01", "savepoints")]);
    }
}

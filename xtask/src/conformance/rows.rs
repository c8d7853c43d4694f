//! The rows: what a checkpointed system must do, one behaviour a line.
//!
//! A line `## CC: title` begins a group, a line `CC-05 wording` is a row of it, and an asterisk
//! behind the id (`CC-05*`) marks the core set: behaviours that were read line by line in the
//! tests of Flink. Other lines are blank or, with `# `, comments.

use super::claims::is_id;
use crate::tidy::Violation;

/// A file of rows.
#[derive(Debug, Clone)]
pub struct Section {
    /// Its heading in the document.
    pub title: &'static str,
    /// The file, from the repository's root.
    pub path: &'static str,
    /// Its groups.
    pub groups: Vec<Group>,
}

/// Rows that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What its ids begin with: `CC`.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// Its rows, in the file's order.
    pub rows: Vec<Row>,
}

/// One behaviour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// `CC-05`, `BC-01`, `G14`.
    pub id: String,
    /// Whether it belongs to the core set.
    pub is_core: bool,
    /// The behaviour in one line.
    pub wording: String,
}

/// Reads a file of rows; reports lines that are none of it, and doubled ids.
pub(super) fn parse(path: &str, text: &str, malformed: &mut Vec<Violation>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with("# ") {
            continue;
        }
        let result = match line.strip_prefix("## ") {
            Some(heading) => parse_heading(heading).map(|group| groups.push(group)),
            None => parse_row(line).and_then(|row| add(&mut groups, row)),
        };
        if let Err(message) = result {
            malformed.push(Violation::new(path, index + 1, message));
        }
    }
    groups
}

fn parse_heading(heading: &str) -> Result<Group, &'static str> {
    let (name, title) = heading.split_once(": ").ok_or("write `## CC: title`")?;
    Ok(Group {
        name: name.to_owned(),
        title: title.to_owned(),
        rows: Vec::new(),
    })
}

fn parse_row(line: &str) -> Result<Row, &'static str> {
    let (id, wording) = line.split_once(' ').ok_or("write `CC-05 wording`")?;
    let row = Row {
        id: id.trim_end_matches('*').to_owned(),
        is_core: id.ends_with('*'),
        wording: wording.trim().to_owned(),
    };
    if is_id(&row.id) {
        Ok(row)
    } else {
        Err("an id is like `CC-05` or `G14`")
    }
}

fn add(groups: &mut [Group], row: Row) -> Result<(), &'static str> {
    let is_doubled = groups.iter().any(|g| g.rows.iter().any(|r| r.id == row.id));
    let group = groups
        .last_mut()
        .ok_or("begin with a group: `## CC: title`")?;
    let number = row
        .id
        .strip_prefix(&group.name)
        .map(|rest| rest.trim_start_matches('-'));
    if is_doubled {
        return Err("a row with this id is there already");
    }
    if !number.is_some_and(|number| number.chars().all(|c| c.is_ascii_digit())) {
        return Err("a row belongs to the group that its id begins with");
    }
    group.rows.push(row);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_groups_and_rows() {
        let mut malformed = Vec::new();
        let text = "# note\n## CC: triggers\nCC-01* one\nCC-02 two: three\n\n## A: all\nA1 four\n";
        let groups = parse("a.txt", text, &mut malformed);
        assert_eq!(malformed, []);
        assert_eq!(
            (groups[0].name.as_str(), groups[0].title.as_str()),
            ("CC", "triggers")
        );
        assert!(groups[0].rows[0].is_core && !groups[0].rows[1].is_core);
        assert_eq!(groups[0].rows[1].wording, "two: three");
        assert_eq!(groups[1].rows[0].id, "A1");
    }

    #[test]
    fn reports_what_is_no_row() {
        let bad = [
            "CC-01 no group",
            "## CC no title",
            "## CC: triggers\nCC01 bad id",
            "## CC: triggers\nRD-01 other group",
            "## CC: triggers\nCC-01 one\nCC-01 again",
            "## CC: triggers\nCC-01",
        ];
        for text in bad {
            let mut malformed = Vec::new();
            parse("a.txt", text, &mut malformed);
            assert_eq!(malformed.len(), 1, "{text}");
        }
    }
}

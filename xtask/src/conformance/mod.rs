//! Which behaviours the tests cover: `docs/conformance.md`, generated from the tests' comments.
//!
//! The behaviours are rows of text files below `docs/conformance`. A test names the rows that it
//! would fail for (`// CC-05, CC-07`); what no test covers is decided in `decisions.txt`: not
//! applicable, with the reason, or open, with the capability that it waits for.
//!
//! Invariants: each row is covered or decided, never both; a source names no row that isn't
//! there. Whether a test shows what it names is for its reviewer to see.

mod claims;
mod decisions;
mod document;
mod rows;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

pub use claims::{Claim, Mention, mentions};
pub use decisions::{Capability, Decision, Decisions};
pub use document::render;
pub use rows::{Group, Row, Section};
pub use rules::{COORDINATOR_GROUPS, check, check_share, waiting_core_rows};

use crate::tidy::{Violation, read_files, repository_root};

/// The generated document, from the repository's root.
pub const DOCUMENT: &str = "docs/conformance.md";
/// What was decided about rows that no test covers, from the repository's root.
pub const DECISIONS: &str = "docs/conformance/decisions.txt";
const CAPABILITIES: &str = "docs/conformance/capabilities.txt";
const SECTIONS: [(&str, &str); 3] = [
    ("docs/conformance/scenarios.txt", "Scenarios"),
    ("docs/conformance/bug-cases.txt", "Bugs of others"),
    ("docs/conformance/checklist.txt", "Checklist"),
];

/// All rows, what was decided about them, and which tests name them.
#[derive(Debug, Default)]
pub struct Conformance {
    /// The rows, in the order of the document.
    pub sections: Vec<Section>,
    /// What was decided about rows.
    pub decisions: Decisions,
    /// Every mention of an id in a comment, covering or not.
    pub mentions: Vec<Mention>,
    /// What could not be read as a row, decision or capability.
    pub malformed: Vec<Violation>,
}

impl Conformance {
    /// Reads rows and decisions, and scans the crates' sources below `root`.
    ///
    /// # Errors
    /// When a file can't be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut read = Self::default();
        for (path, title) in SECTIONS {
            let text = fs::read_to_string(root.join(path))?;
            let groups = rows::parse(path, &text, &mut read.malformed);
            read.sections.push(Section {
                title,
                path,
                groups,
            });
        }
        let capabilities = fs::read_to_string(root.join(CAPABILITIES))?;
        let decisions = fs::read_to_string(root.join(DECISIONS))?;
        read.decisions = Decisions::parse(
            (CAPABILITIES, &capabilities),
            (DECISIONS, &decisions),
            &mut read.malformed,
        );
        read.mentions = mentions(&read_files(&root.join("crates"), root, &["rs", "txt"])?);
        Ok(read)
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.groups().flat_map(|group| &group.rows)
    }

    /// All groups of rows.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.sections.iter().flat_map(|section| &section.groups)
    }

    /// The tests that name each covered row.
    pub fn claims(&self) -> BTreeMap<&str, BTreeSet<&Claim>> {
        let mut claims: BTreeMap<&str, BTreeSet<&Claim>> = BTreeMap::new();
        for mention in &self.mentions {
            if let Some(claim) = &mention.claim {
                claims.entry(&mention.id).or_default().insert(claim);
            }
        }
        claims
    }

    /// Takes rows that are covered by now from the open ones, and writes decisions and document.
    /// Leaves the decisions alone while one can't be read: it would be lost.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn update(mut self, root: &Path) -> io::Result<()> {
        if self.malformed.is_empty() {
            let covered = self.claims().into_keys().map(str::to_owned).collect();
            self.decisions.close(&covered);
            let decisions = self.decisions.render(self.groups());
            replace(&root.join(DECISIONS), &decisions)?;
        }
        replace(&root.join(DOCUMENT), &render(&self))
    }
}

/// Reads everything of this repository.
///
/// # Errors
/// When a file can't be read.
pub fn read_all() -> io::Result<Conformance> {
    Conformance::read(&repository_root())
}

/// Writes a file so that one who reads it meanwhile sees the old or the new text, whole.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    fs::write(&draft, text)?;
    fs::rename(draft, path)
}

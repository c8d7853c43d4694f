//! What a rule reports, and how a test shows it.

use std::fmt;

/// One place that breaks one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path from the repository's root.
    pub path: String,
    /// Line number from 1; 0 when the whole file is meant.
    pub line: usize,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Violation {
    /// Makes a violation at a line of a file.
    pub fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Lists violations one per line, sorted, for the message of a failing test.
pub fn report(mut violations: Vec<Violation>) -> String {
    violations.sort();
    violations
        .iter()
        .map(|violation| format!("\n  {violation}"))
        .collect()
}

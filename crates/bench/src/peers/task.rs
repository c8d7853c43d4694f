//! A job of the suite as a peer is told it that runs apart from this program.

use std::path::PathBuf;
use std::time::Duration;

use crate::corpus::{self, WORDS};
use crate::error::{Error, Result};
use crate::options::Workload;
use crate::outcome::{Outcome, Usage};

/// Different keys, unless something else is said.
const KEYS: u64 = 1_000;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// Which job, and what only it is told.
    pub(crate) kind: Kind,
    /// Records that go in: numbers, words.
    pub(crate) records: u64,
    /// Subtasks of each operator.
    pub(crate) parallelism: u32,
    /// Milliseconds between checkpoints; 0 for none.
    pub(crate) checkpoint_interval_ms: u64,
}

/// The jobs that there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Generate and discard.
    Source,
    /// Count numbers, of which so many are different.
    KeyedCount(u64),
    /// Count strings, of which so many are different.
    KeyedStrings(u64),
    /// Count the words of these files.
    WordCount(Vec<PathBuf>),
}

impl Kind {
    /// Its name on the command line, and in outcomes.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Kind::Source => "source",
            Kind::KeyedCount(_) => "keyed-count",
            Kind::KeyedStrings(_) => "keyed-strings",
            Kind::WordCount(_) => "wordcount",
        }
    }

    /// How many different keys, if that isn't the text's business.
    pub(super) fn keys(&self) -> Option<u64> {
        match self {
            Kind::KeyedCount(keys) | Kind::KeyedStrings(keys) => Some(*keys),
            Kind::Source | Kind::WordCount(_) => None,
        }
    }
}

impl Task {
    /// The one that a workload's command line asks for; so many records unless it says how many.
    ///
    /// # Errors
    /// If no such peer runs this workload, or its words can't be written.
    pub(super) fn of(workload: &Workload, records: u64) -> Result<Self> {
        let common = workload.common();
        let keys = common.keys.unwrap_or(KEYS).max(1);
        let records = common.records.unwrap_or(records);
        let (kind, records) = match workload {
            Workload::Source(_) => (Kind::Source, records),
            Workload::KeyedCount(_) => (Kind::KeyedCount(keys), records),
            Workload::KeyedStrings(_) => (Kind::KeyedStrings(keys), records),
            Workload::Wordcount(_) => {
                let files = corpus::files(common.records.unwrap_or(WORDS), &common.data_dir())?;
                (Kind::WordCount(files.paths), files.words)
            }
            _ => {
                return Err(Error::NotOffered {
                    peer: common.peer.name(),
                    workload: workload.name(),
                });
            }
        };
        let interval = common.interval_or(Duration::from_secs(1));
        Ok(Task {
            kind,
            records,
            parallelism: common.parallelism,
            checkpoint_interval_ms: interval.map_or(0, |time| time.as_millis() as u64),
        })
    }

    /// What another program is told of it: names and values.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("records", self.records.to_string()),
            ("parallelism", self.parallelism.to_string()),
        ];
        match &self.kind {
            Kind::Source => {}
            Kind::KeyedCount(keys) | Kind::KeyedStrings(keys) => {
                settings.push(("keys", keys.to_string()));
            }
            Kind::WordCount(files) => {
                let files = files.iter().map(|file| file.display().to_string());
                settings.push(("input", files.collect::<Vec<_>>().join(",")));
            }
        }
        settings
    }

    /// What it has taken on this system, without checkpoints.
    pub(super) fn outcome(&self, system: &str, usage: Usage) -> Outcome {
        let workload = self.kind.name();
        let mut outcome = Outcome::new((workload, system), self.records, self.parallelism, usage);
        outcome.keys = self.kind.keys();
        outcome
    }
}

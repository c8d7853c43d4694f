//! What the JobManagers say of the job, with the time at which they said it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::process::Listener;

/// Something that a JobManager has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It has become the leader.
    Leads,
    /// All subtasks of this attempt run.
    Running(u64),
    /// This attempt has processed its first record.
    Record(u64),
}

/// One entry of a journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) at: Instant,
    /// Process id of the JobManager.
    pub(crate) by: u32,
    pub(crate) said: Said,
}

/// See the [module](self). Clones are the same journal.
#[derive(Clone, Default)]
pub(crate) struct Journal(Arc<Mutex<Vec<Entry>>>);

impl Journal {
    /// Notes what a JobManager prints, under the process id that the caller fills in once it knows
    /// it.
    pub(crate) fn listener(&self, by: Arc<Mutex<u32>>) -> Listener {
        let journal = self.clone();
        Box::new(move |line| {
            if let Some(said) = understand(line) {
                let by = *by.lock().unwrap_or_else(PoisonError::into_inner);
                let at = Instant::now();
                journal.entries().push(Entry { at, by, said });
            }
        })
    }

    pub(crate) fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who said last that it leads.
    pub(crate) fn leader(&self) -> Option<u32> {
        let entries = self.entries();
        let mut latest = entries.iter().rev();
        latest
            .find(|entry| entry.said == Said::Leads)
            .map(|entry| entry.by)
    }

    /// The latest attempt of which all subtasks have run; 0 if there was none.
    pub(crate) fn attempt(&self) -> u64 {
        let entries = self.entries();
        let running = entries.iter().filter_map(|entry| match entry.said {
            Said::Running(attempt) => Some(attempt),
            Said::Leads | Said::Record(_) => None,
        });
        running.max().unwrap_or(0)
    }

    /// When somebody first said what fits, after a moment.
    pub(crate) fn first(&self, after: Instant, fits: impl Fn(Said) -> bool) -> Option<Entry> {
        let entries = self.entries();
        let mut later = entries.iter().filter(|entry| entry.at >= after);
        later.find(|entry| fits(entry.said)).copied()
    }
}

fn understand(line: &str) -> Option<Said> {
    let attempt = || {
        let rest = line.split("attempt=attempt-").nth(1)?;
        rest.split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse()
            .ok()
    };
    if line.contains("this JobManager leads") {
        Some(Said::Leads)
    } else if line.contains("all subtasks run ") {
        attempt().map(Said::Running)
    } else if line.contains("the first record is processed ") {
        attempt().map(Said::Record)
    } else {
        None
    }
}

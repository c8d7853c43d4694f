//! What a process of an attempt is told when it is started: a variable of its environment.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_coordinator::ProcessId;
use tidegate_types::{AttemptNumber, LeaderEpoch};

use crate::data::BuildFingerprint;
use crate::hex;

/// The variable. Whoever finds it set is a process of an attempt, and nothing else.
pub(crate) const VARIABLE: &str = "TIDEGATE_TASK";

/// The process of an attempt that this process is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub(super) process: ProcessId,
    /// Of the leadership that started the attempt.
    pub(super) epoch: LeaderEpoch,
    /// Where the JobManager is.
    pub(super) jobmanager: String,
    /// Where others reach this machine.
    pub(super) host: IpAddr,
    /// The TaskManager's process.
    pub(super) parent: u32,
    /// How long anybody may be silent before it is taken for dead.
    pub(super) heartbeat_timeout: Duration,
    /// Of the binary.
    pub(super) build: BuildFingerprint,
    /// Where the TaskManager keeps copies of state files, if it does.
    pub(super) local_copies: Option<PathBuf>,
    /// Name of the job.
    pub(super) job: String,
}

impl Task {
    /// The task that this process was started for; `None` if it was started by a user.
    ///
    /// # Errors
    /// If the variable is there and isn't what a TaskManager sets.
    pub fn of_this_process() -> Result<Option<Task>, String> {
        let Some(text) = std::env::var_os(VARIABLE) else {
            return Ok(None);
        };
        let parsed = text.to_str().and_then(Task::parse);
        parsed.map(Some).ok_or_else(|| {
            format!("{VARIABLE} is set, and not by a TaskManager of this version; unset it")
        })
    }

    /// One line per part; the job's name, which may hold anything, is last.
    pub(super) fn text(&self) -> String {
        let build = hex::text(&self.build.0);
        let copies = self.local_copies.as_deref().unwrap_or(Path::new(""));
        let copies = hex::text(copies.as_os_str().as_bytes());
        format!(
            "{}\n{}\n{}\n{}\n{}\n{}\n{}\n{build}\n{copies}\n{}",
            self.process.attempt.0,
            self.process.index,
            self.epoch.0,
            self.jobmanager,
            self.host,
            self.parent,
            self.heartbeat_timeout.as_millis(),
            self.job,
        )
    }

    fn parse(text: &str) -> Option<Task> {
        let mut lines = text.splitn(10, '\n');
        let process = ProcessId {
            attempt: AttemptNumber(lines.next()?.parse().ok()?),
            index: lines.next()?.parse().ok()?,
        };
        Some(Task {
            process,
            epoch: LeaderEpoch(lines.next()?.parse().ok()?),
            jobmanager: lines.next()?.to_owned(),
            host: lines.next()?.parse().ok()?,
            parent: lines.next()?.parse().ok()?,
            heartbeat_timeout: Duration::from_millis(lines.next()?.parse().ok()?),
            build: BuildFingerprint(hex::parse(lines.next()?)?),
            local_copies: local_copies(lines.next()?)?,
            job: lines.next()?.to_owned(),
        })
    }
}

/// The outer `None`: this is no path.
fn local_copies(text: &str) -> Option<Option<PathBuf>> {
    let path = hex::bytes(text)?;
    Some((!path.is_empty()).then(|| PathBuf::from(OsString::from_vec(path))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_survives_the_environment() {
        let task = Task {
            process: ProcessId {
                attempt: AttemptNumber(7),
                index: 2,
            },
            epoch: LeaderEpoch(3),
            jobmanager: "127.0.0.1:6123".to_owned(),
            host: "::1".parse().unwrap(),
            parent: 17,
            heartbeat_timeout: Duration::from_millis(500),
            build: BuildFingerprint::of(b"binary"),
            local_copies: Some(PathBuf::from("/with\nlines")),
            job: "two\nlines".to_owned(),
        };
        assert_eq!(Task::parse(&task.text()), Some(task.clone()));
        let task = Task {
            local_copies: None,
            ..task
        };
        assert_eq!(Task::parse(&task.text()), Some(task));
        assert_eq!(Task::parse("7\n2"), None);
        assert_eq!(Task::parse(""), None);
    }
}

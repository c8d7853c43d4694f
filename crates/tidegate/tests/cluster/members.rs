//! The processes of a local cluster, as the operating system lists them.

use std::fs;
use std::process::Command;

/// What a process of a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    JobManager,
    TaskManager,
    /// The process of an attempt.
    Task,
}

/// One process of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) pid: u32,
    pub(crate) kind: Kind,
}

/// All processes of the cluster that the process `parent` runs. What ends meanwhile may be missing.
pub(crate) fn members(parent: u32) -> Vec<Member> {
    let mut members = Vec::new();
    for pid in children(parent) {
        let kind = match role(pid).as_deref() {
            Some("jobmanager") => Kind::JobManager,
            Some("taskmanager") => Kind::TaskManager,
            _ => continue,
        };
        members.push(Member { pid, kind });
        if kind == Kind::TaskManager {
            let tasks = children(pid).into_iter();
            members.extend(tasks.map(|pid| Member {
                pid,
                kind: Kind::Task,
            }));
        }
    }
    members
}

/// Those of one kind.
pub(crate) fn of_kind(parent: u32, kind: Kind) -> Vec<Member> {
    let mut members = members(parent);
    members.retain(|member| member.kind == kind);
    members
}

/// Processes that this one has started.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        let listed = fs::read_to_string(thread.path().join("children"));
        let listed = listed.unwrap_or_default();
        children.extend(
            listed
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    children
}

/// The first argument of a process.
fn role(pid: u32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let role = line.split(|byte| *byte == 0).nth(1)?;
    String::from_utf8(role.to_vec()).ok()
}

/// Sends a signal; whoever has ended meanwhile doesn't mind.
pub(crate) fn signal(member: Member, signal: &str) {
    let pid = member.pid.to_string();
    let _ = Command::new("kill")
        .args([&format!("-{signal}"), "--", &pid])
        .stderr(std::process::Stdio::null())
        .status();
}

//! The process of an attempt, as its supervisor sees it.

use std::ffi::{OsStr, OsString};
use std::future::pending;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};

use tidegate_coordinator::ProcessId;

use crate::cluster::parent::this_binary;
use crate::cluster::settings::ClusterSettings;
use crate::cluster::task::{Task, VARIABLE};
use crate::cluster::wire::Launch;

pub(super) struct Child {
    /// `None` if its JobManager is gone: nobody wants to know how it ended.
    pub(super) process: Option<ProcessId>,
    running: tokio::process::Child,
}

impl Child {
    /// Starts the process, with a socket that listens for its peers as standard input: its port is
    /// fresh, and nobody else can take it in between.
    pub(super) fn start(
        task: &Task,
        launch: &Launch,
        cluster: &ClusterSettings,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((task.host, 0))?;
        let arguments = launch.arguments.iter().cloned().map(OsString::from_vec);
        let mut command = this_binary();
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_setting(name)) {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .env(VARIABLE, task.text())
            .env("TIDEGATE_INSECURE", cluster.insecure.to_string())
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .kill_on_drop(true);
        if let Some(tls) = &cluster.tls {
            command.envs(tls.files().variables());
        }
        for variable in &launch.variables {
            command.env(&variable.name, &variable.value);
        }
        Ok(Child {
            process: Some(task.process),
            running: command.spawn()?,
        })
    }

    /// Kills it. Its end is waited for with [`ended`], and may take as long as the kernel takes.
    pub(super) fn begin_to_kill(&mut self) {
        // Fails if it has ended already.
        let _ = self.running.start_kill();
    }

    /// Kills it on behalf of nobody.
    pub(super) fn abandon(&mut self) {
        self.process = None;
        self.begin_to_kill();
    }
}

/// Waits until the process has ended; for ever, if there is none. Dropping the future changes
/// nothing.
pub(super) async fn ended(child: &mut Option<Child>) -> (Option<ProcessId>, String) {
    let Some(running) = child else {
        return pending().await;
    };
    let how = how(running.running.wait().await);
    let process = running.process;
    *child = None;
    (process, how)
}

/// Whether it says how a job runs: then the JobManager's word counts, whose settings are the same
/// for all processes, and not that of whoever started the TaskManager. Where certificates lie is
/// each machine's own business.
fn is_setting(name: &OsStr) -> bool {
    let kept = ["TIDEGATE_CLUSTER_SECRET", "TIDEGATE_FAULT_"];
    let name = name.to_string_lossy();
    name.starts_with("TIDEGATE_") && !kept.iter().any(|kept| name.starts_with(kept))
}

fn how(status: io::Result<ExitStatus>) -> String {
    let status = match status {
        Ok(status) => status,
        Err(cause) => return format!("has ended ({cause})"),
    };
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("was killed by signal {signal}{}", name_of(signal)),
        (None, Some(code)) => format!("exited with status {code}"),
        (None, None) => format!("has ended ({status})"),
    }
}

/// What people know a signal by.
fn name_of(signal: i32) -> &'static str {
    match signal {
        2 => " (SIGINT)",
        6 => " (SIGABRT: a panic, or an abort)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL: somebody killed it, or memory ran out)",
        11 => " (SIGSEGV)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_as_people_know_them() {
        let killed = how(Ok(ExitStatus::from_raw(9)));
        assert!(killed.starts_with("was killed by signal 9 (SIGKILL"));
        assert_eq!(
            how(Ok(ExitStatus::from_raw(3 << 8))),
            "exited with status 3"
        );
    }
}

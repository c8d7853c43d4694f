//! A program on a machine: what it prints, how it ends, signals to it and to what it has started.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

/// Takes each line that a program prints, when it does.
pub(crate) type Listener = Box<dyn FnMut(&str) + Send>;

/// A program that runs. Dropped, it is killed.
pub(crate) struct Running {
    child: Child,
    listening: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts it. What it prints is appended to `log`, and told to `listener`.
    ///
    /// # Errors
    /// If it can't be started, or its log not be written.
    pub(crate) fn start(
        mut command: Command,
        log: &Path,
        listener: Listener,
    ) -> Result<Running, String> {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDEGATE_") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        command
            .env("RUST_LOG", "info,tidegate_server::driver=debug")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let file = File::options().create(true).append(true).open(log);
        let file = file.map_err(|error| format!("`{}`: {error}", log.display()))?;
        let child = command.spawn();
        let mut child = child.map_err(|error| format!("start {command:?}: {error}"))?;
        let printed = child.stderr.take();
        let listening =
            printed.map(|printed| std::thread::spawn(move || listen(printed, file, listener)));
        Ok(Running { child, listening })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, once it has, and everything that it printed has been told.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
        Some(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(printed: impl Read, mut file: File, mut listener: Listener) {
    for line in BufReader::new(printed).split(b'\n') {
        let Ok(line) = line else { return };
        let line = String::from_utf8_lossy(&line);
        listener(&line);
        let _ = writeln!(file, "{line}");
    }
}

/// Whether somebody has killed it with `SIGKILL`.
pub(crate) fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}

/// Sends a signal; whoever has ended meanwhile doesn't mind.
pub(crate) fn signal(pid: u32, signal: &str) {
    let _ = Command::new("kill")
        .args([&format!("-{signal}"), "--", &pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// The processes that a process has started.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    for thread in threads.filter_map(Result::ok) {
        let listed = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.extend(
            listed
                .split_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    children
}

//! Examples as processes of their own, which are killed at the latest when a test is over.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What should happen within moments has not happened within this time: something is stuck.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How often is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(2);

/// The binary of an example, which cargo builds beside the tests.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("tests lie in `<profile>/deps`");
    let path = profile
        .join("examples")
        .join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        path.is_file(),
        "there is no `{}`; build the examples first, with `--features fault-points`",
        path.display()
    );
    path
}

/// Waits for something that should happen soon.
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(LOOK);
    }
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Checks that it ended well.
    pub fn success(self) -> Ended {
        assert!(self.status.success(), "{}: {}", self.status, self.stderr);
        self
    }

    /// Checks that it ended with an error that has all these parts.
    pub fn failure(self, parts: &[&str]) -> Ended {
        assert!(!self.status.success(), "it ended well: {}", self.stderr);
        assert!(
            self.status.code().is_some(),
            "{}: {}",
            self.status,
            self.stderr
        );
        for part in parts {
            assert!(
                self.stderr.contains(part),
                "`{part}` is not in: {}",
                self.stderr
            );
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }
}

/// A running process. Dropping it kills it.
pub struct Process {
    child: Child,
    stdout: Gatherer,
    stderr: Gatherer,
}

struct Gatherer {
    text: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Gatherer {
    fn start(mut pipe: impl Read + Send + 'static) -> Gatherer {
        let text = Arc::new(Mutex::new(Vec::new()));
        let gathered = Arc::clone(&text);
        let thread = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = pipe.read(&mut piece) {
                gathered.lock().unwrap().extend_from_slice(&piece[..read]);
            }
        });
        Gatherer {
            text,
            thread: Some(thread),
        }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }

    fn all(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.so_far()
    }
}

impl Process {
    /// Starts a program. Nothing in the environment says how Tidegate is to run.
    pub fn start(program: &Path, arguments: &[String]) -> Process {
        Self::start_with(program, arguments, &[])
    }

    /// Starts a program with no other variables for Tidegate than these.
    pub fn start_with(program: &Path, arguments: &[String], variables: &[(&str, &str)]) -> Process {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDEGATE_") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let spawned = command.spawn();
        let mut child = spawned.unwrap_or_else(|e| panic!("start {}: {e}", program.display()));
        let stdout = Gatherer::start(child.stdout.take().unwrap());
        let stderr = Gatherer::start(child.stderr.take().unwrap());
        Process {
            child,
            stdout,
            stderr,
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What it has written to standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.so_far()
    }

    /// Kills it with `SIGKILL`, which it can't notice. It must still be running.
    pub fn kill(mut self) -> Ended {
        assert!(
            self.is_running(),
            "it ended before it was killed: {}",
            self.stderr()
        );
        self.child.kill().unwrap();
        self.ended()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        while self.is_running() {
            assert!(
                Instant::now() < deadline,
                "still running: {}",
                self.stderr()
            );
            std::thread::sleep(LOOK);
        }
        self.ended()
    }

    fn ended(mut self) -> Ended {
        let status = self.child.wait().unwrap();
        Ended {
            status,
            stdout: self.stdout.all(),
            stderr: self.stderr.all(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // Its children are in its group: `survive` and `strace` have some.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! Examples as processes that are killed: their finished output is exact, whatever the moments and
//! whatever the parallelism afterwards.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod fraud;
#[path = "../../examples/support/oracle.rs"]
#[allow(dead_code, reason = "only its look at committed files is needed")]
mod oracle;
mod rules;
#[path = "../support/mod.rs"]
mod support;
#[path = "../../examples/support/transactions.rs"]
mod transactions;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use support::{Process, example, wait_until};

/// Everything that one run of an example reads and writes. Removed when dropped.
struct Demo {
    example: &'static str,
    folder: tempfile::TempDir,
}

impl Demo {
    fn new(example: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Demo { example, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, arguments: &[&str]) -> Process {
        let mut all = vec!["--checkpoint-interval".to_owned(), "20ms".to_owned()];
        for (flag, path) in [("--output", "output"), ("--checkpoint-dir", "checkpoints")] {
            all.push(flag.to_owned());
            all.push(self.path(path).display().to_string());
        }
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        Process::start(&example(self.example), &all)
    }

    /// Runs the example with these arguments for a while, kills it, and returns whether it had gone
    /// on from a checkpoint.
    fn run_and_kill(&self, arguments: &[&str], random: &mut StdRng) -> bool {
        let run = self.start(arguments);
        wait_until("the run says how it starts", || run.stderr().contains('\n'));
        std::thread::sleep(Duration::from_millis(random.random_range(50..350)));
        let killed = run.kill();
        assert!(!killed.stderr.contains("failed"), "{}", killed.stderr);
        killed.stderr.starts_with("going on from")
    }

    /// Lets it run to its end.
    fn finish(&self, arguments: &[&str]) {
        let ended = self.start(arguments).wait().success();
        let how = &ended.stderr;
        assert!(how.starts_with("going on from"), "{how}");
    }

    /// The lines that are committed, sorted.
    fn committed(&self) -> Vec<String> {
        let files = oracle::visible_files(&self.path("output")).unwrap_or_default();
        let mut lines: Vec<String> = files.iter().flat_map(|file| lines_of(file)).collect();
        lines.sort_unstable();
        lines
    }
}

fn lines_of(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(str::to_owned).collect()
}

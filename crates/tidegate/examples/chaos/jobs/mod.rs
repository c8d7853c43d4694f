//! The jobs that are disturbed, and what each must come to.

mod fraud;
mod words;

use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much there is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Keys of the word count.
    pub(crate) keys: u64,
    /// Records a second while it is disturbed.
    pub(crate) rate: u64,
    /// For how long the input lasts at that rate.
    pub(crate) lasts: Duration,
}

impl Load {
    fn records(&self) -> u64 {
        (self.lasts.as_secs_f64() * self.rate as f64) as u64
    }
}

/// A job, and where it works.
pub(crate) struct Job {
    /// Also the name of the example that it is.
    pub(crate) name: &'static str,
    dir: PathBuf,
    load: Load,
    arguments: fn(&Path, &Load) -> Vec<String>,
    rate: fn(&Load) -> f64,
    check: fn(&Path, &Load) -> Result<u64, String>,
}

/// As fast as can be.
const UNLIMITED: f64 = 1e12;

impl Job {
    /// Counts words: source and counters at full parallelism, many keys.
    pub(crate) fn words(dir: &Path, load: Load) -> Result<Job, String> {
        words::write_input(dir, &load)?;
        Ok(Job {
            name: "wordcount",
            dir: dir.to_owned(),
            load,
            arguments: words::arguments,
            rate: |load| load.rate as f64 / words::WORDS_PER_LINE as f64,
            check: words::check,
        })
    }

    /// Looks for fraud: keyed state, event time, timers that are set and deleted.
    pub(crate) fn fraud(dir: &Path, load: Load) -> Job {
        Job {
            name: "fraud",
            dir: dir.to_owned(),
            load,
            arguments: fraud::arguments,
            rate: |load| load.rate as f64,
            check: fraud::check,
        }
    }

    /// Arguments of its own.
    pub(crate) fn arguments(&self, unlimited: bool) -> Vec<String> {
        let mut arguments = (self.arguments)(&self.dir, &self.load);
        let rate = if unlimited {
            UNLIMITED
        } else {
            (self.rate)(&self.load)
        };
        arguments.extend(["--rate".to_owned(), rate.to_string()]);
        for (flag, folder) in [
            ("--output", self.output()),
            ("--checkpoint-dir", self.checkpoints()),
        ] {
            arguments.extend([flag.to_owned(), folder.display().to_string()]);
        }
        arguments
    }

    pub(crate) fn output(&self) -> PathBuf {
        self.dir.join("output")
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.dir.join("checkpoints")
    }

    /// Checks what a finished job leaves: exact output and nothing else. Gives the number of lines.
    ///
    /// # Errors
    /// Says what is wrong.
    pub(crate) fn check(&self) -> Result<u64, String> {
        let lines = (self.check)(&self.output(), &self.load)?;
        let staged = names(&self.output().join(".tidegate/staged"));
        if !staged.is_empty() {
            return Err(format!("staged files are left: {staged:?}"));
        }
        let mut checkpoints = names(&self.checkpoints().join(self.name));
        checkpoints.retain(|name| name.starts_with("chk-"));
        match checkpoints.is_empty() {
            true => Ok(lines),
            false => Err(format!("checkpoints are left: {checkpoints:?}")),
        }
    }
}

/// Names of what is in a folder; none if there is no such folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.filter_map(Result::ok).map(name).collect()
}

/// Reads all lines of all committed files.
fn for_each_line(
    output: &Path,
    mut line: impl FnMut(&str) -> Result<(), String>,
) -> Result<u64, String> {
    let mut lines = 0;
    for name in names(output) {
        if name.starts_with('.') {
            continue;
        }
        let path = output.join(name);
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("`{}`: {error}", path.display()))?;
        for text in text.lines() {
            line(text).map_err(|wrong| format!("`{}`: {wrong}", path.display()))?;
            lines += 1;
        }
    }
    Ok(lines)
}

//! A temporary folder with the input, the output and the checkpoints of one word count.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::process::{Process, example};

/// Everything that one word count reads and writes. Removed when dropped.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// With the folder for input, empty.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("input")).unwrap();
        Place { dir }
    }

    /// A file or folder in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn input(&self) -> PathBuf {
        self.path("input")
    }

    pub fn output(&self) -> PathBuf {
        self.path("output")
    }

    /// Where the file sink keeps what is not committed.
    pub fn staged(&self) -> PathBuf {
        self.path("output/.tidegate/staged")
    }

    pub fn checkpoints(&self) -> PathBuf {
        self.path("checkpoints")
    }

    /// The job's folder in the checkpoint directory.
    pub fn namespace(&self) -> PathBuf {
        self.path("checkpoints/wordcount")
    }

    /// Writes an input file.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.input().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// The arguments that make a word count work in this place.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        for (flag, path) in [
            ("--input", self.input()),
            ("--output", self.output()),
            ("--checkpoint-dir", self.checkpoints()),
        ] {
            arguments.push(flag.to_owned());
            arguments.push(path.display().to_string());
        }
        // However small: so that there is one of each kind of file.
        arguments.extend(["--state-inline-threshold", "0B"].map(str::to_owned));
        arguments
    }

    /// Starts the word count here, with these arguments besides.
    pub fn start(&self, arguments: &[&str]) -> Process {
        let mut all = self.arguments();
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        Process::start(&example("wordcount"), &all)
    }

    /// The checkpoints that there are pointers to, ascending.
    pub fn completed(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = names(&self.namespace().join("completed"))
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
        ids.sort_unstable();
        ids
    }

    /// The checkpoints that have a folder, ascending.
    pub fn checkpoint_folders(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = names(&self.namespace())
            .iter()
            .filter_map(|name| name.strip_prefix("chk-")?.parse().ok())
            .collect();
        ids.sort_unstable();
        ids
    }

    /// Checks that the job's folder holds what a finished job leaves, which is no checkpoint; and
    /// that nothing is staged.
    pub fn assert_clean(&self) {
        let expected = [
            "attempts",
            "checkpoint-ids",
            "finished",
            "job",
            "leader",
            "lock",
        ];
        let mut found: Vec<String> = files(&self.namespace()).into_keys().collect();
        // One that was killed right after its marker had no need to discard anything.
        found.retain(|name| name != "discarded");
        assert_eq!(found, expected);
        assert_eq!(self.checkpoint_folders(), Vec::<u64>::new());
        assert_eq!(names(&self.staged()), Vec::<String>::new(), "staged");
    }
}

/// Names of the entries of a folder, sorted; none if there is no such folder.
pub fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// All files below a folder, at any depth, with the times of their last changes and contents.
/// Paths are relative to it. Files that go while it is looked at are left out.
pub fn files(folder: &Path) -> BTreeMap<String, (SystemTime, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for name in names(folder) {
        let path = folder.join(&name);
        if path.is_dir() {
            let below = files(&path).into_iter();
            found.extend(below.map(|(below, file)| (format!("{name}/{below}"), file)));
        } else if let Ok(changed) = fs::metadata(&path).and_then(|metadata| metadata.modified())
            && let Ok(content) = fs::read(&path)
        {
            found.insert(name, (changed, content));
        }
    }
    found
}

//! The program that runs jobs on renoir: where it is, how it is built and run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;

use super::error::RenoirError;

/// The profile that it is built with, as this one for a comparison.
const PROFILE: &str = "production";

/// A package with a `Cargo.toml`, built into its own folder `target`, whatever the environment says
/// about others.
#[derive(Clone, Debug)]
pub(super) struct Program {
    folder: PathBuf,
}

impl Program {
    /// The one that belongs to the sources of this program.
    pub(super) fn of_this_checkout() -> Self {
        Self::within(&Path::new(env!("CARGO_MANIFEST_DIR")).join("renoir"))
    }

    /// The one in this folder.
    pub(super) fn within(folder: &Path) -> Self {
        Program {
            folder: folder.to_owned(),
        }
    }

    /// The package's folder.
    #[cfg(test)]
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where it is, once it is built.
    pub(super) fn path(&self) -> PathBuf {
        let target = self.folder.join("target").join(PROFILE);
        target.join("tidegate-bench-renoir")
    }

    /// The command line that builds it, behind `cargo`. Not `--locked`: with the crates of the
    /// workspace that it uses, what those depend on may have changed.
    fn arguments(&self) -> [OsString; 7] {
        [
            "build".into(),
            "--profile".into(),
            PROFILE.into(),
            "--manifest-path".into(),
            self.folder.join("Cargo.toml").into(),
            "--target-dir".into(),
            self.folder.join("target").into(),
        ]
    }

    /// The same for people.
    fn command(&self) -> String {
        let arguments = self.arguments();
        let words = arguments.iter().map(|word| word.to_string_lossy());
        format!("cargo {}", words.collect::<Vec<_>>().join(" "))
    }

    /// Builds it, unless it is up to date. What cargo has to say goes to standard error.
    ///
    /// # Errors
    /// If there is no cargo, or it fails.
    pub(super) fn build(&self) -> Result<(), RenoirError> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(self.arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        let status = status.map_err(RenoirError::Cargo)?;
        match status.success() {
            true => Ok(()),
            false => Err(RenoirError::Build {
                status,
                command: self.command(),
            }),
        }
    }

    /// Runs a job, and reads the last line that it prints.
    ///
    /// # Errors
    /// If it isn't built, fails, or prints something else.
    pub(super) fn run<T: DeserializeOwned>(
        &self,
        job: &str,
        settings: &[(&str, String)],
    ) -> Result<T, RenoirError> {
        let path = self.path();
        if !path.exists() {
            return Err(RenoirError::NotBuilt {
                missing: path,
                command: self.command(),
            });
        }
        let mut command = Command::new(&path);
        command.arg(job).stdin(Stdio::null());
        for (name, value) in settings {
            command.arg(format!("--{name}")).arg(value);
        }
        let output = command
            .stderr(Stdio::inherit())
            .output()
            .map_err(|cause| RenoirError::Start { path, cause })?;
        if !output.status.success() {
            return Err(RenoirError::Failed(output.status));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().last().unwrap_or_default();
        serde_json::from_str(line).map_err(|cause| RenoirError::Figures {
            line: line.to_owned(),
            cause,
        })
    }
}

//! renoir 0.6 as a peer, at its best showing: a dataflow engine in Rust without fault tolerance.
//!
//! Its licence is LGPL, and it brings more than a hundred crates. So the jobs on it are a program
//! of their own outside of the workspace (`crates/bench/renoir`, whose head says what is done in
//! renoir's favour), which is built when a comparison with it begins, and run as a process.

mod error;
mod program;

use serde::Deserialize;

pub(crate) use self::error::RenoirError;
use self::program::Program;
use super::task::{Kind, Task};
use crate::error::{Error, Result};
use crate::options::Workload;
use crate::outcome::{Outcome, Usage, Verified};

/// Records that take it some seconds.
const RECORDS: u64 = 100_000_000;

/// What the program prints: one line.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Figures {
    seconds: f64,
    cpu_seconds: f64,
    peak_memory_bytes: u64,
    distinct_keys: u64,
    sum_of_counts: u64,
}

/// Builds the program, unless it is up to date.
///
/// # Errors
/// If it can't be built; the error says what to do.
pub(crate) fn build() -> Result<()> {
    Ok(Program::of_this_checkout().build()?)
}

/// How its records are made that are texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Texts {
    /// Of the type that they have on Tidegate.
    AsOnTidegate,
    /// As plain memory.
    Packed,
}

/// Runs a workload.
///
/// # Errors
/// If the program isn't built, fails, or counts wrong; or if it has no such workload.
pub(crate) fn run_workload(workload: &Workload, texts: Texts) -> Result<Outcome> {
    let task = Task::of(workload, RECORDS)?;
    if texts == Texts::Packed && !has_texts(&task) {
        return Err(Error::NotOffered {
            peer: workload.common().peer.name(),
            workload: workload.name(),
        });
    }
    run(&Program::of_this_checkout(), &task, texts)
}

fn has_texts(task: &Task) -> bool {
    matches!(task.kind, Kind::KeyedStrings(_) | Kind::WordCount(_))
}

fn run(program: &Program, task: &Task, texts: Texts) -> Result<Outcome> {
    let mut settings = task.settings();
    let system = match texts {
        Texts::AsOnTidegate => "renoir",
        Texts::Packed => {
            settings.push(("packed", true.to_string()));
            "renoir-packed"
        }
    };
    let figures: Figures = program.run(task.kind.name(), &settings)?;
    Error::unless_equal(
        "records that renoir counted",
        task.records,
        figures.sum_of_counts,
    )?;
    let usage = Usage {
        seconds: figures.seconds,
        cpu_seconds: figures.cpu_seconds,
        peak_memory_bytes: figures.peak_memory_bytes,
    };
    let mut outcome = task.outcome(system, usage);
    outcome.verified = Some(Verified {
        distinct_keys: figures.distinct_keys,
        sum_of_counts: figures.sum_of_counts,
    });
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    const PLAIN: Texts = Texts::AsOnTidegate;
    const FIGURES: &str = concat!(
        r#"{"seconds":2.0,"cpu_seconds":4.0,"peak_memory_bytes":99,"#,
        r#""distinct_keys":7,"sum_of_counts":1000}"#
    );

    /// A program that does as `script` says.
    fn program(folder: &Path, script: &str) -> Program {
        let program = Program::within(folder);
        let path = program.path();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    fn task(records: u64) -> Task {
        Task {
            kind: Kind::KeyedCount(7),
            records,
            parallelism: 2,
            checkpoint_interval_ms: 0,
        }
    }

    #[test]
    fn the_last_line_that_the_program_prints_is_the_outcome() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let script = format!(
            "echo \"$@\" > {}; echo first; echo '{FIGURES}'",
            told.display()
        );
        let outcome = run(&program(folder.path(), &script), &task(1_000), PLAIN).unwrap();
        assert_eq!(
            fs::read_to_string(told).unwrap(),
            "keyed-count --records 1000 --parallelism 2 --keys 7\n"
        );
        assert_eq!(
            (&*outcome.workload, &*outcome.system),
            ("keyed-count", "renoir")
        );
        assert_eq!(outcome.records_per_second, 500.0);
        assert_eq!(outcome.records_per_cpu_second, 250.0);
        assert_eq!((outcome.keys, outcome.peak_memory_bytes), (Some(7), 99));
        assert_eq!(outcome.verified.map(|all| all.distinct_keys), Some(7));
        assert_eq!(outcome.checkpoint_interval_ms, None);
    }

    #[test]
    fn texts_are_packed_if_they_are_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let script = format!("echo \"$@\" > {}; echo '{FIGURES}'", told.display());
        let strings = Task {
            kind: Kind::KeyedStrings(7),
            ..task(1_000)
        };
        let program = program(folder.path(), &script);
        let outcome = run(&program, &strings, Texts::Packed).unwrap();
        assert_eq!(outcome.system, "renoir-packed");
        let told = fs::read_to_string(told).unwrap();
        assert!(told.ends_with("--keys 7 --packed true\n"), "{told}");
        assert!(has_texts(&strings) && !has_texts(&task(1)));
    }

    #[test]
    fn who_counts_wrong_has_no_outcome() {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path(), &format!("echo '{FIGURES}'"));
        let error = run(&program, &task(1_001), PLAIN).unwrap_err().to_string();
        assert_eq!(
            error,
            "records that renoir counted: expected `1001`, got `1000`"
        );
    }

    #[test]
    fn who_fails_or_prints_something_else_has_no_outcome() {
        let folder = tempfile::tempdir().unwrap();
        let of = |script: &str| {
            let error = run(&program(folder.path(), script), &task(1_000), PLAIN).unwrap_err();
            tidegate_types::ErrorChain(&error).to_string()
        };
        let failed = of(&format!("echo '{FIGURES}'; exit 3"));
        assert!(failed.contains("exit status: 3"), "{failed}");
        let unknown = of("echo done");
        assert!(unknown.contains("`done`"), "{unknown}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_and_how_to_get_it() {
        let folder = tempfile::tempdir().unwrap();
        let program = Program::within(folder.path());
        let error = run(&program, &task(1), PLAIN).unwrap_err();
        let error = tidegate_types::ErrorChain(&error).to_string();
        for part in [
            &*program.path().to_string_lossy(),
            "cargo build --profile production --manifest-path",
            "compare --peers renoir",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn who_cannot_build_it_is_told_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Cargo.toml"), "[package").unwrap();
        let error = Program::within(folder.path()).build().unwrap_err();
        let error = error.to_string();
        assert!(error.contains("network"), "{error}");
        assert!(error.contains("--peers timely,flink"), "{error}");
    }

    #[test]
    fn the_program_of_this_checkout_has_a_lock_file() {
        let program = Program::of_this_checkout();
        assert!(program.folder().join("Cargo.lock").is_file());
        assert!(program.folder().join("Cargo.toml").is_file());
    }
}

//! Proof that every step is durable before the next one starts: which files and folders are
//! synced, and in which order with links, renames and deletions, as the kernel sees it.
//!
//! Nothing inside the process can tell whether `object_store` really syncs. So this binary runs
//! itself under `strace` and compares the system calls of each step with a list. It needs Linux
//! and `strace`; `TIDEGATE_WITHOUT_STRACE=1` does without the proof where there is none.

#![allow(clippy::print_stdout, reason = "it is its own test harness")]

mod support;

#[cfg(target_os = "linux")]
mod traced {
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::path::Path;
    use std::process::Command;

    use tidegate_storage::{CheckpointPointer, RestoreFrom};
    use tidegate_types::message::WriteOutcome;
    use tidegate_types::{AttemptNumber, CheckpointId, RestoreMode, SnapshotLocation};

    use crate::support::{Place, checkpoint, savepoint_of, write, write_at};

    const CHILD: &str = "TIDEGATE_SYNCS_TEST_CHILD";
    const CALLS: &str = "fsync,fdatasync,?link,linkat,?rename,?renameat,renameat2,?unlink,\
                         unlinkat,?rmdir,?mkdir,mkdirat,write";

    pub(super) fn main() {
        if std::env::var_os(CHILD).is_some() {
            return child();
        }
        if std::env::var_os("TIDEGATE_WITHOUT_STRACE").is_some() {
            println!("syncs: not proven, as TIDEGATE_WITHOUT_STRACE asks for");
            return;
        }
        let steps = steps(&trace());
        let expected = EXPECTED.map(|(step, calls)| {
            let calls = calls.iter().map(|call| (*call).to_owned()).collect();
            (step.to_owned(), calls)
        });
        for (found, expected) in steps.iter().zip(&expected) {
            assert_eq!(found, expected);
        }
        assert_eq!(steps.len(), expected.len());
        println!(
            "syncs: the system calls of {} steps are as expected",
            steps.len()
        );
    }

    /// What each step has to do, in order. `STATE` stands for the name of a state file.
    const EXPECTED: [(&str, &[&str]); 14] = [
        (
            "reserve checkpoint ids",
            &[
                "fsync checkpoint-ids#1",
                "rename checkpoint-ids#1 checkpoint-ids",
                "fsync .",
            ],
        ),
        (
            "first state file",
            &[
                "mkdir chk-1",
                "fsync chk-1",
                "fsync .",
                "fsync chk-1/STATE#1",
                "link chk-1/STATE#1 chk-1/STATE",
                "fsync chk-1",
                "unlink chk-1/STATE#1",
            ],
        ),
        (
            "state file",
            &[
                "fsync chk-1/STATE#1",
                "link chk-1/STATE#1 chk-1/STATE",
                "fsync chk-1",
                "unlink chk-1/STATE#1",
            ],
        ),
        (
            "long state file",
            &[
                "fsync chk-1/STATE#1",
                "rename chk-1/STATE#1 chk-1/STATE",
                "fsync chk-1",
            ],
        ),
        (
            "metadata",
            &[
                "fsync chk-1/_metadata#1",
                "link chk-1/_metadata#1 chk-1/_metadata",
                "fsync chk-1",
                "unlink chk-1/_metadata#1",
            ],
        ),
        (
            "pointer",
            &[
                "fsync completed/00000000000000000001#1",
                "link completed/00000000000000000001#1 completed/00000000000000000001",
                "fsync completed",
                "unlink completed/00000000000000000001#1",
            ],
        ),
        (
            "drop",
            &[
                "unlink completed/00000000000000000001",
                "fsync completed",
                "unlink chk-1/_metadata",
                "rmdir chk-1",
            ],
        ),
        (
            "prepare savepoint",
            &[
                "mkdir elsewhere",
                "fsync elsewhere",
                "fsync .",
                "fsync elsewhere/00000000000000000002#1",
                "link elsewhere/00000000000000000002#1 elsewhere/00000000000000000002",
                "fsync elsewhere",
                "unlink elsewhere/00000000000000000002#1",
                "mkdir sp",
                "fsync sp",
                "fsync .",
                "mkdir sp/1",
                "fsync sp/1",
                "fsync sp",
            ],
        ),
        (
            "state file of a savepoint",
            &[
                "fsync sp/1/STATE#1",
                "link sp/1/STATE#1 sp/1/STATE",
                "fsync sp/1",
                "unlink sp/1/STATE#1",
            ],
        ),
        (
            "metadata of a savepoint",
            &[
                "fsync sp/1/_metadata#1",
                "link sp/1/_metadata#1 sp/1/_metadata",
                "fsync sp/1",
                "unlink sp/1/_metadata#1",
                "unlink elsewhere/00000000000000000002",
                "fsync elsewhere",
            ],
        ),
        (
            "pointer to a savepoint",
            &[
                "fsync completed/00000000000000000002#1",
                "link completed/00000000000000000002#1 completed/00000000000000000002",
                "fsync completed",
                "unlink completed/00000000000000000002#1",
            ],
        ),
        (
            "forget a savepoint",
            &["unlink completed/00000000000000000002", "fsync completed"],
        ),
        (
            "claim",
            &[
                "fsync origin#1",
                "link origin#1 origin",
                "fsync .",
                "unlink origin#1",
                "fsync completed/00000000000000000002#1",
                "link completed/00000000000000000002#1 completed/00000000000000000002",
                "fsync completed",
                "unlink completed/00000000000000000002#1",
            ],
        ),
        (
            "drop what was claimed",
            &[
                "fsync elsewhere/00000000000000000002#1",
                "link elsewhere/00000000000000000002#1 elsewhere/00000000000000000002",
                "fsync elsewhere",
                "unlink elsewhere/00000000000000000002#1",
                "unlink completed/00000000000000000002",
                "fsync completed",
                "unlink sp/1/_metadata",
                "fsync sp/1",
                "rmdir sp/1",
                "unlink elsewhere/00000000000000000002",
                "fsync elsewhere",
            ],
        ),
    ];

    /// Takes one checkpoint, announcing its steps on stderr.
    fn child() {
        let place = Place::new();
        let store = place.open();
        let root = store.folder().canonicalize().expect("it exists");
        mark(&format!("ROOT {}\n", root.display()));
        let step = |name: &str| mark(&format!("STEP {name}\n"));

        step("reserve checkpoint ids");
        assert_eq!(
            place.run(store.reserve_ids(CheckpointId(1))),
            WriteOutcome::Done
        );
        step("first state file");
        let mut files = vec![write(&store, 1, "count[0]", b"state")];
        step("state file");
        files.push(write(&store, 1, "count[1]", b"state"));
        step("long state file");
        let name = store.state_file_name(AttemptNumber(1), CheckpointId(1), "count[2]");
        let mut writer = store.create_state_file(name);
        writer
            .write_all(&vec![7; (8 << 20) + 1])
            .expect("there is space");
        files.push(writer.finish().expect("there is space"));
        step("metadata");
        let full = checkpoint(&store, 1, files.clone());
        assert_eq!(place.run(store.publish_metadata(&full)), WriteOutcome::Done);
        step("pointer");
        assert_eq!(
            place.run(store.store_pointer(&CheckpointPointer::to(&full))),
            WriteOutcome::Done
        );
        step("drop");
        place
            .run(store.drop_completed(&full, &[]))
            .expect("everything can be deleted");
        let location = SnapshotLocation::new(&format!("file://{}/sp/1", root.display()));
        step("prepare savepoint");
        let prepared = place.run(store.prepare_savepoint(CheckpointId(2), &location));
        assert_eq!(prepared, WriteOutcome::Done);
        step("state file of a savepoint");
        let file = write_at(&store, &location, "count[0]", b"state");
        step("metadata of a savepoint");
        let stop = savepoint_of(&store, 2, &location, vec![file]);
        assert_eq!(place.run(store.publish_metadata(&stop)), WriteOutcome::Done);
        step("pointer to a savepoint");
        let pointer = CheckpointPointer::to(&stop);
        assert_eq!(place.run(store.store_pointer(&pointer)), WriteOutcome::Done);
        step("forget a savepoint");
        let forgotten = place.run(store.drop_completed(&stop, &[]));
        forgotten.expect("it can be deleted");
        step("claim");
        let from = RestoreFrom {
            location,
            mode: RestoreMode::Claim,
        };
        let resumed = place.run(store.resume(Some(&from)));
        let claimed = resumed.expect("there is space").completed;
        step("drop what was claimed");
        place
            .run(store.drop_completed(&claimed[0], &[]))
            .expect("everything can be deleted");
        step("end");
    }

    /// `eprintln!` would write the pieces of a line one by one.
    fn mark(line: &str) {
        std::io::stderr()
            .write_all(line.as_bytes())
            .expect("stderr is open");
    }

    fn trace() -> String {
        let folder = tempfile::tempdir().expect("there is a folder for temporary files");
        let output = folder.path().join("trace");
        let run = Command::new("strace")
            .args(["-f", "-y", "-qq", "-s", "4096", "-e", "signal=none"])
            .args(["-e", &format!("trace={CALLS}")])
            .arg("-o")
            .arg(&output)
            .arg(std::env::current_exe().expect("this test has a path"))
            .env(CHILD, "1")
            .output();
        let run = run.unwrap_or_else(|e| {
            panic!(
                "`strace` can't be started ({e}): install it (package `strace`), or set \
                 TIDEGATE_WITHOUT_STRACE=1 to do without this proof"
            )
        });
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(
            run.status.success(),
            "strace or the process under it failed: {said}"
        );
        std::fs::read_to_string(&output).expect("strace has written its output")
    }

    /// The calls of each step, paths relative to the namespace.
    fn steps(trace: &str) -> Vec<(String, Vec<String>)> {
        let mut root = String::new();
        let mut steps: Vec<(String, Vec<String>)> = Vec::new();
        for (name, arguments) in calls(trace) {
            if name == "write" {
                match marker(&arguments) {
                    Some(("ROOT", path)) => root = path.to_owned(),
                    Some((_, step)) => steps.push((step.to_owned(), Vec::new())),
                    None => {}
                }
            } else if let Some((_, calls)) = steps.last_mut()
                && arguments.ends_with("= 0")
            {
                calls.push(described(&name, &arguments, Path::new(&root)));
            }
        }
        let end = steps.pop().expect("there are steps");
        assert_eq!(end.0, "end");
        // State files are deleted side by side after the metadata, in no certain order; and which
        // folders there are above the namespace doesn't matter.
        for (_, calls) in &mut steps {
            calls.retain(|call| !(call.starts_with("unlink") && call.ends_with("/STATE")));
            calls.retain(|call| !call.starts_with("fsync /"));
        }
        steps
    }

    /// The calls in order of their ends, as name and the rest of the line.
    ///
    /// A call during which another thread makes one comes in two lines. Only deletions may overlap;
    /// writes, which wake threads, don't matter.
    fn calls(trace: &str) -> Vec<(String, String)> {
        let mut pending: BTreeMap<&str, (String, String)> = BTreeMap::new();
        let mut calls = Vec::new();
        for line in trace.lines() {
            let (process, text) = line.split_once(' ').expect("a process id comes first");
            let text = text.trim_start();
            let call = if let Some((_, rest)) = text.split_once(" resumed>") {
                let (name, arguments) = pending.remove(process).expect("it was begun");
                (name, arguments + rest)
            } else if let Some((name, arguments)) = text.split_once('(') {
                (name.to_owned(), arguments.to_owned())
            } else {
                continue;
            };
            for (other, _) in pending.values().filter(|_| call.0 != "write") {
                let harmless = other == "write" || (other == "unlink" && call.0 == "unlink");
                assert!(harmless, "a {other} isn't over yet at {text}");
            }
            match call.1.strip_suffix(" <unfinished ...>") {
                Some(begun) => drop(pending.insert(process, (call.0, begun.to_owned()))),
                None => calls.push(call),
            }
        }
        calls
    }

    fn marker(arguments: &str) -> Option<(&str, &str)> {
        let text = arguments.split('"').nth(1)?.strip_suffix("\\n")?;
        let (kind, rest) = text.split_once(' ')?;
        ["ROOT", "STEP"].contains(&kind).then_some((kind, rest))
    }

    /// `link a b`, whichever of the system calls for it was used.
    fn described(name: &str, arguments: &str, root: &Path) -> String {
        let verb = match name {
            "linkat" => "link",
            "renameat" | "renameat2" => "rename",
            "unlinkat" if arguments.contains("AT_REMOVEDIR") => "rmdir",
            "unlinkat" => "unlink",
            "mkdirat" => "mkdir",
            other => other,
        };
        let paths: Vec<&str> = if verb == "fsync" || verb == "fdatasync" {
            let path = arguments
                .split_once('<')
                .and_then(|(_, rest)| rest.split_once('>'));
            path.map(|(path, _)| path).into_iter().collect()
        } else {
            arguments.split('"').skip(1).step_by(2).collect()
        };
        let names = paths.iter().map(|path| {
            let path = Path::new(path);
            let name = path
                .strip_prefix(root)
                .unwrap_or(path)
                .display()
                .to_string();
            match name.split_once("/a1-").zip(name.split_once(".state")) {
                Some(((folder, _), (_, rest))) => format!("{folder}/STATE{rest}"),
                None if name.is_empty() => ".".to_owned(),
                None => name,
            }
        });
        std::iter::once(verb.to_owned())
            .chain(names)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

fn main() {
    // nextest asks for the list of tests.
    if std::env::args().any(|argument| argument == "--list") {
        if !std::env::args().any(|argument| argument == "--ignored") {
            println!("syncs: test");
        }
        return;
    }
    #[cfg(target_os = "linux")]
    traced::main();
}

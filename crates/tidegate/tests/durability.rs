//! What is durable when, in a whole job, as the kernel sees it; and that whatever dead processes
//! have left behind is gone after a clean end.
//!
//! The proof by `strace` needs Linux and `strace`; `TIDEGATE_WITHOUT_STRACE=1` does without it.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../examples/support/oracle.rs"]
mod oracle;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use support::{Place, Process, example, files, wait_until};

/// Calls that make files, names and their absence durable or visible.
const CALLS: &str = "write,?pwrite64,fsync,fdatasync,?link,linkat,?rename,?renameat,renameat2,\
                     ?unlink,unlinkat,?rmdir,?mkdir,mkdirat";

const NAMESPACE: &str = "checkpoints/wordcount";
const STAGED: &str = "output/.tidegate/staged";

/// A system call that has succeeded, between two moments in the trace.
#[derive(Debug)]
struct Call {
    verb: String,
    /// Relative to the place, with `STATE` and `STAGED` for names that differ from run to run.
    paths: Vec<String>,
    begin: usize,
    end: usize,
}

struct Trace {
    calls: Vec<Call>,
}

impl Trace {
    /// Runs a word count with one checkpoint, the final one. `None` if that was not wanted.
    fn of_one_checkpoint(place: &Place, parallelism: &str) -> Option<Trace> {
        if std::env::var_os("TIDEGATE_WITHOUT_STRACE").is_some() {
            eprintln!("not proven, as TIDEGATE_WITHOUT_STRACE asks for");
            return None;
        }
        place.write("text.txt", support::text::zipf(1, 200));
        let output = place.path("trace");
        let mut arguments: Vec<String> = ["-f", "-y", "-qq", "-s", "0", "-e", "signal=none", "-e"]
            .map(str::to_owned)
            .into();
        arguments.push(format!("trace={CALLS}"));
        arguments.extend(["-o".to_owned(), output.display().to_string()]);
        arguments.push(example("wordcount").display().to_string());
        arguments.extend(place.arguments());
        let flags = ["--checkpoint-interval", "off", "--parallelism", parallelism];
        arguments.extend(flags.map(str::to_owned));
        Process::start(Path::new("strace"), &arguments)
            .wait()
            .success();
        let root = place.path("").canonicalize().unwrap();
        Some(Trace {
            calls: calls(&fs::read_to_string(output).unwrap(), &root),
        })
    }

    fn all<'a>(&'a self, verb: &'a str) -> impl Iterator<Item = &'a Call> {
        self.calls.iter().filter(move |call| call.verb == verb)
    }

    /// Links and renames to names that begin like this.
    fn published(&self, target: &str) -> Vec<&Call> {
        let published = self.all("link").chain(self.all("rename"));
        let found: Vec<_> = published
            .filter(|call| call.paths[1].starts_with(target))
            .collect();
        assert!(!found.is_empty(), "nothing was published as `{target}`");
        found
    }

    fn one(&self, target: &str) -> &Call {
        let found = self.published(target);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0]
    }

    /// Checks that a file or folder is synced after one moment and before another.
    fn assert_synced(&self, path: &str, after: usize, before: usize) {
        let synced = self
            .all("fsync")
            .any(|call| call.paths == [path] && call.begin > after && call.end < before);
        assert!(synced, "`{path}` isn't synced between {after} and {before}");
    }

    /// Checks that a file is synced whole before it gets its name, and its name before `before`.
    fn assert_durable(&self, publication: &Call, before: usize) {
        let [draft, target] = &publication.paths[..] else {
            panic!("{publication:?}")
        };
        self.assert_content_synced(draft, publication.begin);
        let folder = target.rsplit_once('/').expect("all is in some folder").0;
        self.assert_synced(folder, publication.end, before);
    }

    fn assert_content_synced(&self, path: &str, before: usize) {
        let writes = self.all("write").filter(|call| call.paths == [path]);
        let written = writes.map(|call| call.end).max();
        self.assert_synced(path, written.expect("something was written"), before);
    }
}

/// The calls that succeeded. One during which other threads make calls comes in two lines.
fn calls(trace: &str, root: &Path) -> Vec<Call> {
    let mut begun: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    let mut calls = Vec::new();
    for (moment, line) in trace.lines().enumerate() {
        let (thread, text) = line.split_once(' ').expect("a thread id comes first");
        let text = text.trim_start();
        let (begin, whole) = match text.split_once(" resumed>") {
            Some((_, rest)) => {
                let (begin, start) = begun.remove(thread).expect("it was begun");
                (begin, start + rest)
            }
            None => (moment, text.to_owned()),
        };
        if let Some(start) = whole.strip_suffix("<unfinished ...>") {
            begun.insert(thread, (begin, start.to_owned()));
        } else if let Some((call, result)) = whole.rsplit_once(" = ")
            && !result.starts_with('-')
            && let Some((name, arguments)) = call.split_once('(')
        {
            let (verb, paths) = described(name, arguments, root);
            calls.push(Call {
                verb: verb.to_owned(),
                paths,
                begin,
                end: moment,
            });
        }
    }
    calls
}

fn described<'a>(name: &'a str, arguments: &str, root: &Path) -> (&'a str, Vec<String>) {
    let verb = match name {
        "fdatasync" => "fsync",
        "pwrite64" => "write",
        "linkat" => "link",
        "renameat" | "renameat2" => "rename",
        "unlinkat" if arguments.contains("AT_REMOVEDIR") => "rmdir",
        "unlinkat" => "unlink",
        "mkdirat" => "mkdir",
        other => other,
    };
    let paths: Vec<&str> = match verb {
        "fsync" | "write" => {
            let path = arguments
                .split_once('<')
                .and_then(|(_, rest)| rest.split_once('>'));
            path.map(|(path, _)| path).into_iter().collect()
        }
        _ => arguments.split('"').skip(1).step_by(2).collect(),
    };
    (
        verb,
        paths
            .into_iter()
            .map(|path| relative(Path::new(path), root))
            .collect(),
    )
}

fn relative(path: &Path, root: &Path) -> String {
    let path = path
        .strip_prefix(root)
        .unwrap_or(path)
        .display()
        .to_string();
    let Some((folder, name)) = path.rsplit_once('/') else {
        return path;
    };
    match name.split_once(".state") {
        // The subtask's name stays, the unique part goes.
        Some((name, rest)) => {
            let subtask = name.rsplit_once('-').map_or(name, |(subtask, _)| subtask);
            format!("{folder}/{subtask}.STATE{rest}")
        }
        None => path,
    }
}

// Everything that a step relies on is durable before the step: state and staged output before the
// metadata, that before the pointer, that before the commits, those before the end.
#[test]
#[cfg(target_os = "linux")]
fn nothing_depends_on_what_is_not_durable() {
    let place = Place::new();
    let Some(trace) = Trace::of_one_checkpoint(&place, "2") else {
        return;
    };
    let checkpoint = format!("{NAMESPACE}/chk-1");
    let metadata = trace.one(&format!("{checkpoint}/_metadata"));
    let pointer = trace.one(&format!("{NAMESPACE}/completed/"));
    let finished = trace.one(&format!("{NAMESPACE}/finished"));

    let made: Vec<_> = trace
        .all("mkdir")
        .filter(|call| call.paths[0] == checkpoint)
        .collect();
    assert!(!made.is_empty());
    trace.assert_synced(NAMESPACE, made[0].end, metadata.begin);
    let states = trace.published(&format!("{checkpoint}/a1-count."));
    assert_eq!(states.len(), 2, "{states:?}");
    for state in states {
        trace.assert_durable(state, metadata.begin);
    }
    trace.assert_durable(metadata, pointer.begin);

    let commits = trace.published("output/part-");
    assert_eq!(commits.len(), 2, "{commits:?}");
    for commit in commits {
        let staged = &commit.paths[0];
        assert!(staged.starts_with(STAGED), "{commit:?}");
        trace.assert_content_synced(staged, metadata.begin);
        trace.assert_synced(STAGED, 0, metadata.begin);
        assert!(
            commit.begin > pointer.end,
            "{commit:?} comes before {pointer:?}"
        );
        let removed = trace
            .all("unlink")
            .find(|call| call.paths == [staged.as_str()]);
        let removed = removed.expect("a staged file is removed");
        trace.assert_synced("output", commit.end, removed.begin);
        assert!(
            removed.end < finished.begin,
            "{removed:?} comes after {finished:?}"
        );
    }
    trace.assert_synced(
        &format!("{NAMESPACE}/completed"),
        pointer.end,
        finished.begin,
    );
    // No checkpoint goes before it is certain that none is needed any more.
    let dropped = trace
        .all("unlink")
        .find(|call| call.paths == pointer.paths[1..])
        .expect("a finished job keeps no checkpoint");
    trace.assert_durable(finished, dropped.begin);
}

// Durability has its price; this is what a checkpoint of one subtask costs.
#[test]
#[cfg(target_os = "linux")]
fn a_checkpoint_takes_as_many_syncs_as_it_needs() {
    let place = Place::new();
    let Some(trace) = Trace::of_one_checkpoint(&place, "1") else {
        return;
    };
    let mut folders = trace.all("mkdir");
    let folder = folders.find(|call| call.paths[0].ends_with("chk-1"));
    let folder = folder.expect("the checkpoint has a folder").begin;
    // The sink is chained to the count, so it may be the first to write.
    let mut syncs = trace.all("fsync");
    let staged = syncs.find(|call| call.paths[0].ends_with("staged/a1-0-0"));
    let started = folder.min(staged.expect("the sink has staged something").begin);
    let mut syncs: BTreeMap<&str, u32> = BTreeMap::new();
    for call in trace.all("fsync").filter(|call| call.begin >= started) {
        *syncs.entry(&call.paths[0]).or_default() += 1;
    }
    let expected = BTreeMap::from([
        // Once for being made; then for the names of a state file and of the metadata.
        ("checkpoints/wordcount/chk-1", 3),
        ("checkpoints/wordcount/chk-1/a1-count.0.STATE#1", 1),
        ("checkpoints/wordcount/chk-1/_metadata#1", 1),
        // Once for the pointer, once for its removal.
        ("checkpoints/wordcount/completed", 2),
        ("checkpoints/wordcount/completed/00000000000000000001#1", 1),
        ("output/.tidegate/staged/a1-0-0", 1),
        ("output/.tidegate/staged", 1),
        ("output", 1),
        // For the folder of the checkpoint, and twice at the end of the job.
        ("checkpoints/wordcount", 3),
        ("checkpoints/wordcount/discarded#1", 1),
        ("checkpoints/wordcount/finished#1", 1),
    ]);
    assert_eq!(syncs, expected);
}

/// A word count that was killed when it had some completed checkpoint.
fn killed_run(place: &Place) -> BTreeMap<String, u64> {
    let input: PathBuf = place.write("text.txt", support::text::zipf(2, 2_000));
    let flags = [
        "--checkpoint-interval",
        "10ms",
        "--rate",
        "2000",
        "--parallelism",
        "2",
    ];
    let run = place.start(&flags);
    wait_until("a checkpoint completes", || {
        place.completed().last() > Some(&2)
    });
    run.kill();
    oracle::plain_count(&[input], 1)
}

/// The checkpoint that has published a file: `part-…-chk12-…`.
fn checkpoint_of(path: &Path) -> u64 {
    let name = path.file_name().unwrap().to_str().unwrap();
    let (_, rest) = name.split_once("-chk").unwrap();
    rest.split('-').next().unwrap().parse().unwrap()
}

// BC-01, BC-06: files that no completed checkpoint refers to are gone after the next clean end.
#[test]
fn leftovers_of_every_kind_are_gone_after_a_clean_end() {
    let place = Place::new();
    let expected = killed_run(&place);
    let namespace = place.namespace();
    let put = |name: &str, content: &[u8]| {
        let path = namespace.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let latest = *place.completed().last().unwrap();
    let metadata = fs::read(namespace.join(format!("chk-{latest}/_metadata"))).unwrap();
    let unique = "00112233445566778899aabbccddeeff";
    // A checkpoint that was being taken; one that was being completed; writes cut short.
    put(&format!("chk-901/a1-count.0-{unique}.state"), b"state");
    put(&format!("chk-900/a1-count.0-{unique}.state"), b"state");
    put("chk-900/_metadata", &metadata);
    put(&format!("chk-{latest}/a1-count.0-{unique}.state"), b"late");
    put(&format!("chk-902/a1-count.0-{unique}.state#1"), b"sta");
    put("completed/00000000000000000900#1", b"tide");
    put("attempts#1", b"tide");
    fs::create_dir(namespace.join("chk-899")).unwrap();
    // Files of a dead attempt that no checkpoint lists.
    fs::write(place.staged().join("a1-0-900"), "never\t1\n").unwrap();
    fs::write(place.staged().join("a1-1-901"), "").unwrap();

    let run = place.start(&["--checkpoint-interval", "10ms", "--parallelism", "3"]);
    let ended = run.wait().success();
    let start = format!("going on from chk-{latest}\n");
    assert!(ended.stderr.starts_with(&start), "{}", ended.stderr);
    oracle::verify(&place.output(), &expected).unwrap();
    place.assert_clean();
    // Numbers that were found in the folder are not used again.
    let published = oracle::visible_files(&place.output()).unwrap();
    let mut ids: Vec<u64> = published.iter().map(|path| checkpoint_of(path)).collect();
    ids.retain(|id| *id > latest);
    assert!(!ids.is_empty() && ids.iter().all(|id| *id > 902), "{ids:?}");
}

// After a kill, too, what is left over is what the next run needs or what its end removes.
#[test]
fn a_killed_run_leaves_whole_checkpoints_only() {
    let place = Place::new();
    killed_run(&place);
    let found = files(&place.namespace());
    for id in place.completed() {
        let metadata = &found[&format!("chk-{id}/_metadata")].1;
        let folder = format!("chk-{id}/");
        let mut states = 0;
        for name in found.keys().filter(|name| name.starts_with(&folder)) {
            let named = metadata
                .windows(name.len())
                .any(|window| window == name.as_bytes());
            states += u32::from(named);
        }
        assert_eq!(states, 2, "chk-{id} lacks state files: {:?}", found.keys());
    }
}

//! The checkpoint directory: where it can't be, whose it is, and what is damaged in it.

use std::fs;
use std::path::PathBuf;

use crate::support::place::names;
use crate::support::{Place, files, text, wait_until};
use crate::{assert_recovers, killed, oracle, place, run};

#[test]
fn checkpoint_directories_that_cannot_be_are_refused() {
    let (place, _) = place();
    let file = place.write("not-a-folder", "").display().to_string();
    let below = format!("create the folder `{file}/wordcount");
    let refused = |dir: &str, parts: &[&str]| {
        run(&place, &place.output(), dir, &[]).failure(parts);
        assert!(!place.output().exists(), "{dir}");
    };
    refused(
        &file,
        &[
            "open the checkpoints of job `wordcount`",
            &below,
            "ot a directory",
        ],
    );
    refused(
        "hdfs://bucket/jobs",
        &[
            "--checkpoint-dir",
            "`hdfs://bucket/jobs`",
            "`hdfs`",
            "`file`",
        ],
    );
    refused("file://relative/x", &["--checkpoint-dir", "relative"]);
    if cfg!(target_os = "linux") {
        refused(
            "/proc/no-such-place",
            &["create the folder `/proc/no-such-place/wordcount"],
        );
    }
}

#[test]
#[cfg(unix)]
fn a_read_only_checkpoint_directory_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let (place, expected) = place();
    fs::create_dir(place.checkpoints()).unwrap();
    let mode = |mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.checkpoints(), permissions).unwrap();
    };
    mode(0o555);
    // The superuser may write anyway.
    if fs::write(place.checkpoints().join("probe"), "").is_err() {
        let folder = format!("create the folder `{}", place.namespace().display());
        place
            .start(&[])
            .wait()
            .failure(&[&folder, "ermission denied"]);
    }
    mode(0o755);
    let _ = fs::remove_file(place.checkpoints().join("probe"));
    assert_recovers(&place, &expected);
}

#[test]
fn a_second_process_is_refused_and_the_first_goes_on() {
    let place = Place::new();
    let text = place.write("text.txt", text::zipf(3, 1_000));
    let mut first = place.start(&["--checkpoint-interval", "10ms", "--rate", "1000"]);
    wait_until("a checkpoint completes", || !place.completed().is_empty());
    let owner = format!("is in use by process {}", first.id());
    let lock = place.namespace().join("lock").display().to_string();
    place
        .start(&[])
        .wait()
        .failure(&[&owner, &lock, "stop that run first"]);
    assert!(first.is_running(), "{}", first.stderr());
    let then = place.completed();
    wait_until("the first completes more", || place.completed() > then);
    first.wait().success();
    oracle::verify(&place.output(), &oracle::plain_count(&[text], 1)).unwrap();
}

/// Replaces a file of the namespace while a run is tried, which must fail and name it.
fn assert_refused(place: &Place, name: &str, damaged: &[u8], parts: &[&str]) {
    let path = place.namespace().join(name);
    let whole = fs::read(&path).unwrap();
    assert!(whole != damaged, "`{name}` isn't damaged");
    fs::write(&path, damaged).unwrap();
    let output = oracle::visible_files(&place.output()).unwrap();
    let ended = place.start(&["--restart", "none"]).wait();
    let shown = path.display().to_string();
    ended.failure(&[&[shown.as_str()], parts].concat());
    // What the checkpoint promised may have been committed; nothing may have gone.
    let now = oracle::visible_files(&place.output()).unwrap();
    assert!(output.iter().all(|file| now.contains(file)), "{now:?}");
    fs::write(&path, whole).unwrap();
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), step)
    })
}

/// The same bytes, one of them changed.
fn altered(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0x20;
    bytes
}

#[test]
fn an_identity_that_is_damaged_or_of_another_version_is_refused() {
    let place = Place::new();
    let (_, expected) = killed(&place);
    let identity = fs::read_to_string(place.namespace().join("job")).unwrap();
    let (body, _) = identity.split_at(identity.rfind("crc32c ").unwrap());
    let body = body.replacen("tidegate-job 1", "tidegate-job 2", 1);
    let newer = format!("{body}crc32c {:08x}\n", crc32c(body.as_bytes()));
    assert_refused(
        &place,
        "job",
        newer.as_bytes(),
        &["format version 2", "version 1"],
    );
    let damaged = altered(identity.as_bytes(), identity.len() / 2);
    assert_refused(&place, "job", &damaged, &["damaged"]);
    assert_refused(&place, "job", b"", &["damaged"]);
    assert_recovers(&place, &expected);
}

#[test]
fn damaged_checkpoints_are_named_and_not_skipped() {
    let place = Place::new();
    let (latest, expected) = killed(&place);
    let folder = place.namespace().join(format!("chk-{latest}"));
    let names = names(&folder);
    let state = names
        .iter()
        .find(|name| name.contains("-count.0-"))
        .expect("it has state");
    let state = format!("chk-{latest}/{state}");
    let whole = fs::read(place.namespace().join(&state)).unwrap();
    let length = format!("has {} bytes instead of {}", whole.len() / 2, whole.len());
    assert_refused(&place, &state, &whole[..whole.len() / 2], &[&length]);
    assert_refused(
        &place,
        &state,
        &altered(&whole, whole.len() / 2),
        &["damaged", "CRC-32C"],
    );

    let metadata = format!("chk-{latest}/_metadata");
    let whole = fs::read(place.namespace().join(&metadata)).unwrap();
    let unreadable = format!("can't read completed checkpoint `chk-{latest}`");
    let pointer = format!("completed/{latest:020}");
    let parts = [unreadable.as_str(), &pointer];
    assert_refused(&place, &metadata, &whole[..whole.len() - 3], &parts);
    assert_refused(&place, &metadata, &altered(&whole, whole.len() / 2), &parts);
    assert_refused(&place, &pointer, b"tidegate", &[&unreadable]);
    assert_recovers(&place, &expected);
}

#[test]
fn a_state_file_that_is_gone_is_named() {
    let place = Place::new();
    let (latest, expected) = killed(&place);
    let folder = place.namespace().join(format!("chk-{latest}"));
    let mut paths = names(&folder).into_iter().map(|name| folder.join(name));
    let path: PathBuf = paths
        .find(|path| path.extension().is_some())
        .expect("it has state");
    let whole = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let missing = format!("`{}` is missing", path.display());
    place
        .start(&["--restart", "none"])
        .wait()
        .failure(&[&missing]);
    fs::write(&path, whole).unwrap();
    assert_recovers(&place, &expected);
}

// Checkpoints that are gone while their output is there: starting anew would write it again.
#[test]
fn lost_checkpoints_are_not_taken_for_a_new_job() {
    let place = Place::new();
    killed(&place);
    for name in files(&place.namespace()).keys() {
        if name.starts_with("chk-") || name.starts_with("completed/") {
            fs::remove_file(place.namespace().join(name)).unwrap();
        }
    }
    let before = files(&place.output());
    place
        .start(&[])
        .wait()
        .failure(&["has output of this job", "Restore the checkpoints"]);
    assert!(files(&place.output()) == before, "the output was changed");
}

// A committed file whose staged form is lost can't be made up.
#[test]
fn lost_output_is_told() {
    let place = Place::new();
    let (_, expected) = killed(&place);
    let (mut moved, aside) = (Vec::new(), place.path("aside"));
    fs::create_dir(&aside).unwrap();
    for path in oracle::visible_files(&place.output()).unwrap() {
        moved.push((path.clone(), aside.join(path.file_name().unwrap())));
    }
    for name in names(&place.staged()) {
        moved.push((place.staged().join(&name), aside.join(&name)));
    }
    for (path, aside) in &moved {
        fs::rename(path, aside).unwrap();
    }
    let ended = place.start(&["--restart", "none"]).wait();
    ended.failure(&["`counts`", "data was lost: `", "part-"]);
    for (path, aside) in &moved {
        fs::rename(aside, path).unwrap();
    }
    assert_recovers(&place, &expected);
}

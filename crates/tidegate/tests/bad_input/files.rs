//! Input and output.

use std::fs;

use crate::support::{Place, files};
use crate::{assert_recovers, oracle, place, run};

#[test]
fn input_that_is_not_there_is_named() {
    let place = Place::new();
    fs::remove_dir(place.input()).unwrap();
    let missing = format!("no such file or folder: `{}`", place.input().display());
    place
        .start(&[])
        .wait()
        .failure(&["operator `lines`", &missing]);
    assert!(
        !place.output().exists(),
        "the output folder was made for nothing"
    );
    fs::create_dir(place.input()).unwrap();
    let text = place.write("text.txt", "now it is\nthere");
    assert_recovers(&place, &oracle::plain_count(&[text], 1));
}

#[test]
#[cfg(unix)]
fn input_that_cannot_be_read_is_named() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let (place, expected) = place();
    // Unlike a file without permissions, this is unreadable for the superuser, too.
    let looped = place.input().join("looped.txt");
    symlink("looped.txt", &looped).unwrap();
    let read = format!("read `{}`: ", looped.display());
    place
        .start(&[])
        .wait()
        .failure(&["operator `lines`", &read]);
    assert!(!place.output().exists());
    fs::remove_file(&looped).unwrap();

    let locked = place.write("locked.txt", "secret");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&locked).is_err() {
        let read = format!("read `{}`: ", locked.display());
        place
            .start(&[])
            .wait()
            .failure(&["operator `lines`", &read, "ermission denied"]);
    }
    fs::remove_file(&locked).unwrap();
    assert_recovers(&place, &expected);
}

#[test]
fn a_folder_without_files_is_told() {
    let place = Place::new();
    let ended = place.start(&[]).wait().success();
    for part in [
        "no files to read",
        &place.input().display().to_string(),
        "0 records",
    ] {
        assert!(
            ended.stderr.contains(part),
            "`{part}` is not in: {}",
            ended.stderr
        );
    }
    assert_eq!(oracle::visible_files(&place.output()), Ok(Vec::new()));
}

#[test]
fn invalid_utf8_is_located_and_can_be_allowed() {
    let place = Place::new();
    let path = place.write("bad.txt", b"good line\nbad \xff\xfe word\nlast");
    let located = format!("invalid UTF-8 in `{}` at byte 14;", path.display());
    let ended = place.start(&["--restart", "none"]).wait();
    ended.failure(&["operator `lines`", &located, "lossy"]);
    assert_eq!(oracle::visible_files(&place.output()), Ok(Vec::new()));
    place.start(&["--lossy"]).wait().success();
    let words = ["good", "line", "bad", "\u{fffd}\u{fffd}", "word", "last"];
    let expected = words.map(|word| (word.to_owned(), 1)).into();
    oracle::verify(&place.output(), &expected).unwrap();
}

#[test]
fn the_output_of_another_job_is_refused() {
    let (place, expected) = place();
    assert_recovers(&place, &expected);
    let before = files(&place.output());
    let others = place.path("other-checkpoints");
    let folder = format!(
        "the output folder `{}` belongs to job",
        place.output().display()
    );
    run(&place, &place.output(), &others.display().to_string(), &[]).failure(&[
        "operator `counts`",
        &folder,
        "choose another folder",
    ]);
    assert!(
        files(&place.output()) == before,
        "the other job's output was changed"
    );
}

#[test]
fn output_among_files_of_others_is_refused() {
    let (place, expected) = place();
    fs::create_dir(place.output()).unwrap();
    let notes = place.output().join("notes.txt");
    fs::write(&notes, "mine").unwrap();
    let folder = format!(
        "the output folder `{}` is not empty",
        place.output().display()
    );
    place
        .start(&[])
        .wait()
        .failure(&["operator `counts`", &folder, "`notes.txt`"]);
    assert_eq!(
        files(&place.output()).into_keys().collect::<Vec<_>>(),
        ["notes.txt"]
    );
    fs::remove_file(&notes).unwrap();
    assert_recovers(&place, &expected);
}

#[test]
fn output_that_cannot_be_written_is_named() {
    let (place, expected) = place();
    fs::write(place.output(), "a file").unwrap();
    let folder = format!("prepare the output folder `{}", place.output().display());
    place
        .start(&[])
        .wait()
        .failure(&["operator `counts`", &folder, "ot a directory"]);
    fs::remove_file(place.output()).unwrap();
    assert_recovers(&place, &expected);
}

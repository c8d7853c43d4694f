//! What can't be read is told when the job is submitted.

use super::*;

fn problem(source: &FileSource) -> String {
    let error = source.check().unwrap_err();
    tidegate_types::ErrorChain(error.as_ref()).to_string()
}

#[test]
fn what_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("absent.txt");
    fs::write(dir.path().join("present.txt"), "").unwrap();
    let message = problem(&FileSource::lines([
        dir.path().join("present.txt"),
        path.clone(),
    ]));
    assert_eq!(
        message,
        format!("no such file or folder: `{}`", path.display())
    );
}

#[test]
fn nothing_to_read_is_told() {
    assert_eq!(
        problem(&FileSource::lines(Vec::<String>::new())),
        "no file or folder to read was given"
    );
    let dir = tempfile::tempdir().unwrap();
    FileSource::lines([dir.path()]).check().unwrap();
}

#[cfg(unix)]
#[test]
fn what_is_unreadable_is_named() {
    let dir = tempfile::tempdir().unwrap();
    // Unlike a file without permissions, this is unreadable for the superuser, too.
    std::os::unix::fs::symlink("looped", dir.path().join("looped")).unwrap();
    let message = problem(&FileSource::lines([dir.path()]));
    assert!(
        message.contains("looped") && message.contains("symbolic links"),
        "{message}"
    );
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = FileSource::lines([dir.path()]);
    assert!(problem(&source.clone().repeat(0)).contains("0 times"));
    assert!(problem(&source.clone().split_bytes(0)).contains("1 byte"));
    assert!(problem(&source.clone().max_line_bytes(0)).contains("1 byte"));
    assert!(problem(&source.clone().rate(-1.0)).contains("`-1`"));
    assert!(problem(&source.clone().follow(true).repeat(2)).contains("repeated"));
    source.follow(true).check().unwrap();
}

#[test]
fn a_checkpoint_of_the_other_mode_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = FileSource::lines([dir.path()]);
    let state = source.enumerator(place(1), None).unwrap().snapshot();
    let error = source
        .follow(true)
        .enumerator(place(1), Some(state))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`FileSource::follow(false)`, the job now says `follow(true)`"),
        "{error}"
    );
}

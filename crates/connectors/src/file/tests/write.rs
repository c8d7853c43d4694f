//! Staged files: what a checkpoint contains, and where it is.

use super::commit::Output;
use super::*;

#[test]
fn nothing_shows_before_the_commit() {
    let output = Output::new();
    let mut writer = output.writer(1, 0);
    output.write(&mut writer, &["a", "b"]);
    let ended = output.end(&mut writer, 7);
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].published, "part-0-chk7-a1-0.txt");
    assert_eq!(output.visible(), Vec::<String>::new());
    assert_eq!(output.staged(), ["a1-0-0"]);
    output.commit(1, &ended[0]).unwrap();
    assert_eq!(output.visible(), ["part-0-chk7-a1-0.txt"]);
    assert_eq!(output.published_lines(), ["a", "b"]);
    assert_eq!(output.staged(), Vec::<String>::new());
}

#[test]
fn an_empty_transaction_makes_no_file() {
    let output = Output::new();
    let mut writer = output.writer(1, 0);
    assert_eq!(output.end(&mut writer, 1), []);
    output.write(&mut writer, &["a"]);
    assert_eq!(output.end(&mut writer, 2).len(), 1);
    assert_eq!(output.end(&mut writer, 3), []);
    assert_eq!(output.staged(), ["a1-0-0"]);
}

#[test]
fn large_files_are_rolled_at_whole_lines() {
    let output = Output::new();
    let sink = output.sink().roll_bytes(1);
    let mut writer = output.writer_of(&sink, 1, 3);
    let line = "x".repeat(40 << 10);
    output.write(&mut writer, &[line.as_str(); 5]);
    let ended = output.end(&mut writer, 9);
    let lengths: Vec<_> = ended.iter().map(|file| file.bytes).collect();
    let line_bytes = line.len() as u64 + 1;
    assert_eq!(lengths, [2 * line_bytes, 2 * line_bytes, line_bytes]);
    assert_eq!(ended[2].published, "part-3-chk9-a1-2.txt");
    ended
        .iter()
        .for_each(|file| output.commit(1, file).unwrap());
    assert_eq!(output.published_lines(), vec![line; 5]);
}

#[test]
fn a_transaction_records_length_and_checksum() {
    let output = Output::new();
    let mut writer = output.writer(1, 0);
    output.write(&mut writer, &["123456789"]);
    let ended = output.end(&mut writer, 1);
    assert_eq!(ended[0].bytes, 10);
    assert_eq!(ended[0].crc32c, crc32c::crc32c(b"123456789\n"));
    assert_eq!(stored(&ended[0]), ended[0]);
}

/// A declined checkpoint must not lose what it would have contained.
#[test]
fn what_a_failed_pre_commit_did_not_end_is_in_the_next() {
    let output = Output::new();
    let mut writer = output.writer(1, 0);
    output.write(&mut writer, &["a"]);
    let staging = output.path(".tidegate/staged");
    fs::rename(&staging, output.path(".tidegate/elsewhere")).unwrap();
    let error = output.try_end(&mut writer, 1).unwrap_err().to_string();
    assert!(error.contains("a1-0-0"), "{error}");
    fs::rename(output.path(".tidegate/elsewhere"), &staging).unwrap();
    output.write(&mut writer, &["b"]);
    let ended = output.end(&mut writer, 2);
    output.commit(1, &ended[0]).unwrap();
    assert_eq!(output.published_lines(), ["a", "b"]);
}

#[test]
fn a_staged_name_is_never_taken_twice() {
    let output = Output::new();
    output.write_file(".tidegate/staged/a1-0-0", "of somebody else");
    let mut writer = output.writer(1, 0);
    output.write(&mut writer, &["a"]);
    let error = output.try_end(&mut writer, 1).unwrap_err().to_string();
    assert!(error.contains("a1-0-0"), "{error}");
}

/// A repeated commit recognises a file by a checksum that was computed piece by piece.
#[test]
fn the_checksum_is_that_of_the_whole_file() {
    let output = Output::new();
    let mut writer = output.writer(1, 0);
    let lines: Vec<String> = (0..5).map(|i| i.to_string().repeat(40 << 10)).collect();
    for line in &lines {
        output.write(&mut writer, &[line]);
    }
    let ended = output.end(&mut writer, 1);
    assert_eq!(
        ended[0].crc32c,
        crc32c::crc32c((lines.join("\n") + "\n").as_bytes())
    );
    output.commit(1, &ended[0]).unwrap();
    output.commit(2, &ended[0]).unwrap();
}

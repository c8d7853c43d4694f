//! Files that grow.

use proptest::prelude::*;

use super::*;

struct Followed {
    dir: tempfile::TempDir,
    source: FileSource,
    enumerator: FileEnumerator,
    /// Far enough apart that each look finds the pause since the last one over.
    now: u64,
}

impl Followed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = FileSource::lines([dir.path()]).follow(true).split_bytes(4);
        let enumerator = source.enumerator(place(1), None).unwrap();
        Followed {
            dir,
            source,
            enumerator,
            now: 0,
        }
    }

    fn append(&self, name: &str, text: &str) {
        append(&self.dir.path().join(name), text);
    }

    fn try_read(&mut self) -> Result<Vec<String>, BoxError> {
        self.now += 1_000;
        read_with(&self.source, &mut self.enumerator, self.now)
    }

    fn read(&mut self) -> Vec<String> {
        self.try_read().unwrap()
    }

    fn restore(&mut self) {
        let state = stored(&self.enumerator.snapshot());
        self.enumerator = self.source.enumerator(place(1), Some(state)).unwrap();
    }

    fn problem(&mut self) -> String {
        self.try_read().unwrap_err().to_string()
    }
}

#[test]
fn lines_are_read_once_they_are_complete() {
    let mut followed = Followed::new();
    assert_eq!(followed.read(), Vec::<String>::new());
    followed.append("a", "first\nsec");
    assert_eq!(followed.read(), ["first"]);
    assert_eq!(followed.read(), Vec::<String>::new());
    followed.append("a", "ond");
    assert_eq!(followed.read(), Vec::<String>::new());
    followed.append("a", "\nthird\n");
    followed.append("b", "other\n");
    assert_eq!(followed.read(), ["second", "third", "other"]);
}

#[test]
fn a_restore_goes_on_where_the_checkpoint_was() {
    let mut followed = Followed::new();
    followed.append("a", "first\nsec");
    assert_eq!(followed.read(), ["first"]);
    followed.restore();
    assert_eq!(followed.read(), Vec::<String>::new());
    followed.append("a", "ond\n");
    followed.restore();
    assert_eq!(followed.read(), ["second"]);
}

#[test]
fn a_split_that_waits_in_a_checkpoint_is_read_when_the_file_has_grown() {
    let mut followed = Followed::new();
    followed.append("a", "first\n");
    let waiting = split(&mut followed.enumerator, 1).unwrap().unwrap();
    followed.append("a", "second\n");
    let (mut reader, mut out) = (followed.source.reader(place(1)).unwrap(), collecting());
    reader.assign(stored(&waiting));
    while reader.poll(&mut out).unwrap() == ReadStatus::More {}
    assert_eq!(out.take_collected(), ["first"]);
}

#[test]
fn it_is_not_looked_at_all_the_time() {
    let mut followed = Followed::new();
    let NextSplit::At(next) = followed.enumerator.next(Ticks::now()).unwrap() else {
        panic!("there is nothing to read")
    };
    assert!(next.since(Ticks::now()) > Duration::from_millis(50));
    followed.append("a", "line\n");
    let early = followed.enumerator.next(Ticks::now()).unwrap();
    assert_eq!(early, NextSplit::At(next));
    assert!(matches!(
        followed.enumerator.next(next).unwrap(),
        NextSplit::Split(_)
    ));
}

#[test]
fn a_truncated_file_is_an_error_that_names_it() {
    for restored in [false, true] {
        let mut followed = Followed::new();
        followed.append("app.log", "first\nsecond\n");
        followed.read();
        if restored {
            followed.restore();
        }
        fs::write(followed.dir.path().join("app.log"), "new\n").unwrap();
        let message = followed.problem();
        assert!(
            message.contains("app.log") && message.contains("truncated"),
            "{message}"
        );
    }
}

#[test]
fn a_replaced_file_is_an_error_that_names_it() {
    for restored in [false, true] {
        let mut followed = Followed::new();
        followed.append("app.log", "monday\n");
        followed.read();
        if restored {
            followed.restore();
        }
        fs::write(followed.dir.path().join("app.log"), "tuesday\nwednesday\n").unwrap();
        let message = followed.problem();
        assert!(
            message.contains("app.log") && message.contains("replaced"),
            "{message}"
        );
    }
}

#[test]
fn a_renamed_file_is_not_read_again() {
    for restored in [false, true] {
        let mut followed = Followed::new();
        followed.append("app.log", "monday\n");
        followed.read();
        if restored {
            followed.restore();
        }
        let name = |name| followed.dir.path().join(name);
        fs::rename(name("app.log"), name("app.log.1")).unwrap();
        let message = followed.problem();
        assert!(
            message.contains("app.log`") && message.contains("app.log.1"),
            "{message}"
        );
    }
}

// Whoever writes to it need not know of the new name.
#[test]
fn a_renamed_file_that_has_grown_is_not_read_again() {
    for restored in [false, true] {
        let mut followed = Followed::new();
        followed.append("app.log", "monday\n");
        followed.read();
        if restored {
            followed.restore();
        }
        let name = |name| followed.dir.path().join(name);
        let metadata = fs::metadata(name("app.log")).unwrap();
        fs::rename(name("app.log"), name("app.log.1")).unwrap();
        followed.append("app.log.1", "tuesday\n");
        if metadata.created().is_ok() {
            let message = followed.problem();
            assert!(message.contains("app.log.1"), "{message}");
        }
    }
}

/// Puts a file there at once that was made elsewhere, before `gone` went.
fn replace(followed: &Followed, gone: &str, new: &str, text: &str) {
    let made = tempfile::tempdir_in(followed.dir.path().parent().unwrap()).unwrap();
    fs::write(made.path().join(new), text).unwrap();
    fs::remove_file(followed.dir.path().join(gone)).unwrap();
    fs::rename(made.path().join(new), followed.dir.path().join(new)).unwrap();
}

#[test]
fn a_new_file_may_begin_like_one_that_has_been_deleted() {
    let long = format!("{}\n", "id,value,".repeat(300));
    for header in ["id,value\n", long.as_str()] {
        let line = header.trim_end();
        for restored in [false, true] {
            let mut followed = Followed::new();
            followed.append("export-1.csv", header);
            assert_eq!(followed.read(), [line]);
            if restored {
                followed.restore();
            }
            replace(&followed, "export-1.csv", "export-2.csv", header);
            assert_eq!(followed.read(), [line], "another one with a header alone");
            followed.append("export-2.csv", "1,2\n");
            assert_eq!(followed.read(), ["1,2"]);
            replace(
                &followed,
                "export-2.csv",
                "export-3.csv",
                &format!("{header}3,4\n5,6\n"),
            );
            followed.restore();
            assert_eq!(followed.read(), [line, "3,4", "5,6"]);
        }
    }
}

#[test]
fn a_file_that_has_been_read_may_be_deleted() {
    let mut followed = Followed::new();
    followed.append("old", "monday\n");
    assert_eq!(followed.read(), ["monday"]);
    fs::remove_file(followed.dir.path().join("old")).unwrap();
    followed.append("new", "tuesday\n");
    assert_eq!(followed.read(), ["tuesday"]);
}

#[test]
fn the_last_line_is_found_however_far_back() {
    let mut followed = Followed::new();
    let tail = "x".repeat(2 * CHUNK_BYTES + 17);
    followed.append("a", "first\n");
    followed.append("a", &tail);
    assert_eq!(followed.read(), ["first"]);
    followed.append("a", "\n");
    assert_eq!(followed.read(), [tail]);
}

fn pieces() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "bc\n", "\n", "d\ne", "\u{e9}\nfgh\ni"])
}

proptest! {
    /// However a file grows, and wherever the job is restored: every complete line once, in order.
    #[test]
    fn lines_of_a_growing_file_are_read_exactly_once(
        growth in prop::collection::vec((pieces(), any::<bool>()), 0..25),
    ) {
        let mut followed = Followed::new();
        let (mut content, mut seen) = (String::new(), Vec::new());
        for (piece, restore) in growth {
            followed.append("file", piece);
            content.push_str(piece);
            seen.append(&mut followed.read());
            if restore {
                followed.restore();
            }
        }
        let end = content.rfind('\n').map_or(0, |at| at + 1);
        prop_assert_eq!(seen, content[..end].lines().collect::<Vec<_>>());
    }
}

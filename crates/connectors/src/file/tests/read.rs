//! Files that don't change: every line exactly once, whatever the splits and restores.

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

fn file(content: &[u8]) -> (TempDir, FileSource) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("text"), content).unwrap();
    let source = FileSource::lines([dir.path().join("text")]);
    (dir, source)
}

#[test]
fn only_the_line_feed_is_removed() {
    for (content, expected) in [
        ("", &[][..]),
        ("\n", &[""]),
        ("a", &["a"]),
        ("a\n", &["a"]),
        ("a\r\n b \n\nc", &["a\r", " b ", "", "c"]),
    ] {
        let (_dir, source) = file(content.as_bytes());
        assert_eq!(read_all(&source).unwrap(), expected, "{content:?}");
    }
}

#[test]
fn lines_longer_than_a_piece_are_whole() {
    let lines = [
        "x".repeat(3 * CHUNK_BYTES),
        String::new(),
        "y".repeat(CHUNK_BYTES - 1),
    ];
    let (_dir, source) = file((lines.join("\n") + "\n").as_bytes());
    assert_eq!(read_all(&source).unwrap(), lines);
    assert_eq!(read_all(&source.split_bytes(1000)).unwrap(), lines);
}

#[test]
fn folders_are_read_in_order_as_often_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("b"), "3\n4").unwrap();
    fs::write(dir.path().join("a"), "1\n2\n").unwrap();
    fs::write(dir.path().join("empty"), "").unwrap();
    let source = FileSource::lines([dir.path()]).repeat(2).split_bytes(1);
    assert_eq!(
        read_all(&source).unwrap(),
        ["1", "2", "3", "4", "1", "2", "3", "4"]
    );
    let nothing = FileSource::lines([dir.path().join("empty")]).repeat(u64::MAX);
    assert_eq!(read_all(&nothing).unwrap(), Vec::<String>::new());
}

#[test]
fn invalid_utf8_is_an_error_that_names_file_and_byte() {
    let (_dir, source) = file(b"good\n\xc3\xa9 b\xffad\n");
    let error = read_all(&source).unwrap_err().to_string();
    assert!(
        error.contains("text") && error.contains("byte 9"),
        "{error}"
    );
    // The offset is that in the file also when reading begins in its middle.
    let error = read_all(&source.clone().split_bytes(5))
        .unwrap_err()
        .to_string();
    assert!(error.contains("byte 9"), "{error}");
    let lossy = read_all(&source.lossy_utf8(true)).unwrap();
    assert_eq!(lossy, ["good", "\u{e9} b\u{fffd}ad"]);
}

#[test]
fn a_full_collector_stops_the_reader_at_an_exact_line() {
    let lines: Vec<String> = (0..5_000).map(|i| format!("line {i}")).collect();
    let (_dir, source) = file(lines.join("\n").as_bytes());
    let mut enumerator = source.enumerator(place(1), None).unwrap();
    let mut reader = source.reader(place(1)).unwrap();
    reader.assign(split(&mut enumerator, 0).unwrap().unwrap());
    let mut out = Collector::collecting(1_000);
    let mut seen = Vec::new();
    while seen.len() < lines.len() {
        assert_eq!(reader.unfinished(), 1);
        reader.poll(&mut out).unwrap();
        seen.append(&mut out.take_collected());
        let next = reader.snapshot().first().map(|split| split.next.unwrap());
        let offset: usize = seen.iter().map(|line| line.len() + 1).sum();
        assert_eq!(next.unwrap_or(offset as u64), offset as u64);
    }
    assert_eq!(seen, lines);
    assert_eq!(reader.poll(&mut out).unwrap(), ReadStatus::Drained);
    assert_eq!(reader.unfinished(), 0);
}

// A line is all or nothing: however many records it has, and wherever the collector gets full among
// them, the position after it is that of the next line, from which another reader goes on.
#[test]
fn the_position_in_a_checkpoint_is_that_of_a_whole_line() {
    let lines: Vec<String> = (0..400)
        .map(|line| {
            let word = |word| format!("{line}.{word} ");
            (0..(line * 7) % 100).map(word).collect()
        })
        .collect();
    let (dir, _) = file(lines.join("\n").as_bytes());
    let source = FileSource::parse([dir.path()], |line, out: &mut Collector<String>| {
        line.split_whitespace()
            .for_each(|word| out.emit(word.to_owned()));
    });
    let source = source.split_bytes(5_000);
    let mut enumerator = source.enumerator(place(1), None).unwrap();
    let (mut restored, mut seen, mut lives) = (Vec::new(), Vec::<String>::new(), 0);
    loop {
        let (mut reader, mut out) = (source.reader(place(1)).unwrap(), Collector::collecting(150));
        restored
            .drain(..)
            .for_each(|split| reader.assign(stored(&split)));
        if reader.unfinished() == 0 {
            let Some(next) = split(&mut enumerator, 0).unwrap() else {
                break;
            };
            reader.assign(next);
        }
        // Until it is full, which it may be within a line; then the reader is given up.
        while reader.poll(&mut out).unwrap() == ReadStatus::More && !out.is_full() {}
        seen.append(&mut out.take_collected());
        let last = seen.last().map(|word| word.split('.').next().unwrap());
        let last: usize = last.map_or(0, |line| line.parse().unwrap());
        restored = reader.snapshot();
        if let Some(split) = restored.first() {
            let next = split.next.unwrap();
            let behind: usize = lines[..=last].iter().map(|line| line.len() + 1).sum();
            let line = lines[last + 1..].iter().take_while(|line| line.is_empty());
            assert!((behind..=behind + line.count()).contains(&(next as usize)));
        }
        lives += 1;
    }
    assert!(lives > 20, "{lives} lives");
    let expected = lines.iter().flat_map(|line| line.split_whitespace());
    assert_eq!(seen, expected.collect::<Vec<_>>());
}

#[test]
fn a_line_that_cannot_be_parsed_is_named() {
    let (dir, _) = file(b"1\n23\n\xc3\xa9\nx\n4\n");
    let source = FileSource::try_parse([dir.path()], |line, out: &mut Collector<String>| {
        out.emit(line.to_owned());
        match line {
            "x" => Err("not a number".into()),
            _ => Ok(()),
        }
    });
    let mut reader = source.reader(place(1)).unwrap();
    let mut enumerator = source.enumerator(place(1), None).unwrap();
    reader.assign(split(&mut enumerator, 0).unwrap().unwrap());
    let error = reader.poll(&mut collecting()).unwrap_err();
    let error = error.downcast::<FileSourceError>().unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "parse the line at byte 8 of `{}/text`",
            dir.path().display()
        )
    );
    let cause = std::error::Error::source(&error).unwrap();
    assert_eq!(cause.to_string(), "not a number");
}

#[test]
fn lines_in_front_of_one_that_is_not_text_are_read() {
    let (_dir, source) = file(b"one\ntwo\n\xff\nthree\n\xe9");
    let mut enumerator = source.enumerator(place(1), None).unwrap();
    let mut reader = source.reader(place(1)).unwrap();
    reader.assign(split(&mut enumerator, 0).unwrap().unwrap());
    let mut out = collecting();
    let error = loop {
        if let Err(error) = reader.step(10, &mut out) {
            break error.to_string();
        }
    };
    assert_eq!(out.take_collected(), ["one", "two"]);
    assert!(error.contains("byte 8"), "{error}");
    let lossy = read_all(&source.lossy_utf8(true)).unwrap();
    assert_eq!(lossy, ["one", "two", "\u{fffd}", "three", "\u{fffd}"]);
}

#[test]
fn a_limited_reader_says_when_to_go_on() {
    let (_dir, source) = file(b"1\n2\n3\n");
    let source = source.rate(10.0);
    let mut enumerator = source.enumerator(place(2), None).unwrap();
    let mut reader = source.reader(place(2)).unwrap();
    reader.assign(split(&mut enumerator, 0).unwrap().unwrap());
    let mut out = collecting();
    let ReadStatus::At(next) = reader.poll(&mut out).unwrap() else {
        panic!("not limited")
    };
    assert_eq!(out.take_collected(), ["1"]);
    assert!(next > Ticks::now());
    assert_eq!(reader.snapshot()[0].next, Some(2));
}

#[test]
fn files_that_change_while_they_are_read_are_errors() {
    let (dir, source) = file(b"first\nsecond\nthird\n");
    let path = dir.path().join("text");
    let mut enumerator = source.enumerator(place(1), None).unwrap();
    let split = split(&mut enumerator, 0).unwrap().unwrap();
    let attempt = || -> Result<Vec<String>, BoxError> {
        let (mut reader, mut out) = (source.reader(place(1))?, collecting());
        reader.assign(split.clone());
        while reader.poll(&mut out)? == ReadStatus::More {}
        Ok(out.take_collected())
    };
    append(&path, "fourth\n");
    let error = attempt().unwrap_err().to_string();
    assert!(
        error.contains("text") && error.contains("19") && error.contains("26"),
        "{error}"
    );
    fs::write(&path, "first\n").unwrap();
    let error = attempt().unwrap_err().to_string();
    assert!(error.contains("had 19 bytes and now has 6"), "{error}");
    fs::remove_file(&path).unwrap();
    let error = attempt().unwrap_err().to_string();
    assert!(
        error.contains("no such file") && error.contains("text"),
        "{error}"
    );
}

#[test]
fn a_file_that_shrinks_under_an_open_reader_is_an_error() {
    let line = "x".repeat(CHUNK_BYTES - 1) + "\n";
    let (dir, source) = file(line.repeat(4).as_bytes());
    let mut enumerator = source.enumerator(place(1), None).unwrap();
    let mut reader = source.reader(place(1)).unwrap();
    reader.assign(split(&mut enumerator, 0).unwrap().unwrap());
    let mut out = collecting();
    reader.step(1, &mut out).unwrap();
    fs::write(dir.path().join("text"), "").unwrap();
    let error = loop {
        if let Err(error) = reader.step(1, &mut out) {
            break error;
        }
    };
    assert!(
        matches!(error, FileSourceError::Truncated { .. }),
        "{error}"
    );
}

/// Content out of few bytes, so that line feeds and their absence come in all places.
fn contents() -> impl Strategy<Value = Vec<String>> {
    let content = prop::collection::vec(prop::sample::select(vec!["a", "\n", "\u{e9}"]), 0..60);
    prop::collection::vec(content.prop_map(|parts| parts.concat()), 1..4)
}

/// How many readers there are, and how many lines each reads at most when it has its turn.
type Life = (usize, Vec<u64>);

/// What all readers of all lives emit, in order of lines. A life ends with a checkpoint.
fn read_in_lives<P: LineParser<Record = String>>(
    source: &FileSource<P>,
    lives: Vec<Life>,
) -> Vec<String> {
    let mut enumerator = source.enumerator(place(1), None).unwrap();
    let (mut restored, mut seen, mut out) = (Vec::new(), Vec::new(), collecting());
    // The last life lives to the end.
    let last = (2, vec![u64::MAX; 10_000]);
    for (parallelism, steps) in lives.into_iter().chain([last]) {
        let mut readers: Vec<_> = (0..parallelism)
            .map(|_| source.reader(place(1)).unwrap())
            .collect();
        for (index, split) in restored.drain(..).enumerate() {
            readers[index % parallelism].assign(split);
        }
        for (turn, lines) in steps.into_iter().enumerate() {
            let reader = &mut readers[turn % parallelism];
            if reader.unfinished() < 2
                && let Some(next) = split(&mut enumerator, 0).unwrap()
            {
                reader.assign(next);
            }
            let taken = reader.step(lines, &mut out).unwrap();
            assert!(taken <= lines);
        }
        seen.append(&mut out.take_collected());
        restored = stored(
            &readers
                .iter()
                .flat_map(SplitReader::snapshot)
                .collect::<Vec<_>>(),
        );
        let state = stored(&enumerator.snapshot());
        enumerator = source.enumerator(place(1), Some(state)).unwrap();
    }
    assert_eq!(restored, vec![]);
    seen.sort();
    seen
}

proptest! {
    /// BC-44, USER-ASKS 46: any files, any splits, any points of restore, any number of readers
    /// after it: every line exactly once, one by one or many at a time.
    #[test]
    fn every_line_is_read_exactly_once(
        contents in contents(),
        split_bytes in 1_u64..70,
        repeat in 1_u64..3,
        lives in prop::collection::vec((1_usize..4, prop::collection::vec(0_u64..7, 0..8)), 0..8),
    ) {
        let dir = tempfile::tempdir().unwrap();
        for (index, content) in contents.iter().enumerate() {
            fs::write(dir.path().join(index.to_string()), content).unwrap();
        }
        let lines = contents.iter().flat_map(|content| content.split_terminator('\n'));
        let lines = lines.flat_map(|line| vec![line.to_owned(); repeat as usize]);
        let mut expected: Vec<_> = lines.collect();
        expected.sort();
        let one_by_one = FileSource::lines([dir.path()]).repeat(repeat).split_bytes(split_bytes);
        prop_assert_eq!(&read_in_lives(&one_by_one, lives.clone()), &expected);
        let many = FileSource::parse_lines([dir.path()], |lines, out: &mut Collector<String>| {
            lines.split_terminator('\n').for_each(|line| out.emit(line.to_owned()));
        });
        let many = many.repeat(repeat).split_bytes(split_bytes);
        prop_assert_eq!(&read_in_lives(&many, lives), &expected);
    }
}

#[test]
fn a_line_that_is_too_long_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dump");
    for max in [7, CHUNK_BYTES, 3 * CHUNK_BYTES] {
        let source = FileSource::lines([&path]).max_line_bytes(max);
        let line = |bytes| "x".repeat(bytes);
        let allowed = [line(max), line(1), line(max - 1)];
        fs::write(&path, allowed.join("\n")).unwrap();
        assert_eq!(read_all(&source).unwrap(), allowed);

        fs::write(&path, format!("{}\n{}\nshort\n", line(max), line(max + 1))).unwrap();
        let message = read_all(&source).unwrap_err().to_string();
        let place = format!("more than {max} bytes from byte {} on", max + 1);
        assert!(
            message.contains("dump") && message.contains(&place),
            "{message}"
        );
    }
}

/// What a parser of many lines is given, a text each time.
fn texts_of(content: &str, rate: Option<f64>) -> Vec<String> {
    let (dir, _) = file(content.as_bytes());
    let source = FileSource::parse_lines([dir.path()], |lines, out: &mut Collector<String>| {
        out.emit(lines.to_owned());
    });
    let source = match rate {
        Some(rate) => source.rate(rate),
        None => source,
    };
    let mut enumerator = source.enumerator(place(1), None).unwrap();
    let mut reader = source.reader(place(1)).unwrap();
    let mut out = collecting();
    while let Some(split) = split(&mut enumerator, 0).unwrap() {
        reader.assign(split);
        while reader.poll(&mut out).unwrap() == ReadStatus::More {}
    }
    out.take_collected()
}

#[test]
fn many_lines_are_whole_and_about_a_kilobyte() {
    let long = "x".repeat(3_000) + "\n";
    let short = "of seventeen bytes".repeat(3) + "\n";
    let content = short.repeat(100) + &long + &short.repeat(10) + "end";
    let texts = texts_of(&content, None);
    assert_eq!(texts.concat(), content);
    let (last, others) = texts.split_last().unwrap();
    assert!(others.iter().all(|text| text.ends_with('\n')));
    assert!(last.ends_with("end"));
    for text in others {
        let is_long = text.len() > 1024;
        assert!(!is_long || text == &long, "{} bytes", text.len());
    }
    assert!(texts.len() < 12, "{} texts", texts.len());
}

// One line is due, so one is read, although more are at hand.
#[test]
fn a_rate_counts_lines_also_where_many_are_parsed_at_a_time() {
    assert_eq!(texts_of("1\n2\n3\n", Some(10.0)), ["1\n"]);
}

#[test]
fn many_lines_that_cannot_be_parsed_or_are_not_text_are_named() {
    let (dir, _) = file(b"1\n23\nx\n\xc3\xa9\n");
    let parse = |lines: &str, out: &mut Collector<String>| {
        out.emit(lines.to_owned());
        match lines.contains('x') {
            true => Err("not a number".into()),
            false => Ok(()),
        }
    };
    let read = |source: &FileSource<_>| {
        let mut reader = source.reader(place(1)).unwrap();
        let mut enumerator = source.enumerator(place(1), None).unwrap();
        reader.assign(split(&mut enumerator, 0).unwrap().unwrap());
        let mut out = collecting();
        loop {
            match reader.poll(&mut out) {
                Ok(ReadStatus::More) => {}
                Ok(_) => return Ok(out.take_collected()),
                Err(error) => return Err(error.to_string()),
            }
        }
    };
    let source = FileSource::try_parse_lines([dir.path()], parse);
    let error = read(&source).unwrap_err();
    assert!(error.contains("at byte 0 of"), "{error}");

    fs::write(dir.path().join("text"), b"1\n2\n\xff\n3\n").unwrap();
    let error = read(&source).unwrap_err();
    assert!(error.contains("byte 4"), "{error}");
    let lossy = read(&source.lossy_utf8(true)).unwrap();
    assert_eq!(lossy.concat(), "1\n2\n\u{fffd}\n3\n");
}

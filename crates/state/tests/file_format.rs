//! The keyed state file: golden bytes, and damage of every kind.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::error::Error;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::{env, fs};

use proptest::prelude::*;
use tidegate_state::format::{ChunkIndex, ChunkRole, FORMAT_VERSION, FileError, KeyedFileReader};
use tidegate_state::{HeapKeyedBackend, StateError, StateKey, ValueStateDescriptor};
use tidegate_types::{KeyGroup, KeyGroupRange, MaxParallelism};

fn backend<K: StateKey>() -> HeapKeyedBackend<K> {
    let max = MaxParallelism::new(4).unwrap();
    HeapKeyedBackend::new(max, max.range(0, 1).unwrap())
}

fn counter() -> ValueStateDescriptor<u64> {
    ValueStateDescriptor::new("count").with_default(0)
}

fn names() -> ValueStateDescriptor<(String, Option<u8>)> {
    ValueStateDescriptor {
        version: 3,
        ..ValueStateDescriptor::new("nämes")
    }
}

/// Four keys, one per table at most, so that the bytes don't depend on a table's order.
fn sample() -> Vec<u8> {
    let mut live = backend::<u32>();
    let counts = live.value_state(&counter()).unwrap();
    let names = live.value_state(&names()).unwrap();
    let max = MaxParallelism::new(4).unwrap();
    for group in 0..3 {
        let key = (0u32..)
            .find(|key| max.key_group(key.key_hash()) == KeyGroup(group))
            .unwrap();
        counts
            .borrow_mut()
            .set(key.key_hash(), &key, 300 * u64::from(group));
        if group == 1 {
            names
                .borrow_mut()
                .set(key.key_hash(), &key, ("one".to_owned(), Some(1)));
        }
    }
    let frozen = live.freeze();
    live.finish_snapshots();
    let mut file = Vec::new();
    frozen.write_to(&mut file).unwrap();
    file
}

fn restore(file: &[u8]) -> Result<HeapKeyedBackend<u32>, StateError> {
    let mut restored = backend::<u32>();
    restored.value_state(&counter())?;
    restored.restore_file("op/state-7", &mut Cursor::new(file))?;
    restored.value_state(&names())?;
    Ok(restored)
}

fn cause(result: Result<HeapKeyedBackend<u32>, StateError>) -> FileError {
    match result.err().unwrap() {
        StateError::Restore { file, cause } => {
            assert_eq!(&*file, "op/state-7");
            *cause
        }
        other => panic!("unexpected: {other}"),
    }
}

fn golden(version: u32) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    folder.join(format!("keyed-v{version}.bin"))
}

/// The golden file is what this version writes, as long as there is this version.
#[test]
fn golden_file() {
    let (path, file) = (golden(FORMAT_VERSION), sample());
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &file).unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), file);
}

/// What any version wrote must stay readable for ever.
#[test]
fn golden_files_of_all_versions_are_read() {
    for version in 1..=FORMAT_VERSION {
        let mut restored = restore(&fs::read(golden(version)).unwrap()).unwrap();
        assert_eq!(restored.entries(), 4, "version {version}");
        let counts = restored.value_state(&counter()).unwrap();
        let counts = counts.borrow();
        let mut counts: Vec<u64> = counts.iter().map(|(_, count)| *count).collect();
        counts.sort_unstable();
        assert_eq!(counts, [0, 300, 600], "version {version}");
        let names = restored.value_state(&names()).unwrap();
        let names = names.borrow();
        assert_eq!(names.iter().next().unwrap().1, &("one".to_owned(), Some(1)));
    }
}

/// Version 1 has no short entries: what says so is not what it says it is.
#[test]
fn short_entries_in_an_older_version_are_refused() {
    let mut file = sample();
    file[8..12].copy_from_slice(&1u32.to_le_bytes());
    let crc = crc32c::crc32c(&file[..12]);
    file[12..16].copy_from_slice(&crc.to_le_bytes());
    let error = cause(restore(&file));
    let expected = "footer is malformed: a chunk has a role that its version doesn't know";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn index_describes_the_file() {
    let file = sample();
    let mut input = Cursor::new(&file);
    let mut reader = KeyedFileReader::open(&mut input).unwrap();
    let index = reader.index();
    assert_eq!(
        (
            index.max_parallelism.get(),
            index.key_groups.to_string().as_str()
        ),
        (4, "0..=3")
    );
    assert_eq!(
        (index.hash_id.as_str(), index.key_schema.as_str()),
        ("xxh3-64/1", "u32")
    );
    let states: Vec<_> = index
        .states
        .iter()
        .map(|state| (&*state.name, state.version))
        .collect();
    assert_eq!(states, [("count", 1), ("nämes", 3)]);
    let groups: Vec<_> = index
        .chunks
        .iter()
        .map(|chunk| (chunk.state, chunk.key_group.0, chunk.entries))
        .collect();
    assert_eq!(groups, [(0, 0, 1), (0, 1, 1), (0, 2, 1), (1, 1, 1)]);
    assert_eq!(
        reader.chunks_in(KeyGroupRange { start: 1, end: 1 }).len(),
        2
    );
    reader.verify_chunks().unwrap();
}

#[test]
fn every_flipped_byte_is_detected() {
    let file = sample();
    for at in 0..file.len() {
        for bit in [0x01, 0x80, 0xff] {
            let mut altered = file.clone();
            altered[at] ^= bit;
            assert!(restore(&altered).is_err(), "byte {at} xor {bit:#x}");
        }
    }
}

#[test]
fn every_truncation_is_detected() {
    let file = sample();
    for length in 0..file.len() {
        let error = cause(restore(&file[..length]));
        let named = matches!(
            error,
            FileError::Truncated { .. } | FileError::Incomplete { .. }
        );
        assert!(named, "{length} bytes: {error}");
    }
}

#[test]
fn surplus_bytes_are_detected() {
    let mut file = sample();
    file.push(0);
    cause(restore(&file));
    let mut doubled = sample();
    doubled.extend(sample());
    cause(restore(&doubled));
    let mut shifted = vec![0];
    shifted.extend(sample());
    assert!(matches!(cause(restore(&shifted)), FileError::Magic));
}

#[test]
fn errors_name_what_is_wrong() {
    let file = sample();
    let altered = |at: usize| {
        let mut altered = file.clone();
        altered[at] ^= 0x10;
        let error = restore(&altered).err().unwrap();
        assert_eq!(
            error.to_string(),
            "restore keyed state from file `op/state-7`"
        );
        error.source().unwrap().to_string()
    };
    assert_eq!(
        altered(8),
        "format version `18` is unknown; this build reads versions up to `2`"
    );
    assert!(altered(0).starts_with("not a keyed state file"));
    assert!(altered(12).starts_with("checksum of header is `"));
    assert!(altered(16 + 24).starts_with("checksum of chunk at byte `16` of key group `0` is `"));
    assert!(altered(file.len() - 30).starts_with("checksum of footer is `"));
    assert!(altered(file.len() - 1).contains("its end mark is missing"));
}

/// Recomputes the checksums of footer and trailer, as a forger would.
fn reseal(file: &mut [u8]) {
    let trailer = file.len() - 24;
    let length = u64::from_le_bytes(file[trailer..trailer + 8].try_into().unwrap()) as usize;
    let footer = crc32c::crc32c(&file[trailer - length..trailer]);
    file[trailer + 8..trailer + 12].copy_from_slice(&footer.to_le_bytes());
    let own = crc32c::crc32c(&file[trailer..trailer + 12]);
    file[trailer + 12..trailer + 16].copy_from_slice(&own.to_le_bytes());
}

// BC-48: lengths can't wrap or make the reader allocate what isn't there.
#[test]
fn contradictions_behind_valid_checksums_are_detected() {
    let file = sample();
    let trailer = file.len() - 24;
    // The last chunk's payload length, offset and entry count end the footer.
    for (at, bytes) in [
        (trailer - 8, u64::MAX.to_le_bytes()),
        (trailer - 8, (1u64 << 40).to_le_bytes()),
        (trailer - 16, u64::MAX.to_le_bytes()),
        (trailer - 16, 0u64.to_le_bytes()),
        (trailer - 24, u64::MAX.to_le_bytes()),
    ] {
        let mut forged = file.clone();
        forged[at..at + 8].copy_from_slice(&bytes);
        reseal(&mut forged);
        let error = cause(restore(&forged));
        assert!(
            matches!(error, FileError::Malformed { .. }),
            "{at}: {error}"
        );
    }
    let length = u64::from_le_bytes(file[trailer..trailer + 8].try_into().unwrap()) as usize;
    for at in trailer - length..trailer {
        let mut forged = file.clone();
        forged[at] ^= 0xff;
        reseal(&mut forged);
        // A changed name is another state; anything else contradicts something.
        let _ = restore(&forged);
    }
}

#[test]
fn another_key_hash_is_refused() {
    let mut file = sample();
    let at = file
        .windows(9)
        .position(|bytes| bytes == b"xxh3-64/1")
        .unwrap();
    file[at + 8] = b'2';
    reseal(&mut file);
    let error = cause(restore(&file));
    assert_eq!(
        error.to_string(),
        "key groups were made with hash `xxh3-64/2`, but this build uses `xxh3-64/1`"
    );
}

/// Makes a piece claim to be that of `checkpoint`, and to change `base`.
fn forge_base(file: &mut [u8], checkpoint: u64, base: u64) {
    let trailer = file.len() - 24;
    let length = u64::from_le_bytes(file[trailer..trailer + 8].try_into().unwrap()) as usize;
    let at = trailer - length;
    file[at..at + 8].copy_from_slice(&checkpoint.to_le_bytes());
    file[at + 8..at + 16].copy_from_slice(&base.to_le_bytes());
    reseal(file);
}

#[test]
fn changes_of_something_else_are_refused() {
    let mut file = sample();
    forge_base(&mut file, 7, 5);
    let error = cause(restore(&file));
    assert_eq!(
        error.to_string(),
        "the changes of `chk-7` to `chk-5` can't follow nothing"
    );
    for (checkpoint, base) in [(5, 5), (4, 5), (0, 5)] {
        forge_base(&mut file, checkpoint, base);
        let error = cause(restore(&file)).to_string();
        assert!(error.contains("isn't an earlier one"), "{error}");
    }
}

/// A forged entry count must not end in a panic or a wrong state, bound or not.
#[test]
fn wrong_entry_counts_are_detected() {
    for state in ["count", "nämes"] {
        let mut file = sample();
        let mut input = Cursor::new(&file);
        let reader = KeyedFileReader::open(&mut input).unwrap();
        let index = reader.index();
        let position = index
            .states
            .iter()
            .position(|meta| meta.name == state)
            .unwrap();
        let of_state = |chunk: &ChunkIndex| chunk.state as usize == position;
        let listed = index.chunks.iter().position(of_state).unwrap();
        let chunk = index.chunks[listed];
        let count = index.chunks.len();
        let forged = u32::MAX.to_le_bytes();
        let at = chunk.offset as usize;
        let end = at + 24 + chunk.payload_bytes as usize;
        file[at + 8..at + 12].copy_from_slice(&forged);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&file[at..at + 20]), &file[at + 24..end]);
        file[at + 20..at + 24].copy_from_slice(&crc.to_le_bytes());
        let entry = file.len() - 24 - 28 * (count - listed);
        file[entry + 8..entry + 12].copy_from_slice(&forged);
        reseal(&mut file);
        // Short entries are counted as they are read from the file.
        let error = restore(&file).err().unwrap();
        match chunk.role {
            ChunkRole::ShortEntries => {
                let problem = error.source().unwrap().to_string();
                let expected = "of key group `0` is malformed: its short entries don't add up";
                assert!(problem.ends_with(expected), "{problem}");
            }
            _ => assert!(matches!(error, StateError::Load { .. }), "{error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_state_round_trips(
        entries in prop::collection::btree_map(".{0,20}", any::<(u64, Option<String>)>(), 0..300),
    ) {
        let descriptor = ValueStateDescriptor::<(u64, Option<String>)>::new("any");
        let mut live = backend::<String>();
        let state = live.value_state(&descriptor).unwrap();
        for (key, value) in &entries {
            state.borrow_mut().set(key.key_hash(), key, value.clone());
        }
        let frozen = live.freeze();
        live.finish_snapshots();
        let mut file = Vec::new();
        let summary = frozen.write_to(&mut file).unwrap();
        prop_assert_eq!(summary.entries, entries.len() as u64);

        let mut restored = backend::<String>();
        restored.restore_file("any", &mut Cursor::new(&file)).unwrap();
        let state = restored.value_state(&descriptor).unwrap();
        let table = state.borrow();
        prop_assert_eq!(table.len(), entries.len());
        for (key, value) in &entries {
            prop_assert_eq!(table.get(key.key_hash(), key), Some(value));
        }
    }

    /// Whatever the bytes, reading ends in an error, not in a panic or a huge allocation.
    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(restore(&bytes).is_err());
        let mut plausible = sample()[..16].to_vec();
        plausible.extend(&bytes);
        prop_assert!(restore(&plausible).is_err());
    }
}

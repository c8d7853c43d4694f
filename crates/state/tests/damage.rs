//! Damage of every kind, with and without checksums made right again: reading ends in an error or
//! in what was written, never in a panic, and memory is bounded by what is there.
//!
//! The checks and the damage are those of the fuzz targets (`fuzz/`), on seeds instead of what a
//! fuzzer finds.
#![allow(clippy::unwrap_used)] // a test that panics has failed

#[path = "../../../fuzz/shared/mutate.rs"]
mod mutate;
#[path = "../../../fuzz/shared/reseal.rs"]
mod reseal;
#[path = "../../../fuzz/shared/state.rs"]
mod state;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::{env, fs};

use mutate::Mutator;
use state::Sample;
use tidegate_state::format::{ChunkRole, FORMAT_VERSION, KeyedFileReader};
use tidegate_state::schema::Schema;
use tidegate_state::{At, ListStateDescriptor, MapStateDescriptor, StateKey, ValueStateDescriptor};

const ROUNDS: usize = 4000;

/// Far above what reading a file of some hundred bytes takes, far below what a length that lies
/// would ask for.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// The most virtual memory this process has had at once. Allocations that were never touched
/// count, too. `None` where the system doesn't tell.
fn peak_memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmPeak:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Runs `body`, which must not need much memory at any time.
fn in_little_memory(body: impl FnOnce()) {
    let before = peak_memory_bytes();
    body();
    if let (Some(before), Some(after)) = (before, peak_memory_bytes()) {
        assert!(
            after - before < MEMORY_BYTES_MAX,
            "from {before} to {after} bytes"
        );
    }
}

fn samples() -> Vec<Sample> {
    let text = Sample::Texts {
        text: "a\0b🦀".to_owned(),
        letter: 'é',
        maybe: Some(String::new()),
    };
    let map = [("", None), ("\u{ff}", Some(Box::new(text.clone())))];
    let map: BTreeMap<_, _> = map.map(|(key, it)| (key.to_owned(), it)).into();
    vec![
        Sample::Nothing,
        Sample::Numbers(200, -3, 1 << 20, i64::MIN, u128::MAX, (0.5, -1.0)),
        Sample::Many(vec![
            text.clone(),
            Sample::Many(Vec::new()),
            Sample::Map(map),
        ]),
        text,
    ]
}

/// A file with values, lists and maps; keys and values with what is special.
fn sample_file() -> Vec<u8> {
    let mut live = state::backend();
    state::bind(&mut live).unwrap();
    let values = live
        .bind(&ValueStateDescriptor::<Sample>::new("samples"))
        .unwrap();
    let texts = ListStateDescriptor::<String>::new("texts");
    let texts = live.bind_within::<(u8, String), _>(&texts).unwrap();
    let counts = MapStateDescriptor::<String, u64>::new("counts");
    let counts = live.bind(&counts).unwrap();
    for (at, value) in samples().into_iter().enumerate() {
        let key = ["", "a\0", "🦀", "\u{ff}"][at];
        let at = At::key(key);
        values.set(&at, value).unwrap();
        let namespace = (7u8, key.to_owned());
        texts.add(&at.within(&namespace), key.to_owned()).unwrap();
        counts.put(&at, String::new(), 1).unwrap();
        counts.put(&at, key.to_owned(), u64::MAX).unwrap();
    }
    let frozen = live.freeze();
    live.finish_snapshots();
    let mut file = Vec::new();
    frozen.write_to(&mut file).unwrap();
    file
}

fn golden_file() -> Vec<u8> {
    fs::read(golden("keyed", FORMAT_VERSION)).unwrap()
}

// BC-48: lengths can't wrap, or make the reader allocate what isn't there.
#[test]
fn damaged_files_are_refused() {
    let (sample, golden) = (sample_file(), golden_file());
    assert_eq!(state::keyed_file(&sample), [true; 4]);
    assert_eq!(state::keyed_file(&golden)[..2], [true; 2]);
    in_little_memory(|| {
        let mut mutator = Mutator::new(1);
        for round in 0..ROUNDS {
            let (valid, other) = match round % 2 {
                0 => (&sample, &golden),
                _ => (&golden, &sample),
            };
            let damaged = mutator.damaged(valid, other);
            if damaged != *valid {
                assert_eq!(state::keyed_file(&damaged), [false; 4], "round {round}");
            }
        }
    });
}

// BC-48
#[test]
fn forged_files_are_refused_or_read() {
    let (sample, golden) = (sample_file(), golden_file());
    in_little_memory(|| {
        let mut mutator = Mutator::new(2);
        let mut refused = 0;
        for round in 0..ROUNDS {
            let (valid, other) = match round % 2 {
                0 => (&sample, &golden),
                _ => (&golden, &sample),
            };
            let mut forged = mutator.damaged(valid, other);
            reseal::keyed_file(&mut forged);
            let [verified, _, before, after] = state::keyed_file(&forged);
            // Nothing is restored of what isn't whole.
            assert!(verified || !(before || after), "round {round}");
            refused += usize::from(!verified);
        }
        // Some forgeries get past all that guards the file as a whole: into the entries.
        assert!(
            (ROUNDS / 10..ROUNDS).contains(&refused),
            "{refused} were refused"
        );
    });
}

#[test]
fn damaged_values_are_refused_or_shown_alike() {
    in_little_memory(|| {
        let mut mutator = Mutator::new(3);
        let valid: Vec<Vec<u8>> = samples()
            .iter()
            .map(|it| postcard::to_stdvec(it).unwrap())
            .chain([postcard::to_stdvec(&(300u16, -9i32, Some(true), 'é', "x\0")).unwrap()])
            .chain([postcard::to_stdvec(&vec![(i128::MIN, 1u8), (5, 2)]).unwrap()])
            .collect();
        for value in &valid {
            state::value(value);
        }
        for _ in 0..ROUNDS {
            let at = mutator.below(valid.len());
            state::value(&mutator.damaged(&valid[at], &valid[1]));
        }
    });
}

// BC-50: keys with NUL, 0xFF and emoji
#[test]
fn damaged_keys_are_refused_or_canonical() {
    fn encoded(key: impl StateKey) -> Vec<u8> {
        let mut bytes = Vec::new();
        key.encode(&mut bytes);
        bytes
    }
    let valid = [
        encoded(7u64),
        encoded("a\0🦀".to_owned()),
        encoded(vec![0xffu8, 0]),
        encoded((String::new(), Some(-1i16), true)),
        encoded(('é', [0u8, 0xff, 1], (vec![0u8, 0xff], ()))),
    ];
    in_little_memory(|| {
        let mut mutator = Mutator::new(4);
        valid.iter().for_each(|key| state::key(key));
        for _ in 0..ROUNDS {
            let at = mutator.below(valid.len());
            state::key(&mutator.damaged(&valid[at], &valid[1]));
        }
    });
}

#[test]
fn damaged_schemas_are_refused_or_canonical() {
    let valid = [
        Schema::of_value::<Sample>().to_string(),
        "@0;{value:u64,next:option<@0>}".to_owned(),
        r#"enum{"ä \"\\":(u8,[u8;4]),B(),C{a:map<bytes:?>}}"#.to_owned(),
        "[[();4294967295];4294967295]".to_owned(),
    ];
    let bytes = [1u8, 2, 3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 1];
    in_little_memory(|| {
        let mut mutator = Mutator::new(5);
        for _ in 0..ROUNDS {
            let at = mutator.below(valid.len());
            let damaged = mutator.damaged(valid[at].as_bytes(), valid[0].as_bytes());
            if let Ok(text) = str::from_utf8(&damaged) {
                state::schema(text);
                state::by_schema(text, &bytes);
                state::by_schema(text, &damaged);
            }
        }
    });
}

fn golden(name: &str, version: u32) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    folder.join(format!("{name}-v{version}.bin"))
}

/// The piece of changes is what this version writes, as long as there is this version.
#[test]
fn golden_changes() {
    let (path, [_, changes]) = (golden("changes", FORMAT_VERSION), state::pieces());
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &changes).unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), changes);
}

/// What any version wrote must stay readable for ever, also on top of what a newer one wrote.
#[test]
fn golden_changes_of_all_versions_are_read() {
    for version in 1..=FORMAT_VERSION {
        read_golden_changes(&fs::read(golden("changes", version)).unwrap());
    }
}

fn read_golden_changes(golden: &[u8]) {
    let [full, _] = state::pieces();
    assert_eq!(state::changes(&full, golden), [true; 3]);
    let mut input = Cursor::new(golden);
    let reader = KeyedFileReader::open(&mut input).unwrap();
    let index = reader.index();
    let has = |role| index.chunks.iter().any(|chunk| chunk.role == role);
    assert!(has(ChunkRole::Tombstones) && has(ChunkRole::Entries));
    assert_eq!(index.replaced.len(), 1, "{:?}", index.replaced);
}

// BC-48
#[test]
fn damaged_changes_are_refused() {
    let [full, changes] = state::pieces();
    in_little_memory(|| {
        let mut mutator = Mutator::new(7);
        for round in 0..ROUNDS {
            let damaged = mutator.damaged(&changes, &full);
            if damaged != changes {
                assert_eq!(state::changes(&full, &damaged), [false; 3], "round {round}");
            }
        }
    });
}

// BC-48
#[test]
fn forged_changes_are_refused_or_read() {
    let [full, changes] = state::pieces();
    in_little_memory(|| {
        let mut mutator = Mutator::new(8);
        let mut refused = 0;
        for round in 0..ROUNDS {
            let mut forged = mutator.damaged(&changes, &full);
            reseal::keyed_file(&mut forged);
            let [before, after, _] = state::changes(&full, &forged);
            assert_eq!(before, after, "bound before and after, round {round}");
            refused += usize::from(!before);
        }
        assert!(refused > ROUNDS / 4, "{refused} refused");
    });
}

//! The bytes of every kind of state, fixed in a file.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::{env, fs};

use tidegate_state::format::{FORMAT_VERSION, KeyedFileReader};
use tidegate_state::{
    AggregatingState, AggregatingStateDescriptor, At, Fold, HeapKeyedBackend, ListState,
    ListStateDescriptor, MapState, MapStateDescriptor, ReducingState, ReducingStateDescriptor,
    Scope, StateError, TimerService, ValueState, ValueStateDescriptor,
};
use tidegate_types::MaxParallelism;

type Window = (i64, i64);

/// One state of each kind, all but the first within windows.
struct States {
    backend: HeapKeyedBackend<String>,
    value: ValueState<String, (u32, Option<String>)>,
    windowed: ValueState<String, bool, Window>,
    list: ListState<String, u16, Window>,
    reducing: ReducingState<String, u64, Window>,
    aggregating: AggregatingState<String, Fold<u8, Vec<u8>>, Window>,
    map: MapState<String, String, f64, Window>,
    timers: TimerService<String, Window>,
}

fn bind(mut backend: HeapKeyedBackend<String>) -> Result<States, StateError> {
    let sum = ReducingStateDescriptor::<u64>::new("reducing", |sum, n| *sum += n);
    let fold = AggregatingStateDescriptor::folding("aggregating", Vec::new(), Vec::push);
    Ok(States {
        value: backend.bind(&ValueStateDescriptor::new("välue").with_version(7))?,
        windowed: backend.bind_within(&ValueStateDescriptor::new("windowed"))?,
        list: backend.bind_within(&ListStateDescriptor::new("list"))?,
        reducing: backend.bind_within(&sum)?,
        aggregating: backend.bind_within(&fold)?,
        map: backend.bind_within(&MapStateDescriptor::new("map"))?,
        timers: TimerService::bind(&mut backend, "timers")?,
        backend,
    })
}

fn backend() -> HeapKeyedBackend<String> {
    let max = MaxParallelism::new(8).unwrap();
    HeapKeyedBackend::new(max, max.range(0, 1).unwrap())
}

const WINDOW: Window = (-60_000, 0);

fn window() -> impl Scope<String, Window, Key = str> {
    At::key("clé").within(&WINDOW)
}

/// One entry per table at most, so that the bytes don't depend on a table's order.
fn sample() -> Result<Vec<u8>, StateError> {
    let mut states = bind(backend())?;
    let key = At::key("clé");
    states.value.set(&key, (300, Some("🌊".to_owned())))?;
    states.windowed.set(&window(), true)?;
    states.list.add_all(&window(), [1, 128, 65535])?;
    states.reducing.add(&window(), 1 << 40)?;
    states.aggregating.add(&window(), 5)?;
    states.map.put(&window(), "b".to_owned(), -0.5)?;
    states.map.put(&window(), "a\0".to_owned(), f64::INFINITY)?;
    states.timers.event_time.register(&window(), -1)?;
    states.timers.processing_time.register(&window(), 1 << 41)?;
    let frozen = states.backend.freeze();
    states.backend.finish_snapshots();
    let mut file = Vec::new();
    frozen.write_to(&mut file)?;
    Ok(file)
}

fn golden(version: u32) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    folder.join(format!("kinds-v{version}.bin"))
}

/// The golden file is what this version writes, as long as there is this version.
#[test]
fn golden_file_of_all_kinds() {
    let (path, file) = (golden(FORMAT_VERSION), sample().unwrap());
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, &file).unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), file);
}

/// What any version wrote must stay readable for ever.
#[test]
fn golden_files_of_all_versions_are_read() {
    (1..=FORMAT_VERSION).for_each(|version| read_golden(&fs::read(golden(version)).unwrap()));
}

fn read_golden(golden: &[u8]) {
    let mut restored = backend();
    restored
        .restore_file("golden", &mut Cursor::new(golden))
        .unwrap();
    let states = bind(restored).unwrap();
    let value = states.value.get(&At::key("clé")).unwrap();
    assert_eq!(value, Some((300, Some("🌊".to_owned()))));
    assert_eq!(states.windowed.get(&window()).unwrap(), Some(true));
    assert_eq!(states.list.get(&window()).unwrap(), [1, 128, 65535]);
    assert_eq!(states.reducing.get(&window()).unwrap(), Some(1 << 40));
    assert_eq!(states.aggregating.get(&window()).unwrap(), Some(vec![5]));
    let entries = states.map.entries(&window()).unwrap();
    let expected = [("a\0".to_owned(), f64::INFINITY), ("b".to_owned(), -0.5)];
    assert_eq!(entries, expected);
    let timers = states.timers;
    let due = timers.next_event_timer(-1).unwrap();
    assert_eq!(due, Some(("clé".to_owned(), WINDOW, -1)));
    assert_eq!(timers.next_processing_wakeup(), Some((1 << 41) + 1));
    // Eight, but for the timer that was taken.
    assert_eq!(states.backend.entries(), 7);
}

/// A reader without the job's types learns kinds and schemas from the file.
#[test]
fn a_file_describes_its_states() {
    let file = sample().unwrap();
    let mut input = Cursor::new(&file);
    let reader = KeyedFileReader::open(&mut input).unwrap();
    let described: Vec<String> = reader
        .index()
        .states
        .iter()
        .map(|meta| format!("{}: {meta}", meta.name))
        .collect();
    assert_eq!(
        described,
        [
            "välue: `value state` version `7` of `(u32,option<string>)`",
            "windowed: `value state` version `1` of `bool` within `(i64,i64)`",
            "list: `list state` version `1` of `[u16]` within `(i64,i64)`",
            "reducing: `reducing state` version `1` of `u64` within `(i64,i64)`",
            "aggregating: `aggregating state` version `1` of `[u8]` within `(i64,i64)`",
            "map: `map state` version `1` of `f64` by `string` within `(i64,i64)`",
            "timers/event-time: `event-time timers` version `1` of `()` within `((i64,i64),i64)`",
            "timers/processing-time: `processing-time timers` version `1` of `()` within \
             `((i64,i64),i64)`",
        ]
    );
}

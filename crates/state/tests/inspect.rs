//! Keyed state files are shown without the job's types.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tidegate_derive::StateKey;
use tidegate_state::inspect::{InspectError, InspectedEntry, KeyedFileInspector};
use tidegate_state::schema::Dynamic;
use tidegate_state::{At, HashedKey, HeapKeyedBackend, KeyError, StateKey, ValueStateDescriptor};
use tidegate_state::{ListStateDescriptor, MapStateDescriptor, TrackedSnapshot};
use tidegate_types::{CheckpointId, KeyGroupRange, MaxParallelism};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Account {
    Open {
        cents: i64,
        history: Vec<(u32, Option<String>)>,
    },
    Closed,
}

#[derive(Clone, Debug, PartialEq, Eq, StateKey)]
#[tidegate(crate = tidegate_state)]
enum Window {
    Day(u32),
    Session { from: i64, to: i64 },
}

fn backend<K: StateKey>() -> HeapKeyedBackend<K> {
    let max = MaxParallelism::new(8).unwrap();
    HeapKeyedBackend::new(max, max.range(0, 1).unwrap())
}

fn file<K: StateKey>(backend: &mut HeapKeyedBackend<K>) -> Vec<u8> {
    let frozen = backend.freeze();
    backend.finish_snapshots();
    let mut file = Vec::new();
    frozen.write_to(&mut file).unwrap();
    file
}

fn entries(file: &[u8], range: Option<KeyGroupRange>) -> Result<Vec<InspectedEntry>, InspectError> {
    let mut input = Cursor::new(file);
    let mut inspector = KeyedFileInspector::open(&mut input)?;
    let mut entries = Vec::new();
    let range = range.unwrap_or(inspector.index().key_groups);
    inspector.for_each(range, |entry| entries.push(entry))?;
    Ok(entries)
}

fn lines(file: &[u8]) -> BTreeSet<String> {
    let entries = entries(file, None).unwrap().into_iter();
    let line = |entry: InspectedEntry| {
        let namespace = entry
            .namespace
            .map_or(String::new(), |it| format!(" in {it}"));
        format!(
            "{}: {}{namespace} = {}",
            entry.state,
            entry.key,
            entry.value.unwrap()
        )
    };
    entries.map(line).collect()
}

#[test]
fn states_of_several_types_are_shown() {
    let mut live = backend::<String>();
    let accounts = ValueStateDescriptor::<Account>::new("accounts");
    let accounts = live.value_state(&accounts).unwrap();
    let sums = ValueStateDescriptor::<f64>::new("sums");
    let sums = live.bind_within::<Window, _>(&sums).unwrap();
    let open = Account::Open {
        cents: -5,
        history: vec![(1, None), (2, Some("🦀".to_owned()))],
    };
    accounts.set(&At::key("ann"), open).unwrap();
    accounts.set(&At::key("b\0b"), Account::Closed).unwrap();
    let day = Window::Day(7);
    sums.set(&At::key("ann").within(&day), 0.5).unwrap();
    let session = Window::Session { from: -1, to: 2 };
    sums.set(&At::key("ann").within(&session), 1.0).unwrap();

    let file = file(&mut live);
    let mut input = Cursor::new(&file);
    let inspector = KeyedFileInspector::open(&mut input).unwrap();
    assert_eq!(inspector.key_schema().to_string(), "string");
    let schemas = inspector.state_schemas();
    assert_eq!(
        schemas[0].value.to_string(),
        "enum{Open{cents:i64,history:[(u32,option<string>)]},Closed}"
    );
    let namespace = schemas[1].namespace.as_ref().unwrap().to_string();
    assert_eq!(namespace, "enum{Day(u32),Session{from:i64,to:i64}}");
    let expected = [
        r#"0: "ann" = {"Open":{"cents":-5,"history":[[1,null],[2,"🦀"]]}}"#,
        r#"0: "b\u0000b" = "Closed""#,
        r#"1: "ann" in {"Day":7} = 0.5"#,
        r#"1: "ann" in {"Session":{"from":-1,"to":2}} = 1.0"#,
    ];
    assert_eq!(lines(&file), expected.map(str::to_owned).into());
}

#[test]
fn lists_and_maps_are_shown() {
    let mut live = backend::<String>();
    let lists = ListStateDescriptor::<(u8, bool)>::new("lists");
    let lists = live.bind(&lists).unwrap();
    let maps = MapStateDescriptor::<String, Option<i32>>::new("maps");
    let maps = live.bind_within::<u8, _>(&maps).unwrap();
    lists
        .add_all(&At::key("a"), [(1, true), (2, false)])
        .unwrap();
    let within = At::key("a").within(&9);
    maps.put(&within, String::new(), None).unwrap();
    maps.put(&within, "x\0".to_owned(), Some(-1)).unwrap();
    let shown = entries(&file(&mut live), None).unwrap().into_iter();
    let shown: BTreeSet<String> = shown
        .map(|it| {
            let [namespace, map_key, value] =
                [it.namespace, it.map_key, it.value].map(|it| it.map(|it| it.to_string()));
            format!(
                "{} {} {namespace:?} {map_key:?} {value:?}",
                it.state, it.key
            )
        })
        .collect();
    let expected = [
        r#"0 "a" None None Some("[[1,true],[2,false]]")"#,
        r#"1 "a" Some("9") Some("\"\"") Some("null")"#,
        r#"1 "a" Some("9") Some("\"x\\u0000\"") Some("-1")"#,
    ];
    assert_eq!(shown, expected.map(str::to_owned).into());
}

#[test]
fn pieces_of_changes_show_what_is_gone() {
    let mut live = backend::<String>();
    let state = ValueStateDescriptor::<u64>::new("state");
    let state = live.bind_within::<u8, _>(&state).unwrap();
    let mut piece = |checkpoint: u64, base: Option<u64>| {
        let frozen = live.freeze_tracked(&TrackedSnapshot {
            checkpoint: CheckpointId(checkpoint),
            base: base.map(CheckpointId),
            whole: false,
        });
        live.finish_snapshots();
        let mut file = Vec::new();
        frozen.write_to(&mut file).unwrap();
        file
    };
    for key in 0..2000 {
        let key = key.to_string();
        state.set(&At::key(key.as_str()).within(&1), 5).unwrap();
    }
    piece(1, None);
    state.clear(&At::key("7").within(&1)).unwrap();
    let shown = entries(&piece(2, Some(1)), None).unwrap();
    let gone: Vec<_> = shown.iter().filter(|it| it.value.is_none()).collect();
    let gone: Vec<_> = gone
        .iter()
        .map(|it| (it.key.to_string(), it.namespace.clone()))
        .collect();
    let expected = ("\"7\"".to_owned(), Some(Dynamic::Unsigned(1)));
    assert_eq!(gone, [expected]);
}

// Empty is not absent: an empty key, an empty value and a missing one are three things.
#[test]
fn empty_keys_and_values_are_entries() {
    let mut live = backend::<Vec<u8>>();
    let texts = ValueStateDescriptor::<String>::new("texts");
    let texts = live.value_state(&texts).unwrap();
    let units = ValueStateDescriptor::<()>::new("units");
    let units = live.value_state(&units).unwrap();
    texts.set(&At::key(&[][..]), String::new()).unwrap();
    texts.set(&At::key(&[0][..]), "x".to_owned()).unwrap();
    texts.clear(&At::key(&[0][..])).unwrap();
    units.set(&At::key(&[0xff, 0][..]), ()).unwrap();
    let expected = [r#"0: "0x" = """#, r#"1: "0xff00" = null"#];
    assert_eq!(lines(&file(&mut live)), expected.map(str::to_owned).into());
}

/// A key whose schema was written by hand, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wordy(u16);

impl StateKey for Wordy {
    fn schema(out: &mut String) {
        out.push_str("a number of 16 bits");
    }

    fn encode_element(&self, out: &mut Vec<u8>) {
        self.0.encode_element(out);
    }

    fn decode_element(input: &mut &[u8]) -> Result<Self, KeyError> {
        u16::decode_element(input).map(Wordy)
    }
}

#[test]
fn keys_without_a_schema_are_shown_as_bytes() {
    let mut live = backend::<Wordy>();
    let sums = ValueStateDescriptor::<u8>::new("sums");
    let plain = live.value_state(&sums).unwrap();
    plain.set(&At::key(&Wordy(0x102)), 7).unwrap();
    let within = ValueStateDescriptor::<u8>::new("within");
    let within = live.bind_within::<u8, _>(&within).unwrap();
    within.set(&At::key(&Wordy(0x102)).within(&9), 8).unwrap();
    let shown = lines(&file(&mut live));
    let expected = [r#"0: "?0x0201" = 7"#, r#"1: "?0x020109" in "?0x" = 8"#];
    assert_eq!(shown, expected.map(str::to_owned).into());
}

#[test]
fn only_the_key_groups_that_are_asked_for_are_read() {
    let mut live = backend::<u32>();
    let state = ValueStateDescriptor::<u32>::new("state");
    let state = live.value_state(&state).unwrap();
    for key in 0..100 {
        state.set(&At::key(&key), key).unwrap();
    }
    let file = file(&mut live);
    let range = KeyGroupRange { start: 2, end: 3 };
    let some = entries(&file, Some(range)).unwrap();
    assert!(some.iter().all(|entry| range.contains(entry.key_group)));
    let max = MaxParallelism::new(8).unwrap();
    let expected = (0..100u32).filter(|key| range.contains(max.key_group(key.hash_key())));
    assert_eq!(some.len(), expected.count());
}

/// Recomputes the checksums behind a changed schema, as a forger would.
fn with_schema(file: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut file = file.to_vec();
    let at = file
        .windows(from.len())
        .rposition(|it| it == from.as_bytes());
    let at = at.unwrap();
    file[at..at + to.len()].copy_from_slice(to.as_bytes());
    let trailer = file.len() - 24;
    let length = u64::from_le_bytes(file[trailer..trailer + 8].try_into().unwrap()) as usize;
    let footer = crc32c::crc32c(&file[trailer - length..trailer]);
    file[trailer + 8..trailer + 12].copy_from_slice(&footer.to_le_bytes());
    let own = crc32c::crc32c(&file[trailer..trailer + 12]);
    file[trailer + 12..trailer + 16].copy_from_slice(&own.to_le_bytes());
    file
}

#[test]
fn entries_that_their_schemas_do_not_fit_are_named() {
    let mut live = backend::<u32>();
    let state = ValueStateDescriptor::<(u64, bool)>::new("state");
    let state = live.value_state(&state).unwrap();
    state.set(&At::key(&1), (3, true)).unwrap();
    let file = file(&mut live);
    let error = entries(&with_schema(&file, "(u64,bool)", "(bool,u64)"), None).unwrap_err();
    let group = MaxParallelism::new(8).unwrap().key_group(1u32.hash_key());
    assert_eq!(
        error.to_string(),
        format!("decode the value of entry `0` of state `state`, key group `{group}`")
    );
    let shown = entries(&with_schema(&file, "(u64,bool)", "((u8),bool"), None).unwrap();
    assert_eq!(shown[0].value, Some(Dynamic::Opaque(vec![3, 1])));
}

#[test]
fn keys_in_a_wrong_key_group_are_found() {
    let mut live = backend::<u32>();
    let state = ValueStateDescriptor::<u8>::new("state");
    let state = live.bind_within::<u16, _>(&state).unwrap();
    state.set(&At::key(&1).within(&2), 3).unwrap();
    // Read as a pair, the stream's key is only the first half of what it was.
    let file = with_schema(&file(&mut live), "u16", "u32");
    assert!(matches!(
        entries(&file, None),
        Err(InspectError::Decode { part: "key", .. })
    ));
    let mut live = backend::<u32>();
    let state = ValueStateDescriptor::<u8>::new("state");
    let state = live.value_state(&state).unwrap();
    state.set(&At::key(&1), 3).unwrap();
    let mut moved = live;
    let mut bytes = self::file(&mut moved);
    // The key is the payload's first part, after its length.
    let at = 16 + 24 + 1;
    bytes[at] = (2u8..)
        .find(|key| {
            let max = MaxParallelism::new(8).unwrap();
            max.key_group(u32::from(*key).hash_key()) != max.key_group(1u32.hash_key())
        })
        .unwrap();
    let end = 16 + 24 + u64::from_le_bytes(bytes[28..36].try_into().unwrap()) as usize;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[16..36]), &bytes[40..end]);
    bytes[36..40].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(
        entries(&bytes, None),
        Err(InspectError::Entries { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn everything_that_was_set_is_shown(
        expected in prop::collection::btree_map(
            (any::<String>(), 0u8..3),
            any::<(u64, Option<String>)>(),
            0..100,
        ),
    ) {
        let mut live = backend::<String>();
        let state = ValueStateDescriptor::<(u64, Option<String>)>::new("state");
        let state = live.bind_within::<u8, _>(&state).unwrap();
        for ((key, namespace), value) in &expected {
            state.set(&At::key(key.as_str()).within(namespace), value.clone()).unwrap();
        }
        let shown: BTreeMap<_, _> = entries(&file(&mut live), None)
            .unwrap()
            .into_iter()
            .map(|entry| match (entry.key, entry.namespace, entry.value) {
                (Dynamic::String(key), Some(Dynamic::Unsigned(namespace)), Some(value)) => {
                    ((key, namespace as u8), value.to_string())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let expected: BTreeMap<_, _> = expected
            .into_iter()
            .map(|(key, value)| (key, serde_json::to_string(&value).unwrap()))
            .collect();
        prop_assert_eq!(shown.len(), expected.len());
        for (key, value) in &expected {
            let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            prop_assert_eq!(json(&shown[key]), json(value));
        }
    }
}

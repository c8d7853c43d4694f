//! What must hold of the decoders of the state crate, whatever bytes they get. The tests run this
//! on damaged files, the fuzz targets on what the fuzzer finds.

#![allow(dead_code)] // not everybody who includes this file uses all of it

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Cursor;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidegate_state::format::KeyedFileReader;
use tidegate_state::inspect::KeyedFileInspector;
use tidegate_state::schema::{Schema, decode_key, decode_key_elements, decode_value};
use tidegate_state::{
    At, HeapKeyedBackend, ListStateDescriptor, MapStateDescriptor, StateError, StateKey,
    TrackedSnapshot, ValueStateDescriptor,
};
use tidegate_types::{CheckpointId, KeyGroup, MaxParallelism};

/// A value with a bit of everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Sample {
    Nothing,
    Numbers(u8, i16, u32, i64, u128, (f32, f64)),
    Texts {
        text: String,
        letter: char,
        maybe: Option<String>,
    },
    Many(Vec<Sample>),
    Map(BTreeMap<String, Option<Box<Sample>>>),
}

/// The states of the files that are damaged: bound before or after the file is read.
pub(crate) fn bind(backend: &mut HeapKeyedBackend<String>) -> Result<(), StateError> {
    backend.bind(&ValueStateDescriptor::<Sample>::new("samples"))?;
    backend.bind_within::<(u8, String), _>(&ListStateDescriptor::<String>::new("texts"))?;
    backend.bind(&MapStateDescriptor::<String, u64>::new("counts"))?;
    Ok(())
}

/// A backend without state.
pub(crate) fn backend() -> HeapKeyedBackend<String> {
    let max = MaxParallelism::new(4).expect("4 key groups are possible");
    let range = max.range(0, 1).expect("one subtask has them all");
    HeapKeyedBackend::new(max, range)
}

/// Reads a keyed state file in every way there is. Whether each of them accepts it.
pub(crate) fn keyed_file(bytes: &[u8]) -> [bool; 4] {
    let mut input = Cursor::new(bytes);
    let verified = KeyedFileReader::open(&mut input).and_then(|mut it| it.verify_chunks());
    let mut input = Cursor::new(bytes);
    let shown = KeyedFileInspector::open(&mut input).is_ok_and(|mut it| {
        let everything = it.index().key_groups;
        it.for_each(everything, |entry| drop(format!("{entry:?}")))
            .is_ok()
    });
    let mut before = backend();
    let before =
        bind(&mut before).and_then(|()| before.restore_file("damaged", &mut Cursor::new(bytes)));
    let mut after = backend();
    let after = after
        .restore_file("damaged", &mut Cursor::new(bytes))
        .and_then(|()| bind(&mut after));
    [verified.is_ok(), shown, before.is_ok(), after.is_ok()]
}

/// A full piece, and a piece of changes to it that has everything such a piece can have: entries,
/// tombstones, a map that has changed, and a table that is replaced. No table has more than one
/// key, so that the bytes don't depend on a table's order.
pub(crate) fn pieces() -> [Vec<u8>; 2] {
    let mut live = backend();
    let values = ValueStateDescriptor::<Sample>::new("samples");
    let values = live.bind(&values).expect("nothing is bound yet");
    let texts = ListStateDescriptor::<String>::new("texts");
    let texts = live.bind_within::<(u8, String), _>(&texts);
    let texts = texts.expect("nothing of this name is bound yet");
    let counts = MapStateDescriptor::<String, u64>::new("counts");
    let counts = live
        .bind(&counts)
        .expect("nothing of this name is bound yet");
    let keys: Vec<String> = (0..4).map(|group| key_of(KeyGroup(group))).collect();
    let at = |group: usize| At::key(keys[group].as_str());
    let window = (1u8, "w".to_owned());
    (|| {
        for group in 0..3 {
            values.set(&at(group), Sample::Nothing)?;
            counts.put_all(&at(group), [("a".to_owned(), 1), ("b".to_owned(), 2)])?;
            texts.add(&at(group).within(&window), "text".to_owned())?;
        }
        let full = piece(&mut live, 1)?;
        values.clear(&at(0))?;
        values.set(&at(1), Sample::Many(Vec::new()))?;
        values.set(&at(3), Sample::Nothing)?;
        counts.remove(&at(0), "a")?;
        counts.clear(&at(2))?;
        texts.add(&at(2).within(&window), "more".to_owned())?;
        Ok::<_, StateError>([full, piece(&mut live, 2)?])
    })()
    .expect("state in memory doesn't fail")
}

/// The first number as text that belongs to a key group.
fn key_of(group: KeyGroup) -> String {
    let max = MaxParallelism::new(4).expect("4 key groups are possible");
    let mut texts = (0u32..).map(|number| number.to_string());
    let found = texts.find(|text| max.key_group(text.key_hash()) == group);
    found.expect("numbers don't end")
}

/// The piece of a checkpoint that rests on the one before.
fn piece(live: &mut HeapKeyedBackend<String>, checkpoint: u64) -> Result<Vec<u8>, StateError> {
    let base = (checkpoint > 1).then(|| CheckpointId(checkpoint - 1));
    let frozen = live.freeze_tracked(&TrackedSnapshot {
        checkpoint: CheckpointId(checkpoint),
        base,
        whole: false,
    });
    live.finish_snapshots();
    let mut piece = Vec::new();
    frozen.write_to(&mut piece)?;
    Ok(piece)
}

/// Reads a piece of changes in every way there is, on top of `full`. Whether each of them accepts
/// it: bound before, bound after, kept as bytes and written again.
pub(crate) fn changes(full: &[u8], bytes: &[u8]) -> [bool; 3] {
    let restore = |backend: &mut HeapKeyedBackend<String>| {
        let mut chain = backend.restore_chain();
        chain.add_piece("full", &mut Cursor::new(full))?;
        chain.add_piece("damaged", &mut Cursor::new(bytes))
    };
    let mut before = backend();
    let before = bind(&mut before).and_then(|()| restore(&mut before));
    let mut after = backend();
    let kept = restore(&mut after);
    let saved = kept.is_ok().then(|| {
        let frozen = after.freeze();
        let mut file = Vec::new();
        frozen
            .write_to(&mut file)
            .expect("what is kept can be written");
        file
    });
    let after = kept.and_then(|()| bind(&mut after));
    let saved = saved.is_some_and(|file| {
        let mut again = backend();
        let restored = again.restore_file("saved", &mut Cursor::new(file));
        restored.and_then(|()| bind(&mut again)).is_ok()
    });
    [before.is_ok(), after.is_ok(), saved]
}

/// Reads a schema's text. What is accepted is exactly what would be written.
pub(crate) fn schema(text: &str) {
    if let Ok(schema) = Schema::parse(text) {
        assert_eq!(schema.to_string(), text);
    }
}

/// Decodes by any schema.
pub(crate) fn by_schema(schema: &str, bytes: &[u8]) {
    if let Ok(schema) = Schema::parse(schema) {
        for decoded in [decode_value(&schema, bytes), decode_key(&schema, bytes)] {
            drop(decoded.map(|it| it.to_string()));
        }
        drop(decode_key_elements(&[&schema, &schema], bytes));
    }
}

/// Decodes values with and without their types: both find the same, or both an error.
pub(crate) fn value(bytes: &[u8]) {
    same_value::<Sample>(bytes);
    same_value::<(u16, i32, Option<bool>, char, String)>(bytes);
    same_value::<Vec<(i128, u8)>>(bytes);
    same_value::<BTreeMap<i8, [u16; 3]>>(bytes);
}

fn same_value<V: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) {
    let schema = Schema::of_value::<V>();
    let typed = postcard::take_from_bytes::<V>(bytes);
    let shown = decode_value(&schema, bytes);
    match typed {
        Ok((value, [])) => {
            let shown = shown.expect("what its type accepts is shown");
            // Written again it is shown the same, unless the bytes weren't canonical.
            let again = postcard::to_stdvec(&value).expect("a value can be written");
            if again == bytes {
                let again = decode_value(&schema, &again).expect("what was written is shown");
                assert_eq!(again.to_string(), shown.to_string());
            }
        }
        Ok(_) => assert!(shown.is_err(), "bytes are left over"),
        // Deep values are refused by us alone.
        Err(_) => assert!(shown.is_err(), "{shown:?} isn't accepted by its type"),
    }
}

/// Decodes keys with and without their types: what is accepted is canonical.
pub(crate) fn key(bytes: &[u8]) {
    same_key::<u64>(bytes);
    same_key::<String>(bytes);
    same_key::<Vec<u8>>(bytes);
    same_key::<(String, Option<i16>, bool)>(bytes);
    same_key::<(char, [u8; 3], (Vec<u8>, ()))>(bytes);
}

fn same_key<K: StateKey>(bytes: &[u8]) {
    let schema = Schema::of_key::<K>().expect("built-in keys have a schema");
    let shown = decode_key(&schema, bytes);
    match K::decode(bytes) {
        Ok(key) => {
            let mut again = Vec::new();
            key.encode(&mut again);
            assert_eq!(again, bytes, "a key has one encoding");
            assert!(shown.is_ok(), "what its type accepts is shown");
        }
        Err(_) => assert!(shown.is_err(), "{shown:?} isn't accepted by its type"),
    }
}

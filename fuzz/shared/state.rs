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
    HeapKeyedBackend, ListStateDescriptor, MapStateDescriptor, StateError, StateKey,
    ValueStateDescriptor,
};
use tidegate_types::MaxParallelism;

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

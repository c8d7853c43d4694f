//! Values and keys are read by their schemas, without their types, and shown as JSON.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidegate_derive::StateKey;
use tidegate_state::StateKey;
use tidegate_state::schema::{
    DecodeError, Dynamic, Schema, decode_key, decode_key_elements, decode_value,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Numbers {
    small: (u8, i8),
    wide: (u16, u32, u64, u128),
    signed: (i16, i32, i64, i128),
    floats: (f32, f64),
    truth: bool,
    letter: char,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Expression {
    Nothing,
    Number(i64),
    Pair(Box<Expression>, Box<Expression>),
    Call {
        #[serde(rename = "fn")]
        name: String,
        args: Vec<Expression>,
    },
    Maybe(Option<Box<Expression>>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Newtype(Option<u16>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Collections {
    texts: BTreeMap<String, Vec<Option<String>>>,
    by_number: BTreeMap<i32, Newtype>,
    set: BTreeSet<char>,
    array: [u16; 4],
    unit: (Unit, ()),
    result: Result<u8, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct List {
    value: u32,
    next: Option<Box<List>>,
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let floats = (any::<i16>(), prop::num::f64::NORMAL | prop::num::f64::ZERO);
    let wide = any::<(u16, u32, u64, u128)>();
    let signed = any::<(i16, i32, i64, i128)>();
    (
        any::<(u8, i8)>(),
        wide,
        signed,
        floats,
        any::<bool>(),
        any::<char>(),
    )
        .prop_map(
            |(small, wide, signed, (small_float, float), truth, letter)| Numbers {
                small,
                wide,
                signed,
                // A fraction that is the same number as an `f64`.
                floats: (f32::from(small_float) / 4.0, float),
                truth,
                letter,
            },
        )
}

fn expressions() -> impl Strategy<Value = Expression> {
    let leaf = prop_oneof![
        Just(Expression::Nothing),
        Just(Expression::Maybe(None)),
        any::<i64>().prop_map(Expression::Number),
    ];
    leaf.prop_recursive(6, 40, 3, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            (boxed.clone(), boxed.clone()).prop_map(|(a, b)| Expression::Pair(a, b)),
            (any::<String>(), prop::collection::vec(inner, 0..3))
                .prop_map(|(name, args)| Expression::Call { name, args }),
            boxed.prop_map(|it| Expression::Maybe(Some(it))),
        ]
    })
}

/// Texts with what is special somewhere: NUL, quotes, controls, emoji, the last character.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[\0\"\\\\\n\t\u{1}\u{7f}🦀é\u{10ffff}]{0,5}"
    ]
}

fn collections() -> impl Strategy<Value = Collections> {
    let maybe_texts = prop::collection::vec(prop::option::of(texts()), 0..3);
    let maps = (
        prop::collection::btree_map(texts(), maybe_texts, 0..4),
        prop::collection::btree_map(any::<i32>(), any::<Option<u16>>(), 0..4),
    );
    let set = prop::collection::btree_set(any::<char>(), 0..4);
    let result = prop_oneof![any::<u8>().prop_map(Ok), texts().prop_map(Err)];
    (maps, set, any::<[u16; 4]>(), result).prop_map(|((texts, numbers), set, array, result)| {
        Collections {
            texts,
            by_number: numbers
                .into_iter()
                .map(|(key, it)| (key, Newtype(it)))
                .collect(),
            set,
            array,
            unit: (Unit, ()),
            result,
        }
    })
}

/// Reads `value` from its bytes by the text of its schema, and compares with what serde says.
fn check<V: Serialize + DeserializeOwned>(value: &V) -> Result<(), TestCaseError> {
    let bytes = postcard::to_stdvec(value).unwrap();
    let schema = Schema::parse(&Schema::of_value::<V>().to_string()).unwrap();
    let dynamic = decode_value(&schema, &bytes).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&dynamic.to_string()).unwrap();
    prop_assert_eq!(shown, json_of(value));
    Ok(())
}

/// Through the text: that is where integers may be wider than 64 bits. (Read back, both are
/// rounded alike.)
fn json_of<V: Serialize>(value: &V) -> serde_json::Value {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

/// Damaged bytes are an error for both, or the same value for both.
fn agrees<V>(bytes: &[u8]) -> Result<(), TestCaseError>
where
    V: Serialize + DeserializeOwned + Debug,
{
    let dynamic = decode_value(&Schema::of_value::<V>(), bytes);
    match (postcard::take_from_bytes::<V>(bytes), dynamic) {
        (Ok((value, [])), Ok(dynamic)) => {
            let shown: serde_json::Value = serde_json::from_str(&dynamic.to_string()).unwrap();
            // Numbers that JSON doesn't have are shown differently, and maps may repeat a key.
            let own = postcard::to_stdvec(&value).unwrap();
            if own == bytes && !format!("{value:?}").contains(['N', 'i']) {
                prop_assert_eq!(shown, json_of(&value));
            }
        }
        (Ok((_, rest)), Err(error)) => {
            let bytes = rest.len();
            prop_assert_eq!(error, DecodeError::Trailing { bytes });
            prop_assert!(bytes > 0);
        }
        (Err(_), Err(_)) => {}
        (typed, dynamic) => prop_assert!(false, "{:?} but {:?}", typed, dynamic),
    }
    Ok(())
}

fn damaged(mut bytes: Vec<u8>, damage: &[(prop::sample::Index, u8)], cut: usize) -> Vec<u8> {
    for (at, by) in damage {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= by;
        }
    }
    bytes.truncate(bytes.len().saturating_sub(cut));
    bytes
}

proptest! {
    #[test]
    fn numbers_of_all_widths(value in numbers()) {
        check(&value)?;
    }

    #[test]
    fn nested_enums(value in expressions()) {
        check(&value)?;
    }

    #[test]
    fn maps_sets_and_texts(value in collections()) {
        check(&value)?;
    }

    #[test]
    fn recursive_lists(values in prop::collection::vec(any::<u32>(), 0..100)) {
        let list = |next, value: &u32| Some(Box::new(List { value: *value, next }));
        check(&values.iter().fold(None, list))?;
    }

    #[test]
    fn damaged_values_read_as_postcard_reads_them(
        numbers in numbers(),
        expression in expressions(),
        collections in collections(),
        damage: [(prop::sample::Index, u8); 2],
        cut in 0usize..3,
    ) {
        let bytes = |value: Result<Vec<u8>, _>| damaged(value.unwrap(), &damage, cut);
        agrees::<Numbers>(&bytes(postcard::to_stdvec(&numbers)))?;
        agrees::<Expression>(&bytes(postcard::to_stdvec(&expression)))?;
        agrees::<Collections>(&bytes(postcard::to_stdvec(&collections)))?;
    }

    #[test]
    fn arbitrary_bytes_read_as_postcard_reads_them(
        bytes in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        agrees::<Numbers>(&bytes)?;
        agrees::<Expression>(&bytes)?;
        agrees::<(u64, i16, char, Option<bool>, u128, String)>(&bytes)?;
        agrees::<Vec<Option<i128>>>(&bytes)?;
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, StateKey)]
#[tidegate(crate = tidegate_state)]
enum Place {
    Nowhere,
    Shelf(u32, String),
    Grid {
        row: i16,
        column: i16,
        note: Option<String>,
    },
}

fn key_text<K: StateKey>(key: &K) -> String {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    decode_key(&Schema::of_key::<K>().unwrap(), &bytes)
        .unwrap()
        .to_string()
}

fn check_key<K: StateKey + Serialize>(key: &K) -> Result<(), TestCaseError> {
    let shown: serde_json::Value = serde_json::from_str(&key_text(key)).unwrap();
    prop_assert_eq!(shown, json_of(key));

    // The encoding that delimits itself, with another key behind it.
    let schema = Schema::of_key::<K>().unwrap();
    let number = Schema::of_key::<u16>().unwrap();
    let mut bytes = Vec::new();
    key.encode_element(&mut bytes);
    7u16.encode_element(&mut bytes);
    let both = decode_key_elements(&[&schema, &number], &bytes).unwrap();
    prop_assert_eq!(both[0].to_string(), key_text(key));
    prop_assert_eq!(&both[1], &Dynamic::Unsigned(7));
    Ok(())
}

proptest! {
    #[test]
    fn keys(numbers: (u8, i16, u64, i128), text in texts(), letter: char, number: Option<u32>) {
        check_key(&numbers)?;
        check_key(&text)?;
        check_key(&(text.clone(), (letter, number), true, [1u8, 0xff]))?;
        check_key(&Place::Shelf(number.unwrap_or(3), text.clone()))?;
        check_key(&Place::Grid { row: numbers.1, column: -1, note: Some(text) })?;
        check_key(&Place::Nowhere)?;
    }

    // A key decodes by its schema exactly if it decodes as its type.
    #[test]
    fn damaged_keys_are_refused(
        text in texts(),
        damage: [(prop::sample::Index, u8); 2],
        cut in 0usize..3,
    ) {
        let mut bytes = Vec::new();
        Place::Grid { row: 1, column: 2, note: Some(text) }.encode(&mut bytes);
        let bytes = damaged(bytes, &damage, cut);
        let schema = Schema::of_key::<Place>().unwrap();
        match (Place::decode(&bytes), decode_key(&schema, &bytes)) {
            (Ok(key), Ok(_)) => check_key(&key)?,
            (Err(_), Err(_)) => {}
            (typed, dynamic) => prop_assert!(false, "{:?} but {:?}", typed, dynamic),
        }
    }
}

// BC-50: keys with NUL, 0xFF, emoji and right-to-left letters are shown as what they are.
#[test]
fn keys_of_any_bytes() {
    assert_eq!(key_text(&"a\0🦀שלום".to_owned()), "\"a\\u0000🦀שלום\"");
    assert_eq!(key_text(&vec![0u8, 0xff]), "\"0x00ff\"");
    assert_eq!(key_text(&String::new()), "\"\"");
    assert_eq!(key_text(&Vec::<u8>::new()), "\"0x\"");
    assert_eq!(key_text(&(Vec::<u8>::new(), 1u8)), "[\"0x\",1]");
    assert_eq!(key_text(&Some(String::new())), "\"\"");
    assert_eq!(key_text(&None::<String>), "null");
}

fn shown(schema: &str, bytes: &[u8]) -> String {
    let schema = Schema::parse(schema).unwrap();
    match decode_value(&schema, bytes) {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_widest_numbers_are_exact() {
    for number in [i128::MIN, -1, 0, i128::MAX] {
        let bytes = postcard::to_stdvec(&number).unwrap();
        assert_eq!(shown("i128", &bytes), number.to_string());
        assert_eq!(key_text(&number), number.to_string());
    }
    let bytes = postcard::to_stdvec(&u128::MAX).unwrap();
    assert_eq!(shown("u128", &bytes), u128::MAX.to_string());
    assert_eq!(key_text(&u128::MAX), u128::MAX.to_string());
}

#[test]
fn everything_can_be_shown() {
    assert_eq!(shown("bytes", &[2, 0, 0xff]), "\"0x00ff\"");
    assert_eq!(shown("(f64)", &f64::NAN.to_le_bytes()), "[\"NaN\"]");
    assert_eq!(shown("f32", &f32::NEG_INFINITY.to_le_bytes()), "\"-inf\"");
    assert_eq!(shown("map<(u8):u8>", &[1, 7, 8]), "[[[7],8]]");
    assert_eq!(shown("map<bool:u8>", &[1, 1, 8]), "{\"true\":8}");
    assert_eq!(shown("enum{A,B(u8,u8),C()}", &[1, 2, 3]), "{\"B\":[2,3]}");
    assert_eq!(shown("enum{A,B(u8,u8),C()}", &[2]), "{\"C\":[]}");
}

#[test]
fn what_is_opaque_takes_the_rest() {
    assert_eq!(
        shown("{a:u8,b:?}", &[1, 2, 3]),
        "{\"a\":1,\"b\":\"?0x0203\"}"
    );
    assert_eq!(shown("(option<?>,u8,u8)", &[0, 2, 3]), "[null,2,3]");
    assert_eq!(
        shown("(option<?>,u8,[u8;9])", &[1, 2, 3]),
        "[\"?0x0203\",\"?0x\",\"?0x\"]"
    );
    assert_eq!(shown("[?]", &[200, 1, 9]), "[\"?0x09\"]");
}

// BC-48: lengths are believed only as far as there are bytes.
#[test]
fn hostile_lengths_end_in_errors() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert!(shown("string", &huge).contains("too early"));
    assert!(shown("bytes", &huge).contains("too early"));
    assert!(shown("[u8]", &huge).contains("too early"));
    assert!(shown("[()]", &huge).contains("too many parts"));
    assert!(shown("map<():{}>", &huge).contains("too many parts"));
    assert!(shown("[[();4294967295];4294967295]", &[]).contains("too many parts"));
    assert!(shown("u64", &[0xff; 11]).contains("varint"));
    assert!(shown("u16", &[0xff, 0xff, 0x04]).contains("varint"));
    assert_eq!(shown("[()]", &[3]), "[null,null,null]");
}

#[test]
fn hostile_schemas_end_in_errors() {
    assert!(shown("@0;(@0)", &[]).contains("levels deep"));
    assert!(shown("@0;{a:@0,b:@0}", &[1; 99]).contains("levels deep"));
    assert!(shown("@0;option<@0>", &[1; 10_000]).contains("levels deep"));
    assert!(shown("@0;[@0]", &[1; 10_000]).contains("levels deep"));
    assert_eq!(shown("@0;[@0]", &[2, 0, 1, 0]), "[[],[[]]]");
    assert_eq!(
        shown("enum{}", &[0]),
        "byte `0` is variant `0` of an enum with `0`"
    );
}

#[test]
fn keys_hold_no_floats_or_collections() {
    for (schema, shape) in [
        ("f64", "f64"),
        ("(u8,[u8])", "sequence"),
        ("map<u8:u8>", "map"),
    ] {
        let schema = Schema::parse(schema).unwrap();
        assert_eq!(
            decode_key(&schema, &[0; 8]),
            Err(DecodeError::NoKey { shape })
        );
    }
}

//! Canonical encodings, hashes and key groups of keys, against files. A changed line means that
//! state of existing checkpoints is lost: never change one, only add.
//!
//! `tests/vectors/*.txt`: key, encoding (hex), hash (hex), key group at max parallelism 128 and at
//! 32768, separated by tabs. `UPDATE=1` fills in the columns after the first.
// KG-02, BC-46, BC-47
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use proptest::prelude::*;
use tidegate_derive::StateKey;
use tidegate_state::{BorrowedKey, CompactString, HashedKey, StateKey};
use tidegate_types::{MaxParallelism, hash_bytes};

#[derive(Clone, Debug, PartialEq, Eq, StateKey)]
#[tidegate(crate = tidegate_state)]
struct Shelf {
    shop: u32,
    label: String,
}

#[derive(Clone, Debug, PartialEq, Eq, StateKey)]
#[tidegate(crate = tidegate_state)]
enum Place {
    Nowhere,
    Shelf(Shelf),
    Grid { row: i16, column: i16 },
}

fn columns<K: StateKey>(key: &K) -> String {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    let mut line = String::new();
    for byte in &bytes {
        write!(line, "{byte:02x}").unwrap();
    }
    let hash = key.key_hash();
    let group = |max| MaxParallelism::new(max).unwrap().key_group(hash);
    write!(line, "\t{hash:016x}\t{}\t{}", group(128), group(32768)).unwrap();
    line
}

fn check<K: StateKey>(file: &str, parse: impl Fn(&str) -> K) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors")
        .join(file);
    let text = fs::read_to_string(&path).unwrap();
    let mut expected = String::new();
    for line in text.lines() {
        let literal = line.split('\t').next().unwrap();
        writeln!(expected, "{literal}\t{}", columns(&parse(literal))).unwrap();
    }
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, expected).unwrap();
    } else {
        assert_eq!(text, expected, "{file}");
    }
}

fn pair(text: &str) -> (&str, &str) {
    text.split_once(',').unwrap()
}

#[test]
fn vectors_of_numbers() {
    check("u64.txt", |text| text.parse::<u64>().unwrap());
    check("i32.txt", |text| text.parse::<i32>().unwrap());
    check("u8.txt", |text| text.parse::<u8>().unwrap());
    check("i128.txt", |text| text.parse::<i128>().unwrap());
}

#[test]
fn vectors_of_texts() {
    check("string.txt", |text| text.replace("\\0", "\0"));
    check("string.txt", |text| {
        CompactString::from(text.replace("\\0", "\0"))
    });
    check("char.txt", |text| text.parse::<char>().unwrap());
    check("bool.txt", |text| text.parse::<bool>().unwrap());
}

#[test]
fn vectors_of_composites() {
    check("string_string.txt", |text| {
        let (left, right) = pair(text);
        (left.to_owned(), right.to_owned())
    });
    check("string_string.txt", |text| {
        let (left, right) = pair(text);
        (CompactString::from(left), right.to_owned())
    });
    check("option_u32.txt", |text| text.parse::<u32>().ok());
    check("place.txt", |text| match text.split_once(' ') {
        None => Place::Nowhere,
        Some(("shelf", rest)) => {
            let (shop, label) = pair(rest);
            Place::Shelf(Shelf {
                shop: shop.parse().unwrap(),
                label: label.to_owned(),
            })
        }
        Some((_, rest)) => {
            let (row, column) = pair(rest);
            Place::Grid {
                row: row.parse().unwrap(),
                column: column.parse().unwrap(),
            }
        }
    });
}

#[test]
fn schemas() {
    fn schema<K: StateKey>() -> String {
        let mut out = String::new();
        K::schema(&mut out);
        out
    }
    assert_eq!(
        schema::<(u64, String, Option<bool>)>(),
        "(u64,string,option<bool>)"
    );
    assert_eq!(schema::<([u8; 3], Vec<u8>)>(), "([u8;3],bytes)");
    assert_eq!(
        schema::<Place>(),
        "enum{Nowhere,Shelf({shop:u32,label:string}),Grid{row:i16,column:i16}}"
    );
}

// KS-21: parts of variable length can't run into each other.
#[test]
fn composite_keys_are_unambiguous() {
    let key = |left: &str, right: &str| (left.to_owned(), right.to_owned());
    assert_ne!(columns(&key("a", "bc")), columns(&key("ab", "c")));
    assert_ne!(columns(&key("", "a")), columns(&key("a", "")));
}

#[test]
fn malformed_encodings_are_refused() {
    assert!(bool::decode(&[2]).is_err());
    assert!(char::decode(&0xd800u32.to_le_bytes()).is_err());
    assert!(u32::decode(&[0; 3]).is_err());
    assert!(u32::decode(&[0; 5]).is_err());
    assert!(String::decode(&[0xff]).is_err());
    assert!(CompactString::decode(&[0xff]).is_err());
    assert!(<(String, u8)>::decode(&[0xff, 0xff, 0xff, 0xff, 0]).is_err());
    assert!(Place::decode(&3u32.to_le_bytes()).is_err());
}

/// Round trip, and the hash is that of the encoding whether overridden or not.
fn sound<K: StateKey + std::fmt::Debug>(key: &K) {
    let mut bytes = vec![];
    key.encode(&mut bytes);
    assert_eq!(&K::decode(&bytes).unwrap(), key);
    assert_eq!(key.key_hash(), hash_bytes(&bytes));
    let mut element = vec![];
    key.encode_element(&mut element);
    element.push(7);
    let mut input = element.as_slice();
    assert_eq!(&K::decode_element(&mut input).unwrap(), key);
    assert_eq!(input, [7]);
}

proptest! {
    #[test]
    fn integers(a: u8, b: u16, c: u32, d: u64, e: u128) {
        sound(&a);
        sound(&b);
        sound(&c);
        sound(&d);
        sound(&e);
    }

    #[test]
    fn signed_integers(a: i8, b: i16, c: i32, d: i64, e: i128) {
        sound(&a);
        sound(&b);
        sound(&c);
        sound(&d);
        sound(&e);
    }

    #[test]
    fn other_scalars(a: usize, b: isize, c: bool, d: char, e: [u8; 5]) {
        sound(&a);
        sound(&b);
        sound(&c);
        sound(&d);
        sound(&e);
        sound(&());
    }

    /// A key of one string type is found, hashed and written as one of the other.
    #[test]
    fn small_strings_are_strings(text in "\\PC{0,30}", other in "\\PC{0,2}") {
        let small = CompactString::from(text.as_str());
        sound(&small);
        sound(&(small.clone(), 7_u8));
        prop_assert_eq!(columns(&small), columns(&text));
        prop_assert_eq!(columns(&Some(small.clone())), columns(&Some(text.clone())));
        prop_assert_eq!(text.as_str().hash_key(), small.key_hash());
        prop_assert!(text.as_str().is_key(&small));
        prop_assert_eq!(other.as_str().is_key(&small), other == text);
        let owned: CompactString = text.as_str().to_key();
        prop_assert_eq!(owned, small);
    }

    #[test]
    fn texts_and_composites(text: String, bytes: Vec<u8>, number: Option<u16>) {
        sound(&text);
        sound(&bytes);
        sound(&number);
        sound(&(text.clone(),));
        sound(&(text.clone(), number, bytes.clone()));
        sound(&(number, text.clone(), 'x', (text.clone(), true)));
        sound(&Place::Shelf(Shelf { shop: 3, label: text.clone() }));
        sound(&Place::Grid { row: 1, column: -1 });
        sound(&Place::Nowhere);
        prop_assert_eq!(text.as_str().hash_key(), text.key_hash());
        prop_assert_eq!(bytes.as_slice().hash_key(), bytes.key_hash());
    }

    // Unequal keys have unequal encodings.
    #[test]
    fn encodings_are_injective(a: (String, String), b: (String, String)) {
        let encode = |key: &(String, String)| {
            let mut bytes = vec![];
            key.encode(&mut bytes);
            bytes
        };
        prop_assert_eq!(a == b, encode(&a) == encode(&b));
    }
}

//! What the derives generate, for every form of type.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use serde::{Deserialize, Serialize};
use tidegate_derive::{Record, StateKey};
use tidegate_state::{Record as _, StateKey as _};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, StateKey, Record)]
#[tidegate(crate = tidegate_state)]
struct Unit;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, StateKey, Record)]
#[tidegate(crate = tidegate_state)]
struct Word(String);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, StateKey, Record)]
#[tidegate(crate = tidegate_state)]
struct Tagged<T> {
    tag: u16,
    r#type: T,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, StateKey, Record)]
#[tidegate(crate = tidegate_state)]
enum Event {
    Start,
    Named(String, u8),
    Moved { to: Word, input: bool, out: u8 },
}

fn encoding<K: tidegate_state::StateKey>(key: &K) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    bytes
}

fn schema<K: tidegate_state::StateKey>() -> String {
    let mut out = String::new();
    K::schema(&mut out);
    out
}

#[test]
fn keys_are_their_fields_in_order() {
    assert_eq!(encoding(&Unit), []);
    assert_eq!(encoding(&Word("ab".into())), [2, 0, 0, 0, b'a', b'b']);
    assert_eq!(
        encoding(&Tagged {
            tag: 258,
            r#type: true
        }),
        [2, 1, 1]
    );
    assert_eq!(encoding(&Event::Start), [0, 0, 0, 0]);
    assert_eq!(
        encoding(&Event::Named("x".into(), 9)),
        [1, 0, 0, 0, 1, 0, 0, 0, b'x', 9]
    );
    let moved = Event::Moved {
        to: Word(String::new()),
        input: true,
        out: 7,
    };
    assert_eq!(encoding(&moved), [2, 0, 0, 0, 0, 0, 0, 0, 1, 7]);
}

#[test]
fn keys_round_trip() {
    let moved = Event::Moved {
        to: Word("there".into()),
        input: false,
        out: 1,
    };
    for key in [Event::Start, Event::Named("name".into(), 1), moved] {
        assert_eq!(Event::decode(&encoding(&key)).unwrap(), key);
        assert_eq!(key.key_hash(), tidegate_types::hash_bytes(&encoding(&key)));
    }
    assert_eq!(Unit::decode(&[]).unwrap(), Unit);
    let error = Event::decode(&[3, 0, 0, 0]).unwrap_err();
    assert_eq!(error.to_string(), "`3` is no value of `Event`");
}

#[test]
fn schemas_name_fields_and_variants() {
    assert_eq!(schema::<Unit>(), "()");
    assert_eq!(schema::<Word>(), "(string)");
    assert_eq!(schema::<Tagged<i64>>(), "{tag:u16,type:i64}");
    assert_eq!(
        schema::<Event>(),
        "enum{Start,Named(string,u8),Moved{to:(string),input:bool,out:u8}}"
    );
}

#[test]
fn records_own_what_their_fields_own() {
    assert_eq!(Unit.heap_bytes(), 0);
    assert_eq!(Word("abc".into()).heap_bytes(), 3);
    assert_eq!(
        Tagged {
            tag: 1,
            r#type: vec![1u32, 2]
        }
        .heap_bytes(),
        8
    );
    assert_eq!(Event::Start.heap_bytes(), 0);
    assert_eq!(Event::Named("abcd".into(), 1).heap_bytes(), 4);
    let moved = Event::Moved {
        to: Word("ab".into()),
        input: true,
        out: 1,
    };
    assert_eq!(moved.heap_bytes(), 2);
}

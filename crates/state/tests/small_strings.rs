//! State of strings and of small strings: one format.
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::fmt::Debug;
use std::io::Cursor;

use tidegate_state::{
    At, CompactString, HeapKeyedBackend, StateKey, StateValue, ValueStateDescriptor,
};
use tidegate_types::MaxParallelism;

fn backend<K: StateKey>() -> HeapKeyedBackend<K> {
    let max = MaxParallelism::derive(1);
    HeapKeyedBackend::new(max, max.range(0, 1).unwrap())
}

fn save<K: StateKey>(backend: &mut HeapKeyedBackend<K>) -> Vec<u8> {
    let frozen = backend.freeze();
    backend.finish_snapshots();
    let mut file = Vec::new();
    frozen.write_to(&mut file).unwrap();
    file
}

/// Saves keys of one string type, with values of that type, and restores them as another.
fn restores_as<From: StateKey + StateValue, To: StateKey + StateValue + Debug>(
    texts: &[String],
    from: impl Fn(&str) -> From,
    to: impl Fn(&str) -> To,
) {
    let mut saved = backend::<From>();
    let descriptor = ValueStateDescriptor::<(From, u8)>::new("last");
    let state = saved.value_state(&descriptor).unwrap();
    for text in texts {
        let key = from(text);
        state.set(&At::key(&key), (key.clone(), 7)).unwrap();
    }
    let file = save(&mut saved);
    let mut restored = backend::<To>();
    let descriptor = ValueStateDescriptor::<(To, u8)>::new("last");
    let state = restored.value_state(&descriptor).unwrap();
    restored
        .restore_file("state-1", &mut Cursor::new(&file))
        .unwrap();
    assert_eq!(restored.entries(), texts.len());
    for text in texts {
        let key = to(text);
        assert_eq!(state.get(&At::key(&key)).unwrap(), Some((key.clone(), 7)));
    }
    // The same state is the same file, whichever type it is of.
    assert_eq!(save(&mut restored).len(), file.len());
}

#[test]
fn states_of_strings_and_small_strings_are_interchangeable() {
    let texts: Vec<String> = (0..60).map(|length| "\u{e9}x".repeat(length)).collect();
    restores_as(&texts, str::to_owned, |text| CompactString::from(text));
    restores_as(&texts, |text| CompactString::from(text), str::to_owned);
}

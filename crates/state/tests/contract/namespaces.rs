//! State within namespaces, and access by scope.
use std::collections::BTreeMap;

use tidegate_state::{At, Scope, StateError, StateKey, ValueState, ValueStateDescriptor};
use tidegate_types::MaxParallelism;

use super::Backend;
use crate::under_test::BackendUnderTest;

fn max() -> MaxParallelism {
    MaxParallelism::derive(1)
}

fn backend<K: StateKey>() -> Backend<K> {
    Backend::make(max(), max().range(0, 1).unwrap())
}

fn sums() -> ValueStateDescriptor<u64> {
    ValueStateDescriptor::new("sum")
}

/// What a snapshot of this instant restores.
fn reborn<K: StateKey>(backend: &mut Backend<K>) -> Backend<K> {
    let mut restored = self::backend();
    restored.restore(&backend.save()).unwrap();
    restored
}

// L11, M8, M9, M15: keys and namespaces isolate values, and an access honours a switch of either.
#[test]
fn keys_and_namespaces_are_apart() {
    let mut live = backend::<String>();
    let state = live.bind_within::<u32, _>(&sums()).unwrap();
    let mut model = BTreeMap::new();
    for round in 0..5u64 {
        for key in ["a", "b", "c"] {
            for window in 0..100u32 {
                let at = At::key(key).within(&window);
                state.update_or(&at, 0, |sum| *sum += round).unwrap();
                *model.entry((key, window)).or_insert(0) += round;
            }
        }
    }
    state.clear(&At::key("b").within(&7)).unwrap();
    model.remove(&("b", 7));
    assert_eq!(live.entries(), model.len());
    let mut copy = reborn(&mut live);
    let copy = copy.bind_within::<u32, _>(&sums()).unwrap();
    for state in [state, copy] {
        for key in ["a", "b", "c", "d"] {
            for window in 0..101 {
                let found = state.get(&At::key(key).within(&window)).unwrap();
                assert_eq!(found, model.get(&(key, window)).copied());
            }
        }
        assert_eq!(state.borrow().entries().count(), model.len());
    }
}

// KS-21: key and namespace of variable length never run into each other.
#[test]
fn keys_and_namespaces_delimit_themselves() {
    let pairs = [
        ("", ""),
        ("a", ""),
        ("", "a"),
        ("a", "bc"),
        ("ab", "c"),
        ("abc", ""),
        ("", "abc"),
        ("a\0", "b"),
        ("a", "\0b"),
        ("🌊", "\u{202e}ש"),
    ];
    let mut live = backend::<String>();
    let state = live.bind_within::<String, _>(&sums()).unwrap();
    for (at, (key, namespace)) in (0..).zip(pairs) {
        let namespace = namespace.to_owned();
        state.set(&At::key(key).within(&namespace), at).unwrap();
    }
    let mut copy = reborn(&mut live);
    assert_eq!(copy.entries(), pairs.len());
    let state = copy.bind_within::<String, _>(&sums()).unwrap();
    for (at, (key, namespace)) in (0..).zip(pairs) {
        let namespace = namespace.to_owned();
        let found = state.get(&At::key(key).within(&namespace)).unwrap();
        assert_eq!(found, Some(at));
    }
}

/// The key group follows from the key alone, so that a key's windows move together.
#[test]
fn namespaces_stay_with_their_key() {
    let mut live = backend::<u64>();
    let state = live.bind_within::<(i64, i64), _>(&sums()).unwrap();
    for window in 0..500i64 {
        state
            .set(&At::key(&42).within(&(window, window + 10)), 1)
            .unwrap();
    }
    let saved = live.save();
    let own = max().key_group(42u64.key_hash());
    for index in 0..max().get() {
        let range = max().range(index, max().get()).unwrap();
        let mut part = Backend::<u64>::make(max(), range);
        part.restore(&saved).unwrap();
        let expected = if range.contains(own) { 500 } else { 0 };
        assert_eq!(part.entries(), expected);
    }
}

/// A key that is its own namespace must not end up with all others in one place of the table.
#[test]
fn keys_that_equal_their_namespace_spread() {
    let mut live = backend::<u64>();
    let state = live.bind_within::<u64, _>(&sums()).unwrap();
    for key in 0..100_000u64 {
        state.set(&At::key(&key).within(&key), key).unwrap();
    }
    for key in 0..100_000u64 {
        assert_eq!(state.get(&At::key(&key).within(&key)).unwrap(), Some(key));
    }
    assert_eq!(live.entries(), 100_000);
}

// KS-12, M17: another type of namespace is another state.
#[test]
fn another_namespace_type_is_refused() {
    let mut live = backend::<u64>();
    live.bind_within::<u32, _>(&sums()).unwrap();
    let error = live.bind(&sums()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "state `sum` is already bound as `value state` version `1` of `u64` within `u32`, so it \
         can't be bound as `value state` version `1` of `u64`"
    );
    let mut copy = reborn(&mut live);
    assert!(matches!(
        copy.bind_within::<i32, _>(&sums()),
        Err(StateError::RestoredStateMismatch(_))
    ));
    copy.bind_within::<u32, _>(&sums()).unwrap();
}

/// What an operator does with the record at hand.
fn visit(
    seen: &ValueState<String, bool>,
    count: &ValueState<String, u64>,
    at: &impl Scope<String>,
) -> Result<(), StateError> {
    if !seen.contains(at)? {
        seen.set(at, true)?;
    }
    count.update(at, |count| *count += 1)?;
    Ok(())
}

// M1, M2, KS-02, KS-03: the accessors of an operator.
#[test]
fn accessors_take_a_scope() {
    let mut live = backend::<String>();
    let seen = live.bind(&ValueStateDescriptor::new("seen")).unwrap();
    let count = ValueStateDescriptor::new("count").with_default(10);
    let count = live.bind(&count).unwrap();
    for word in ["to", "be", "or", "not", "to", "be"] {
        visit(&seen, &count, &At::key(word)).unwrap();
    }
    let owned = "be".to_owned();
    assert_eq!(count.get(&At::key(&owned)).unwrap(), Some(12));
    assert_eq!(count.get(&At::key("question")).unwrap(), Some(10));
    assert_eq!(seen.get(&At::key("question")).unwrap(), None);
    assert_eq!(
        seen.update(&At::key("x"), |seen| *seen = true).unwrap(),
        None
    );
    let length = count.with(&At::key("to"), |count| {
        count.map(|count| count.leading_zeros())
    });
    assert_eq!(length.unwrap(), Some(60));
    count.clear(&At::key("be")).unwrap();
    assert!(!count.contains(&At::key("be")).unwrap());
    assert_eq!(count.get(&At::key("be")).unwrap(), Some(10));
    assert_eq!((seen.borrow().len(), count.borrow().len()), (4, 3));
    let clone = count.clone();
    clone.set(&At::key("be"), 1).unwrap();
    assert_eq!(count.get(&At::key("be")).unwrap(), Some(1));
}

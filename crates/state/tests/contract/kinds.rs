//! List, reducing, aggregating and map state, scenario by scenario.
use tidegate_state::{
    Aggregate, AggregatingStateDescriptor, At, ListStateDescriptor, MapStateDescriptor,
    MergeAggregate, ReducingStateDescriptor, Scope, StateDescriptor, StateError, StateKey,
    ValueStateDescriptor,
};
use tidegate_types::MaxParallelism;

use super::Backend;
use crate::under_test::{BackendUnderTest, Pieces};

fn backend<K: StateKey>() -> Backend<K> {
    let max = MaxParallelism::derive(1);
    Backend::make(max, max.range(0, 1).unwrap())
}

/// What a snapshot restores.
fn born<K: StateKey>(saved: &Pieces) -> Backend<K> {
    let mut restored = backend();
    restored.restore(saved).unwrap();
    restored
}

/// What a snapshot of this instant restores.
fn reborn<K: StateKey>(backend: &mut Backend<K>) -> Backend<K> {
    born(&backend.save())
}

fn shop() -> At<'static, str> {
    At::key("shop")
}

fn window<'a>(window: &'a u32) -> impl Scope<String, u32, Key = str> + use<'a> {
    shop().within(window)
}

// M3, KS-05: adding nothing changes nothing, an empty list is no list.
#[test]
fn lists_keep_the_order_of_their_elements() {
    let mut live = backend::<String>();
    let descriptor = ListStateDescriptor::<String>::new("list");
    let list = live.bind(&descriptor).unwrap();
    assert_eq!(list.get(&shop()).unwrap(), Vec::<String>::new());
    list.add_all(&shop(), []).unwrap();
    assert!(!list.contains(&shop()).unwrap());
    assert_eq!(list.entries_total(), 0);
    for number in 0..1000 {
        list.add(&shop(), number.to_string()).unwrap();
    }
    list.add_all(&shop(), ["x".to_owned(), "y".to_owned()])
        .unwrap();
    list.update(&At::key("other"), vec!["z".to_owned()])
        .unwrap();
    let expected: Vec<String> = (0..1000)
        .map(|number| number.to_string())
        .chain(["x".to_owned(), "y".to_owned()])
        .collect();
    for state in [list.clone(), reborn(&mut live).bind(&descriptor).unwrap()] {
        assert_eq!(state.get(&shop()).unwrap(), expected);
        assert_eq!(state.len(&shop()).unwrap(), 1002);
        let last = state.with(&shop(), |list| list.last().cloned()).unwrap();
        assert_eq!(last.as_deref(), Some("y"));
        assert_eq!(state.entries_total(), 2);
    }
    list.update(&shop(), Vec::new()).unwrap();
    assert!(list.is_empty(&shop()).unwrap());
    list.clear(&At::key("other")).unwrap();
    assert_eq!(live.entries(), 0);
    assert_eq!(reborn(&mut live).entries(), 0);
}

// KS-14: a long list of which a snapshot is being taken is the one of its instant.
#[test]
fn lists_grow_while_snapshots_are_pending() {
    let mut live = backend::<u64>();
    let descriptor = ListStateDescriptor::<u32>::new("list");
    let list = live.bind(&descriptor).unwrap();
    let mut frozen = Vec::new();
    for number in 0..5000u32 {
        list.add(&At::key(&1), number).unwrap();
        if number % 700 == 0 {
            frozen.push((live.begin_snapshot(), number));
        }
    }
    for (frozen, last) in frozen {
        let mut restored = born::<u64>(&live.complete(frozen));
        let list = restored.bind(&descriptor).unwrap();
        assert!(list.get(&At::key(&1)).unwrap().into_iter().eq(0..=last));
    }
}

// M4: the first value is taken as it is, also by a function that captures something.
#[test]
fn reducing_state_combines_values() {
    let mut live = backend::<String>();
    let descriptor = ReducingStateDescriptor::<u64>::new("max", |max, n| *max = n.max(*max));
    let max = live.bind(&descriptor).unwrap();
    let factor = 10;
    let scaled = move |sum: &mut u64, n: u64| *sum += factor * n;
    let scaled = ReducingStateDescriptor::with_reduce("scaled", scaled);
    let scaled = live.bind(&scaled).unwrap();
    assert_eq!(max.get(&shop()).unwrap(), None);
    for value in [3, 7, 5] {
        max.add(&shop(), value).unwrap();
        scaled.add(&shop(), value).unwrap();
    }
    assert_eq!(scaled.get(&shop()).unwrap(), Some(3 + 70 + 50));
    let mut copy = reborn(&mut live);
    for state in [max.clone(), copy.bind(&descriptor).unwrap()] {
        assert_eq!(state.get(&shop()).unwrap(), Some(7));
        state.add(&shop(), 9).unwrap();
        assert_eq!(state.get(&shop()).unwrap(), Some(9));
        state.clear(&shop()).unwrap();
        assert_eq!(state.get(&shop()).unwrap(), None);
    }
}

/// Joins texts, and counts them.
#[derive(Clone)]
struct Joined;

impl Aggregate for Joined {
    type In = &'static str;
    type Acc = (String, u32);
    type Out = String;

    fn create(&self) -> Self::Acc {
        ("<".to_owned(), 0)
    }

    fn add(&self, (text, count): &mut Self::Acc, value: &'static str) {
        text.push_str(value);
        *count += 1;
    }

    fn get_result(&self, (text, count): &Self::Acc) -> String {
        format!("{text}>{count}")
    }
}

impl MergeAggregate for Joined {
    fn merge(&self, (text, count): &mut Self::Acc, other: Self::Acc) {
        text.push_str(&other.0);
        *count += other.1;
    }
}

// M6, KS-07: an accumulator that is changed in place belongs to one key alone.
#[test]
fn aggregating_state_has_an_accumulator_per_key() {
    let mut live = backend::<String>();
    let descriptor = AggregatingStateDescriptor::new("joined", Joined);
    let joined = live.bind(&descriptor).unwrap();
    assert_eq!(joined.get(&shop()).unwrap(), None);
    joined.add(&shop(), "a").unwrap();
    joined.add(&At::key("other"), "b").unwrap();
    joined.add(&shop(), "c").unwrap();
    let mut copy = reborn(&mut live);
    for state in [joined.clone(), copy.bind(&descriptor).unwrap()] {
        assert_eq!(state.get(&shop()).unwrap().as_deref(), Some("<ac>2"));
        let other = state.get(&At::key("other")).unwrap();
        assert_eq!(other.as_deref(), Some("<b>1"));
    }
}

// M5: the initial value counts once per key, and the result has another type than the input.
#[test]
fn folding_state_starts_from_its_initial_value() {
    let mut live = backend::<String>();
    let descriptor = AggregatingStateDescriptor::folding("fold", vec![0u8], |all, text: &str| {
        all.push(text.len() as u8);
    });
    let fold = live.bind(&descriptor).unwrap();
    for text in ["a", "bc", ""] {
        fold.add(&shop(), text).unwrap();
    }
    fold.add(&At::key("other"), "def").unwrap();
    let copy = reborn(&mut live).bind(&descriptor).unwrap();
    copy.add(&shop(), "gh").unwrap();
    assert_eq!(fold.get(&shop()).unwrap(), Some(vec![0, 1, 2, 0]));
    assert_eq!(copy.get(&shop()).unwrap(), Some(vec![0, 1, 2, 0, 2]));
    assert_eq!(copy.get(&At::key("other")).unwrap(), Some(vec![0, 3]));
}

// M7, KS-08: a value may be nothing and yet be there; entries are changed and removed while they
// are walked; an empty map is no map. After a snapshot all is as before.
#[test]
fn map_state_is_an_ordered_map() {
    let mut live = backend::<String>();
    let descriptor = MapStateDescriptor::<String, Option<u32>>::new("map");
    let map = live.bind(&descriptor).unwrap();
    assert!(map.is_empty(&shop()).unwrap());
    assert_eq!(map.remove(&shop(), "x").unwrap(), None);
    map.put_all(&shop(), []).unwrap();
    assert_eq!(map.entries_total(), 0);
    for number in (0..500u32).rev() {
        let value = (number % 5 != 0).then_some(number);
        map.put(&shop(), format!("{number:03}"), value).unwrap();
    }
    assert!(map.contains_key(&shop(), "005").unwrap());
    assert_eq!(map.get(&shop(), "005").unwrap(), Some(None));
    assert_eq!(map.get(&shop(), "x").unwrap(), None);
    map.retain(&shop(), |_, value| {
        *value = value.map(|number| number + 1);
        *value != Some(8)
    })
    .unwrap();
    assert!(!map.contains_key(&shop(), "007").unwrap());
    assert_eq!(map.update(&shop(), "007", |_| ()).unwrap(), None);
    map.update(&shop(), "008", |value| *value = Some(1))
        .unwrap();
    let added = map.update_or(&shop(), "🌊".to_owned(), Some(5), |value| {
        *value = value.map(|number| number * 2);
        *value
    });
    assert_eq!(added.unwrap(), Some(10));

    let mut copy = reborn(&mut live);
    assert_eq!(copy.entries(), 500);
    for state in [map.clone(), copy.bind(&descriptor).unwrap()] {
        assert_eq!(state.len(&shop()).unwrap(), 500);
        assert_eq!(state.entries_total(), 1);
        let keys = state.map_keys(&shop()).unwrap();
        assert!(keys.is_sorted());
        assert_eq!(keys.last().map(String::as_str), Some("🌊"));
        let values = state.values(&shop()).unwrap();
        assert_eq!(
            values[..9],
            [0, 2, 3, 4, 5, 0, 7, 1, 10].map(|n| (n > 0).then_some(n))
        );
        assert_eq!(state.entries(&shop()).unwrap().len(), 500);
        let listed = state
            .with_entries(&shop(), |entries| entries.len())
            .unwrap();
        assert_eq!(listed, 500);
        for key in keys {
            assert!(state.remove(&shop(), &key).unwrap().is_some());
        }
        assert!(!state.contains(&shop()).unwrap());
        assert_eq!(state.entries_total(), 0);
    }
    map.put(&shop(), "a".to_owned(), None).unwrap();
    map.retain(&shop(), |_, _| false).unwrap();
    assert_eq!(live.entries(), 0);
}

// KS-21: key, namespace and map key of variable length never run into each other.
#[test]
fn keys_of_map_entries_delimit_themselves() {
    let parts = ["", "a", "ab", "abc", "b", "bc", "c", "\0", "a\0", "\u{ff}"].map(str::to_owned);
    let mut live = backend::<String>();
    let descriptor = MapStateDescriptor::<String, String>::new("map");
    let map = live.bind_within::<String, _>(&descriptor).unwrap();
    let all = || {
        let pairs = parts.iter().flat_map(|a| parts.iter().map(move |b| (a, b)));
        pairs.flat_map(|(a, b)| parts.iter().map(move |c| (a, b, c)))
    };
    for (key, namespace, map_key) in all() {
        let value = format!("{key}/{namespace}/{map_key}");
        map.put(&At::key(key).within(namespace), map_key.clone(), value)
            .unwrap();
    }
    let mut copy = reborn(&mut live);
    assert_eq!(copy.entries(), 1000);
    let copy = copy.bind_within::<String, _>(&descriptor).unwrap();
    for (key, namespace, map_key) in all() {
        let found = copy.get(&At::key(key).within(namespace), map_key).unwrap();
        assert_eq!(found, Some(format!("{key}/{namespace}/{map_key}")));
    }
}

// KS-06, BC-51, L12: several namespaces into one; which of them are empty makes no difference.
#[test]
fn namespaces_are_merged() {
    // Which of the namespaces 0 (the target) to 3 have something.
    for filled in 0u32..16 {
        let mut live = backend::<String>();
        let list = ListStateDescriptor::<u32>::new("list");
        let list = live.bind_within::<u32, _>(&list).unwrap();
        let last = ReducingStateDescriptor::<u32>::new("last", |last, n| *last = *last * 10 + n);
        let last = live.bind_within::<u32, _>(&last).unwrap();
        let joined = AggregatingStateDescriptor::new("joined", Joined);
        let joined = live.bind_within::<u32, _>(&joined).unwrap();
        for number in (0..4u32).filter(|number| filled >> number & 1 == 1) {
            list.add_all(&window(&number), [number, number]).unwrap();
            last.add(&window(&number), number).unwrap();
            joined
                .add(&window(&number), ["a", "b", "c", "d"][number as usize])
                .unwrap();
        }
        // Of another key, which merging must not touch.
        list.add(&At::key("other").within(&1), 7).unwrap();
        let sources = [1, 2, 3];
        list.merge_namespaces(&window(&0), &sources).unwrap();
        last.merge_namespaces(&window(&0), &sources).unwrap();
        joined.merge_namespaces(&window(&0), &sources).unwrap();

        let numbers: Vec<u32> = (0..4).filter(|n| filled >> n & 1 == 1).collect();
        let pairs: Vec<u32> = numbers.iter().flat_map(|n| [*n, *n]).collect();
        assert_eq!(list.get(&window(&0)).unwrap(), pairs, "{filled:04b}");
        let digits = numbers.iter().copied().reduce(|all, n| all * 10 + n);
        assert_eq!(last.get(&window(&0)).unwrap(), digits);
        let found = joined.get(&window(&0)).unwrap();
        // An accumulator starts with `<`; merging appends that of each source.
        let text: String = numbers
            .iter()
            .map(|n| ["<a", "<b", "<c", "<d"][*n as usize])
            .collect();
        let text = (!numbers.is_empty()).then(|| format!("{text}>{}", numbers.len()));
        assert_eq!(found, text);
        let left = usize::from(filled != 0);
        assert_eq!(list.entries_total(), left + 1);
        assert_eq!((last.entries_total(), joined.entries_total()), (left, left));
        for source in sources {
            assert!(!list.contains(&window(&source)).unwrap());
            assert!(!last.contains(&window(&source)).unwrap());
        }
        assert_eq!(live.entries(), 3 * left + 1);
    }
}

// KS-06: the target among the sources, one source named twice, a single source.
#[test]
fn merging_a_namespace_with_itself_changes_nothing() {
    let mut live = backend::<String>();
    let list = ListStateDescriptor::<u32>::new("list");
    let list = live.bind_within::<u32, _>(&list).unwrap();
    list.add(&window(&1), 1).unwrap();
    list.merge_namespaces(&window(&1), &[1]).unwrap();
    assert_eq!(list.get(&window(&1)).unwrap(), [1]);
    list.add(&window(&2), 2).unwrap();
    list.merge_namespaces(&window(&1), &[1, 2, 2, 1]).unwrap();
    assert_eq!(list.get(&window(&1)).unwrap(), [1, 2]);
    list.merge_namespaces(&window(&3), &[1]).unwrap();
    assert_eq!(list.get(&window(&3)).unwrap(), [1, 2]);
    assert_eq!(list.entries_total(), 1);
}

// KS-18: all keys of a namespace, also while the visitor removes and adds.
#[test]
fn keys_are_visited_while_the_state_changes() {
    let mut live = backend::<u64>();
    let descriptor = ValueStateDescriptor::<u64>::new("value");
    let state = live.bind_within::<u32, _>(&descriptor).unwrap();
    for key in 0..1000u64 {
        state.set(&At::key(&key).within(&1), key).unwrap();
        state.set(&At::key(&key).within(&2), key).unwrap();
    }
    state.set(&At::key(&5000).within(&2), 0).unwrap();
    let mut keys = state.keys(&1).unwrap();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..1000));
    assert_eq!(state.keys(&3).unwrap(), Vec::<u64>::new());

    let mut visited = Vec::new();
    state
        .for_each_key(&1, |at| {
            let key = *Scope::<u64, u32>::key(&at);
            visited.push(key);
            match key % 3 {
                0 => state.clear(&at)?,
                // Of another key: visited before or never.
                1 => state.clear(&At::key(&(key + 1)).within(&1))?,
                _ => state.set(&at.within(&4), key)?,
            }
            Ok::<_, StateError>(())
        })
        .unwrap();
    visited.sort_unstable();
    assert!(
        visited.windows(2).all(|pair| pair[0] < pair[1]),
        "no key twice"
    );
    assert!(
        (0..1000)
            .filter(|key| key % 3 != 2)
            .all(|key| visited.contains(&key))
    );
    let mut left = state.keys(&1).unwrap();
    left.sort_unstable();
    assert!(left.iter().all(|key| key % 3 == 1), "the rest was removed");
    assert_eq!(state.keys(&2).unwrap().len(), 1001);
    let failed = state.for_each_key(&2, |_| Err(Stopped)).unwrap_err();
    assert!(matches!(failed, Stopped));
}

#[derive(Debug)]
struct Stopped;

impl From<StateError> for Stopped {
    fn from(_: StateError) -> Self {
        Stopped
    }
}

// KS-10, M13, M14, M16: of any kind, what nobody binds stays in snapshots as it was.
#[test]
fn unbound_state_of_every_kind_stays_in_snapshots() {
    let mut live = backend::<String>();
    let list = ListStateDescriptor::<u8>::new("list");
    let sum = ReducingStateDescriptor::<u64>::new("sum", |sum, n| *sum += n);
    let joined = AggregatingStateDescriptor::new("joined", Joined);
    let map = MapStateDescriptor::<u32, String>::new("map");
    let (a, b) = (live.bind(&list).unwrap(), live.bind(&sum).unwrap());
    let (c, d) = (
        live.bind(&joined).unwrap(),
        live.bind_within::<u32, _>(&map).unwrap(),
    );
    a.add_all(&shop(), [1, 2, 3]).unwrap();
    b.add(&shop(), 4).unwrap();
    c.add(&shop(), "x").unwrap();
    d.put(&window(&9), 8, "eight".to_owned()).unwrap();
    d.put(&window(&9), 7, "seven".to_owned()).unwrap();
    let mut copy = reborn(&mut reborn(&mut reborn(&mut live)));
    assert_eq!(copy.entries(), 5);
    let (a, b) = (copy.bind(&list).unwrap(), copy.bind(&sum).unwrap());
    let (c, d) = (
        copy.bind(&joined).unwrap(),
        copy.bind_within::<u32, _>(&map).unwrap(),
    );
    assert_eq!(a.get(&shop()).unwrap(), [1, 2, 3]);
    assert_eq!(b.get(&shop()).unwrap(), Some(4));
    assert_eq!(c.get(&shop()).unwrap().as_deref(), Some("<x>1"));
    assert_eq!(d.values(&window(&9)).unwrap(), ["seven", "eight"]);
}

// KS-12, M12, M17: a state is what its name, kind, version and types say.
#[test]
fn another_kind_or_type_is_refused() {
    let mut live = backend::<String>();
    let value = live
        .bind(&ValueStateDescriptor::<u64>::new("state"))
        .unwrap();
    value.set(&shop(), 1).unwrap();
    let list = ListStateDescriptor::<u64>::new("state");
    let sum = ReducingStateDescriptor::<u64>::new("state", |sum, n| *sum += n);
    let map = MapStateDescriptor::<String, u64>::new("state");
    let mut copy = reborn(&mut live);
    let error = live.bind(&map).err().unwrap();
    assert_eq!(
        error.to_string(),
        "state `state` is already bound as `value state` version `1` of `u64`, so it can't be \
         bound as `map state` version `1` of `u64` by `string`"
    );
    assert!(matches!(live.bind(&list), Err(StateError::AlreadyBound(_))));
    assert!(matches!(live.bind(&sum), Err(StateError::AlreadyBound(_))));
    let error = copy.bind(&list).err().unwrap();
    assert_eq!(
        error.to_string(),
        "state `state` was saved as `value state` version `1` of `u64`, but the job declares \
         `list state` version `1` of `[u64]`"
    );
    for refused in [
        copy.bind(&sum).err(),
        copy.bind(&list.with_version(2)).err(),
    ] {
        assert!(matches!(
            refused,
            Some(StateError::RestoredStateMismatch(_))
        ));
    }
    assert_ne!(map.meta(), map.clone().with_version(2).meta());
    let other = MapStateDescriptor::<u32, u64>::new("state");
    assert_ne!(map.meta(), other.meta());
    assert_eq!(
        map.meta(),
        MapStateDescriptor::<String, u64>::new("state").meta()
    );
}

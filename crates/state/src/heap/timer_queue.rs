//! Timers in the order of their times.
//!
//! A tree, not a binary heap: a timer that is deleted leaves it at once. A heap would keep deleted
//! timers until they come up, and had to be cleaned, all of it in one go, while records wait.
//!
//! Timers of one time come in the order of their hashes, which a restore doesn't change. As the
//! hash of a key says where its state is, the timers of a window visit the state one key group
//! after the other. Two timers whose hashes collide are told apart by their encodings.
//!
//! Invariants: each timer is there once; of those with the same place, the one that comes first is
//! in the tree.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::entry_key::scope_hash;
use crate::key::StateKey;

/// What timers are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) time: i64,
    hash: u64,
}

impl Place {
    /// The place of a timer, whose key has the hash `key_hash`.
    #[inline]
    pub(super) fn new<N: StateKey>(time: i64, key_hash: u64, namespace: &N) -> Self {
        let hash = scope_hash(key_hash, namespace);
        Place { time, hash }
    }
}

/// All timers of one kind.
pub(super) struct TimerQueue<K, N> {
    timers: BTreeMap<Place, (K, N)>,
    /// Timers whose place in the tree another one has. Empty, as good as always.
    collided: Vec<(Place, (K, N))>,
}

impl<K, N> TimerQueue<K, N> {
    /// The first timer's place.
    #[inline]
    pub(super) fn first(&self) -> Option<Place> {
        let (place, _) = self.timers.first_key_value()?;
        Some(*place)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.timers.len() + self.collided.len()
    }
}

impl<K: StateKey, N: StateKey> TimerQueue<K, N> {
    /// Adds a timer that isn't there.
    #[inline]
    pub(super) fn insert(&mut self, place: Place, timer: (K, N)) {
        match self.timers.entry(place) {
            Entry::Vacant(entry) => _ = entry.insert(timer),
            Entry::Occupied(mut entry) => {
                let first = entry.get_mut();
                let later = match encoding(&timer) < encoding(first) {
                    true => std::mem::replace(first, timer),
                    false => timer,
                };
                self.collided.push((place, later));
            }
        }
    }

    /// Removes the timer at `place` that `is` tells; it is there.
    #[inline]
    pub(super) fn remove(&mut self, place: Place, is: impl Fn(&(K, N)) -> bool) {
        if let Entry::Occupied(entry) = self.timers.entry(place)
            && (self.collided.is_empty() || is(entry.get()))
        {
            entry.remove();
            self.fill(place);
            return;
        }
        let at = |(other, timer): &(Place, (K, N))| *other == place && is(timer);
        let at = self.collided.iter().position(at);
        self.collided.swap_remove(at.expect("the timer is set"));
    }

    /// Takes the first timer.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(K, N)> {
        let (place, timer) = self.timers.pop_first()?;
        self.fill(place);
        Some(timer)
    }

    /// Moves the next timer of a place into the tree, where there is room now.
    #[inline]
    fn fill(&mut self, place: Place) {
        if self.collided.is_empty() {
            return;
        }
        let here = |at: &usize| self.collided[*at].0 == place;
        let next = (0..self.collided.len())
            .filter(here)
            .min_by_key(|at| encoding(&self.collided[*at].1));
        if let Some(next) = next {
            let (place, timer) = self.collided.swap_remove(next);
            self.timers.insert(place, timer);
        }
    }
}

/// Tells timers apart whose hashes collide.
#[cold]
fn encoding<K: StateKey, N: StateKey>((key, namespace): &(K, N)) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode_element(&mut bytes);
    namespace.encode_element(&mut bytes);
    bytes
}

impl<K: StateKey, N: StateKey> FromIterator<(Place, (K, N))> for TimerQueue<K, N> {
    /// Faster than to add them one by one.
    fn from_iter<I: IntoIterator<Item = (Place, (K, N))>>(timers: I) -> Self {
        let mut timers: Vec<_> = timers.into_iter().collect();
        timers.sort_unstable_by_key(|(place, _)| *place);
        let (mut last, mut later) = (None, Vec::new());
        let mut alone = |timer: (Place, (K, N))| match last.replace(timer.0) == Some(timer.0) {
            true => {
                later.push(timer);
                None
            }
            false => Some(timer),
        };
        let timers = timers.into_iter().filter_map(&mut alone).collect();
        let mut queue = TimerQueue {
            timers,
            collided: Vec::new(),
        };
        for (place, timer) in later {
            queue.insert(place, timer);
        }
        queue
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// A place that a timer shares with every third key, whatever their namespaces.
    fn place(key: u64, time: i64) -> Place {
        let hash = key % 3;
        Place { time, hash }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Toggle(u64, u32, i64),
        Pop,
        Rebuild,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            12 => (0u64..9, 0u32..3, -2i64..3).prop_map(|(key, namespace, time)| {
                Step::Toggle(key, namespace, time)
            }),
            3 => Just(Step::Pop),
            1 => Just(Step::Rebuild),
        ]
    }

    proptest! {
        // KS-20: in one order, also where hashes collide, and whatever is set and deleted.
        #[test]
        fn behaves_as_an_ordered_set(steps in prop::collection::vec(step(), 0..200)) {
            let mut queue = TimerQueue::from_iter([]);
            let mut model = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Toggle(key, namespace, time) => {
                        let (place, timer) = (place(key, time), (key, namespace));
                        let ordered = (place, encoding(&timer), timer);
                        match model.take(&ordered) {
                            Some(_) => queue.remove(place, |other| *other == timer),
                            None => {
                                model.insert(ordered);
                                queue.insert(place, timer);
                            }
                        }
                    }
                    Step::Pop => {
                        let first = model.pop_first().map(|(_, _, timer)| timer);
                        prop_assert_eq!(queue.pop(), first);
                    }
                    // In another order than the one of the queue.
                    Step::Rebuild => {
                        let mut timers: Vec<_> = model.iter().map(|at| (at.0, at.2)).collect();
                        timers.sort_by_key(|(_, (key, namespace))| (*namespace, *key));
                        queue = timers.into_iter().collect();
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.first(), model.first().map(|first| first.0));
            }
            let rest = std::iter::from_fn(|| queue.pop());
            prop_assert!(rest.eq(model.into_iter().map(|(_, _, timer)| timer)));
        }
    }

    /// Hashes of 64 bits hardly collide in practice: those of one key in two namespaces can be made
    /// to by chance only.
    #[test]
    fn places_tell_namespaces_and_times_apart() {
        let hash = 7u64.key_hash();
        let places = (0..1000u32)
            .flat_map(|namespace| (0..10).map(move |time| Place::new(time, hash, &namespace)));
        assert_eq!(places.collect::<BTreeSet<_>>().len(), 10_000);
        assert_eq!(Place::new(5, hash, &()), Place { time: 5, hash });
    }
}

//! The jobs: a source per subtask, an edge between all of them, and a count.

use std::hint::black_box;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use renoir::operator::Operator;
use renoir::prelude::*;
use renoir::{Replication, Stream};

use crate::count::{Counts, Key, Tally};
use crate::generate::{key, mix, text::of_key};
use crate::text::Text;
use crate::words::WordsOf;
use crate::{Keyed, Numbers, Words};

/// Numbers of a batch: with 256, 1024, 4096 and 16384 of them 28.5, 25.8, 20.9 and 20.2 ns of
/// processor time per record (1 k keys).
const NUMBERS: usize = 16_384;

/// Texts of a batch, which are larger: with 1024, 2048, 4096 and 8192 of them 47.5, 45.9, 42.4 and
/// 41.8 ns per word.
const TEXTS: usize = 4_096;

/// Generates numbers and drops them.
pub(crate) fn source(numbers: Numbers, tally: &Tally) {
    let mut dropped = tally.dropped();
    let env = environment(numbers);
    env.stream_par_iter(move |index, peers| part(numbers.records, index, peers).map(mix))
        .batch_mode(BatchMode::fixed(NUMBERS))
        .for_each(move |number| dropped.add(black_box(number)));
    env.execute_blocking();
}

/// Counts numbers by key.
pub(crate) fn keyed_count(Keyed { numbers, keys }: Keyed, tally: &Tally) {
    let counts = Counts::with_room_for(keys.div_ceil(numbers.parallelism), tally);
    let env = environment(numbers);
    let stream = env.stream_par_iter(move |index, peers| {
        part(numbers.records, index, peers).map(move |index| key(index, keys))
    });
    count(stream.batch_mode(BatchMode::fixed(NUMBERS)), counts);
    env.execute_blocking();
}

/// The texts of all keys.
pub(crate) fn texts<T: Text>(keys: u64) -> Arc<[T]> {
    let text = |key| {
        let text = of_key(key);
        T::beginning_of(&text, text.len())
    };
    (0..keys).map(text).collect()
}

/// Counts copies of texts.
pub(crate) fn keyed_strings<T: Text>(
    Keyed { numbers, keys }: Keyed,
    texts: Arc<[T]>,
    tally: &Tally,
) {
    let counts = Counts::with_room_for(keys.div_ceil(numbers.parallelism), tally);
    let env = environment(numbers);
    let stream = env.stream_par_iter(move |index, peers| {
        let texts = Arc::clone(&texts);
        part(numbers.records, index, peers)
            .map(move |index| texts[key(index, keys) as usize].clone())
    });
    count(stream.batch_mode(BatchMode::fixed(TEXTS)), counts);
    env.execute_blocking();
}

/// Counts the words of files: each subtask those of every so manieth file.
pub(crate) fn wordcount<T: Text>(Words { numbers, input, .. }: Words, tally: &Tally) {
    let counts = Counts::<T>::with_room_for(0, tally);
    let env = environment(numbers);
    let stream = env.stream_par_iter(move |index, peers| {
        let own = input.iter().skip(index as usize).step_by(peers as usize);
        WordsOf::new(own.cloned().collect::<Vec<PathBuf>>())
    });
    count(stream.batch_mode(BatchMode::fixed(TEXTS)), counts);
    env.execute_blocking();
}

/// Sends each record to the subtask of its key; there, a record becomes its key and how often it
/// has been there.
fn count<K, O>(stream: Stream<O>, mut counts: Counts<K>)
where
    K: Key,
    O: Operator<Out = K> + 'static,
{
    stream
        .repartition_by(Replication::Unlimited, |key: &K| key.spread())
        .rich_map(move |key| {
            let count = counts.add(&key);
            (key, count)
        })
        .for_each(|counted| {
            black_box(counted);
        });
}

fn environment(numbers: Numbers) -> StreamContext {
    let config = RuntimeConfig::local(numbers.parallelism);
    StreamContext::new(config.expect("a number of threads is all that it needs"))
}

/// The indexes that one of so many subtasks generates.
fn part(records: u64, index: u64, peers: u64) -> Range<u64> {
    let at = |index: u64| (u128::from(records) * u128::from(index) / u128::from(peers)) as u64;
    at(index)..at(index + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use tidegate_state::CompactString;

    use super::*;
    use crate::packed::{PackedKey, PackedWord};

    fn numbers(parallelism: u64) -> Numbers {
        Numbers {
            records: 100_000,
            parallelism,
        }
    }

    #[test]
    fn every_record_is_counted_and_every_key_on_one_subtask() {
        for parallelism in 1..4 {
            let numbers = numbers(parallelism);
            let tally = Tally::default();
            source(numbers, &tally);
            assert_eq!((tally.distinct_keys(), tally.sum_of_counts()), (0, 100_000));

            let keyed = Keyed { numbers, keys: 500 };
            let expected: BTreeSet<u64> = (0..100_000).map(|index| key(index, 500)).collect();
            let tally = Tally::default();
            keyed_count(keyed, &tally);
            let counted = (tally.distinct_keys(), tally.sum_of_counts());
            assert_eq!(counted, (expected.len() as u64, 100_000));

            let tally = Tally::default();
            keyed_strings::<CompactString>(keyed, texts(500), &tally);
            let counted = (tally.distinct_keys(), tally.sum_of_counts());
            assert_eq!(counted, (expected.len() as u64, 100_000));

            let tally = Tally::default();
            keyed_strings::<PackedKey>(keyed, texts(500), &tally);
            let counted = (tally.distinct_keys(), tally.sum_of_counts());
            assert_eq!(counted, (expected.len() as u64, 100_000));
        }
    }

    #[test]
    fn every_word_of_every_file_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut expected = BTreeMap::new();
        let mut input = Vec::new();
        for file in 0..3 {
            let word = |at: u64| match at % 5 {
                0 => format!("a-word-that-does-not-fit-{}", mix(at) % 70),
                _ => format!("word{}", mix(at + file) % 300),
            };
            let words: Vec<String> = (0..4_000).map(word).collect();
            let path = folder.path().join(file.to_string());
            std::fs::write(&path, words.join(" ")).unwrap();
            input.push(path);
            for word in words {
                *expected.entry(word).or_insert(0) += 1;
            }
        }
        for parallelism in 1..4 {
            let words = Words {
                numbers: numbers(parallelism),
                input: input.clone(),
                packed: false,
            };
            for count in [wordcount::<CompactString>, wordcount::<PackedWord>] {
                let tally = Tally::default();
                count(words.clone(), &tally);
                let counted = (tally.distinct_keys(), tally.sum_of_counts());
                assert_eq!(counted, (expected.len() as u64, 12_000));
            }
        }
    }
}

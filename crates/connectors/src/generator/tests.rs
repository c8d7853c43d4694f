//! Order, ends, limits and restores of generated records.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_types::{OperatorId, SubtaskId};

use super::*;

fn place(parallelism: u32) -> SourceContext {
    SourceContext {
        subtask: SubtaskId {
            operator: OperatorId(0),
            index: 0,
        },
        parallelism,
    }
}

fn split(enumerator: &mut GeneratorEnumerator) -> Option<IndexRange> {
    match enumerator.next(Ticks(Duration::ZERO)).unwrap() {
        NextSplit::Split(range) => Some(range),
        NextSplit::End => None,
        NextSplit::At(_) => panic!("a generator never waits for splits"),
    }
}

#[test]
fn one_reader_emits_in_order_and_ends() {
    let source = Generator::new(Some(10_000), |i| i * 2);
    let mut enumerator = source.enumerator(place(1), None).unwrap();
    let mut reader = source.reader(place(1)).unwrap();
    let mut out = Collector::collecting(usize::MAX);
    while let Some(range) = split(&mut enumerator) {
        reader.assign(range);
        while reader.poll(&mut out).unwrap() != ReadStatus::Drained {}
    }
    let expected: Vec<u64> = (0..10_000).map(|i| i * 2).collect();
    assert_eq!(out.take_collected(), expected);
}

#[test]
fn a_full_collector_stops_it_at_an_exact_position() {
    let source = Generator::new(Some(100_000), |i| i);
    let mut reader = source.reader(place(1)).unwrap();
    let mut out = Collector::collecting(1_000);
    reader.assign(IndexRange {
        next: 7,
        end: 100_000,
    });
    assert_eq!(reader.poll(&mut out).unwrap(), ReadStatus::More);
    let emitted = out.take_collected();
    assert!(
        emitted.len() >= 1_000 && emitted.len() < 2_000,
        "{}",
        emitted.len()
    );
    let next = 7 + emitted.len() as u64;
    assert_eq!(
        SplitReader::snapshot(&reader),
        [IndexRange { next, end: 100_000 }]
    );
    assert_eq!(SplitReader::unfinished(&reader), 1);
}

#[test]
fn an_unbounded_generator_does_not_end() {
    let source = Generator::new(None, |i| i);
    let mut enumerator = source.enumerator(place(4), Some(1 << 40)).unwrap();
    let range = split(&mut enumerator).unwrap();
    assert_eq!((range.next, range.end), (1 << 40, (1 << 40) + RANGE_MAX));
}

#[test]
fn a_limited_reader_waits_for_its_part_of_the_rate() {
    let source = Generator::new(None, |i| i).rate(10.0);
    let mut reader = source.reader(place(2)).unwrap();
    let mut out = Collector::collecting(usize::MAX);
    reader.assign(IndexRange { next: 0, end: 10 });
    let ReadStatus::At(next) = reader.poll(&mut out).unwrap() else {
        panic!("not limited")
    };
    assert_eq!(out.take_collected(), [0]);
    // Five per second for each of two readers.
    let pause = next.since(Ticks::now());
    assert!(
        pause <= Duration::from_millis(201) && pause > Duration::ZERO,
        "{pause:?}"
    );
    assert_eq!(
        SplitReader::snapshot(&reader),
        [IndexRange { next: 1, end: 10 }]
    );
}

#[test]
fn ranges_are_small_enough_to_share() {
    let sizes = |source: &Generator<_>, readers| {
        split(&mut source.enumerator(place(readers), None).unwrap()).map(|r| r.end - r.next)
    };
    let f = |i: u64| i;
    assert_eq!(sizes(&Generator::new(Some(3_200), f), 2), Some(100));
    assert_eq!(sizes(&Generator::new(Some(3), f), 2), Some(1));
    assert_eq!(sizes(&Generator::new(None, f).rate(1_000.0), 2), Some(50));
    assert_eq!(sizes(&Generator::new(Some(0), f), 2), None);
}

#[test]
fn a_rate_of_nothing_is_refused() {
    let error = Source::check(&Generator::new(None, |i| i).rate(0.0)).unwrap_err();
    assert!(error.to_string().contains("`0`"), "{error}");
}

proptest! {
    /// BC-44: splits find new owners at a restore, and no record is read twice or skipped.
    #[test]
    fn any_restore_emits_every_index_once(
        count in 0_u64..5_000,
        polls in prop::collection::vec((1_usize..3, 1_u64..400), 0..40),
    ) {
        let source = Generator::new(Some(count), |i| i);
        let (mut enumerator, mut seen) = (source.enumerator(place(2), None).unwrap(), Vec::new());
        let mut readers = vec![source.reader(place(1)).unwrap()];
        let mut out = Collector::collecting(usize::MAX);
        for (parallelism, records) in polls {
            for reader in &mut readers {
                if let Some(range) = split(&mut enumerator) {
                    SplitReader::assign(reader, range);
                }
                reader.emit(records, &mut out);
            }
            seen.append(&mut out.take_collected());
            let splits: Vec<_> = readers.iter().flat_map(SplitReader::snapshot).collect();
            let state = enumerator.snapshot();
            enumerator = source.enumerator(place(parallelism as u32), Some(state)).unwrap();
            readers = (0..parallelism).map(|_| source.reader(place(1)).unwrap()).collect();
            for (index, range) in splits.into_iter().enumerate() {
                SplitReader::assign(&mut readers[index % parallelism], range);
            }
        }
        for reader in &mut readers {
            while let Some(range) = split(&mut enumerator) {
                SplitReader::assign(reader, range);
            }
            while SplitReader::poll(reader, &mut out).unwrap() == ReadStatus::More {}
        }
        seen.append(&mut out.take_collected());
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
    }
}

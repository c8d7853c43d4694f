//! What processes count of what they send each other.

use tidegate_runtime::Traffic;

use crate::pipelines::wait_until;
use crate::support::Numbers;

use super::counts;
use super::parts::{Parts, Shape};

const SHAPE: Shape = Shape {
    processes: 2,
    threads: 1,
};

/// Of all parts, when every thread of them is gone.
fn of_all(parts: Parts) -> Traffic {
    let metrics: Vec<_> = parts
        .parts
        .iter()
        .map(|part| part.metrics.clone())
        .collect();
    parts.stop();
    metrics.iter().map(|metrics| metrics.traffic()).sum()
}

/// Of a job that has no records, with so many checkpoints.
fn of_checkpoints(checkpoints: u64) -> Traffic {
    let (plan, _) = counts(Numbers::up_to(0), 1, 2);
    let parts = Parts::start(SHAPE, plan, None);
    parts.wait_for_ends(2);
    for checkpoint in 1..=checkpoints {
        parts.trigger(checkpoint);
        parts.acknowledgements(checkpoint);
    }
    of_all(parts)
}

#[test]
fn a_checkpoint_is_a_barrier_on_each_channel_and_no_credit() {
    let [once, often] = [1, 6].map(of_checkpoints);
    // From the enumerator to the reader of the other process, and from each reader to the count of
    // the other.
    assert_eq!(often.items.messages - once.items.messages, 5 * 3);
    assert_eq!(often.credit, once.credit);
    assert!(
        often.progress.messages > once.progress.messages,
        "{often:?} {once:?}"
    );
}

#[test]
fn records_and_their_credit_are_told_apart() {
    let (plan, results) = counts(Numbers::up_to(100_000), 1_000, 2);
    let parts = Parts::start(SHAPE, plan, None);
    wait_until(|| results.len() == 100_000);
    let Traffic {
        items,
        credit,
        progress,
    } = of_all(parts);
    // About half of them go to the other process, of one to five bytes each.
    assert!((100_000..500_000).contains(&items.bytes), "{items:?}");
    assert!(credit.messages > 0 && progress.messages > 0);
    for volume in [items, credit, progress] {
        assert!(volume.bytes > 48 * volume.messages, "{volume:?}");
    }
    assert!(credit.bytes < 100 * credit.messages, "{credit:?}");
}

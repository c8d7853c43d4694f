//! Known bugs are put back in, and the simulator finds each: otherwise its silence means nothing.

use tidegate_sim::{Failure, Mutation, Options, run};

/// Runs seeds until one fails.
fn find(mutation: Mutation, seeds: u64) -> Option<Box<Failure>> {
    let options = || Options {
        mutation: Some(mutation),
        ..Options::default()
    };
    (0..seeds).find_map(|seed| run(seed, options()).err())
}

fn assert_found(mutation: Mutation, seeds: u64, invariants: &[&str]) {
    let failure = find(mutation, seeds);
    let failure = failure.unwrap_or_else(|| panic!("{mutation:?} survived {seeds} seeds"));
    let by = failure.violation.invariant;
    assert!(
        invariants.contains(&by),
        "{mutation:?} was found by another invariant:\n{failure}"
    );
    let text = failure.to_string();
    assert!(
        text.contains(&format!("--seed {} --trace", failure.seed)),
        "{text}"
    );
    assert!(!failure.lines.is_empty() && failure.lines.len() <= tidegate_sim::LINES_SHOWN);
}

macro_rules! found {
    ($($(#[$note:meta])* $name:ident: $mutation:ident within $seeds:literal by $($by:literal)|+;)*)
    => {
        $($(#[$note])* #[test] fn $name() {
            assert_found(Mutation::$mutation, $seeds, &[$($by),+]);
        })*
        #[test]
        fn every_mutation_has_a_test() {
            let tested = [$(Mutation::$mutation),*];
            assert!(Mutation::ALL.iter().all(|mutation| tested.contains(mutation)));
        }
    };
}

found! {
    commit_on_ack: CommitOnAck within 200 by "transactions";
    // TP: a snapshot lists all uncommitted transactions.
    forget_earlier_transactions: ForgetEarlierTransactions within 300 by "transactions" | "output";
    // A job that knows what it has lost refuses to go on, for ever.
    drop_before_pointer: DropBeforePointer within 500 by "announced" | "restorable" | "liveness";
    // BC-02
    unknown_is_not_done: UnknownIsNotDone within 500 by "restorable" | "reachable" | "announced";
    no_blocking: NoBlocking within 200 by "alignment";
    // BC-24
    stale_notice: StaleNotice within 300 by "transactions";
    // BC-10
    volatile_id_counter: VolatileIdCounter within 200 by "ids";
    seals_lost_on_abort: SealsLostOnAbort within 500 by "transactions";
    barrier_overtakes_batch: BarrierOvertakesBatch within 200 by "alignment" | "output";
    // BC-14
    restore_forgets_commit: RestoreForgetsCommit within 500 by "output" | "transactions";
    pointer_reported_early: PointerReportedEarly within 200 by "announced";
    split_from_start: SplitFromStart within 200 by "output";
    // RS-02
    first_file_only: FirstFileOnly within 500 by "output";
    // BC-26
    stop_without_join: StopWithoutJoin within 500 by "attempts";
    spoilt_for_ever: SpoiltForEver within 500 by "liveness";
    late_after_read: LateAfterRead within 1000 by "output" | "transactions";
    overtaking_items: OvertakingItems within 200 by "alignment";
    files_before_pointer: FilesBeforePointer within 200 by "reachable";
    // BC-06, BC-55
    sweep_overlooks_metadata: SweepOverlooksMetadata within 500 by "leaks";
    // BC-01
    discard_ignored: DiscardIgnored within 300 by "ownership";
    // BC-15
    commit_twice: CommitTwice within 200 by "transactions";
}

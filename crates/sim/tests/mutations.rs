//! Known bugs are put back in, and the simulator finds each: otherwise its silence means nothing.

use clap::Parser;
use tidegate_sim::{Arguments, Failure, Focus, Kill, Mutation, Options, run};

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

/// Follows the command that a failure prints.
fn replay(failure: &Failure) -> Box<Failure> {
    let text = failure.to_string();
    let (_, command) = text.split_once("-- ").expect("a command is printed");
    let words = std::iter::once("tidegate-sim").chain(command.split_whitespace());
    let arguments = Arguments::try_parse_from(words).expect("the command is understood");
    let seeds: Vec<u64> = arguments.seeds().collect();
    assert_eq!(seeds, [failure.seed]);
    assert!(arguments.trace);
    let again = run(failure.seed, arguments.options(|_| {}));
    again.expect_err("the same happens again")
}

// Whatever led to a failure, the one line that it prints leads there again.
#[test]
fn the_printed_command_replays_the_failure() {
    let kills = [None, Some(Kill::Process(40)), Some(Kill::Subtask(25))];
    let focuses = [None, Some(Focus::LostOutcomes), Some(Focus::Clocks)];
    for (kill, focus) in kills
        .into_iter()
        .flat_map(|kill| focuses.map(|focus| (kill, focus)))
    {
        for fault_steps in [None, Some(2_500)] {
            let options = || Options {
                mutation: Some(Mutation::CommitOnAck),
                focus,
                kill,
                fault_steps,
                trace: None,
            };
            let failure = (0..100).find_map(|seed| run(seed, options()).err());
            let failure = failure.expect("the bug is found");
            assert_eq!(replay(&failure), failure);
        }
    }
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
    forget_earlier_transactions: ForgetEarlierTransactions within 300 by
        "transactions" | "output" | "cut";
    // A job that knows what it has lost refuses to go on, for ever.
    drop_before_pointer: DropBeforePointer within 500 by
        "announced" | "restorable" | "liveness" | "ownership" | "reachable";
    // BC-02
    unknown_is_not_done: UnknownIsNotDone within 500 by "restorable" | "reachable" | "announced";
    no_blocking: NoBlocking within 200 by "alignment";
    // BC-24
    stale_notice: StaleNotice within 300 by "transactions";
    // BC-10
    volatile_id_counter: VolatileIdCounter within 200 by "ids";
    seals_lost_on_abort: SealsLostOnAbort within 500 by "transactions";
    barrier_overtakes_batch: BarrierOvertakesBatch within 200 by "alignment" | "output" | "cut";
    // BC-14
    restore_forgets_commit: RestoreForgetsCommit within 500 by "output" | "transactions";
    pointer_reported_early: PointerReportedEarly within 200 by "announced";
    split_from_start: SplitFromStart within 200 by "output" | "cut";
    // RS-02
    first_file_only: FirstFileOnly within 500 by "output" | "cut";
    // BC-26
    stop_without_join: StopWithoutJoin within 500 by "attempts";
    spoilt_for_ever: SpoiltForEver within 500 by "liveness";
    late_after_read: LateAfterRead within 1000 by
        "output" | "transactions" | "cut" | "restorable";
    overtaking_items: OvertakingItems within 200 by "alignment";
    files_before_pointer: FilesBeforePointer within 200 by "reachable";
    // BC-06, BC-55
    sweep_overlooks_metadata: SweepOverlooksMetadata within 500 by "leaks";
    // BC-01
    discard_ignored: DiscardIgnored within 300 by "ownership";
    // BC-15
    commit_twice: CommitTwice within 200 by "transactions";
    broadcast_skips_one: BroadcastSkipsOne within 200 by "output" | "cut";
    trigger_repeated: TriggerRepeated within 200 by "alignment";
    // BC-12, BC-14
    latest_overlooked: LatestOverlooked within 300 by "announced" | "cut";
    // BC-24, BC-26: only that what it sends is ignored keeps a dead attempt from doing harm.
    ghost_believed: GhostBelieved within 500 by "output" | "reachable" | "ownership" | "cut";
    // CC-16
    duplicate_ack_discarded: DuplicateAckDiscarded within 200 by
        "ownership" | "reachable" | "restorable";
    // IT-04
    abort_not_told: AbortNotTold within 200 by "outcomes";
    // BC-57
    ends_twice: EndsTwice within 200 by "outcomes";
    // IT-03
    announced_twice: AnnouncedTwice within 200 by "announced";
    answered_twice: AnsweredTwice within 200 by "requests";
    // BC-44
    split_dealt_twice: SplitDealtTwice within 200 by "restored";
    // BC-07
    min_pause_ignored: MinPauseIgnored within 300 by "min_pause";
    concurrency_ignored: ConcurrencyIgnored within 300 by "concurrency";
    // BC-57
    interval_ignored: IntervalIgnored within 300 by "bursts";
    savepoint_committed: SavepointCommitted within 200 by "announced";
    savepoint_subsumed: SavepointSubsumed within 200 by "savepoints";
    // BC-22
    stop_forgotten: StopForgotten within 300 by "announced";
    origin_dropped: OriginDropped within 300 by "savepoints";
    claimed_is_kept: ClaimedIsKept within 300 by "leaks";
    failure_unanswered: FailureUnanswered within 200 by "requests";
    // BC-21
    source_runs_on: SourceRunsOn within 200 by "alignment";
    commit_reported_early: CommitReportedEarly within 200 by "leaks" | "stopped" | "output";
    savepoint_in_namespace: SavepointInNamespace within 200 by "savepoints" | "ownership";
    folder_unawaited: FolderUnawaited within 200 by "savepoints";
    deletions_unawaited: DeletionsUnawaited within 300 by "deletions";
    // BC-12
    retention_ignored: RetentionIgnored within 300 by "retention";
    // RX-01
    shared_file_deleted: SharedFileDeleted within 200 by "reachable";
    // RX-09
    base_not_held: BaseNotHeld within 300 by "restorable" | "reachable" | "cut";
    shared_file_dropped_twice: SharedFileDroppedTwice within 200 by "ownership";
    // RX-04
    unknown_file_accepted: UnknownFileAccepted within 300 by "restorable" | "reachable" | "cut";
    // RX-01: after the second drop they are gone.
    shared_file_forgotten: SharedFileForgotten within 200 by "ownership";
    end_unrecorded: EndUnrecorded within 200 by "ends";
    parallelism_overlooked: ParallelismOverlooked within 300 by "parallelism";
}

//! One test per behaviour, in the language of the [harness](super::harness).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tidegate_types::AlignmentMode::{AtLeastOnce, ExactlyOnce};
use tidegate_types::{CheckpointId, SnapshotKind};

use super::harness::{Subtask, barrier};
use super::{Alignment, ChannelIndex, EARLY_ABORTS_MAX, StreamCorrupt, TRACKED_MAX};

fn exactly_once(channels: u32) -> Subtask {
    Subtask::new(ExactlyOnce, channels)
}

fn at_least_once(channels: u32) -> Subtask {
    Subtask::new(AtLeastOnce, channels)
}

// AL-01, AL-02, K12
#[test]
fn data_passes_in_order_without_barriers() {
    assert_eq!(exactly_once(1).run("0:a 0:b 0:c"), "0:a 0:b 0:c");
    let mut subtask = exactly_once(4);
    let script = "2:a 1:b 2:$ 0:c 3:d 1:$ 0:$ 3:$";
    assert_eq!(subtask.run(script), "2:a 1:b 0:c 3:d");
    assert!(subtask.is_settled());
}

// AL-03, K13
#[test]
fn one_channel_snapshots_right_at_each_barrier() {
    let mut subtask = exactly_once(1);
    let events = subtask.run("0:a 0:#1 0:b 0:#2 0:#3 0:c 0:#4 0:#5 0:d 0:#6 0:e");
    assert_eq!(events, "0:a S1 0:b S2 S3 0:c S4 S5 0:d S6 0:e");
    assert_eq!(subtask.alignment_times(), [0; 6]);
    assert_eq!(subtask.alignment.latest(), CheckpointId(6));
}

// AL-04, AL-05, K2, K5
#[test]
fn blocked_channels_wait_and_keep_their_order() {
    let mut subtask = exactly_once(3);
    let events = subtask.run("0:a 1:b 0:#1 0:c 0:d 1:e 1:#1 1:f 2:g");
    assert_eq!(events, "0:a 1:b 1:e 2:g");
    assert_eq!(subtask.blocked(), [0, 1]);
    assert_eq!(subtask.run("2:#1"), "S1 0:c 0:d 1:f");
    assert!(subtask.is_settled());
    assert_eq!(subtask.run("2:#2 0:#2 1:#2"), "S2", "an empty checkpoint");
    let events = subtask.run("1:#3 1:h 0:i 0:#3 0:j 2:k 2:#3 2:#4 0:#4 1:l 1:#4 2:m");
    assert_eq!(events, "0:i 2:k S3 1:h 0:j 1:l S4 2:m");
    assert!(subtask.is_settled());
}

// AL-06: the delay from creation to first barrier and the bytes are the caller's to count.
#[test]
fn alignment_lasts_from_first_to_last_barrier() {
    let mut subtask = exactly_once(3);
    subtask.run("0:a 0:#1 1:b 1:#1 2:c 2:#1");
    assert_eq!(subtask.alignment_times(), [4]);
}

// AL-07, K6
#[test]
fn a_newer_barrier_subsumes_the_alignment() {
    let mut subtask = exactly_once(3);
    assert_eq!(subtask.run("0:#2 1:#2 0:a 1:b"), "");
    assert_eq!(subtask.run("2:#3"), "A2<3 0:a 1:b");
    assert_eq!(subtask.blocked(), [2]);
    assert_eq!(subtask.run("2:c 0:#4"), "A3<4 2:c");
    assert_eq!(subtask.blocked(), [0]);
    assert_eq!(subtask.run("1:#4 2:#4"), "S4");
    assert!(subtask.is_settled());
}

// AL-08, K7
#[test]
fn a_trailing_barrier_is_ignored() {
    let mut subtask = exactly_once(3);
    assert_eq!(subtask.run("2:#3 0:#2 0:a"), "0:a");
    assert_eq!(subtask.blocked(), [2]);
    assert_eq!(subtask.run("0:#3 1:#2 1:b 1:#3"), "1:b S3");
}

// AL-09, SC-12, K9
#[test]
fn one_channel_follows_cancels() {
    let mut subtask = exactly_once(1);
    assert_eq!(subtask.run("0:~4 0:#5 0:~6"), "A4 S5 A6");
    assert_eq!(subtask.alignment.latest(), CheckpointId(6));
}

// AL-10, SC-12
#[test]
fn a_cancel_ends_the_alignment() {
    let mut subtask = exactly_once(3);
    assert_eq!(subtask.run("0:#2 1:#2 0:a 2:~2"), "A2 0:a");
    assert!(subtask.is_settled());
    assert_eq!(subtask.run("0:#3 1:#3 2:#3"), "S3");
}

// AL-11
#[test]
fn barriers_of_a_cancelled_checkpoint_neither_block_nor_trigger() {
    let mut subtask = exactly_once(3);
    assert_eq!(subtask.run("0:~4 1:#4 1:a 2:#4 2:b"), "A4 1:a 2:b");
    assert!(subtask.is_settled());
}

// AL-12
#[test]
fn several_cancels_abort_once() {
    let mut subtask = exactly_once(3);
    assert_eq!(subtask.run("0:~4 1:~4 0:~4 2:#4 2:a"), "A4 2:a");
    assert!(subtask.is_settled());
}

// AL-13
#[test]
fn a_cancel_of_a_subsumed_checkpoint_is_ignored() {
    let mut subtask = exactly_once(2);
    assert_eq!(subtask.run("0:#3 1:#5 0:~3 0:a"), "A3<5 0:a");
    assert_eq!(subtask.blocked(), [1]);
    assert_eq!(subtask.run("0:#5"), "S5");
}

// AL-14, AL-22
#[test]
fn a_cancel_of_a_newer_checkpoint_aborts_both() {
    let mut subtask = exactly_once(2);
    let events = subtask.run("0:#1 0:a 1:~3 0:~2 0:~3 1:b");
    assert_eq!(events, "A1 A3 0:a 1:b");
    assert!(subtask.is_settled());
    assert_eq!(exactly_once(2).run("0:#1 1:~2 0:a"), "A1 A2 0:a");
}

// AL-15, AL-19
#[test]
fn closed_channels_count_as_having_delivered() {
    let mut subtask = exactly_once(4);
    assert_eq!(subtask.run("0:$ 1:$ 2:#1 2:a 3:#1"), "S1 2:a");
    assert_eq!(subtask.run("3:#2 2:#2"), "S2");
    assert_eq!(subtask.run("3:$ 2:#3 2:b 2:#4"), "S3 2:b S4");
    assert!(subtask.is_settled());
}

// AL-16
#[test]
fn closing_the_last_outstanding_channel_completes() {
    let mut subtask = exactly_once(3);
    assert_eq!(subtask.run("0:#1 1:#1 0:a 2:b 2:$"), "2:b S1 0:a");
    assert_eq!(subtask.alignment_times(), [4]);
}

// AL-17
#[test]
fn a_channel_that_delivered_and_closed_counts_once() {
    let mut subtask = exactly_once(3);
    assert_eq!(subtask.run("0:#1 0:$ 1:#1"), "");
    assert_eq!(subtask.run("2:#1"), "S1");

    let mut subtask = exactly_once(3);
    subtask.run("0:#1 0:a");
    let mut actions = Vec::new();
    for _ in 0..2 {
        // Told out of band, and twice.
        let closed = ChannelIndex(0);
        subtask
            .alignment
            .on_channel_closed(closed, Duration::ZERO, &mut actions);
    }
    assert_eq!(actions, []);
    assert_eq!(subtask.blocked(), [0], "what it had queued still waits");
    assert_eq!(subtask.run("1:#1 2:#1"), "S1 0:a");
}

// AL-21, K8
#[test]
fn a_repeated_barrier_is_corrupt() {
    let repeated = |channel, checkpoint| StreamCorrupt::Repeated {
        channel: ChannelIndex(channel),
        checkpoint: CheckpointId(checkpoint),
    };
    for mode in [ExactlyOnce, AtLeastOnce] {
        let error = Subtask::new(mode, 2).try_run("0:#1 1:#1 0:#1").unwrap_err();
        assert_eq!(error, repeated(0, 1));
        assert_eq!(
            error.to_string(),
            "`channel-0` delivered the barrier of `chk-1` twice"
        );
        let error = Subtask::new(mode, 1).try_run("0:#1 0:#1").unwrap_err();
        assert_eq!(error, repeated(0, 1));
    }
    let mut actions = Vec::new();
    let mut alignment = exactly_once(2).alignment;
    let mut deliver =
        || alignment.on_barrier(ChannelIndex(0), barrier(1), Duration::ZERO, &mut actions);
    assert_eq!(deliver(), Ok(()));
    assert_eq!(deliver(), Err(repeated(0, 1)), "also while blocked");
    assert_eq!(at_least_once(2).try_run("0:#1 0:#1"), Err(repeated(0, 1)));
}

// AL-21
#[test]
fn other_impossible_barriers_are_corrupt() {
    let channel = ChannelIndex(0);
    let error = exactly_once(1).try_run("0:#3 0:#2").unwrap_err();
    let (checkpoint, previous) = (CheckpointId(2), CheckpointId(3));
    assert_eq!(
        error,
        StreamCorrupt::Backwards {
            channel,
            checkpoint,
            previous
        }
    );
    let error = exactly_once(2).try_run("0:$ 0:#2").unwrap_err();
    assert_eq!(
        error,
        StreamCorrupt::AfterClose {
            channel,
            checkpoint
        }
    );
    let mut subtask = exactly_once(2);
    subtask.run("1:#2");
    let mut savepoint = barrier(2);
    savepoint.kind = SnapshotKind::Savepoint;
    let error = subtask
        .alignment
        .on_barrier(channel, savepoint, Duration::ZERO, &mut Vec::new())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`channel-0` delivered the barrier of `chk-2` as `Savepoint`, another channel as \
         `Checkpoint`"
    );
}

#[test]
#[should_panic(expected = "an item was taken from `channel-0`, which waits for `chk-1`")]
fn reading_a_blocked_channel_is_a_bug_of_the_caller() {
    let mut subtask = exactly_once(2);
    subtask.run("0:#1");
    let mut actions = Vec::new();
    subtask
        .alignment
        .on_cancel(ChannelIndex(0), CheckpointId(2), &mut actions);
}

// BL-03, BL-04: queued behind a block are data, the next barriers, cancels and the close.
#[test]
fn what_is_queued_behind_a_block_is_handled_afterwards() {
    let mut subtask = exactly_once(2);
    let events = subtask.run("0:#1 0:a 0:#2 0:b 0:~3 0:c 0:#4 0:d 0:$ 1:#1");
    assert_eq!(events, "S1 0:a");
    assert_eq!(subtask.run("1:e 1:#2"), "1:e S2 0:b A3 0:c");
    assert_eq!(subtask.run("1:#3 1:f 1:#4 1:$"), "1:f S4 0:d");
    assert!(subtask.is_settled());
}

#[test]
fn tells_what_it_is_waiting_for() {
    let mut subtask = exactly_once(4);
    assert_eq!(subtask.alignment.waiting_for(), None);
    assert_eq!(subtask.alignment.latest(), CheckpointId::NONE);
    subtask.run("3:$ 1:#7");
    let outstanding = vec![ChannelIndex(0), ChannelIndex(2)];
    let expected = Some((CheckpointId(7), outstanding));
    assert_eq!(subtask.alignment.waiting_for(), expected);
    assert!(subtask.alignment.blocked_any());
}

// TR-01
#[test]
fn counting_one_channel_triggers_at_each_barrier() {
    let mut subtask = at_least_once(1);
    assert_eq!(subtask.run("0:#1 0:#3 0:#4 0:#6"), "S1 S3 S4 S6");
}

// TR-02
#[test]
fn counting_never_holds_data_back() {
    let mut subtask = at_least_once(3);
    let events = subtask.run("0:#1 0:a 2:#1 2:b 1:c 0:d 1:#1 1:e");
    assert_eq!(events, "0:a 2:b 1:c 0:d S1 1:e");
    assert!(subtask.is_settled());
}

// TR-03
#[test]
fn counting_drops_a_skipped_checkpoint_silently() {
    let mut subtask = at_least_once(3);
    assert_eq!(subtask.run("0:#3 0:#4 1:#4 2:#4"), "S4");
    assert!(subtask.is_settled());
}

// TR-04
#[test]
fn counting_completes_several_in_order() {
    let mut subtask = at_least_once(3);
    let events = subtask.run("0:#2 0:#3 1:#3 0:#4 1:#4 2:#3 2:#4");
    assert_eq!(events, "S3 S4");
    assert!(subtask.is_settled());
}

// TR-05, SC-12
#[test]
fn counting_aborts_once_per_cancelled_checkpoint() {
    assert_eq!(at_least_once(1).run("0:~1 0:#2 0:~3"), "A1 S2 A3");
    let mut subtask = at_least_once(3);
    let events = subtask.run("0:#1 1:~1 2:#1 0:~2 1:#2 2:~2 0:#3 1:#3 2:#3");
    assert_eq!(events, "A1 A2 S3");
    assert!(subtask.is_settled());
    let interleaved = at_least_once(2).run("0:#1 0:~2 1:~1 1:~2");
    assert_eq!(interleaved, "A1 A2");
}

// TR-06
#[test]
fn counting_triggers_only_the_newest_that_a_close_completes() {
    let mut subtask = at_least_once(3);
    assert_eq!(subtask.run("0:#1 1:#1 0:#2 1:#2 0:#3 2:$"), "S2");
    let waiting = Some((CheckpointId(3), vec![ChannelIndex(1)]));
    assert_eq!(subtask.alignment.waiting_for(), waiting);
    assert_eq!(subtask.run("1:#3"), "S3");
}

// TR-07
#[test]
fn counting_triggers_nothing_for_an_aborted_checkpoint_at_a_close() {
    let mut subtask = at_least_once(3);
    assert_eq!(subtask.run("0:#1 1:~1 2:$"), "A1");
    assert!(subtask.is_settled());
}

// TR-08, TR-09
#[test]
fn counting_with_one_channel_left_still_settles_the_pending_checkpoint() {
    let mut subtask = at_least_once(2);
    assert_eq!(subtask.run("0:#1 0:$ 1:#1"), "S1");
    assert!(subtask.is_settled());
    let mut subtask = at_least_once(2);
    assert_eq!(subtask.run("0:#1 0:$ 1:~1"), "A1");
    assert!(subtask.is_settled());
    let mut subtask = at_least_once(2);
    assert_eq!(subtask.run("0:#1 0:$ 1:#2"), "S2", "1 was skipped");
    assert!(subtask.is_settled());
}

// TR-10
#[test]
fn counting_measures_each_alignment_by_itself() {
    let mut subtask = at_least_once(2);
    assert_eq!(subtask.run("0:#1 0:a 0:#2 1:#1 1:#2"), "0:a S1 S2");
    assert_eq!(subtask.alignment_times(), [3, 2]);
    let mut subtask = at_least_once(2);
    assert_eq!(subtask.run("0:#1 0:#2 1:~1 0:a 1:#2"), "A1 0:a S2");
    assert_eq!(subtask.alignment_times(), [3]);
}

// K3
#[test]
fn counting_is_bounded() {
    let mut subtask = at_least_once(2);
    for id in 1..=TRACKED_MAX as u64 {
        assert_eq!(subtask.run(&format!("0:#{id}")), "");
    }
    assert_eq!(subtask.run("0:#51"), "A1<51");
    assert_eq!(subtask.run("1:#1 1:#2 1:#51"), "S2 S51");
    assert!(subtask.is_settled());
}

// SC-01
#[test]
fn an_abort_ahead_of_its_barrier_is_carried_out_once() {
    for mode in [ExactlyOnce, AtLeastOnce] {
        let mut subtask = Subtask::new(mode, 2);
        assert_eq!(subtask.run("*~42 *~42 0:a"), "0:a");
        assert_eq!(subtask.alignment.early_aborts.len(), 1);
        assert_eq!(subtask.run("0:#42 0:b 1:#42 1:c"), "A42 0:b 1:c");
        assert_eq!(subtask.alignment.early_aborts.len(), 0);
        assert!(subtask.is_settled());
        assert_eq!(subtask.run("0:#43 1:#43"), "S43");
        assert_eq!(
            subtask.run("*~44 0:~44 1:#44"),
            "A44",
            "notice, then cancel"
        );
        assert_eq!(Subtask::new(mode, 1).run("*~1 0:#1 0:#2"), "A1 S2");
    }
}

// SC-01: the older alignment can't complete either, since the channel has skipped it.
#[test]
fn a_barrier_aborted_ahead_still_subsumes_an_older_alignment() {
    let mut subtask = exactly_once(2);
    assert_eq!(subtask.run("0:#1 0:a *~2 1:#2"), "A1<2 A2 0:a");
    assert!(subtask.is_settled());
}

// SC-04
#[test]
fn remembered_aborts_are_bounded() {
    let mut subtask = exactly_once(2);
    for id in 1..=300 {
        subtask.run(&format!("*~{id}"));
    }
    assert_eq!(subtask.alignment.early_aborts.len(), EARLY_ABORTS_MAX);
    assert_eq!(subtask.run("0:#300 1:#300"), "A300");
    assert_eq!(subtask.alignment.early_aborts.len(), 0);
}

// SC-08
#[test]
fn an_abort_notice_releases_the_alignment_at_once() {
    let mut subtask = exactly_once(2);
    assert_eq!(subtask.run("0:#42 0:a *~42"), "A42 0:a");
    assert!(subtask.is_settled());
    assert_eq!(subtask.run("*~42 1:#42 1:b 0:#43 1:#43"), "1:b S43");
}

#[test]
fn an_abort_notice_while_counting_leaves_older_checkpoints_alone() {
    let mut subtask = at_least_once(2);
    assert_eq!(subtask.run("0:#1 0:#2 *~2 1:#1 1:#2"), "A2 S1");
    assert!(subtask.is_settled());
}

// SC-03: what was snapshotted is no longer the alignment's concern.
#[test]
fn an_abort_notice_after_the_snapshot_is_ignored() {
    let mut subtask = exactly_once(2);
    assert_eq!(subtask.run("0:#1 1:#1 *~1 0:#2 *~1"), "S1");
    assert_eq!(subtask.alignment.early_aborts.len(), 0);
    assert_eq!(subtask.blocked(), [0]);
}

// BC-37: whatever the order of barriers, cancel and notice, nothing stays pending.
#[test]
fn racing_aborts_leave_nothing_behind() {
    let items = ["0:#1", "1:~1", "*~1"];
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for mode in [ExactlyOnce, AtLeastOnce] {
        for order in orders {
            let mut subtask = Subtask::new(mode, 2);
            let script = order.map(|index| items[index]).join(" ");
            assert_eq!(subtask.run(&script), "A1", "{script}");
            assert!(subtask.is_settled(), "{script}");
            assert_eq!(subtask.run("0:a 0:#2 1:#2"), "0:a S2", "{script}");
        }
    }
}

/// Whether `check_invariants` notices what `spoil` does while channel 0 of two is blocked for 7.
fn notices(spoil: impl FnOnce(&mut Alignment)) -> bool {
    let mut subtask = exactly_once(2);
    subtask.run("0:#7");
    let mut alignment = subtask.alignment;
    spoil(&mut alignment);
    let check = || alignment.check_invariants();
    catch_unwind(AssertUnwindSafe(check)).is_err()
}

// What random streams are checked against is worth something only if it can fail.
#[test]
fn broken_invariants_are_noticed() {
    assert!(!notices(|_| {}));
    assert!(notices(|alignment| alignment.blocked_count = 2));
    assert!(notices(|alignment| alignment.open_count = 1));
    assert!(notices(|alignment| alignment.latest = CheckpointId(6)));
    assert!(notices(|alignment| alignment.pending.clear()));
    assert!(notices(|alignment| alignment.channels[1].closed = true));
    // An arrival that was counted, but not where it came from, and one that wasn't counted.
    assert!(notices(|alignment| {
        alignment.pending[0].arrive(ChannelIndex(1));
        alignment.channels[1].latest_barrier = CheckpointId(7);
        alignment.block(ChannelIndex(1));
    }));
    assert!(notices(|alignment| {
        let closed = [false; 2].into_iter();
        alignment.pending[0] = super::Pending::new(barrier(7), Duration::ZERO, closed);
    }));
    assert!(notices(|alignment| {
        alignment.early_aborts.insert(CheckpointId(7));
    }));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "left: 2")]
fn every_event_checks_the_invariants_in_debug_builds() {
    let mut subtask = exactly_once(2);
    subtask.alignment.blocked_count = 2;
    subtask.run("*~42");
}

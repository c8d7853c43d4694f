//! What an acknowledgement says about how a subtask spent its time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_runtime::wall_clock;
use tidegate_types::message::{Notice, Report, SnapshotMetrics};
use tidegate_types::{
    AlignmentMode, CheckpointBarrier, CheckpointId, SnapshotKind, SubtaskId, UnixMillis,
};

use crate::held_back::two_sources;
use crate::pipelines::wait_until;
use crate::support::{Driven, Gate, Numbers, Options, PATIENCE, barrier};

fn measures(driven: &Driven, wanted: u64) -> BTreeMap<SubtaskId, SnapshotMetrics> {
    let mut measures = BTreeMap::new();
    while measures.len() < driven.subtasks() {
        match driven.next_report() {
            Report::Acknowledged {
                checkpoint,
                subtask,
                metrics,
                ..
            } if checkpoint == CheckpointId(wanted) => {
                measures.insert(subtask, metrics);
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    measures
}

/// A sender is held up with its barrier, and has records left to send before it.
fn measured_alignment(mode: AlignmentMode) {
    let (gate, limit) = (Gate::default(), Arc::new(Mutex::new(0)));
    let limited = Numbers {
        limit: Some(Arc::clone(&limit)),
        ..Numbers::endless()
    };
    let b = Numbers {
        reader_gate: gate.clone(),
        ..limited.clone()
    };
    let options = Options {
        mode,
        ..Options::default()
    };
    let mut driven = Driven::start(two_sources(limited, b), options);
    let (late, count) = (driven.subtask("b[1]"), driven.subtask("count[0]"));
    wait_until(|| driven.metrics.records_in(late) > 0);
    gate.close();
    wait_until(|| gate.waiting() == 1);
    // A stop, so that the others take none of what the late one is then allowed to send.
    driven.notify(Notice::Trigger(CheckpointBarrier {
        kind: SnapshotKind::StopWithSavepoint { drain: false },
        created: UnixMillis(wall_clock().0 - 5000),
        ..barrier(3)
    }));
    let arrived = || {
        let channels = driven.metrics.channels(count);
        channels.filter(|(_, id)| *id == CheckpointId(3)).count()
    };
    wait_until(|| arrived() == 2);
    *limit.lock().unwrap() = 100;
    gate.open();

    let measures = measures(&driven, 3);
    driven.stop();
    let between = driven.metrics.records_in(count);
    assert!(between > 0);
    for (subtask, measured) in &measures {
        assert!(
            measured.start_delay >= Duration::from_secs(5),
            "{measured:?}"
        );
        assert!(measured.start_delay < Duration::from_secs(5) + PATIENCE);
        let bytes = if *subtask == count { between * 8 } else { 0 };
        assert_eq!(measured.alignment_bytes, bytes, "{subtask}");
        assert_eq!(measured.alignment > Duration::ZERO, *subtask == count);
    }
}

// AL-06, J10
#[test]
fn delay_and_alignment_are_measured() {
    measured_alignment(AlignmentMode::ExactlyOnce);
}

#[test]
fn delay_and_alignment_are_measured_at_least_once() {
    measured_alignment(AlignmentMode::AtLeastOnce);
}

// AL-06: wall clocks of different machines disagree.
#[test]
fn a_trigger_from_the_future_has_no_delay() {
    let mut driven = Driven::start(
        two_sources(Numbers::endless(), Numbers::endless()),
        Options::default(),
    );
    driven.notify(Notice::Trigger(CheckpointBarrier {
        created: UnixMillis(wall_clock().0 + 3_600_000),
        ..barrier(3)
    }));
    for measured in measures(&driven, 3).values() {
        assert_eq!(measured.start_delay, Duration::ZERO);
    }
    driven.stop();
}

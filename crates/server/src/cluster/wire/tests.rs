//! Whatever the domain can say arrives as it was, and what nobody would say is refused.

use std::time::Duration;

use proptest::prelude::*;
use prost::Message;
use tidegate_types::message::{
    AddressedReport, DeclineReason, FailureOrigin, Report as Said, RestoredFiles, SnapshotMetrics,
    SubtaskFailure,
};
use tidegate_types::{
    AttemptNumber, CheckpointBarrier, CheckpointId, FileHandle, KeyGroupRange, KeyedPiece,
    KeyedStateHandle, ListState as List, Redistribution, SnapshotFormat, SnapshotKind,
    SnapshotLocation, SubtaskRestore as Restore, SubtaskState, UnixMillis,
};

use super::*;

fn id() -> impl Strategy<Value = CheckpointId> {
    any::<u64>().prop_map(CheckpointId)
}

fn subtask() -> impl Strategy<Value = SubtaskId> {
    any::<(u32, u32)>().prop_map(|(operator, index)| SubtaskId {
        operator: OperatorId(operator),
        index,
    })
}

fn range() -> impl Strategy<Value = KeyGroupRange> {
    any::<(u16, u16)>().prop_map(|(a, b)| KeyGroupRange {
        start: a.min(b),
        end: a.max(b),
    })
}

fn piece() -> impl Strategy<Value = KeyedPiece> {
    prop_oneof![
        any::<(String, u64, u32)>().prop_map(|(name, bytes, crc32c)| {
            KeyedPiece::File(FileHandle {
                name,
                bytes,
                crc32c,
            })
        }),
        any::<Vec<u8>>().prop_map(|bytes| KeyedPiece::Inline(bytes.into())),
    ]
}

fn keyed() -> impl Strategy<Value = KeyedStateHandle> {
    let pieces = prop::collection::vec(piece(), 0..3);
    (pieces, range()).prop_map(|(pieces, key_groups)| KeyedStateHandle { pieces, key_groups })
}

fn list() -> impl Strategy<Value = List> {
    let redistribution = prop::sample::select(vec![
        Redistribution::Split,
        Redistribution::Union,
        Redistribution::Broadcast,
    ]);
    let elements = prop::collection::vec(any::<Vec<u8>>(), 0..3);
    (any::<String>(), redistribution, elements).prop_map(|(name, redistribution, elements)| List {
        name,
        redistribution,
        elements,
    })
}

fn state() -> impl Strategy<Value = SubtaskState> {
    let lists = prop::collection::vec(list(), 0..3);
    (prop::option::of(keyed()), lists, any::<bool>()).prop_map(|(keyed, lists, finished)| {
        SubtaskState {
            keyed,
            lists,
            finished,
        }
    })
}

fn metrics() -> impl Strategy<Value = SnapshotMetrics> {
    any::<[u32; 5]>().prop_map(|[a, b, c, d, e]| SnapshotMetrics {
        start_delay: Duration::from_micros(a.into()),
        alignment: Duration::from_micros(b.into()),
        alignment_bytes: c.into(),
        sync: Duration::from_micros(d.into()),
        write: Duration::from_micros(e.into()),
    })
}

fn reason() -> impl Strategy<Value = DeclineReason> {
    prop_oneof![
        Just(DeclineReason::NotReady),
        id().prop_map(|latest| DeclineReason::Superseded { latest }),
        id().prop_map(|newer| DeclineReason::SubsumedByBarrier { newer }),
        Just(DeclineReason::CancelledUpstream),
        any::<String>().prop_map(|cause| DeclineReason::SnapshotFailed { cause }),
        any::<String>().prop_map(|cause| DeclineReason::WriteFailed { cause }),
    ]
}

fn origin() -> impl Strategy<Value = FailureOrigin> {
    prop_oneof![
        Just(FailureOrigin::Here),
        any::<u32>().prop_map(|process| FailureOrigin::Peer { process }),
    ]
}

fn report() -> impl Strategy<Value = Said> {
    prop_oneof![
        subtask().prop_map(|subtask| Said::Running { subtask }),
        subtask().prop_map(|subtask| Said::SourceEnded { subtask }),
        (id(), subtask(), state(), metrics()).prop_map(|(checkpoint, subtask, state, metrics)| {
            Said::Acknowledged {
                checkpoint,
                subtask,
                state,
                metrics,
            }
        }),
        (id(), subtask(), reason()).prop_map(|(checkpoint, subtask, reason)| Said::Declined {
            checkpoint,
            subtask,
            reason,
        }),
        (id(), subtask()).prop_map(|(checkpoint, subtask)| Said::Committed {
            checkpoint,
            subtask,
        }),
        any::<[u64; 4]>().prop_map(|[files, bytes, local_files, local_bytes]| {
            Said::Restored(RestoredFiles {
                files,
                bytes,
                local_files,
                local_bytes,
            })
        }),
        (prop::option::of(subtask()), origin(), any::<String>()).prop_map(
            |(subtask, origin, cause)| Said::Failed(SubtaskFailure {
                subtask,
                origin,
                cause
            })
        ),
    ]
}

fn barrier() -> impl Strategy<Value = CheckpointBarrier> {
    let kind = prop::sample::select(vec![
        SnapshotKind::Checkpoint,
        SnapshotKind::Final,
        SnapshotKind::Savepoint,
        SnapshotKind::StopWithSavepoint { drain: false },
        SnapshotKind::StopWithSavepoint { drain: true },
    ]);
    let format = prop::sample::select(vec![
        SnapshotFormat::Canonical,
        SnapshotFormat::Full,
        SnapshotFormat::Incremental,
    ]);
    let location = prop::option::of("file:///[a-z/]{0,10}[a-z]");
    (
        id(),
        kind,
        format,
        prop::option::of(id()),
        location,
        any::<u64>(),
    )
        .prop_map(
            |(checkpoint, kind, format, base, location, created)| CheckpointBarrier {
                checkpoint,
                kind,
                format,
                base,
                location: location.map(|url| SnapshotLocation::new(&url)),
                created: UnixMillis(created),
            },
        )
}

fn over_the_wire<M: Message + Default>(message: M) -> M {
    M::decode(&*message.encode_to_vec()).unwrap()
}

proptest! {
    #[test]
    fn reports_arrive_as_they_were(report in report(), attempt: u64) {
        let attempt = AttemptNumber(attempt);
        let sent = AddressedReport { attempt, report };
        let message = over_the_wire(Report::from(sent.clone()));
        prop_assert_eq!(AddressedReport::try_from(message), Ok(sent));
    }

    #[test]
    fn notices_arrive_as_they_were(barrier in barrier(), id in id(), latest in id()) {
        for sent in [
            tidegate_types::message::Notice::Trigger(barrier.clone()),
            tidegate_types::message::Notice::Completed { checkpoint: id },
            tidegate_types::message::Notice::Aborted {
                checkpoint: id,
                latest_completed: latest,
            },
        ] {
            let message = over_the_wire(Notice::new(AttemptNumber(id.0), sent.clone()));
            prop_assert_eq!(message.try_into(), Ok((AttemptNumber(id.0), sent)));
        }
    }

    #[test]
    fn restores_arrive_as_they_were(
        subtask in subtask(),
        key_groups in range(),
        keyed in prop::collection::vec(keyed(), 0..3),
        lists in prop::collection::vec(list(), 0..3),
        finished: bool,
    ) {
        let sent = Restore {
            key_groups,
            keyed,
            lists,
            finished,
        };
        let message = over_the_wire(SubtaskRestore::new(subtask, sent.clone()));
        prop_assert_eq!(message.try_into(), Ok((subtask, sent)));
    }

    #[test]
    fn other_bytes_are_refused_or_mean_something(bytes: Vec<u8>) {
        if let Ok(message) = Report::decode(&*bytes) {
            let _ = AddressedReport::try_from(message);
        }
        if let Ok(message) = Deployment::decode(&*bytes) {
            for restore in message.restore {
                let _ = <(SubtaskId, Restore)>::try_from(restore);
            }
        }
    }
}

#[test]
fn what_lacks_a_part_is_refused() {
    let report = Report {
        attempt: 1,
        report: None,
    };
    let bad = AddressedReport::try_from(report).unwrap_err();
    assert_eq!(
        bad.to_string(),
        "a malformed message: a report without content"
    );
    let backwards = KeyGroups { start: 2, end: 1 };
    assert!(KeyGroupRange::try_from(backwards).is_err());
    let wide = KeyGroups {
        start: 0,
        end: 1 << 16,
    };
    assert!(KeyGroupRange::try_from(wide).is_err());
}

//! The codec against its own promises: one encoding per value, every damage detected, version 1
//! readable for ever.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, HASH_ID, JobId, KeyGroupRange,
    KeyedPiece, KeyedStateHandle, ListState, MaxParallelism, OperatorCheckpoint, OperatorUid,
    Owner, Redistribution, SnapshotKind, SubtaskState, UnixMillis,
};

use super::{HEADER_BYTES, METADATA_BYTES_MAX, VERSION, decode, encode};
use crate::error::{ErrorKind, StorageError};

fn keyed(name: &str, bytes: u64, start: u16, end: u16) -> Option<KeyedStateHandle> {
    let file = FileHandle {
        name: name.to_owned(),
        bytes,
        crc32c: 0xdead_beef,
    };
    let key_groups = KeyGroupRange { start, end };
    Some(KeyedStateHandle::of_file(file, key_groups))
}

fn inline(bytes: &[u8]) -> KeyedPiece {
    KeyedPiece::Inline(bytes.into())
}

fn list(name: &str, redistribution: Redistribution, elements: &[&[u8]]) -> ListState {
    ListState {
        name: name.to_owned(),
        redistribution,
        elements: elements.iter().map(|e| e.to_vec()).collect(),
    }
}

/// What the golden file holds: every kind of field at least once.
fn golden() -> CompletedCheckpoint {
    let source = OperatorCheckpoint {
        uid: OperatorUid("lines".to_owned()),
        max_parallelism: MaxParallelism::new(128).unwrap(),
        subtasks: vec![SubtaskState {
            keyed: None,
            lists: vec![
                list("broadcast", Redistribution::Broadcast, &[b"all"]),
                list("splits", Redistribution::Split, &[b"one", b"", &[0, 255]]),
                list("union", Redistribution::Union, &[]),
            ],
            finished: true,
        }],
    };
    // Of three checkpoints, and the newest change inline.
    let mut shared = keyed("chk-30/a3-z.0-00fd.state", 1 << 40, 0, 16_383);
    let later = keyed("chk-42/a3-z.0-00ff.state", 77, 0, 16_383).unwrap();
    let pieces = &mut shared.as_mut().unwrap().pieces;
    pieces.extend(later.pieces);
    pieces.push(inline(b"\0changes"));
    let count = OperatorCheckpoint {
        uid: OperatorUid("zähler".to_owned()),
        max_parallelism: MaxParallelism::new(32_768).unwrap(),
        subtasks: vec![
            SubtaskState {
                keyed: shared,
                ..SubtaskState::default()
            },
            SubtaskState {
                keyed: keyed("chk-42/a3-z.1-00fe.state", 0, 16_384, 32_766),
                lists: Vec::new(),
                finished: true,
            },
            SubtaskState {
                keyed: Some(KeyedStateHandle {
                    pieces: Vec::new(),
                    key_groups: KeyGroupRange {
                        start: 32_767,
                        end: 32_767,
                    },
                }),
                ..SubtaskState::default()
            },
            SubtaskState::default(),
        ],
    };
    CompletedCheckpoint {
        id: CheckpointId(42),
        job: JobId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
        attempt: AttemptNumber(3),
        kind: SnapshotKind::Final,
        location: None,
        owner: Owner::Job,
        triggered_at: UnixMillis(1_700_000_000_000),
        hash_id: HASH_ID.to_owned(),
        operators: vec![source, count],
    }
}

/// FS-10. If this fails, old checkpoints can't be restored any more: write a new version instead.
#[test]
fn golden_file_of_version_1_decodes_and_encodes_identically() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/metadata-v1.bin");
    // Written once per version and never again: `UPDATE` doesn't replace what is there.
    if std::env::var_os("UPDATE").is_some() && !std::path::Path::new(path).exists() {
        std::fs::write(path, encode(&golden()).unwrap()).unwrap();
    }
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(decode(path, &bytes).unwrap(), golden());
    assert_eq!(encode(&golden()).unwrap(), bytes);
}

#[test]
fn every_truncation_is_detected() {
    let bytes = encode(&golden()).unwrap();
    for end in 0..bytes.len() {
        let error = decode("f", &bytes[..end]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "cut at {end}: {error}");
    }
}

#[test]
fn every_changed_byte_is_detected() {
    let bytes = encode(&golden()).unwrap();
    for at in 0..bytes.len() {
        for change in 1..=255 {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            let error = decode("f", &changed).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
        }
    }
}

#[test]
fn trailing_bytes_are_refused_within_and_after_the_body() {
    let bytes = encode(&golden()).unwrap();
    let after = [&bytes[..], b"\0"].concat();
    let error = decode("f", &after).unwrap_err();
    assert!(matches!(error, StorageError::WrongLength { .. }), "{error}");

    let body = [&bytes[HEADER_BYTES..], b"\0"].concat();
    let error = decode("f", &with_header(VERSION, &body)).unwrap_err();
    assert!(error.to_string().contains("1 bytes follow"), "{error}");
}

#[test]
fn a_newer_version_is_named_with_ours() {
    let error = decode("x/_metadata", &with_header(7, b"whatever")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert_eq!(
        error.to_string(),
        "`x/_metadata` has format version 7; this build of Tidegate reads version 1"
    );
}

/// Checksums that fit, lengths that lie: no wrapping, no allocation by hearsay.
#[test]
fn lying_lengths_are_refused() {
    let body = &encode(&golden()).unwrap()[HEADER_BYTES..];
    for at in 0..body.len() - 3 {
        for lie in [u32::MAX, u32::MAX / 2, 1 << 31] {
            let mut changed = body.to_vec();
            changed[at..at + 4].copy_from_slice(&lie.to_le_bytes());
            // Some positions are plain numbers, where any value is fine.
            if let Ok(decoded) = decode("f", &with_header(VERSION, &changed)) {
                assert_eq!(&encode(&decoded).unwrap()[HEADER_BYTES..], changed);
            }
        }
    }
    let mut bytes = encode(&golden()).unwrap();
    bytes[12..20].copy_from_slice(&u64::MAX.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..24]).to_le_bytes();
    bytes[24..28].copy_from_slice(&sum);
    let error = decode("f", &bytes).unwrap_err();
    assert!(matches!(error, StorageError::WrongLength { .. }), "{error}");
}

#[test]
fn what_breaks_the_rules_is_not_written() {
    let refuse = |change: fn(&mut CompletedCheckpoint)| {
        let mut checkpoint = golden();
        change(&mut checkpoint);
        let error = encode(&checkpoint).unwrap_err();
        assert!(matches!(error, StorageError::Unencodable { .. }), "{error}");
    };
    refuse(|c| c.operators[0].subtasks.clear());
    refuse(|c| c.operators[1].max_parallelism = MaxParallelism::new(2).unwrap());
    refuse(|c| c.operators[1].subtasks[0].keyed = keyed("chk-1/a.state", 1, 5, 4));
    refuse(|c| c.operators[1].subtasks[0].keyed = keyed("chk-1/a.state", 1, 5, 32_768));
    refuse(|c| c.operators[1].subtasks[0].keyed = keyed("../a.state", 1, 4, 5));
    refuse(|c| c.operators[1].subtasks[0].keyed = keyed("a.state", 1, 4, 5));
    refuse(|c| c.operators[1].subtasks[0].keyed = keyed("file:///a/b", 1, 4, 5));
    refuse(|c| {
        // Not the first of several either.
        let keyed = c.operators[1].subtasks[0].keyed.as_mut().unwrap();
        keyed.files_mut().nth(1).unwrap().name = "chk-1/../a.state".to_owned();
    });
    // In a savepoint files lie beside the metadata, and nowhere else.
    refuse(|c| c.kind = SnapshotKind::Savepoint);
}

/// USER-visible limit: state in the metadata that grows without end must not take the process with
/// it.
#[test]
fn metadata_above_the_limit_is_refused() {
    let count = (METADATA_BYTES_MAX >> 20) as usize;
    let mut listed = golden();
    let element = vec![0; 1 << 20];
    listed.operators[0].subtasks[0].lists[0].elements = vec![element; count];
    let mut keyed = golden();
    let state = keyed.operators[1].subtasks[0].keyed.as_mut().unwrap();
    state.pieces = vec![inline(&[0; 1 << 20]); count];
    for checkpoint in [listed, keyed] {
        let error = encode(&checkpoint).unwrap_err();
        assert!(
            matches!(error, StorageError::MetadataTooLarge { .. }),
            "{error}"
        );
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

fn with_header(version: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"TIDEMETA".to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn any_list() -> impl Strategy<Value = ListState> {
    let redistribution = prop_oneof![
        Just(Redistribution::Split),
        Just(Redistribution::Union),
        Just(Redistribution::Broadcast)
    ];
    let elements = vec(vec(any::<u8>(), 0..20), 0..5);
    ("\\PC{0,10}", redistribution, elements).prop_map(|(name, redistribution, elements)| {
        ListState {
            name,
            redistribution,
            elements,
        }
    })
}

fn any_subtask(max: u16) -> impl Strategy<Value = SubtaskState> {
    let range = (0..max, 0..max).prop_map(|(a, b)| KeyGroupRange {
        start: a.min(b),
        end: a.max(b),
    });
    let file = (
        "(file://(/[a-z%]{1,5}){1,3}|chk-[1-9][0-9]{0,5})/[a-zA-Z0-9=_-]{1,20}\\.state",
        any::<u64>(),
        any::<u32>(),
    );
    let file = file.prop_map(|(name, bytes, crc32c)| {
        KeyedPiece::File(FileHandle {
            name,
            bytes,
            crc32c,
        })
    });
    let inline = vec(any::<u8>(), 0..40).prop_map(|bytes| inline(&bytes));
    let pieces = vec(prop_oneof![file, inline], 0..4);
    let keyed =
        (pieces, range).prop_map(|(pieces, key_groups)| KeyedStateHandle { pieces, key_groups });
    (option::of(keyed), vec(any_list(), 0..3), any::<bool>()).prop_map(
        |(keyed, lists, finished)| SubtaskState {
            keyed,
            lists,
            finished,
        },
    )
}

fn any_operator() -> impl Strategy<Value = OperatorCheckpoint> {
    (1u16..200).prop_flat_map(|max| {
        let subtasks = vec(any_subtask(max), 1..=usize::from(max.min(4)));
        ("\\PC{0,20}", subtasks).prop_map(move |(uid, subtasks)| OperatorCheckpoint {
            uid: OperatorUid(uid),
            max_parallelism: MaxParallelism::new(max.into()).unwrap(),
            subtasks,
        })
    })
}

/// Names the files as a savepoint does.
fn beside_the_metadata(operator: &mut OperatorCheckpoint) {
    let subtasks = operator.subtasks.iter_mut();
    for keyed in subtasks.filter_map(|subtask| subtask.keyed.as_mut()) {
        for file in keyed.files_mut() {
            let name = &file.name;
            file.name = name.rsplit('/').next().unwrap_or(name).to_owned();
        }
    }
}

fn any_checkpoint() -> impl Strategy<Value = CompletedCheckpoint> {
    let kind = prop_oneof![
        Just(SnapshotKind::Checkpoint),
        Just(SnapshotKind::Final),
        Just(SnapshotKind::Savepoint),
        any::<bool>().prop_map(|drain| SnapshotKind::StopWithSavepoint { drain }),
    ];
    let ids = (any::<u64>(), any::<u128>(), any::<u64>(), any::<u64>());
    let operators = vec(any_operator(), 0..4);
    (ids, kind, "\\PC{0,12}", operators).prop_map(|(ids, kind, hash_id, mut operators)| {
        if kind.is_savepoint() {
            operators.iter_mut().for_each(beside_the_metadata);
        }
        CompletedCheckpoint {
            id: CheckpointId(ids.0),
            job: JobId(ids.1),
            attempt: AttemptNumber(ids.2),
            kind,
            location: None,
            owner: Owner::Job,
            triggered_at: UnixMillis(ids.3),
            hash_id,
            operators,
        }
    })
}

proptest! {
    #[test]
    fn checkpoints_round_trip(checkpoint in any_checkpoint()) {
        let bytes = encode(&checkpoint).unwrap();
        prop_assert_eq!(decode("f", &bytes).unwrap(), checkpoint);
    }

    #[test]
    fn arbitrary_bodies_never_panic_and_have_one_encoding(body in vec(any::<u8>(), 0..200)) {
        if let Ok(checkpoint) = decode("f", &with_header(VERSION, &body)) {
            prop_assert_eq!(&encode(&checkpoint).unwrap()[HEADER_BYTES..], &body[..]);
        }
    }
}

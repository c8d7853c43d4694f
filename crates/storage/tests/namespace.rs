//! Whose namespace it is, what numbers it gives out, and what it refuses to open.

mod support;

use std::collections::BTreeSet;

use support::{Place, message_naming};
use tidegate_storage::{ErrorKind, JobStore, NamespaceStatus, StorageError, parse_checkpoint_dir};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{AskedParallelism, AttemptNumber, CheckpointId};

#[test]
fn a_namespace_is_new_then_unfinished_then_finished() {
    let place = Place::new();
    let (store, status) = place.try_open("job").unwrap();
    assert_eq!(status, NamespaceStatus::New);
    let job = store.job();
    drop(store);

    let (store, status) = place.try_open("job").unwrap();
    assert_eq!(status, NamespaceStatus::Unfinished);
    assert_eq!(store.job(), job);
    let checkpoint = CheckpointId(7);
    assert_eq!(
        place.run(store.mark_finished(checkpoint)),
        WriteOutcome::Done
    );
    // Marking again, as a restarted driver would, is no conflict.
    assert_eq!(
        place.run(store.mark_finished(checkpoint)),
        WriteOutcome::Done
    );
    drop(store);

    let (_, status) = place.try_open("job").unwrap();
    assert_eq!(status, NamespaceStatus::Finished { checkpoint });
}

#[test]
fn the_parallelism_that_was_asked_for_outlives_its_owner() {
    let place = Place::new();
    let record = |asked: Option<AskedParallelism>| {
        let store = place.open();
        assert_eq!(
            place.run(store.record_parallelism(asked)),
            WriteOutcome::Done
        );
        drop(store);
        assert_eq!(place.run(place.open().asked_parallelism()).unwrap(), asked);
    };
    let to = |asked| Some(AskedParallelism { declared: 3, asked });
    record(None);
    record(to(5));
    record(to(4));
    record(to(4));
    record(None);
    record(None);
}

#[test]
fn a_second_owner_is_refused_and_told_what_to_do() {
    let place = Place::new();
    let store = place.open();
    let error = place.try_open("job").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    let message = message_naming(&error, &store, "lock");
    assert!(
        message.contains(&format!("by process {}", std::process::id())),
        "{message}"
    );
    assert!(message.contains("stop that run first"), "{message}");

    // Other jobs in the same directory are free, and so is this one when its last clone is gone.
    let (other, _) = place.try_open("other").unwrap();
    assert_ne!(other.job(), store.job());
    let clone = store.clone();
    drop(store);
    assert!(place.try_open("job").is_err());
    drop(clone);
    assert!(place.try_open("job").is_ok());
}

// ID-01, ID-02, ID-06
#[test]
fn attempts_are_never_reused() {
    let place = Place::new();
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let store = place.open();
        let reserved = place.run(async {
            let reserve = || store.reserve_attempt();
            tokio::join!(reserve(), reserve(), reserve())
        });
        seen.extend([reserved.0, reserved.1, reserved.2].map(Result::unwrap));
    }
    assert_eq!(seen, (1..=9).map(AttemptNumber).collect());
}

// ID-01, ID-03, ID-06
#[test]
fn checkpoint_ids_only_grow() {
    let place = Place::new();
    let store = place.open();
    assert_eq!(place.run(store.reserved_ids()).unwrap(), CheckpointId::NONE);
    assert_eq!(
        place.run(store.reserve_ids(CheckpointId(100))),
        WriteOutcome::Done
    );
    assert_eq!(
        place.run(store.reserve_ids(CheckpointId(50))),
        WriteOutcome::Done
    );
    drop(store);

    let store = place.open();
    assert_eq!(place.run(store.reserved_ids()).unwrap(), CheckpointId(100));
    // Somebody put an old counter back: what lies in the folder counts, too.
    support::write(&store, 205, "count[0]", b"late");
    assert_eq!(place.run(store.reserved_ids()).unwrap(), CheckpointId(205));
}

// BC-50
#[test]
fn odd_job_names_stay_inside_the_directory_and_apart() {
    let place = Place::new();
    let long = "x".repeat(1000);
    let names = [
        "", ".", "..", "../job", "a/b", "a b", "🦀", "a\nb\0", "=", "%41", "A", &long,
    ];
    let mut stores: Vec<JobStore> = Vec::new();
    for name in names {
        let (store, status) = place.try_open(name).unwrap();
        assert_eq!(status, NamespaceStatus::New, "{name:?}");
        assert_eq!(store.folder().parent().unwrap(), &place.dir, "{name:?}");
        support::write(&store, 1, name, b"state");
        stores.push(store);
    }
    stores.clear();
    for name in names {
        let (_, status) = place.try_open(name).unwrap();
        assert_eq!(status, NamespaceStatus::Unfinished, "{name:?}");
    }
    let entries = std::fs::read_dir(&place.dir).unwrap();
    assert_eq!(entries.count(), names.len());
}

#[test]
fn the_folder_of_another_job_is_refused() {
    let place = Place::new();
    let folder = place.open().folder().to_owned();
    std::fs::rename(&folder, folder.with_file_name("other")).unwrap();
    let error = place.try_open("other").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    let message = error.to_string();
    assert!(message.contains("named `job`, not `other`"), "{message}");
}

#[test]
fn a_namespace_of_another_version_is_refused() {
    let place = Place::new();
    let store = place.open();
    let text = format!("tidegate-job 2\nid {}\nname job\nnew field\n", store.job());
    let sum = crc32c::crc32c(text.as_bytes());
    std::fs::write(
        store.folder().join("job"),
        format!("{text}crc32c {sum:08x}\n"),
    )
    .unwrap();
    let folder = store.clone();
    drop(store);
    let error = {
        let path = folder.folder().join("job");
        drop(folder);
        let error = place.try_open("job").unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()));
        error
    };
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(
        error
            .to_string()
            .contains("version 2; this build of Tidegate reads version 1")
    );
}

#[test]
fn damage_to_identity_counters_and_marker_is_named() {
    for file in ["job", "attempts", "checkpoint-ids", "finished"] {
        let place = Place::new();
        let store = place.open();
        place.run(store.mark_finished(CheckpointId(1)));
        let path = store.folder().join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        drop(store);
        let error = match place.try_open("job") {
            Err(error) => error,
            Ok((store, _)) if file == "attempts" => place.run(store.reserve_attempt()).unwrap_err(),
            Ok((store, _)) => place.run(store.reserved_ids()).unwrap_err(),
        };
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
    }
}

#[test]
fn a_lost_identity_or_counter_is_not_replaced() {
    let place = Place::new();
    let store = place.open();
    place.complete(&store, 1);
    std::fs::remove_file(store.folder().join("attempts")).unwrap();
    let error = place.run(store.reserve_attempt()).unwrap_err();
    message_naming(&error, &store, "attempts");
    assert_eq!(error.kind(), ErrorKind::Corrupt);

    std::fs::remove_file(store.folder().join("job")).unwrap();
    drop(store);
    let error = place.try_open("job").unwrap_err();
    assert!(matches!(error, StorageError::Missing { .. }), "{error}");
}

#[test]
fn other_schemes_and_files_in_the_way_are_refused() {
    let place = Place::new();
    let url = url::Url::parse("gs://bucket/jobs").unwrap();
    let handle = place.runtime.handle().clone();
    let error = place
        .run(JobStore::open(&url, "job", handle.clone()))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("`gs`"), "{error}");

    let file = place.dir.join("file");
    std::fs::write(&file, "").unwrap();
    let url = parse_checkpoint_dir(file.to_str().unwrap()).unwrap();
    let error = place.run(JobStore::open(&url, "job", handle)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        error.to_string().contains(file.to_str().unwrap()),
        "{error}"
    );
}

#[test]
fn a_namespace_can_be_inspected_while_somebody_owns_it() {
    let place = Place::new();
    let url = parse_checkpoint_dir(place.dir.to_str().unwrap()).unwrap();
    let inspect = || {
        let handle = place.runtime.handle().clone();
        place.run(JobStore::inspect(&url, "job", handle)).unwrap()
    };
    assert!(inspect().is_none());
    assert!(!place.dir.join("job").exists(), "nothing was created");
    let store = place.open();
    let completed = [place.complete(&store, 1)];
    let before = place.files(&store);
    let epoch = store.epoch();

    let (view, status) = inspect().unwrap();
    assert_eq!(status, NamespaceStatus::Unfinished);
    assert_eq!(view.job(), store.job());
    assert_eq!(place.run(view.recover()).unwrap(), completed);
    place.run(view.verify_files(&completed[0])).unwrap();
    let resumed = place.run(view.preview_resume(None)).unwrap();
    assert_eq!(resumed.completed, completed);

    let error = place
        .run(view.drop_completed(&completed[0], &[]))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    let error = place.run(view.sweep_orphans(&completed)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
    place.run(view.reserve_attempt()).unwrap_err();
    let outcome = place.run(view.mark_finished(CheckpointId(1)));
    assert!(
        matches!(outcome, WriteOutcome::NotDone { .. }),
        "{outcome:?}"
    );
    // The owner notices nothing.
    assert_eq!(place.files(&store), before);
    assert_eq!(store.epoch(), epoch);
    place.run(store.reserve_attempt()).unwrap();
    place.run(store.mark_finished(CheckpointId(1)));
    let checkpoint = CheckpointId(1);
    assert_eq!(
        inspect().unwrap().1,
        NamespaceStatus::Finished { checkpoint }
    );
}

// BC-62: an epoch that was lost or went back says that somebody else was here
#[test]
fn a_leader_whose_epoch_is_no_longer_recorded_stops() {
    let place = Place::new();
    let old = place.open().folder().join("leader");
    let first = std::fs::read(&old).unwrap();
    let store = place.open();
    let latest = std::fs::read(&old).unwrap();
    std::fs::write(&old, first).unwrap();
    let error = place.run(store.reserve_attempt()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    std::fs::remove_file(&old).unwrap();
    let error = place.run(store.reserve_attempt()).unwrap_err();
    message_naming(&error, &store, "leader");
    assert!(matches!(error, StorageError::Missing { .. }), "{error}");
    std::fs::write(&old, latest).unwrap();
    place.run(store.reserve_attempt()).unwrap();
}

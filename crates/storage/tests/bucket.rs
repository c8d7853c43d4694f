//! A namespace in a bucket. Its settings come from the environment, so each test runs again in a
//! process of its own that has them.

#![cfg(feature = "s3")]
#![allow(
    clippy::unwrap_used,
    reason = "clippy takes what tests share for a program"
)]

mod support;

use std::io::{Read, Write};

use support::s3::{BUCKET, has_bucket};
use support::{checkpoint, write};
use tidegate_storage::{CheckpointPointer, JobStore, NamespaceStatus, parse_checkpoint_dir};
use tidegate_types::message::WriteOutcome;
use tidegate_types::{AttemptNumber, CheckpointId};
use tokio::runtime::Runtime;

fn open(runtime: &Runtime) -> (JobStore, NamespaceStatus) {
    let dir = parse_checkpoint_dir(&format!("s3://{BUCKET}/checkpoints")).unwrap();
    let opened = JobStore::open(&dir, "a job", runtime.handle().clone());
    runtime.block_on(opened).unwrap()
}

#[test]
fn checkpoints_outlive_their_writer_and_orphans_do_not() {
    if !has_bucket("checkpoints_outlive_their_writer_and_orphans_do_not") {
        return;
    }
    let runtime = Runtime::new().unwrap();
    let (store, status) = open(&runtime);
    assert_eq!(status, NamespaceStatus::New);
    let job = store.job();
    // One that is sent at once, and one of several parts.
    let small = write(&store, 1, "count[0]", b"state");
    let large: Vec<u8> = (0..20_000_000u32).map(|at| (at / 7) as u8).collect();
    let parts = write(&store, 1, "count[1]", &large);
    let first = checkpoint(&store, 1, vec![small, parts]);
    let done = |outcome| assert_eq!(outcome, WriteOutcome::Done);
    done(runtime.block_on(store.publish_metadata(&first)));
    done(runtime.block_on(store.store_pointer(&CheckpointPointer::to(&first))));
    // The same again is the same; another one in its place is refused.
    done(runtime.block_on(store.publish_metadata(&first)));
    let other = checkpoint(&store, 1, vec![]);
    let refused = runtime.block_on(store.publish_metadata(&other));
    assert!(
        matches!(refused, WriteOutcome::NotDone { .. }),
        "{refused:?}"
    );

    write(&store, 2, "count[0]", b"orphan");
    let name = store.state_file_name(AttemptNumber(1), CheckpointId(2), "count[1]");
    let mut unfinished = store.create_state_file(name);
    unfinished.write_all(&large).unwrap();
    drop(unfinished);
    drop(store);

    // The lease of the one before runs out, as if it had been killed.
    let (store, status) = open(&runtime);
    assert_eq!((store.job(), status), (job, NamespaceStatus::Unfinished));
    assert_eq!(
        runtime.block_on(store.reserved_ids()).unwrap(),
        CheckpointId(2)
    );
    let recovered = runtime.block_on(store.recover()).unwrap();
    assert_eq!(recovered, std::slice::from_ref(&first));
    runtime.block_on(store.verify_files(&first)).unwrap();
    for (handle, expected) in first.files().zip([&b"state"[..], &large]) {
        let mut reader = store.open_state_file(handle).unwrap();
        reader.verify().unwrap();
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert!(bytes == expected, "{handle:?}");
    }
    let swept = runtime.block_on(store.sweep_orphans(&recovered)).unwrap();
    assert_eq!((swept.files, swept.bytes), (1, 6));
    assert!(swept.failures.is_empty(), "{:?}", swept.failures);
    runtime.block_on(store.drop_completed(&first, &[])).unwrap();
    assert!(runtime.block_on(store.verify_files(&first)).is_err());
    assert_eq!(runtime.block_on(store.recover()).unwrap(), []);
    assert!(
        runtime
            .block_on(store.find_orphans(&[]))
            .unwrap()
            .is_empty()
    );
}

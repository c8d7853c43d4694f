//! What happens to files, and what is reported, whatever goes wrong between the two.

use std::sync::{Mutex, PoisonError};

use tidegate_state::{
    HeapKeyedBackend, SnapshotProgress, StateKey, TrackedSnapshot, ValueStateDescriptor,
};
use tidegate_types::graph::{JobGraph, OperatorRole, OperatorSpec};
use tidegate_types::{
    AttemptNumber, KeyedPiece, MaxParallelism, OperatorId, OperatorUid, SnapshotKind,
};

use super::*;
use crate::chains::PieceChains;
use crate::metrics::AttemptMetrics;
use crate::subtask::TakenSnapshots;

const CHECKPOINT: CheckpointId = CheckpointId(7);
const SUBTASK: SubtaskId = SubtaskId {
    operator: OperatorId(0),
    index: 0,
};

/// What has happened to files, in order.
#[derive(Clone, Default)]
struct Log {
    events: Arc<Mutex<Vec<String>>>,
    /// What went into files.
    written: Arc<Mutex<Vec<u8>>>,
    full: bool,
}

impl Log {
    fn add(&self, event: &str) {
        let events = self.events.lock();
        let mut events = events.unwrap_or_else(PoisonError::into_inner);
        events.push(event.to_owned());
    }
}

impl StateFiles for Log {
    fn create(
        &self,
        checkpoint: CheckpointId,
        location: Option<&SnapshotLocation>,
        subtask: &str,
    ) -> Result<Box<dyn StateFileWrite>, BoxError> {
        self.add(&format!("create {checkpoint} {subtask} {location:?}"));
        Ok(Box::new(self.clone()))
    }

    fn open(&self, _file: &FileHandle) -> Result<Box<dyn StateFileRead>, BoxError> {
        Err("nothing is restored".into())
    }

    fn discard(&self, checkpoint: CheckpointId, file: &FileHandle) {
        self.add(&format!("discard {checkpoint} {}", file.name));
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.full {
            true => Err(std::io::Error::other("no space")),
            false => self.written.lock().unwrap().write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl StateFileWrite for Log {
    fn finish(self: Box<Self>) -> Result<FileHandle, BoxError> {
        self.add("finish");
        Ok(FileHandle {
            name: "file".to_owned(),
            bytes: 1,
            crc32c: 2,
        })
    }
}

/// A backend with one state, which has this many keys.
fn backend(keys: u64) -> HeapKeyedBackend<u64> {
    let max = MaxParallelism::derive(1);
    let range = max.range(0, 1).unwrap();
    let mut backend = HeapKeyedBackend::<u64>::new(max, range);
    let descriptor = ValueStateDescriptor::<u64>::new("count");
    let counts = backend.value_state(&descriptor).unwrap();
    for key in 0..keys {
        counts
            .borrow_mut()
            .entry_or_insert_with(key.key_hash(), &key, || 1);
    }
    backend
}

/// All in files, however small.
const FILES: StatePlacement = StatePlacement::Files {
    inline_bytes_max: 0,
};

/// Runs a job with these seals; returns what happened to files and what was reported.
fn run(log: Log, seals: Vec<Seal>, cancelled: bool) -> (Vec<String>, Vec<Report>) {
    run_with(FILES, backend(1), log, seals, cancelled)
}

/// As [`run`], with this state.
fn run_with(
    placement: StatePlacement,
    mut live: HeapKeyedBackend<u64>,
    log: Log,
    seals: Vec<Seal>,
    cancelled: bool,
) -> (Vec<String>, Vec<Report>) {
    let frozen = live.freeze();
    // Written from the thread that would go on copying: all of it now.
    while live.advance_snapshots(usize::MAX) == SnapshotProgress::More {}
    run_keyed(
        placement,
        KeyedSnapshot::apart(frozen),
        log,
        seals,
        cancelled,
    )
}

/// As [`run`], with state that is frozen and copied.
fn run_keyed(
    placement: StatePlacement,
    keyed: KeyedSnapshot,
    log: Log,
    seals: Vec<Seal>,
    cancelled: bool,
) -> (Vec<String>, Vec<Report>) {
    let metrics = AttemptMetrics::new(&JobGraph {
        operators: vec![OperatorSpec {
            uid: OperatorUid("count".to_owned()),
            parallelism: 1,
            max_parallelism: MaxParallelism::derive(1),
            max_parallelism_derived: true,
            role: OperatorRole::Transform,
        }],
        edges: Vec::new(),
    });
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&reports);
    let mut taken = TakenSnapshots::default();
    let write = taken.insert(CHECKPOINT, SnapshotKind::Checkpoint);
    write.hold(keyed);
    if cancelled {
        taken.cancel_all();
    }
    let key_groups = MaxParallelism::derive(1).range(0, 1).unwrap();
    let job = SnapshotJob {
        checkpoint: CHECKPOINT,
        location: None,
        subtask: SUBTASK,
        name: "count[0]".to_owned(),
        keyed: Some(key_groups),
        lists: Vec::new(),
        finished: false,
        seals,
        metrics: SnapshotMetrics::default(),
        write,
        stage: metrics.of(SUBTASK).begin_snapshot(CHECKPOINT),
        files: Arc::new(log.clone()),
        placement,
        reports: Reporter::new(
            AttemptNumber(1),
            Arc::new(move |report| sink.lock().unwrap().push(report.report)),
        ),
    };
    job.run();
    let events = log.events.lock().unwrap().clone();
    let reports = reports.lock().unwrap().clone();
    (events, reports)
}

const CREATED: &str = "create chk-7 count[0] None";

#[test]
fn a_file_that_is_acknowledged_is_finished_and_sealed_first() {
    let log = Log::default();
    let sealed = log.clone();
    let seal: Seal = Box::new(move || {
        sealed.add("seal");
        Ok(())
    });
    let (events, reports) = run(log, vec![seal], false);
    assert_eq!(events, [CREATED, "finish", "seal"]);
    let [Report::Acknowledged { state, .. }] = &reports[..] else {
        panic!("{reports:?}")
    };
    assert_eq!(
        state.files().map(|file| &file.name).collect::<Vec<_>>(),
        ["file"]
    );
}

// J16: what is written already doesn't stay behind when a later part fails.
#[test]
fn what_was_written_is_discarded_if_sealing_fails() {
    let seal: Seal = Box::new(|| Err("no sync".into()));
    let (events, reports) = run(Log::default(), vec![seal], false);
    assert_eq!(events, [CREATED, "finish", "discard chk-7 file"]);
    assert!(matches!(&reports[..], [Report::Failed(_)]), "{reports:?}");
}

// J16: a file that isn't finished is removed by whoever holds it; see `StateFileWrite`.
#[test]
fn a_file_that_cannot_be_written_is_never_finished() {
    let log = Log {
        full: true,
        ..Log::default()
    };
    let (events, reports) = run(log, Vec::new(), false);
    assert_eq!(events, [CREATED]);
    let reason = DeclineReason::WriteFailed {
        cause: "write a keyed state file: no space".to_owned(),
    };
    let declined = Report::Declined {
        checkpoint: CHECKPOINT,
        subtask: SUBTASK,
        reason,
    };
    assert_eq!(reports, [declined]);
}

// SC-02
#[test]
fn nothing_is_written_of_what_was_aborted_before() {
    let seal: Seal = Box::new(|| Err("never called".into()));
    assert_eq!(run(Log::default(), vec![seal], true), (vec![], vec![]));
}

/// What the only report acknowledges.
fn acknowledged(reports: &[Report]) -> &KeyedStateHandle {
    match reports {
        [Report::Acknowledged { state, .. }] => state.keyed.as_ref().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Bytes of the state of a backend with so many keys, as they are written.
fn bytes_of(keys: u64) -> Vec<u8> {
    let everything = StatePlacement::Inline {
        bytes_max: u64::MAX,
    };
    let (_, reports) = run_with(everything, backend(keys), Log::default(), vec![], false);
    match &acknowledged(&reports).pieces[..] {
        [KeyedPiece::Inline(bytes)] => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

// L2, FS-02
#[test]
fn what_is_at_most_as_long_as_the_threshold_is_inline() {
    let state = bytes_of(3);
    let length = state.len() as u64;
    for (inline_bytes_max, is_inline) in [
        (0, false),
        (length - 1, false),
        (length, true),
        (length + 1, true),
    ] {
        let placement = StatePlacement::Files { inline_bytes_max };
        let (events, reports) = run_with(placement, backend(3), Log::default(), vec![], false);
        let pieces = &acknowledged(&reports).pieces;
        if is_inline {
            assert_eq!(events, [""; 0]);
            assert_eq!(pieces, &[KeyedPiece::Inline(state.as_slice().into())]);
        } else {
            assert_eq!(events, [CREATED, "finish"]);
            assert!(matches!(pieces[..], [KeyedPiece::File(_)]), "{pieces:?}");
        }
    }
}

// L2: as much as what is written piecemeal adds up to, not as any one write of it has.
#[test]
fn what_was_held_back_comes_first_in_the_file() {
    let state = bytes_of(5000);
    for inline_bytes_max in [0, 1, 100, 20 << 10] {
        let log = Log::default();
        let placement = StatePlacement::Files { inline_bytes_max };
        let (events, _) = run_with(placement, backend(5000), log.clone(), vec![], false);
        assert_eq!(events, [CREATED, "finish"]);
        assert_eq!(*log.written.lock().unwrap(), state);
    }
}

// FS-01
#[test]
fn without_a_key_there_is_no_piece() {
    for placement in [FILES, StatePlacement::default()] {
        let (events, reports) = run_with(placement, backend(0), Log::default(), vec![], false);
        assert!(!events.contains(&"finish".to_owned()), "{events:?}");
        assert_eq!(acknowledged(&reports).pieces, []);
    }
}

// L3, FS-05
#[test]
fn too_much_for_the_job_manager_is_declined_with_what_to_do() {
    let length = bytes_of(200).len() as u64;
    let run = |bytes_max| {
        let placement = StatePlacement::Inline { bytes_max };
        run_with(placement, backend(200), Log::default(), vec![], false)
    };
    let (events, reports) = run(length);
    assert_eq!((events, acknowledged(&reports).bytes()), (vec![], length));
    let limit = length - 1;
    let (events, reports) = run(limit);
    assert_eq!(events, [""; 0]);
    let cause = format!(
        "the keyed state of `count[0]` takes `{length}` bytes, and the checkpoint storage \
         `jobmanager` at most `{limit}` per subtask; set `checkpoint-storage` to `filesystem`"
    );
    let declined = Report::Declined {
        checkpoint: CHECKPOINT,
        subtask: SUBTASK,
        reason: DeclineReason::WriteFailed { cause },
    };
    assert_eq!(reports, [declined]);
}

// J16: what is inline leaves nothing behind either.
#[test]
fn failing_seals_discard_no_more_than_was_written() {
    let seal: Seal = Box::new(|| Err("no sync".into()));
    let placement = StatePlacement::default();
    let (events, reports) = run_with(placement, backend(1), Log::default(), vec![seal], false);
    assert_eq!(events, [""; 0]);
    assert!(matches!(&reports[..], [Report::Failed(_)]), "{reports:?}");
}

/// A snapshot of changes on top of a file of `chk-6`.
fn changes(live: &mut HeapKeyedBackend<u64>) -> KeyedSnapshot {
    let mut freeze = |checkpoint, base| {
        let frozen = live.freeze_tracked(&TrackedSnapshot {
            checkpoint,
            base,
            whole: false,
        });
        live.finish_snapshots();
        frozen
    };
    let base = CheckpointId(6);
    freeze(base, None);
    KeyedSnapshot {
        below: vec![old_file()],
        ..KeyedSnapshot::apart(freeze(CHECKPOINT, Some(base)))
    }
}

fn old_file() -> KeyedPiece {
    KeyedPiece::File(FileHandle {
        name: "old".to_owned(),
        bytes: 100,
        crc32c: 3,
    })
}

// J16: the pieces of the base are those of a checkpoint that is complete.
#[test]
fn failing_seals_discard_no_piece_of_the_base() {
    let seal: Seal = Box::new(|| Err("no sync".into()));
    let keyed = changes(&mut backend(1));
    let (events, reports) = run_keyed(FILES, keyed, Log::default(), vec![seal], false);
    assert_eq!(events, [CREATED, "finish", "discard chk-7 file"]);
    assert!(matches!(&reports[..], [Report::Failed(_)]), "{reports:?}");
}

// RX-03: what is acknowledged is known to later snapshots, and nothing else is.
#[test]
fn what_is_acknowledged_is_what_later_snapshots_rest_on() {
    let mut chains = PieceChains::default();
    let pieces = chains.insert(CHECKPOINT);
    let keyed = KeyedSnapshot {
        pieces,
        ..changes(&mut backend(1))
    };
    let (_, reports) = run_keyed(FILES, keyed, Log::default(), vec![], false);
    let acknowledged = &acknowledged(&reports).pieces;
    assert!(matches!(&acknowledged[..], [old, KeyedPiece::File(_)] if *old == old_file()));
    assert_eq!(chains.below(CHECKPOINT).as_ref(), Some(acknowledged));

    let full = Log {
        full: true,
        ..Log::default()
    };
    let next = CHECKPOINT.next();
    let keyed = KeyedSnapshot {
        pieces: chains.insert(next),
        ..changes(&mut backend(1))
    };
    run_keyed(FILES, keyed, full, vec![], false);
    assert_eq!(chains.below(next), None, "its file could not be written");
}

// SC-02: as when the storage hangs, and snapshots wait behind the one that is stuck.
#[test]
fn what_waits_for_its_writer_goes_with_the_abort() {
    let mut live = backend(1000);
    let mut taken = TakenSnapshots::default();
    let write = taken.insert(CHECKPOINT, SnapshotKind::Checkpoint);
    write.hold(KeyedSnapshot::apart(live.freeze()));
    let wanted = taken.insert(CHECKPOINT.next(), SnapshotKind::Checkpoint);
    wanted.hold(KeyedSnapshot::apart(live.freeze()));
    taken.on_aborted(CHECKPOINT, CheckpointId::NONE);
    assert!(write.take().is_none());
    taken.on_aborted(CHECKPOINT, CheckpointId::NONE);
    assert!(wanted.take().is_some());
}

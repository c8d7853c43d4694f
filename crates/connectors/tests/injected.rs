//! A commit that fails is told, changes nothing, and can be repeated. In a process of its own,
//! because injected errors are for all threads.

use std::fs;
use std::io::ErrorKind;

use tidegate_connectors::FileSink;
use tidegate_runtime::sink::{
    Committer, SinkContext, SubmitContext, TransactionWriter, TwoPhaseSink,
};
use tidegate_types::{AttemptNumber, CheckpointId, JobId, OperatorId, OperatorUid, SubtaskId};

const NAME: &str = "part-0-chk1-a1-0.txt";

fn context() -> SinkContext {
    SinkContext {
        subtask: SubtaskId {
            operator: OperatorId(1),
            index: 0,
        },
        uid: "out".to_owned(),
        parallelism: 1,
        attempt: AttemptNumber(1),
    }
}

#[test]
fn a_failed_commit_is_told_and_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let sink = FileSink::new(dir.path());
    let submit = SubmitContext {
        job: JobId(1),
        fresh: true,
    };
    TwoPhaseSink::<u64>::check(&sink, &OperatorUid("out".to_owned()), submit).unwrap();
    let mut writer = TwoPhaseSink::<u64>::writer(&sink, context()).unwrap();
    let mut committer = TwoPhaseSink::<u64>::committer(&sink, context()).unwrap();
    writer.write(&mut vec![1_u64, 2].into()).unwrap();
    let ended = TransactionWriter::<u64>::pre_commit(&mut writer, CheckpointId(1)).unwrap();
    for file in ended {
        (file.seal)().unwrap();
        let injection = tidegate_fault::inject("commit:write", ErrorKind::StorageFull, 0..1);
        let error = committer.commit(&file.transaction).unwrap_err();
        assert!(error.to_string().contains(NAME), "{error}");
        assert_eq!(injection.remaining(), 0);
        assert!(!dir.path().join(NAME).exists());
        committer.commit(&file.transaction).unwrap();
    }
    assert_eq!(fs::read_to_string(dir.path().join(NAME)).unwrap(), "1\n2\n");
}

//! Commits after crashes at every step, restores, leftovers, and who may write where.

use std::path::PathBuf;

use tempfile::TempDir;
use tidegate_runtime::sink::{
    Committer, PreCommitted, SinkContext, SubmitContext, TransactionWriter, TwoPhaseSink,
};
use tidegate_types::{AttemptNumber, CheckpointId, ErrorChain, JobId, OperatorUid};

use super::super::layout::list;
use super::*;

const STAGED: &str = ".tidegate/staged";

/// An output folder and the sink that writes to it.
pub(super) struct Output {
    dir: TempDir,
}

impl Output {
    pub(super) fn new() -> Self {
        let output = Output {
            dir: tempfile::tempdir().unwrap(),
        };
        output.check(1, "out", true).unwrap();
        output
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn sink(&self) -> FileSink {
        FileSink::new(self.dir.path())
    }

    fn check(&self, job: u128, uid: &str, fresh: bool) -> Result<(), BoxError> {
        check(&self.sink(), job, uid, fresh)
    }

    pub(super) fn writer(&self, attempt: u64, index: u32) -> FileWriter<crate::line::Columns> {
        self.writer_of(&self.sink(), attempt, index)
    }

    pub(super) fn writer_of(
        &self,
        sink: &FileSink,
        attempt: u64,
        index: u32,
    ) -> FileWriter<crate::line::Columns> {
        TwoPhaseSink::<String>::writer(sink, context(attempt, index)).unwrap()
    }

    pub(super) fn write(&self, writer: &mut FileWriter<crate::line::Columns>, lines: &[&str]) {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        writer.write(&mut lines.into()).unwrap();
    }

    pub(super) fn try_end(
        &self,
        writer: &mut FileWriter<crate::line::Columns>,
        checkpoint: u64,
    ) -> Result<Vec<FileTransaction>, BoxError> {
        let ended = TransactionWriter::<String>::pre_commit(writer, CheckpointId(checkpoint))?;
        let seal = |PreCommitted { transaction, seal }| seal().map(|()| transaction);
        ended.into_iter().map(seal).collect()
    }

    pub(super) fn end(
        &self,
        writer: &mut FileWriter<crate::line::Columns>,
        checkpoint: u64,
    ) -> Vec<FileTransaction> {
        self.try_end(writer, checkpoint).unwrap()
    }

    /// One staged file with these lines.
    fn transaction(&self, attempt: u64, checkpoint: u64, lines: &[&str]) -> FileTransaction {
        let mut writer = self.writer(attempt, 0);
        self.write(&mut writer, lines);
        self.end(&mut writer, checkpoint).remove(0)
    }

    fn committer(&self, attempt: u64) -> FileCommitter {
        TwoPhaseSink::<String>::committer(&self.sink(), context(attempt, 0)).unwrap()
    }

    pub(super) fn commit(&self, attempt: u64, file: &FileTransaction) -> Result<(), BoxError> {
        self.committer(attempt).commit(file)
    }

    fn problem(&self, file: &FileTransaction) -> String {
        let error = self.commit(1, file).unwrap_err();
        ErrorChain(error.as_ref()).to_string()
    }

    pub(super) fn write_file(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(super) fn visible(&self) -> Vec<String> {
        let mut names = list(self.dir.path()).unwrap();
        names.retain(|name| !name.starts_with('.'));
        names
    }

    pub(super) fn staged(&self) -> Vec<String> {
        list(&self.path(STAGED)).unwrap()
    }

    pub(super) fn published_lines(&self) -> Vec<String> {
        let content = |name: String| fs::read_to_string(self.path(&name)).unwrap();
        let text: String = self.visible().into_iter().map(content).collect();
        text.lines().map(str::to_owned).collect()
    }
}

fn context(attempt: u64, index: u32) -> SinkContext {
    SinkContext {
        subtask: SubtaskId {
            operator: OperatorId(1),
            index,
        },
        uid: "out".to_owned(),
        parallelism: 4,
        attempt: AttemptNumber(attempt),
    }
}

fn check(sink: &FileSink, job: u128, uid: &str, fresh: bool) -> Result<(), BoxError> {
    let context = SubmitContext {
        job: JobId(job),
        fresh,
    };
    TwoPhaseSink::<String>::check(sink, &OperatorUid(uid.to_owned()), context)
}

// TP-08, BC-15
#[test]
fn a_commit_that_is_repeated_does_nothing() {
    let output = Output::new();
    let file = output.transaction(1, 1, &["a"]);
    for attempt in 1..4 {
        output.commit(attempt, &file).unwrap();
        assert_eq!(output.published_lines(), ["a"]);
    }
    assert_eq!(output.visible().len(), 1);
}

// TP-03, BC-14: whatever step a process died after, the restored one completes the commit.
#[test]
fn a_commit_goes_on_after_a_crash_at_any_step() {
    type Crash = fn(&Output, &FileTransaction);
    let after_link: Crash = |output, file| {
        let staged = output.path(STAGED).join(&file.staged);
        fs::hard_link(staged, output.path(&file.published)).unwrap();
    };
    let after_unlink: Crash = |output, file| {
        let staged = output.path(STAGED).join(&file.staged);
        fs::rename(staged, output.path(&file.published)).unwrap();
    };
    let crashes: [Crash; 3] = [|_, _| {}, after_link, after_unlink];
    for (step, crash) in crashes.iter().enumerate() {
        let output = Output::new();
        let file = output.transaction(1, 1, &["a"]);
        crash(&output, &file);
        // As the checkpoint has it, in an attempt that never saw the writer. BC-29
        output.commit(2, &stored(&file)).unwrap();
        assert_eq!(output.published_lines(), ["a"], "after step {step}");
        assert_eq!(output.staged(), Vec::<String>::new(), "after step {step}");
        output.committer(2).clean_up(AttemptNumber(2)).unwrap();
        assert_eq!(output.published_lines(), ["a"], "after step {step}");
    }
}

#[test]
fn an_output_folder_may_be_moved() {
    let output = Output::new();
    let file = output.transaction(1, 1, &["a"]);
    let moved = tempfile::tempdir().unwrap();
    fs::rename(output.dir.path(), moved.path().join("out")).unwrap();
    let sink = FileSink::new(moved.path().join("out"));
    check(&sink, 1, "out", false).unwrap();
    let mut committer = TwoPhaseSink::<String>::committer(&sink, context(2, 0)).unwrap();
    committer.commit(&file).unwrap();
    assert!(moved.path().join("out").join(&file.published).exists());
}

/// Commits a file with the sink of a later attempt, which writes to another folder now.
fn commit_from(elsewhere: &Output, file: &FileTransaction) -> Result<(), BoxError> {
    elsewhere.commit(2, &stored(file))
}

// The job goes on with another output folder: what was written belongs where it was written.
#[test]
fn what_another_folder_of_the_sink_holds_is_published_there() {
    for is_published in [false, true] {
        let (old, new) = (Output::new(), Output::new());
        let file = old.transaction(1, 1, &["a"]);
        if is_published {
            old.commit(1, &file).unwrap();
        }
        for _ in 0..2 {
            commit_from(&new, &file).unwrap();
            assert_eq!(old.published_lines(), ["a"]);
        }
        assert_eq!(old.staged(), Vec::<String>::new());
        assert_eq!(new.visible(), Vec::<String>::new());
    }
}

// BC-28: nor is it taken from a folder that others have made there since.
#[test]
fn what_another_folder_of_the_sink_has_lost_is_lost() {
    let new = Output::new();
    let lost = |file: &FileTransaction| {
        let message = commit_from(&new, file).unwrap_err().to_string();
        assert!(
            message.starts_with("data was lost") && message.contains(&file.published),
            "{message}"
        );
    };
    let old = Output::new();
    let file = old.transaction(1, 1, &["a"]);
    fs::remove_file(old.path(STAGED).join(&file.staged)).unwrap();
    lost(&file);

    let file = old.transaction(1, 2, &["a"]);
    let owner = old.path(".tidegate/owner");
    for (job, uid) in [(2, "out"), (1, "copy")] {
        fs::remove_file(&owner).unwrap();
        check(&old.sink(), job, uid, true).unwrap();
        lost(&file);
    }
    assert_eq!(old.visible(), Vec::<String>::new());
    fs::remove_dir_all(old.dir.path()).unwrap();
    lost(&file);
}

// BC-28, BC-29
#[test]
fn a_file_that_is_nowhere_is_a_loss_that_names_it() {
    let output = Output::new();
    let file = output.transaction(1, 5, &["a"]);
    fs::remove_file(output.path(STAGED).join(&file.staged)).unwrap();
    let message = output.problem(&file);
    assert!(message.starts_with("data was lost"), "{message}");
    assert!(
        message.contains(&file.published) && message.contains(&file.staged),
        "{message}"
    );
}

#[test]
fn a_staged_file_that_was_changed_is_not_published() {
    let output = Output::new();
    let file = output.transaction(1, 5, &["a"]);
    output.write_file(&format!("{STAGED}/{}", file.staged), "");
    let message = output.problem(&file);
    assert!(
        message.starts_with("data was lost") && message.contains(&file.staged),
        "{message}"
    );
    assert_eq!(output.visible(), Vec::<String>::new());
}

#[test]
fn a_foreign_file_under_the_final_name_is_not_replaced() {
    // Of another length, of the same length, and with the staged file gone.
    for (content, is_staged) in [("foreign\n", true), ("b\n", true), ("b\n", false)] {
        let output = Output::new();
        let file = output.transaction(1, 5, &["a"]);
        output.write_file(&file.published, content);
        if !is_staged {
            fs::remove_file(output.path(STAGED).join(&file.staged)).unwrap();
        }
        let message = output.problem(&file);
        assert!(message.contains(&file.published), "{message}");
        assert!(message.contains("another content"), "{message}");
        assert_eq!(
            fs::read_to_string(output.path(&file.published)).unwrap(),
            content
        );
        assert_eq!(output.staged().len(), usize::from(is_staged));
    }
}

#[test]
fn leftovers_of_former_attempts_are_removed() {
    let output = Output::new();
    let committed = output.transaction(1, 1, &["committed"]);
    output.write(&mut output.writer(2, 0), &["lost"]);
    let lost = output.transaction(2, 2, &["lost"]);
    let mut live = output.writer(3, 0);
    output.write(&mut live, &["live"]);
    let live = output.end(&mut live, 3).remove(0);
    output.write_file(".tidegate/staged/unknown", "");
    output.commit(3, &committed).unwrap();
    output.committer(3).clean_up(AttemptNumber(3)).unwrap();
    assert_eq!(output.staged(), [live.staged.as_str(), "unknown"]);
    assert_eq!(output.published_lines(), ["committed"]);
    assert!(output.commit(3, &lost).is_err());
    output.commit(3, &live).unwrap();
}

// TP-10: transactions commit wherever they are restored to.
#[test]
fn any_subtask_commits_the_transactions_of_any_other() {
    let output = Output::new();
    let files: Vec<_> = (0..3)
        .map(|index| {
            let mut writer = output.writer(1, index);
            output.write(&mut writer, &[&index.to_string()]);
            output.end(&mut writer, 1).remove(0)
        })
        .collect();
    files
        .iter()
        .for_each(|file| output.commit(2, file).unwrap());
    assert_eq!(output.published_lines(), ["0", "1", "2"]);
}

#[test]
fn the_folder_of_another_job_or_sink_is_refused() {
    let output = Output::new();
    output.check(1, "out", true).unwrap();
    let error = output.check(2, "out", true).unwrap_err().to_string();
    assert!(
        error.contains(&JobId(2).to_string()) && error.contains("another folder"),
        "{error}"
    );
    let error = output.check(1, "copy", false).unwrap_err().to_string();
    assert!(
        error.contains("`out`") && error.contains("`copy`"),
        "{error}"
    );
}

/// What a subtask says that is about to write and publish, on a machine with this folder.
fn refusal(sink: &FileSink) -> String {
    let writer = TwoPhaseSink::<String>::writer(sink, context(2, 0)).unwrap_err();
    let committer = TwoPhaseSink::<String>::committer(sink, context(2, 0)).unwrap_err();
    assert_eq!(writer.to_string(), committer.to_string());
    writer.to_string()
}

// Files would be published where nobody looks for them.
#[test]
fn a_machine_without_the_claimed_folder_writes_nothing() {
    let elsewhere = tempfile::tempdir().unwrap();
    let mount_point = elsewhere.path().join("shared");
    let message = refusal(&FileSink::new(mount_point.join("out")));
    assert!(
        message.contains("shared/out") && message.contains("mounted"),
        "{message}"
    );
    assert!(
        !mount_point.exists(),
        "nothing is made before that is known"
    );
    fs::create_dir(&mount_point).unwrap();
    refusal(&FileSink::new(&mount_point));
    assert_eq!(list(&mount_point).unwrap(), Vec::<String>::new());
}

// Else it would come to be without an owner, and the next start of the job would refuse it.
#[test]
fn a_folder_that_was_deleted_is_made_anew_by_the_next_start_alone() {
    let output = Output::new();
    let file = output.transaction(1, 1, &["a"]);
    output.commit(1, &file).unwrap();
    fs::remove_dir_all(output.dir.path()).unwrap();
    let message = refusal(&output.sink());
    assert!(message.contains("deleted"), "{message}");
    assert!(!output.dir.path().exists());
    output.check(1, "out", false).unwrap();
    let file = output.transaction(3, 2, &["b"]);
    output.commit(3, &file).unwrap();
    output.check(1, "out", false).unwrap();
}

#[test]
fn the_folder_of_another_sink_is_not_written_to() {
    let output = Output::new();
    fs::remove_dir_all(output.path(".tidegate")).unwrap();
    output.check(1, "copy", true).unwrap();
    let message = refusal(&output.sink());
    assert!(
        message.contains("`copy`") && message.contains("`out`"),
        "{message}"
    );
}

#[test]
fn output_without_its_checkpoints_is_not_written_again() {
    let output = Output::new();
    let file = output.transaction(1, 1, &["a"]);
    output.check(1, "out", true).unwrap();
    output.commit(1, &file).unwrap();
    output.check(1, "out", false).unwrap();
    let error = output.check(1, "out", true).unwrap_err().to_string();
    assert!(error.contains(&file.published), "{error}");
}

#[test]
fn files_of_others_are_tolerated_if_allowed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("README"), "").unwrap();
    let sink = FileSink::new(dir.path());
    let error = check(&sink, 1, "out", true).unwrap_err().to_string();
    assert!(
        error.contains("README") && error.contains("allow_existing"),
        "{error}"
    );
    check(&sink.allow_existing(true), 1, "out", true).unwrap();
}

#[cfg(unix)]
#[test]
fn a_place_that_is_no_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = check(&FileSink::new(&file), 1, "out", true).unwrap_err();
    let message = ErrorChain(error.as_ref()).to_string();
    assert!(message.contains(file.to_str().unwrap()), "{message}");
}

#[cfg(unix)]
#[test]
fn a_folder_whose_path_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;

    let dir = tempfile::tempdir().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"out\xff");
    let sink = FileSink::new(dir.path().join(name).join("counts"));
    let message = check(&sink, 1, "out", true).unwrap_err().to_string();
    assert!(
        message.contains("not valid UTF-8") && message.contains("out\u{fffd}/counts"),
        "{message}"
    );
    assert_eq!(list(dir.path()).unwrap(), Vec::<String>::new());
    TwoPhaseSink::<String>::writer(&sink, context(1, 0)).unwrap_err();
}

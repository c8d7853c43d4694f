//! Copies of real state files in a real folder, and everything that can be wrong with them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use tidegate_runtime::StateFiles;
use tidegate_storage::{JobStore, parse_checkpoint_dir};
use tidegate_types::message::RestoredFiles;
use tidegate_types::{AttemptNumber, CheckpointId, FileHandle, SnapshotLocation};
use tokio::runtime::Runtime;

use super::{LocalCopies, RecoverableFiles};
use crate::files::StoredFiles;

/// Longer than what is read at once.
const LONG: usize = (1 << 20) + 4321;

/// A namespace, and a folder for copies.
struct Place {
    runtime: Runtime,
    store: JobStore,
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("checkpoints");
        let directory = parse_checkpoint_dir(directory.to_str().unwrap()).unwrap();
        let opening = JobStore::open(&directory, "job", runtime.handle().clone());
        let (store, _) = runtime.block_on(opening).unwrap();
        Place {
            runtime,
            store,
            folder,
        }
    }

    fn copies_folder(&self) -> PathBuf {
        self.folder.path().join("copies")
    }

    /// The files of the next attempt, which restores `files` of `restored`.
    fn attempt(&self, number: u64, restored: u64, files: &[FileHandle]) -> Attempt {
        let (folder, number) = (self.copies_folder(), AttemptNumber(number));
        let restored = (restored > 0).then_some(CheckpointId(restored));
        let (copies, leftovers) = LocalCopies::open(folder, number, restored, files).unwrap();
        leftovers.remove();
        let copies = Arc::new(copies);
        let files = RecoverableFiles::new(self.stored(number), restored, Some(copies.clone()));
        Attempt { copies, files }
    }

    fn stored(&self, attempt: AttemptNumber) -> StoredFiles {
        StoredFiles {
            store: self.store.clone(),
            attempt,
            discard: crate::files::discard_with(self.store.clone(), self.runtime.handle().clone()),
        }
    }

    fn copy_of(&self, file: &FileHandle) -> PathBuf {
        let name = file.name.rsplit('/').next().unwrap();
        self.copies_folder().join(name)
    }

    /// The file in the storage.
    fn original_of(&self, file: &FileHandle) -> PathBuf {
        let job = self.folder.path().join("checkpoints").join("job");
        job.join(&file.name)
    }

    fn copies(&self) -> Vec<PathBuf> {
        let listed = fs::read_dir(self.copies_folder()).unwrap();
        let mut paths: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }
}

struct Attempt {
    copies: Arc<LocalCopies>,
    files: RecoverableFiles,
}

impl Attempt {
    /// Writes and acknowledges a file for a checkpoint.
    fn write(&self, checkpoint: u64, bytes: &[u8]) -> FileHandle {
        let checkpoint = CheckpointId(checkpoint);
        let mut file = self.files.create(checkpoint, None, "count[0]").unwrap();
        for piece in bytes.chunks(70_000) {
            file.write_all(piece).unwrap();
        }
        let handle = file.finish().unwrap();
        self.copies.acknowledged(checkpoint, [&handle].into_iter());
        handle
    }

    fn read(&self, file: &FileHandle) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut opened = self.files.open(file).unwrap();
        opened.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn locally(&self) -> (u64, u64) {
        let restored = self.files.restored();
        (restored.files, restored.local_files)
    }
}

fn bytes(length: usize, salt: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i * 31 + i / 251 + salt) as u8)
        .collect()
}

/// A place where attempt 1 has written a file, and `chk-1` has completed.
fn after_a_checkpoint() -> (Place, FileHandle, Vec<u8>) {
    let place = Place::new();
    let content = bytes(LONG, 1);
    let first = place.attempt(1, 0, &[]);
    let file = first.write(1, &content);
    first.copies.completed(CheckpointId(1));
    (place, file, content)
}

// LR-01
#[test]
fn a_copy_is_read_instead_of_the_file() {
    let (place, file, content) = after_a_checkpoint();
    assert_eq!(fs::read(place.copy_of(&file)).unwrap(), content);
    // Nobody looks at the storage.
    fs::remove_file(place.original_of(&file)).unwrap();
    let second = place.attempt(2, 1, std::slice::from_ref(&file));
    assert_eq!(second.read(&file), content);
    let restored = RestoredFiles {
        files: 1,
        bytes: file.bytes,
        local_files: 1,
        local_bytes: file.bytes,
    };
    assert_eq!(second.files.restored(), restored);
}

// BC-54
#[test]
fn one_failure_after_another_finds_the_copies() {
    let (place, file, content) = after_a_checkpoint();
    for attempt in 2..6 {
        let next = place.attempt(attempt, 1, std::slice::from_ref(&file));
        assert_eq!(next.read(&file), content);
        // It dies while a checkpoint is under way, or after one was aborted.
        next.write(attempt, b"in vain");
        if attempt % 2 == 0 {
            next.copies.aborted(CheckpointId(attempt));
        }
        assert_eq!(next.locally(), (1, 1), "attempt {attempt}");
    }
}

// LR-01
#[test]
fn a_missing_copy_is_fetched_and_there_for_the_next_failure() {
    let (place, file, content) = after_a_checkpoint();
    fs::remove_dir_all(place.copies_folder()).unwrap();
    let second = place.attempt(2, 1, std::slice::from_ref(&file));
    assert_eq!(second.read(&file), content);
    assert_eq!(second.locally(), (1, 0));
    let third = place.attempt(3, 1, std::slice::from_ref(&file));
    assert_eq!(third.read(&file), content);
    assert_eq!(third.locally(), (1, 1));
    assert_eq!(place.copies(), [place.copy_of(&file)]);
}

// LR-01
#[test]
fn each_file_comes_from_where_it_is() {
    let (place, file, content) = after_a_checkpoint();
    // The part of another TaskManager, which belongs to this one now.
    let elsewhere = RecoverableFiles::new(place.stored(AttemptNumber(1)), None, None);
    let mut other = elsewhere.create(CheckpointId(1), None, "count[1]").unwrap();
    other.write_all(b"of another").unwrap();
    let other = other.finish().unwrap();
    let second = place.attempt(2, 1, &[file.clone(), other.clone()]);
    assert_eq!(second.read(&other), b"of another");
    assert_eq!(second.read(&file), content);
    assert_eq!(second.locally(), (2, 1));
    // And what had been its own belongs to another, which leaves it with what it needs.
    place.attempt(3, 1, std::slice::from_ref(&other));
    assert_eq!(place.copies(), [place.copy_of(&other)]);
}

// LR-03
#[test]
fn whatever_is_wrong_with_a_copy_the_state_is_the_right_one() {
    let (place, file, content) = after_a_checkpoint();
    let copy = place.copy_of(&file);
    let mut altered = content.clone();
    altered[LONG - 1] ^= 1;
    let longer = [&content[..], b"x"].concat();
    let foreign = bytes(LONG, 2);
    let wrong: [&[u8]; 6] = [
        b"",
        &content[..100],
        &content[..LONG - 1],
        &altered,
        &longer,
        &foreign,
    ];
    for (attempt, wrong) in (2..).zip(wrong) {
        fs::write(&copy, wrong).unwrap();
        let next = place.attempt(attempt, 1, std::slice::from_ref(&file));
        assert_eq!(next.read(&file), content);
        assert_eq!(next.locally(), (1, 0), "{} bytes", wrong.len());
        // It has been replaced.
        assert_eq!(next.read(&file), content);
        assert_eq!(next.locally(), (2, 1), "{} bytes", wrong.len());
    }
    // Something that can't be read at all.
    fs::remove_file(&copy).unwrap();
    fs::create_dir(&copy).unwrap();
    let last = place.attempt(9, 1, std::slice::from_ref(&file));
    assert_eq!(last.read(&file), content);
    assert_eq!(last.locally(), (1, 0));
}

// LR-03
#[test]
fn a_damaged_file_is_noticed_without_a_copy_too() {
    let (place, file, _) = after_a_checkpoint();
    fs::write(place.copy_of(&file), b"torn").unwrap();
    fs::write(place.original_of(&file), bytes(LONG, 3)).unwrap();
    let second = place.attempt(2, 1, std::slice::from_ref(&file));
    let error = second.files.open(&file).map(drop).unwrap_err();
    assert!(error.to_string().contains("is damaged"), "{error}");
    assert_eq!(place.copies(), Vec::<PathBuf>::new());
}

// LR-02
#[test]
fn copies_go_with_their_checkpoints() {
    let place = Place::new();
    let attempt = place.attempt(1, 0, &[]);
    let [one, two, three] = [1, 2, 3].map(|id| attempt.write(id, &bytes(10_000, id as usize)));
    attempt.copies.aborted(CheckpointId(2));
    assert!(!place.copy_of(&two).exists());
    attempt.copies.completed(CheckpointId(1));
    assert!(place.copy_of(&one).exists());
    attempt.copies.completed(CheckpointId(3));
    assert_eq!(place.copies(), [place.copy_of(&three)]);
    attempt.files.discard(CheckpointId(3), &three);
    assert_eq!(place.copies(), Vec::<PathBuf>::new());
}

#[test]
fn what_a_crash_leaves_is_swept_when_the_next_attempt_begins() {
    let (place, file, content) = after_a_checkpoint();
    let crashed = place.attempt(2, 1, std::slice::from_ref(&file));
    crashed.write(2, b"never completed");
    let mut unfinished = crashed
        .files
        .create(CheckpointId(3), None, "count[0]")
        .unwrap();
    unfinished.write_all(b"torn").unwrap();
    // As if it were killed.
    std::mem::forget(unfinished);
    assert_eq!(place.copies().len(), 3);
    let next = place.attempt(3, 1, std::slice::from_ref(&file));
    assert_eq!(place.copies(), [place.copy_of(&file)]);
    assert_eq!(next.read(&file), content);
}

#[test]
fn a_file_that_is_given_up_leaves_no_copy() {
    let place = Place::new();
    let attempt = place.attempt(1, 0, &[]);
    let mut file = attempt
        .files
        .create(CheckpointId(1), None, "count[0]")
        .unwrap();
    file.write_all(&bytes(LONG, 1)).unwrap();
    drop(file);
    assert_eq!(place.copies(), Vec::<PathBuf>::new());
}

#[test]
fn savepoints_have_no_copies() {
    let place = Place::new();
    let attempt = place.attempt(1, 0, &[]);
    let target = place.folder.path().join("savepoint");
    fs::create_dir(&target).unwrap();
    let target = SnapshotLocation::new(&format!("file://{}", target.display()));
    let files = &attempt.files;
    let mut file = files
        .create(CheckpointId(1), Some(&target), "count[0]")
        .unwrap();
    file.write_all(b"state").unwrap();
    let file = file.finish().unwrap();
    assert_eq!(place.copies(), Vec::<PathBuf>::new());
    // Restored from one, a process has them.
    let next = place.attempt(2, 1, std::slice::from_ref(&file));
    assert_eq!(next.read(&file), b"state");
    assert_eq!(next.read(&file), b"state");
    assert_eq!(next.locally(), (2, 1));
}

#[test]
fn a_folder_that_is_gone_costs_copies_and_nothing_else() {
    let (place, file, content) = after_a_checkpoint();
    let second = place.attempt(2, 1, std::slice::from_ref(&file));
    fs::remove_dir_all(place.copies_folder()).unwrap();
    fs::write(place.copies_folder(), "in the way").unwrap();
    assert_eq!(second.read(&file), content);
    let written = second.write(2, &content);
    second.copies.completed(CheckpointId(2));
    assert_eq!(second.read(&written), content);
    assert_eq!(second.locally(), (2, 0));
    let restoring = LocalCopies::open(place.copies_folder(), AttemptNumber(3), None, &[]);
    assert!(restoring.is_err());
}

/// Lets the copy that an attempt begins as number `copy` find the disk full.
fn fill_the_disk(place: &Place, attempt: u64, copy: u64) {
    let name = format!("{}-{copy}.unfinished", AttemptNumber(attempt));
    symlink("/dev/full", place.copies_folder().join(name)).unwrap();
}

#[test]
fn a_full_disk_declines_nothing() {
    let place = Place::new();
    // Noticed in the middle of a file, and at its end.
    for (round, length) in (1..).zip([LONG, 1000]) {
        let attempt = place.attempt(round, 0, &[]);
        fill_the_disk(&place, round, 1);
        let content = bytes(length, 1);
        let before = attempt.write(10 * round, &content);
        attempt.copies.completed(CheckpointId(10 * round));
        let file = attempt.write(10 * round + 1, &content);
        assert_eq!(fs::read(place.original_of(&file)).unwrap(), content);
        assert_eq!(place.copies(), [place.copy_of(&before)]);
        // It isn't tried again before the next attempt, and old copies go as ever.
        attempt.write(10 * round + 2, &content);
        attempt.copies.completed(CheckpointId(10 * round + 2));
        assert_eq!(place.copies(), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_disk_that_fills_up_while_a_file_is_fetched_leaves_the_storage_to_read_from() {
    let (place, file, content) = after_a_checkpoint();
    fs::remove_file(place.copy_of(&file)).unwrap();
    let second = place.attempt(2, 1, std::slice::from_ref(&file));
    fill_the_disk(&place, 2, 0);
    assert_eq!(second.read(&file), content);
    assert_eq!(second.locally(), (1, 0));
    assert_eq!(place.copies(), Vec::<PathBuf>::new());
    let third = place.attempt(3, 1, std::slice::from_ref(&file));
    assert_eq!(third.read(&file), content);
    assert_eq!(place.copies(), [place.copy_of(&file)]);
}

//! State files, written and read by plain threads.
//!
//! Both sides block on the store's Tokio runtime and must not be used from its tasks. Memory is
//! bounded by one [part](part_bytes) per open file (two while a part is being sent elsewhere).

mod reader;
mod staged;
mod writer;

pub use reader::StateFileReader;
pub use writer::StateFileWriter;

use tidegate_types::{AttemptNumber, CheckpointId, FileHandle};

use crate::checkpoint_storage::verify_length;
use crate::error::StorageError;
use crate::job_store::JobStore;
use crate::location::split_url;
use crate::names;
use crate::objects::Objects;

/// Size of the pieces in which files are written to a folder and read from there: each is still in
/// the cache when the system copies it, and takes memory for every file that is open.
const PART_BYTES_OF_FOLDERS: usize = 1 << 20;

/// The same for other places. Object stores ask for at least 5 MiB, and each piece is a request.
const PART_BYTES_ELSEWHERE: usize = 8 << 20;

/// Size of the pieces in which files are written and read there.
fn part_bytes(objects: &Objects) -> usize {
    match objects.has_folders() {
        true => PART_BYTES_OF_FOLDERS,
        false => PART_BYTES_ELSEWHERE,
    }
}

/// Size of the pieces in which the file called `name` is written: where it lies counts, and not
/// where the namespace does.
fn part_bytes_of(name: &str, namespace: &Objects) -> usize {
    match split_url(name) {
        None => part_bytes(namespace),
        Some((folder, _)) if folder.as_str().starts_with("file:") => PART_BYTES_OF_FOLDERS,
        Some(_) => PART_BYTES_ELSEWHERE,
    }
}

impl JobStore {
    /// A name for a state file of `subtask_name` (`count[1]`) in this attempt and checkpoint.
    /// Every call gives another one: it has a random part.
    pub fn state_file_name(
        &self,
        attempt: AttemptNumber,
        checkpoint: CheckpointId,
        subtask_name: &str,
    ) -> String {
        names::state_file_name(attempt, checkpoint, subtask_name)
    }

    /// Starts a state file called `name`, from [`state_file_name`](Self::state_file_name) or
    /// [`savepoint_file_name`](Self::savepoint_file_name). Nothing is written yet.
    ///
    /// # Panics
    /// If `name` doesn't come from there.
    pub fn create_state_file(&self, name: String) -> StateFileWriter {
        StateFileWriter::new(self.clone(), name)
    }

    /// Opens a state file and compares its length with the recorded one. Blocks.
    ///
    /// # Errors
    /// [`StorageError::Missing`] or [`StorageError::WrongLength`]; the checksum is compared by
    /// [`StateFileReader::verify`].
    ///
    /// # Panics
    /// On a task of a Tokio runtime.
    pub fn open_state_file(&self, handle: &FileHandle) -> Result<StateFileReader, StorageError> {
        let runtime = &self.inner.runtime;
        let target = self.inner.storage.locate(&handle.name)?;
        runtime.block_on(verify_length(&target, handle))?;
        Ok(StateFileReader::new(self.clone(), target, handle.clone()))
    }
}

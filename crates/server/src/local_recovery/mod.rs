//! Local recovery: copies of an attempt's state files on its machine's own disk, from which the
//! next attempt restores instead of asking the checkpoint storage.
//!
//! Idea: a copy is a guess that costs nothing if it is wrong. While a state file is written to the
//! storage, the same bytes go to a folder of the TaskManager ([`files`]). The next process that the
//! same TaskManager runs finds them by the name of the file, and believes them only after it has
//! compared length and checksum with the file's handle ([`copy`]): torn, altered, foreign or
//! missing ones are read from the storage instead. So nothing is ever synced, no record says what
//! there is, and a full or broken disk costs copies and nothing else.
//!
//! A copy stays as long as the next failure may need it ([`retained`]): those of the restored
//! checkpoint until a newer one has completed, those of the latest completed one, and those of
//! what is under way. A folder belongs to one TaskManager at a time, by a lock ([`folder`]).
//!
//! Invariants: what a restore reads is what the storage holds, byte by byte; no checkpoint fails,
//! is declined or completes because of a copy; with nothing under way there are at most as many
//! bytes of copies as the latest completed checkpoint has for the subtasks of this process.
//!
//! After Flink's task-local recovery (`TaskLocalStateStoreImpl`).

mod copy;
mod files;
mod folder;
mod retained;
#[cfg(test)]
mod tests;

pub(crate) use copy::LocalCopies;
pub(crate) use files::RecoverableFiles;
pub use folder::LocalRecovery;
pub(crate) use folder::{Claimed, claim, of_job};

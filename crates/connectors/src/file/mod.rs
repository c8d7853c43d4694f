//! Files as a source and as a sink.
//!
//! # Reading
//!
//! [`FileSource`] reads lines, and what a [parser](LineParser) makes of them. Files are cut into
//! [splits](FileSplit) by byte ranges; a line belongs to the split in which its first byte lies, so
//! splits are read independently and every line exactly once. The position of a reader is the
//! offset of the next line.
//!
//! Reading happens on the worker's thread, in pieces of [`CHUNK_BYTES`]: meant for local disks.
//!
//! # Writing
//!
//! [`FileSink`] publishes files exactly once:
//!
//! ```text
//! <dir>/part-<subtask>-chk<checkpoint>-a<attempt>-<n>.txt    visible: committed, never changed
//! <dir>/.tidegate/owner                                      which job and operator writes here
//! <dir>/.tidegate/staged/a<attempt>-<subtask>-<n>            written, not committed
//! ```
//!
//! A checkpoint closes the staged files, syncs them before it is acknowledged, and lists them.
//! When it has completed, each is linked to its final name and the staged name is removed. Files
//! appear one by one, each whole: commits are atomic per file, not per checkpoint.

mod commit;
mod discover;
mod enumerator;
mod error;
mod layout;
mod lines;
mod owner;
mod parse;
mod reader;
mod run;
mod sink;
mod source;
mod split;
mod writer;

pub use commit::FileCommitter;
pub use enumerator::{FileEnumerator, FileEnumeratorState};
pub use error::{FileSinkError, FileSourceError};
pub use lines::CHUNK_BYTES;
pub use parse::{LineParser, OwnedLines, ParseWith};
pub use reader::FileReader;
pub use sink::FileSink;
pub use source::FileSource;
pub use split::FileSplit;
pub use writer::{FileTransaction, FileWriter};

#[cfg(test)]
mod tests;

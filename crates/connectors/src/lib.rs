//! Sources and sinks that need no service: files, a generator, and small sinks for looking.
//!
//! | Source | Reads |
//! |---|---|
//! | [`FileSource`] | lines of files and folders, or what a parser makes of them |
//! | [`Generator`] | records computed from their index |
//!
//! | Sink | Guarantee |
//! |---|---|
//! | [`FileSink`] | lines in files that become visible exactly once |
//! | [`CollectCommitted`] | exactly once, in memory, for tests |
//! | [`Collect`] | at least once, in memory, for tests |
//! | [`Print`] | at least once, to standard output |
//! | [`Discard`] | none needed |
//!
//! Any sink can be slowed down with [`throttle`](throttle::Throttle::throttle).
//!
//! Feature `fault-points`: compiles in the crash points of the file sink's commit.

mod budget;

pub mod file;
pub mod generator;
pub mod line;
pub mod memory;
pub mod print;
pub mod rate;
pub mod throttle;

pub use file::{FileSink, FileSource};
pub use generator::Generator;
pub use line::WriteLine;
pub use memory::{Collect, CollectCommitted, Discard};
pub use print::Print;
pub use throttle::Throttle;

//! Sources and sinks on real folders.

mod check;
mod commit;
mod follow;
mod read;
mod write;

use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate_runtime::source::{
    NextSplit, ReadStatus, Source, SourceContext, SplitEnumerator, SplitReader,
};
use tidegate_runtime::{BoxError, Collector, Ticks};
use tidegate_types::{OperatorId, SubtaskId};

use super::*;

fn place(parallelism: u32) -> SourceContext {
    SourceContext {
        subtask: SubtaskId {
            operator: OperatorId(0),
            index: 0,
        },
        parallelism,
    }
}

fn collecting() -> Collector<String> {
    Collector::collecting(usize::MAX)
}

/// The next split, or `None` if there is none now or ever.
fn split(enumerator: &mut FileEnumerator, now: u64) -> Result<Option<FileSplit>, BoxError> {
    Ok(match enumerator.next(Ticks(Duration::from_secs(now)))? {
        NextSplit::Split(split) => Some(split),
        NextSplit::End | NextSplit::At(_) => None,
    })
}

/// Reads all that can be read now with one reader.
fn read_with(
    source: &FileSource,
    enumerator: &mut FileEnumerator,
    now: u64,
) -> Result<Vec<String>, BoxError> {
    let (mut reader, mut out) = (source.reader(place(1))?, collecting());
    while let Some(split) = split(enumerator, now)? {
        reader.assign(split);
        while reader.poll(&mut out)? == ReadStatus::More {}
    }
    Ok(out.take_collected())
}

fn read_all(source: &FileSource) -> Result<Vec<String>, BoxError> {
    read_with(source, &mut source.enumerator(place(1), None)?, 0)
}

fn append(path: &Path, text: &str) {
    use std::io::Write;
    let mut file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// What a checkpoint keeps, after a trip to disk and back.
fn stored<S: serde::Serialize + serde::de::DeserializeOwned>(state: &S) -> S {
    postcard::from_bytes(&postcard::to_stdvec(state).unwrap()).unwrap()
}

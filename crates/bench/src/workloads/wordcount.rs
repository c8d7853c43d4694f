//! The words of text files are counted: reading, splitting, texts as keys, few of them frequent.

use tidegate::prelude::*;
use tidegate::text::words;

use super::INTERVAL;
use crate::corpus::{self, Files, WORDS};
use crate::error::Result;
use crate::job::Job;
use crate::options::{Common, Peer};
use crate::outcome::Outcome;
use crate::peers::timely;

pub(super) fn run(common: &Common) -> Result<Outcome> {
    let Files {
        paths,
        words: expected,
    } = corpus::files(common.records.unwrap_or(WORDS), &common.data_dir())?;
    if common.peer == Peer::Timely {
        return timely::wordcount(expected, paths, common);
    }
    let job = Job::new("wordcount", common, INTERVAL)?;
    let split = |lines: &str, out: &mut Collector<CompactString>| {
        words(lines).for_each(|word| out.emit(word.into()));
    };
    let counts = job
        .env
        .source("words", FileSource::parse_lines(paths, split))
        .key_by(|word| word)
        .count("count");
    job.run_counted(counts, expected)
}

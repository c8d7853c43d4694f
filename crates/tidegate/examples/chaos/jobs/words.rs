//! The word count: every word occurs equally often, so its output must be 1, 2, …, N for each.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{Load, for_each_line};

pub(super) const WORDS_PER_LINE: u64 = 10;
/// So that each reader has something to read at any time.
const FILES: u64 = 6;

/// How often the input is read.
fn repeat(load: &Load) -> u64 {
    load.records().div_ceil(keys(load)).max(1)
}

/// Whole lines, and as many in each file.
fn keys(load: &Load) -> u64 {
    load.keys.next_multiple_of(WORDS_PER_LINE * FILES)
}

pub(super) fn write_input(dir: &Path, load: &Load) -> Result<(), String> {
    let input = dir.join("input");
    let per_file = keys(load) / FILES;
    let write = || {
        fs::create_dir_all(&input)?;
        for file in 0..FILES {
            let mut text = String::new();
            for key in 0..per_file {
                // Strided, so that neighbours in a line are of different files' ranges.
                let last = (key + 1) % WORDS_PER_LINE == 0;
                let end = if last { '\n' } else { ' ' };
                let _ = write!(text, "w{}{end}", key * FILES + file);
            }
            fs::write(input.join(format!("{file}.txt")), text)?;
        }
        Ok(())
    };
    write().map_err(|error: std::io::Error| format!("`{}`: {error}", input.display()))
}

pub(super) fn arguments(dir: &Path, load: &Load) -> Vec<String> {
    let input = dir.join("input").display().to_string();
    let repeat = repeat(load).to_string();
    ["--input", &input, "--repeat", &repeat]
        .map(str::to_owned)
        .to_vec()
}

/// Each word has each count from 1 to the number of repetitions exactly once.
pub(super) fn check(output: &Path, load: &Load) -> Result<u64, String> {
    let (keys, repeat) = (keys(load), repeat(load));
    let mut seen = vec![0u64; (keys * repeat).div_ceil(64) as usize];
    let mut doubled = Vec::new();
    let lines = for_each_line(output, |line| {
        let parsed = parse(line).filter(|(key, count)| *key < keys && (1..=repeat).contains(count));
        let (key, count) = parsed.ok_or_else(|| format!("the line `{line}` can't be"))?;
        let place = key * repeat + count - 1;
        let (word, bit) = (&mut seen[(place / 64) as usize], 1 << (place % 64));
        if *word & bit != 0 && doubled.len() < 5 {
            doubled.push(line.to_owned());
        }
        *word |= bit;
        Ok(())
    })?;
    let found: u64 = seen.iter().map(|word| u64::from(word.count_ones())).sum();
    let missing = keys * repeat - found;
    match (missing, lines - found) {
        (0, 0) => Ok(lines),
        (missing, more) => Err(format!(
            "of {keys} words with {repeat} counts each, {missing} are missing and {more} come \
             again; doubled, for example: {doubled:?}"
        )),
    }
}

fn parse(line: &str) -> Option<(u64, u64)> {
    let (word, count) = line.strip_prefix('w')?.split_once('\t')?;
    Some((word.parse().ok()?, count.parse().ok()?))
}

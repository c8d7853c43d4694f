//! What a word count must come to: a plain count of the input, compared with committed output.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// How often each word occurs in the files, read `repeat` times.
pub(crate) fn plain_count(files: &[PathBuf], repeat: u64) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(file)
            .unwrap_or_else(|error| panic!("read `{}`: {error}", file.display()));
        for word in text.split_whitespace() {
            *counts.entry(word.to_owned()).or_insert(0) += repeat;
        }
    }
    counts
}

/// Compares the lines `word<TAB>count` of all visible files in `output` with `expected`: for each
/// word exactly 1, 2, …, N, each once.
///
/// # Errors
/// Says what is wrong, with some examples.
pub(crate) fn verify(output: &Path, expected: &BTreeMap<String, u64>) -> Result<u64, String> {
    let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut lines = 0;
    for file in visible_files(output)? {
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("read `{}`: {error}", file.display()))?;
        for line in text.lines() {
            let (word, count) = line
                .rsplit_once('\t')
                .and_then(|(word, count)| Some((word, count.parse().ok()?)))
                .ok_or_else(|| format!("`{}` holds the line `{line}`", file.display()))?;
            seen.entry(word.to_owned()).or_default().push(count);
            lines += 1;
        }
    }
    let mut wrong = String::new();
    let mut complaints = 0;
    let words = expected
        .keys()
        .chain(seen.keys().filter(|word| !expected.contains_key(*word)));
    for word in words {
        let wanted = expected.get(word).copied().unwrap_or(0);
        let mut counts = seen.get(word).cloned().unwrap_or_default();
        counts.sort_unstable();
        if !counts.iter().copied().eq(1..=wanted) {
            complaints += 1;
            if complaints <= 5 {
                let _ = writeln!(
                    wrong,
                    "`{word}`: expected 1 to {wanted} once each, found {} lines: {}",
                    counts.len(),
                    irregularities(&counts, wanted)
                );
            }
        }
    }
    match complaints {
        0 => Ok(lines),
        count => Err(format!("{count} words are wrong:\n{wrong}")),
    }
}

/// Counts that are missing or come more than once.
fn irregularities(counts: &[u64], wanted: u64) -> String {
    let mut times: BTreeMap<u64, u64> = (1..=wanted).map(|count| (count, 0)).collect();
    for count in counts {
        *times.entry(*count).or_insert(0) += 1;
    }
    let odd = times
        .iter()
        .filter(|(count, times)| **times != u64::from(**count <= wanted));
    let texts: Vec<_> = odd
        .take(6)
        .map(|(count, times)| format!("{count} comes {times} times"))
        .collect();
    texts.join(", ")
}

/// The committed files of a sink's folder, by name.
///
/// # Errors
/// If the folder can't be read.
pub(crate) fn visible_files(output: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(output)
        .map_err(|error| format!("list `{}`: {error}", output.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| entry.path())
        .collect();
    files.sort();
    Ok(files)
}

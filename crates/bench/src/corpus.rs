//! A corpus of words as frequent as those of a language, on disk.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::generate::mix;

/// Words in 200 MB.
pub(crate) const WORDS: u64 = 27_650_000;

/// Different words of a corpus.
pub(crate) const VOCABULARY: usize = 50_000;
const FILES: u64 = 8;
const WORDS_PER_LINE: u64 = 10;

/// Words so frequent that the *n*-th most frequent comes with weight 1/*n* (Zipf's law, s = 1).
struct Corpus {
    random: SplitMix,
    words: Vec<String>,
    /// Weights of all words up to this one.
    up_to: Vec<f64>,
}

impl Corpus {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix(seed);
        let mut seen = std::collections::BTreeSet::new();
        let mut words = Vec::with_capacity(VOCABULARY);
        while words.len() < VOCABULARY {
            let length = 2 + (random.next() >> 1) % 11;
            let letter = |_| char::from(b'a' + ((random.next() >> 1) % 26) as u8);
            let word: String = (0..length).map(letter).collect();
            if seen.insert(word.clone()) {
                words.push(word);
            }
        }
        let mut sum = 0.0;
        let weigh = |rank: usize| {
            sum += 1.0 / (rank + 1) as f64;
            sum
        };
        let up_to = (0..VOCABULARY).map(weigh).collect();
        Corpus {
            random,
            words,
            up_to,
        }
    }

    fn next(&mut self) -> &str {
        let total = self.up_to[VOCABULARY - 1];
        let point = (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64 * total;
        let rank = self.up_to.partition_point(|&weight| weight < point);
        &self.words[rank.min(VOCABULARY - 1)]
    }
}

/// The generator of that name (Steele, Lea, Flood 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// Words on disk.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// Text files, lines of ten words.
    pub(crate) paths: Vec<PathBuf>,
    /// Words in all of them.
    pub(crate) words: u64,
}

/// Files of at least `words` words, made the first time they are asked for and kept in `cache`.
///
/// # Errors
/// If they can't be written.
pub(crate) fn files(words: u64, cache: &Path) -> Result<Files> {
    let lines = words.div_ceil(FILES * WORDS_PER_LINE).max(1);
    let words = lines * FILES * WORDS_PER_LINE;
    let folder = cache.join(format!("tidegate-bench-words-{words}-1"));
    if !folder.exists() {
        // A folder of this name is complete: it gets it last.
        let unfinished = tempfile::TempDir::with_prefix_in("tidegate-bench-words-", cache)
            .map_err(Error::io("make a folder in", cache))?;
        write_files(unfinished.path(), lines).map_err(Error::io("write words to", cache))?;
        match std::fs::rename(unfinished.path(), &folder) {
            Ok(()) => drop(unfinished.keep()),
            // Another process was faster.
            Err(_) if folder.exists() => {}
            Err(cause) => return Err(Error::io("make", folder)(cause)),
        }
    }
    let paths = (0..FILES).map(|part| folder.join(format!("part-{part}.txt")));
    Ok(Files {
        paths: paths.collect(),
        words,
    })
}

fn write_files(folder: &Path, lines: u64) -> std::io::Result<()> {
    let mut corpus = Corpus::new(42);
    for part in 0..FILES {
        let mut file = BufWriter::new(File::create(folder.join(format!("part-{part}.txt")))?);
        for _ in 0..lines {
            for at in 1..=WORDS_PER_LINE {
                file.write_all(corpus.next().as_bytes())?;
                file.write_all(if at == WORDS_PER_LINE { b"\n" } else { b" " })?;
            }
        }
        file.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_corpus_is_written_once_and_has_as_many_words_as_it_says() {
        let cache = tempfile::tempdir().unwrap();
        let files_made = files(1_000, cache.path()).unwrap();
        assert_eq!(files_made.words, 1_040);
        let mut counts = BTreeMap::new();
        for path in &files_made.paths {
            for word in std::fs::read_to_string(path).unwrap().split_whitespace() {
                assert!((2..=12).contains(&word.len()), "{word}");
                *counts.entry(word.to_owned()).or_insert(0_u64) += 1;
            }
        }
        assert_eq!(counts.values().sum::<u64>(), files_made.words);
        // The most frequent word has the weight of one in 11.4, the sum of 1/n.
        let most = *counts.values().max().unwrap();
        assert!((50..150).contains(&most), "{most}");
        let modified = |path: &Path| path.metadata().unwrap().modified().unwrap();
        let before = modified(&files_made.paths[0]);
        let again = files(1_000, cache.path()).unwrap();
        assert_eq!(modified(&again.paths[0]), before);
    }
}

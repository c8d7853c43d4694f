//! The words of files, read in pieces and found as fast as on Tidegate.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use tidegate_state::text::words;

use crate::text::Text;

/// Bytes read at a time, at first.
const PIECE: usize = 16 << 10;

/// A file can't be read.
#[derive(Debug, thiserror::Error)]
#[error("open `{path}`")]
pub(crate) struct OpenError {
    path: PathBuf,
    #[source]
    cause: io::Error,
}

/// Opens each file, so that whatever can't be read is told before a job runs.
///
/// # Errors
/// Names the first that can't be opened.
pub(crate) fn check(paths: &[PathBuf]) -> Result<(), OpenError> {
    paths.iter().try_for_each(|path| match File::open(path) {
        Ok(_) => Ok(()),
        Err(cause) => Err(OpenError {
            path: path.clone(),
            cause,
        }),
    })
}

/// The words of some files, one file after another, the last one first, as those of a piece.
pub(crate) struct WordsOf<T> {
    paths: Vec<PathBuf>,
    open: Option<File>,
    /// What has been read and is not among the words: the beginning of a word, then room.
    buffer: Vec<u8>,
    held: usize,
    /// Those words of the last piece that have not been handed out.
    found: Vec<T>,
}

impl<T: Text> WordsOf<T> {
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        WordsOf {
            paths,
            open: None,
            buffer: vec![0; PIECE],
            held: 0,
            found: Vec::new(),
        }
    }

    /// Finds the words of pieces until there are some. Returns whether there are.
    #[inline(never)]
    fn find(&mut self) -> bool {
        while self.found.is_empty() {
            let Some(mut file) = self.open.take().or_else(|| self.next_file()) else {
                return false;
            };
            let read = self.read(&mut file);
            self.find_in(self.held + read, read == 0);
            self.open = (read > 0).then_some(file);
        }
        true
    }

    fn next_file(&mut self) -> Option<File> {
        let path = self.paths.pop()?;
        Some(File::open(path).expect("it was there before the run"))
    }

    /// Reads a piece behind what is held; 0 at the end of a file.
    fn read(&mut self, file: &mut File) -> usize {
        if self.held == self.buffer.len() {
            // A word that fills the buffer.
            self.buffer.resize(2 * self.held, 0);
        }
        let room = &mut self.buffer[self.held..];
        file.read(room)
            .expect("a file that could be opened is read")
    }

    /// Finds the words of the first `end` bytes; the last one goes on behind them, unless that is
    /// the end of the file.
    fn find_in(&mut self, end: usize, is_last: bool) {
        let bytes = &self.buffer[..end];
        let complete = match is_last {
            true => end,
            false => bytes
                .iter()
                .rposition(u8::is_ascii_whitespace)
                .map_or(0, |at| at + 1),
        };
        let text = str::from_utf8(&bytes[..complete]).expect("the files are text");
        self.found.extend(words(text).map(|word| {
            let word = word.as_str();
            let start = word.as_ptr().addr() - text.as_ptr().addr();
            T::beginning_of(&text[start..], word.len())
        }));
        self.buffer.copy_within(complete..end, 0);
        self.held = end - complete;
    }
}

impl<T: Text> Iterator for WordsOf<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(word) = self.found.pop() {
                return Some(word);
            }
            if !self.find() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_state::CompactString;

    use super::*;

    #[test]
    fn words_are_whole_wherever_pieces_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut expected = Vec::new();
        let mut paths = Vec::new();
        for part in 0..3 {
            let mut words: Vec<String> = (0..9_000).map(|at| format!("w{part}x{at}")).collect();
            words.push("long".repeat(PIECE));
            words.push("end".to_owned());
            let path = folder.path().join(part.to_string());
            std::fs::write(&path, words.join(if part == 1 { "\r\n" } else { " " })).unwrap();
            expected.extend(words);
            paths.push(path);
        }
        expected.sort();
        let mut found: Vec<CompactString> = WordsOf::new(paths).collect();
        found.sort();
        assert!(found == expected);
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let error = check(&["/no/such/file".into()]).unwrap_err();
        assert_eq!(error.to_string(), "open `/no/such/file`");
    }
}

//! The words of files, read in large pieces and dealt out as they are found.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use super::flow::Produce;
use super::texts::{Texts, deal};

/// Bytes read at a time: some hundred words, far fewer than a batch holds.
const PIECE: usize = 4 << 10;

/// The words of some files, one file after another.
pub(super) struct Words {
    paths: Vec<PathBuf>,
    open: Option<File>,
    /// What has been read and not dealt out: the beginning of a word, then room.
    buffer: Vec<u8>,
    held: usize,
}

impl Words {
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        Words {
            paths,
            open: None,
            buffer: vec![0; 2 * PIECE],
            held: 0,
        }
    }

    /// Reads a piece behind what is held; 0 at the end of a file.
    fn read(&mut self, file: &mut File) -> usize {
        let room = self.buffer.len() - self.held;
        assert!(room > 0, "words are shorter than {} bytes", 2 * PIECE);
        let piece = &mut self.buffer[self.held..][..room.min(PIECE)];
        file.read(piece)
            .expect("a file that could be opened is read")
    }
}

impl Produce for Words {
    type Batch = Texts;

    fn produce(&mut self, open: &mut [Texts]) -> bool {
        let Some(mut file) = self.open.take().or_else(|| {
            let path = self.paths.pop()?;
            Some(File::open(path).expect("it was there before the run"))
        }) else {
            return false;
        };
        let count = self.read(&mut file);
        let end = self.held + count;
        let text = &self.buffer[..end];
        // A word goes on behind the piece, unless the file ends.
        let complete = match count {
            0 => end,
            _ => text
                .iter()
                .rposition(u8::is_ascii_whitespace)
                .map_or(0, |at| at + 1),
        };
        let words = text[..complete].split(u8::is_ascii_whitespace);
        words
            .filter(|word| !word.is_empty())
            .for_each(|word| deal(word, open));
        self.buffer.copy_within(complete..end, 0);
        self.held = end - complete;
        if count > 0 {
            self.open = Some(file);
        }
        self.open.is_some() || !self.paths.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_wherever_pieces_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut expected = Vec::new();
        let mut paths = Vec::new();
        for part in 0..3 {
            let words: Vec<String> = (0..3_000).map(|at| format!("word{part}x{at}")).collect();
            let path = folder.path().join(part.to_string());
            std::fs::write(&path, words.join(if part == 1 { "\n" } else { " " })).unwrap();
            expected.extend(words);
            paths.push(path);
        }
        paths.reverse();
        let mut words = Words::new(paths);
        let mut open = [Texts::default()];
        while words.produce(&mut open) {}
        let found: Vec<&[u8]> = open[0].iter().collect();
        assert_eq!(
            found,
            expected.iter().map(String::as_bytes).collect::<Vec<_>>()
        );
    }
}

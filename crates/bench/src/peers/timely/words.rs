//! The words of files, read in pieces, found as Tidegate finds them, and dealt out.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use tidegate_state::text::words;

use super::flow::Produce;
use super::records::{Records, STEP, deal};
use crate::packed::PackedWord;

/// Bytes read at a time: some hundred words, far fewer than a batch holds.
const PIECE: usize = 4 << 10;

/// Words have a byte at least, and as many behind them.
const _: () = assert!(PIECE <= STEP);

/// The words of some files, one file after another.
pub(super) struct Words {
    paths: Vec<PathBuf>,
    open: Option<File>,
    /// What has been read and not dealt out: the beginning of a word, then room.
    buffer: Vec<u8>,
    held: usize,
    found: Vec<PackedWord>,
}

impl Words {
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        Words {
            paths,
            open: None,
            buffer: vec![0; 2 * PIECE],
            held: 0,
            found: Vec::new(),
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
    type Batch = Records<PackedWord>;

    fn produce(&mut self, open: &mut [Records<PackedWord>]) -> bool {
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
        let text = str::from_utf8(&text[..complete]).expect("the files are text");
        self.found.clear();
        self.found.extend(words(text).map(|word| {
            let word = word.as_str();
            let start = word.as_ptr().addr() - text.as_ptr().addr();
            PackedWord::beginning_of(&text[start..], word.len())
        }));
        deal(&self.found, open);
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
    use super::super::parcel::Batch;
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
        let mut open = [Records::with_capacity(expected.len())];
        while words.produce(&mut open) {}
        let expected: Vec<_> = expected.iter().map(|word| PackedWord::new(word)).collect();
        assert_eq!(open[0].as_slice(), expected);
    }
}

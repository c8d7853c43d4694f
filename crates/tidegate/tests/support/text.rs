//! Texts to count, the same for the same seed.

use std::fmt::Write as _;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Words that are easily mangled: accents composed and not, other scripts, right to left, emoji
/// with joiners, signs that look like spaces and are none, and such as sinks write.
const ODD_WORDS: [&str; 14] = [
    "wörd",
    "wo\u{308}rd",
    "слово",
    "言葉",
    "كلمة",
    "מילה",
    "🦀",
    "👩‍👩‍👧‍👦",
    "🏳️‍🌈",
    "zero\u{200b}width",
    "\u{feff}mark",
    "\"quoted\"",
    "back\\slash",
    "count:1",
];

/// What Unicode calls white space, apart from the line feed.
const SPACES: [char; 12] = [
    ' ', '\t', '\u{b}', '\u{c}', '\u{85}', '\u{a0}', '\u{1680}', '\u{2003}', '\u{2028}',
    '\u{202f}', '\u{205f}', '\u{3000}',
];

/// Lines of words of which few are frequent and many rare, with odd words, odd spaces and empty
/// lines among them. The last line has no line feed.
pub fn zipf(seed: u64, lines: usize) -> String {
    let mut random = StdRng::seed_from_u64(seed);
    let mut text = String::new();
    for line in 0..lines {
        let words = match random.random_range(0..10) {
            0 => 0,
            _ => random.random_range(1..10),
        };
        for _ in 0..words {
            word(&mut random, &mut text);
            text.push(space(&mut random));
        }
        if line + 1 < lines {
            text.push('\n');
        }
    }
    text.push_str("the-last-word");
    text
}

fn word(random: &mut StdRng, text: &mut String) {
    if random.random_range(0..20) == 0 {
        text.push_str(ODD_WORDS[random.random_range(0..ODD_WORDS.len())]);
        return;
    }
    // The inverse of the distribution function of 1/x on 1..1000: Zipf's law, nearly.
    let rank = 1000f64.powf(random.random::<f64>()) as u64;
    let _ = write!(text, "w{rank}");
}

fn space(random: &mut StdRng) -> char {
    match random.random_range(0..4) {
        0 => SPACES[random.random_range(0..SPACES.len())],
        _ => ' ',
    }
}

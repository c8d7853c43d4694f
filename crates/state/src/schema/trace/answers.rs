//! Dummies: the values that plain questions are answered with, the likeliest first.
//!
//! Numbers begin with 1, which non-zero types accept, too. Texts and bytes go on with what well
//! known types read: numbers, dates, times, addresses, UUIDs.

use crate::schema::Plain;

pub(super) const NUMBERS: [u8; 6] = [1, 0, 2, 7, 12, 100];

pub(super) const CHARS: [char; 4] = ['a', 'A', '0', ' '];

pub(super) const TEXTS: [&str; 14] = [
    "",
    "a",
    "A",
    "1",
    "0.1",
    "1970-01-01",
    "00:00:00",
    "1970-01-01T00:00:00",
    "1970-01-01T00:00:00Z",
    "00000000-0000-0000-0000-000000000000",
    "http://localhost/",
    "127.0.0.1",
    "::1",
    "127.0.0.1:80",
];

const ZEROS: &[u8] = &[0; 64];

const BYTE_COUNTS: [usize; 8] = [0, 16, 32, 4, 8, 1, 20, 64];

/// The bytes that are tried as number `at`.
pub(super) fn bytes(at: usize) -> &'static [u8] {
    &ZEROS[..BYTE_COUNTS[at]]
}

/// How many answers there are to a question.
pub(super) fn count(plain: Plain) -> usize {
    match plain {
        Plain::Unit => 1,
        Plain::Bool => 2,
        Plain::Char => CHARS.len(),
        Plain::String => TEXTS.len(),
        Plain::Bytes => BYTE_COUNTS.len(),
        _ => NUMBERS.len(),
    }
}

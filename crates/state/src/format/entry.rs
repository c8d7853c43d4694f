//! Entries of a chunk: a key and a value, or a key alone, each preceded by its length.

use serde::Serialize;

use crate::descriptor::StateValue;
use crate::error::LoadError;

/// Appends `value` as unsigned LEB128.
#[inline]
fn push_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads an unsigned LEB128 number in its shortest form.
#[inline]
pub(super) fn take_varint(input: &mut &[u8]) -> Option<u64> {
    // Nearly always: one byte is all.
    if let Some((&byte, rest)) = input.split_first()
        && byte < 0x80
    {
        *input = rest;
        return Some(byte.into());
    }
    take_long_varint(input)
}

fn take_long_varint(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = input.split_first()?;
        *input = rest;
        let bits = u64::from(byte & 0x7f);
        if (bits << shift) >> shift != bits || (byte == 0 && shift > 0) {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[inline]
fn take_delimited<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_varint(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(bytes)
}

/// Appends what `write` appends, preceded by its length.
#[inline]
pub(super) fn push_delimited<E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let at = out.len();
    out.push(0);
    write(out)?;
    let length = out.len() - at - 1;
    if length < 0x80 {
        // Nearly always: one byte is enough, and it is there already.
        out[at] = length as u8;
    } else {
        lengthen_prefix(out, at, length);
    }
    Ok(())
}

/// Makes the byte at `at` the prefix of what follows it, which is longer than a byte can say.
#[cold]
fn lengthen_prefix(out: &mut Vec<u8>, at: usize, length: usize) {
    let mut prefix = Vec::with_capacity(10);
    push_varint(length as u64, &mut prefix);
    out.splice(at..=at, prefix);
}

/// Lets postcard append to a payload.
struct Append<'a>(&'a mut Vec<u8>);

/// Bytes that are appended one by one: up to here that is faster than a call that copies them.
const SHORT_BYTES: usize = 4;

impl postcard::ser_flavors::Flavor for Append<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    /// Most numbers are short ones.
    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        match bytes.len() {
            0..=SHORT_BYTES => bytes.iter().for_each(|byte| self.0.push(*byte)),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends one entry, whose parts `key` and `value` write, to a payload.
#[inline]
pub(crate) fn encode_entry(
    out: &mut Vec<u8>,
    key: impl FnOnce(&mut Vec<u8>),
    value: impl FnOnce(&mut Vec<u8>) -> postcard::Result<()>,
) -> postcard::Result<()> {
    push_delimited(out, |out| {
        key(out);
        postcard::Result::Ok(())
    })?;
    push_delimited(out, value)
}

/// Appends a serialised value, without its length.
#[inline]
pub(crate) fn encode_value<V: Serialize>(value: &V, out: &mut Vec<u8>) -> postcard::Result<()> {
    postcard::serialize_with_flavor(value, Append(out))
}

/// Reads a value that fills `bytes`, the value of entry `entry`.
#[inline]
pub(crate) fn decode_value<V: StateValue>(entry: u32, bytes: &[u8]) -> Result<V, LoadError> {
    let (value, rest) =
        postcard::take_from_bytes(bytes).map_err(|cause| LoadError::Value { entry, cause })?;
    if !rest.is_empty() {
        return Err(LoadError::TrailingValue {
            entry,
            bytes: rest.len(),
        });
    }
    Ok(value)
}

/// Appends one tombstone, whose key `key` writes, to a payload.
#[inline]
pub(crate) fn encode_tombstone(out: &mut Vec<u8>, key: impl FnOnce(&mut Vec<u8>)) {
    let written = push_delimited(out, |out| {
        key(out);
        Ok::<_, std::convert::Infallible>(())
    });
    match written {
        Ok(()) => {}
        Err(never) => match never {},
    }
}

/// Walks what a payload consists of, piece by piece.
struct Walk<'a> {
    rest: &'a [u8],
    next: u32,
    count: u32,
}

impl<'a> Walk<'a> {
    /// Takes the next one, which `take` reads, with its position.
    #[inline]
    fn next<T>(
        &mut self,
        take: impl FnOnce(&mut &'a [u8]) -> Option<T>,
    ) -> Option<Result<(u32, T), LoadError>> {
        let entry = self.next;
        if entry == self.count {
            let left = !self.rest.is_empty();
            self.rest = &[];
            return left.then_some(Err(LoadError::Length { entry }));
        }
        match take(&mut self.rest) {
            Some(found) => {
                self.next += 1;
                Some(Ok((entry, found)))
            }
            None => {
                (self.next, self.rest) = (self.count, &[]);
                Some(Err(LoadError::Length { entry }))
            }
        }
    }
}

/// Walks the entries of a payload as raw keys and values.
pub(crate) struct Entries<'a>(Walk<'a>);

impl<'a> Entries<'a> {
    /// The `count` entries of `payload`.
    pub(crate) fn new(rest: &'a [u8], count: u32) -> Self {
        let next = 0;
        Entries(Walk { rest, next, count })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(u32, &'a [u8], &'a [u8]), LoadError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let read = self
            .0
            .next(|rest| Some((take_delimited(rest)?, take_delimited(rest)?)))?;
        Some(read.map(|(entry, (key, value))| (entry, key, value)))
    }
}

/// Walks the tombstones of a payload as raw keys.
pub(crate) struct Tombstones<'a>(Walk<'a>);

impl<'a> Tombstones<'a> {
    /// The `count` tombstones of `payload`.
    pub(crate) fn new(rest: &'a [u8], count: u32) -> Self {
        let next = 0;
        Tombstones(Walk { rest, next, count })
    }
}

impl<'a> Iterator for Tombstones<'a> {
    type Item = Result<(u32, &'a [u8]), LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(take_delimited)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn varints_round_trip(value: u64, tail: u8) {
            let mut bytes = Vec::new();
            push_varint(value, &mut bytes);
            bytes.push(tail);
            let mut input = bytes.as_slice();
            prop_assert_eq!(take_varint(&mut input), Some(value));
            prop_assert_eq!(input, [tail]);
        }
    }

    // Lengths of one, two and three bytes.
    #[test]
    fn entries_of_any_length_round_trip() {
        for length in [0, 1, 127, 128, 129, 16383, 16384, 100_000] {
            let text = "x".repeat(length);
            let mut payload = Vec::new();
            let key = |out: &mut Vec<u8>| out.extend_from_slice(text.as_bytes());
            encode_entry(&mut payload, key, |out| encode_value(&text, out)).unwrap();
            let key = |out: &mut Vec<u8>| out.push(1);
            encode_entry(&mut payload, key, |out| encode_value(&2u8, out)).unwrap();
            let entries: Vec<_> = Entries::new(&payload, 2).map(Result::unwrap).collect();
            assert_eq!(entries[0].1, text.as_bytes());
            assert_eq!(postcard::from_bytes::<String>(entries[0].2).unwrap(), text);
            assert_eq!(entries[1], (1, [1].as_slice(), [2].as_slice()));
        }
    }

    // BC-48: lengths never wrap.
    #[test]
    fn overlong_and_overflowing_varints_are_refused() {
        assert_eq!(take_varint(&mut [0x80, 0x00].as_slice()), None);
        assert_eq!(take_varint(&mut [0xff; 10].as_slice()), None);
        assert_eq!(take_varint(&mut [0x80; 3].as_slice()), None);
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(take_varint(&mut huge.as_slice()), Some(u64::MAX));
        assert!(take_delimited(&mut huge.as_slice()).is_none());
    }

    #[test]
    fn entries_report_missing_and_surplus_bytes() {
        let payload = [1, b'k', 1, b'v'];
        let all: Vec<_> = Entries::new(&payload, 1).map(Result::unwrap).collect();
        assert_eq!(all, [(0, b"k".as_slice(), b"v".as_slice())]);
        let too_many: Vec<_> = Entries::new(&payload, 2).collect();
        assert!(matches!(too_many[1], Err(LoadError::Length { entry: 1 })));
        let too_few: Vec<_> = Entries::new(&payload, 0).collect();
        assert!(matches!(
            too_few.as_slice(),
            [Err(LoadError::Length { entry: 0 })]
        ));
    }

    #[test]
    fn tombstones_report_missing_and_surplus_bytes() {
        let mut payload = Vec::new();
        encode_tombstone(&mut payload, |out| out.extend_from_slice(b"key"));
        encode_tombstone(&mut payload, |_| ());
        let all: Vec<_> = Tombstones::new(&payload, 2).map(Result::unwrap).collect();
        assert_eq!(all, [(0, b"key".as_slice()), (1, b"".as_slice())]);
        let too_many = Tombstones::new(&payload, 3).last();
        assert!(matches!(
            too_many,
            Some(Err(LoadError::Length { entry: 2 }))
        ));
        let too_few = Tombstones::new(&payload, 1).last();
        assert!(matches!(too_few, Some(Err(LoadError::Length { entry: 1 }))));
    }
}

//! Entries in short form: keys of fixed width, without the zeros at their end, in front of their
//! values.
//!
//! Most keys of fixed width are small numbers, and so are most values beside them. In short form
//! the width stands once, in front of all entries, and one byte per entry says how many bytes
//! follow: the count of a key below 2^24 takes 5 or 6 bytes instead of 11 or 12.
//!
//! Appending byte by byte looks at the end of the payload each time. Here room is made for the
//! longest entry at once, the parts are put where they belong, and what is too much is cut off.
//!
//! | Payload | |
//! |---|---|
//! | 1 | width: bytes of a key, at most 16 |
//! | … | per entry: tag, key, value length if it isn't in the tag, value |
//!
//! The lower half of a tag is how many bytes of the key are left out at its end, all of them 0; the
//! upper half the length of the value, or 15 if that follows the key as a varint.

use postcard::ser_flavors::Flavor;
use serde::Serialize;

use super::entry::{encode_value, push_delimited, take_varint};
use crate::key::FixedEncoding;

/// Size of the largest value in memory that is tried, in bytes: serialised, most are not longer
/// than [`VALUE_BYTES_MAX`].
const VALUE_SIZE_MAX: usize = 16;

/// Bytes of the longest serialised value that is put at its place at once.
const VALUE_BYTES_MAX: usize = 24;

/// Bytes of the longest such entry: tag, key, length, value.
const ENTRY_BYTES_MAX: usize = 2 + FixedEncoding::WIDTH_MAX + VALUE_BYTES_MAX;

/// Bytes of a key that are left out at most.
const CUT_MAX: usize = 15;

/// In place of a value's length: it follows, and is at least as large.
const LENGTH_FOLLOWS: usize = 15;

/// Bytes by which a payload is made longer if there is no room for the longest entry.
const ROOM_BYTES: usize = 4 << 10;

/// Appends an entry in short form to the first `end` bytes of `out`. What is behind them is room
/// for entries to come: so there is something to overwrite, which takes no time to be made.
#[inline]
pub(crate) fn encode_short_entry<V: Serialize>(
    out: &mut Vec<u8>,
    end: &mut usize,
    key: FixedEncoding,
    value: &V,
) -> postcard::Result<()> {
    if size_of::<V>() <= VALUE_SIZE_MAX && !std::mem::needs_drop::<V>() {
        if out.len() - *end < ENTRY_BYTES_MAX {
            make_room(out, *end);
        }
        if let Some(slot) = out[*end..].first_chunk_mut()
            && let Some(written) = write_entry(slot, key, value)
        {
            *end += written;
            return Ok(());
        }
    }
    out.truncate(*end);
    let appended = append_entry(out, key, value);
    *end = out.len();
    appended
}

#[cold]
fn make_room(out: &mut Vec<u8>, end: usize) {
    out.resize(end + ROOM_BYTES, 0);
}

/// How many bytes of a key are left out.
#[inline]
fn cut(key: FixedEncoding) -> usize {
    key.zeros_at_end().min(CUT_MAX)
}

/// Writes an entry to the front of `slot` and returns its length; `None` if the value is too long,
/// or doesn't serialise.
#[inline]
fn write_entry<V: Serialize>(
    slot: &mut [u8; ENTRY_BYTES_MAX],
    key: FixedEncoding,
    value: &V,
) -> Option<usize> {
    slot[1..1 + FixedEncoding::WIDTH_MAX].copy_from_slice(&key.padded());
    let cut = cut(key);
    let value_at = 1 + key.width() - cut;
    let mut serializer = postcard::Serializer {
        output: ValueSlot {
            bytes: &mut slot[value_at..value_at + VALUE_BYTES_MAX],
            length: 0,
        },
    };
    value.serialize(&mut serializer).ok()?;
    let length = serializer.output.length;
    if length < LENGTH_FOLLOWS {
        slot[0] = (length << 4 | cut) as u8;
        return Some(value_at + length);
    }
    slot.copy_within(value_at..value_at + length, value_at + 1);
    slot[value_at] = length as u8;
    slot[0] = (LENGTH_FOLLOWS << 4 | cut) as u8;
    Some(value_at + 1 + length)
}

/// Appends an entry with any value.
fn append_entry<V: Serialize>(
    out: &mut Vec<u8>,
    key: FixedEncoding,
    value: &V,
) -> postcard::Result<()> {
    let (start, cut) = (out.len(), cut(key));
    out.push(0);
    out.extend_from_slice(&key.padded()[..key.width() - cut]);
    let length_at = out.len();
    push_delimited(out, |out| encode_value(value, out))?;
    let length = out.len() - length_at - 1;
    out[start] = if length < LENGTH_FOLLOWS {
        out.remove(length_at);
        length << 4 | cut
    } else {
        LENGTH_FOLLOWS << 4 | cut
    } as u8;
    Ok(())
}

/// Appends the entries of a payload in short form as [`encode_entry`](super::encode_entry) would.
/// `None` if they aren't `count` entries, to the last byte.
pub(super) fn expand_short_entries(payload: &[u8], count: u32, out: &mut Vec<u8>) -> Option<()> {
    let (&width, mut rest) = payload.split_first()?;
    let width = usize::from(width);
    if width > FixedEncoding::WIDTH_MAX {
        return None;
    }
    for _ in 0..count {
        expand_entry(&mut rest, width, out)?;
    }
    rest.is_empty().then_some(())
}

/// Takes an entry off the front of `rest`.
#[inline]
fn expand_entry(rest: &mut &[u8], width: usize, out: &mut Vec<u8>) -> Option<()> {
    let (&tag, after_tag) = rest.split_first()?;
    let (cut, length) = (usize::from(tag & 15), usize::from(tag >> 4));
    let (key, mut after_key) = after_tag.split_at_checked(width.checked_sub(cut)?)?;
    let mut padded = [0; FixedEncoding::WIDTH_MAX];
    padded[..key.len()].copy_from_slice(key);
    out.push(width as u8);
    out.extend_from_slice(&padded[..width]);
    let prefixed = after_key;
    let length = match length {
        LENGTH_FOLLOWS => take_varint(&mut after_key).filter(|length| *length >= 15)?,
        length => {
            out.push(length as u8);
            length as u64
        }
    };
    // The prefix is what precedes a value in any entry.
    let prefix = prefixed.len() - after_key.len();
    let end = prefix.checked_add(usize::try_from(length).ok()?)?;
    let (value, left) = prefixed.split_at_checked(end)?;
    out.extend_from_slice(value);
    *rest = left;
    Some(())
}

/// Lets postcard write to a place of limited size.
struct ValueSlot<'a> {
    bytes: &'a mut [u8],
    length: usize,
}

impl Flavor for ValueSlot<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        let next = self.bytes.get_mut(self.length);
        *next.ok_or(postcard::Error::SerializeBufferFull)? = byte;
        self.length += 1;
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        bytes.iter().try_for_each(|byte| self.try_push(*byte))
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize, Serializer};

    use super::*;
    use crate::descriptor::StateValue;
    use crate::format::encode_entry;
    use crate::key::StateKey;

    /// A payload with one entry, that of `key` and `value`.
    fn short<V: StateValue>(key: &impl StateKey, value: &V) -> postcard::Result<Vec<u8>> {
        let fixed = key.fixed_encoding().expect("the key is of fixed width");
        let mut payload = vec![fixed.width() as u8];
        let mut end = payload.len();
        encode_short_entry(&mut payload, &mut end, fixed, value)?;
        payload.truncate(end);
        Ok(payload)
    }

    fn plain<V: StateValue>(key: &impl StateKey, value: &V) -> Vec<u8> {
        let mut plain = Vec::new();
        let key = |out: &mut Vec<u8>| key.encode(out);
        encode_entry(&mut plain, key, |out| encode_value(value, out)).unwrap();
        plain
    }

    /// An entry comes back as if it had never been short.
    fn round_trips<V: StateValue>(key: &impl StateKey, value: &V) {
        let payload = short(key, value).unwrap();
        let mut expanded = vec![7; 3];
        expand_short_entries(&payload, 1, &mut expanded).unwrap();
        assert_eq!(expanded[3..], plain(key, value));
        assert!(payload.len() <= 1 + plain(key, value).len());
        // Long values take the other way to the same bytes.
        let mut appended = payload[..1].to_vec();
        append_entry(&mut appended, key.fixed_encoding().unwrap(), value).unwrap();
        assert_eq!(appended, payload);
    }

    proptest! {
        #[test]
        fn entries_round_trip(
            byte: u8, small: i16, large: u64, huge: u128, signed: i128, float: f64, letter: char,
        ) {
            round_trips(&large, &large);
            round_trips(&byte, &huge);
            round_trips(&huge, &(large, large));
            round_trips(&signed, &signed);
            round_trips(&small, &(letter, byte));
            round_trips(&letter, &float);
            round_trips(&true, &Some(small));
            round_trips(&(large as usize), &[byte; 16]);
            round_trips(&(large as isize), &[u16::MAX; 8]);
            round_trips(&large, &vec![byte; usize::from(byte)]);
            for bits in 0..64 {
                round_trips(&(large >> bits), &(large >> bits));
                round_trips(&(huge >> (2 * bits)), &byte);
            }
        }

        #[test]
        fn what_is_no_payload_is_refused(payload: Vec<u8>, count in 0u32..20) {
            let mut expanded = Vec::new();
            if expand_short_entries(&payload, count, &mut expanded).is_some() {
                prop_assert!(expanded.len() <= (payload.len() - 1) * 19);
            }
        }
    }

    #[test]
    fn small_numbers_are_short() {
        assert_eq!(short(&0u64, &0u64).unwrap(), [8, 0x18, 0]);
        assert_eq!(
            short(&0x1_0203u64, &300u64).unwrap(),
            [8, 0x25, 3, 2, 1, 0xac, 2]
        );
        assert_eq!(short(&0u128, &()).unwrap(), [16, 0x0f, 0]);
        let long = short(&-1i16, &[1u8; 15]).unwrap();
        assert_eq!(long[..5], [2, 0xf0, 0xff, 0xff, 15]);
        assert_eq!(long.len(), 5 + 15);
    }

    #[test]
    fn entries_follow_each_other_to_the_last_byte() {
        let mut payload = short(&1u32, &200u64).unwrap();
        payload.extend_from_slice(&short(&0u32, &1u64).unwrap()[1..]);
        let mut expanded = Vec::new();
        expand_short_entries(&payload, 2, &mut expanded).unwrap();
        assert_eq!(
            expanded,
            [plain(&1u32, &200u64), plain(&0u32, &1u64)].concat()
        );
        for (payload, count) in [
            (&payload[..], 1),
            (&payload[..], 3),
            (&payload[..payload.len() - 1], 2),
            (&[][..], 0),
            (&[17][..], 0),
            // More is left out than there is.
            (&[4, 0x05][..], 1),
            // The length would have fit into the tag, isn't the shortest, or is beyond the end.
            (&[0, 0xf0, 1, 1][..], 1),
            (&[0, 0xf0, 0x8f, 0][..], 1),
            (&[0, 0xf0, 200, 1, 0][..], 1),
        ] {
            assert_eq!(expand_short_entries(payload, count, &mut Vec::new()), None);
        }
    }

    /// Serialised, so many bytes.
    #[derive(Clone, Deserialize)]
    struct Long(u8);

    impl Serialize for Long {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            // One more, for its length.
            serializer.serialize_bytes(&vec![self.0; usize::from(self.0) - 1])
        }
    }

    #[derive(Clone, Deserialize)]
    struct Unserialisable;

    impl Serialize for Unserialisable {
        fn serialize<S: Serializer>(&self, _serializer: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }

    #[test]
    fn long_values_go_another_way_and_failures_are_told() {
        for length in [
            1,
            14,
            15,
            16,
            VALUE_BYTES_MAX as u8,
            VALUE_BYTES_MAX as u8 + 1,
            126,
        ] {
            round_trips(&u128::MAX, &Long(length));
            round_trips(&0u128, &Long(length));
        }
        round_trips(&1u8, &[0u64; 3]);
        round_trips(&1u8, &"text".repeat(100));
        assert!(short(&1u8, &Unserialisable).is_err());
    }
}

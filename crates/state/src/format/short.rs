//! Encoding entries whose keys and values are small numbers, or little more.
//!
//! Appending byte by byte looks at the end of the payload each time. Here room is made for the
//! longest entry at once, the parts are put at fixed places, and what is too much is cut off. The
//! bytes are those of [`encode_entry`](super::encode_entry).

use postcard::ser_flavors::Flavor;

use crate::descriptor::StateValue;
use crate::key::FixedEncoding;

/// Size of the largest value in memory that is tried, in bytes: serialised, most are not longer
/// than [`VALUE_BYTES_MAX`].
const VALUE_SIZE_MAX: usize = 16;

/// Bytes of the longest serialised value.
const VALUE_BYTES_MAX: usize = 24;

/// Bytes of the longest entry: two lengths of one byte each, key, value.
const ENTRY_BYTES_MAX: usize = 2 + FixedEncoding::WIDTH_MAX + VALUE_BYTES_MAX;

/// Appends an entry to a payload, or nothing if this is not the way for it: then it returns
/// `false`.
#[inline]
pub(crate) fn encode_short_entry<V: StateValue>(
    out: &mut Vec<u8>,
    key: FixedEncoding,
    value: &V,
) -> bool {
    if size_of::<V>() > VALUE_SIZE_MAX || std::mem::needs_drop::<V>() {
        return false;
    }
    let start = out.len();
    out.extend_from_slice(&[0; ENTRY_BYTES_MAX]);
    let written = write_entry(&mut out[start..], key, value);
    out.truncate(start + written.unwrap_or(0));
    written.is_some()
}

/// Writes an entry to the front of `slot` and returns its length; `None` if the value is too long,
/// or doesn't serialise.
#[inline]
fn write_entry<V: StateValue>(slot: &mut [u8], key: FixedEncoding, value: &V) -> Option<usize> {
    let slot: &mut [u8; ENTRY_BYTES_MAX] = slot.try_into().ok()?;
    let width = key.width();
    slot[0] = width as u8;
    slot[1..1 + FixedEncoding::WIDTH_MAX].copy_from_slice(&key.padded());
    let mut serializer = postcard::Serializer {
        output: ValueSlot {
            bytes: &mut slot[2 + width..2 + width + VALUE_BYTES_MAX],
            length: 0,
        },
    };
    value.serialize(&mut serializer).ok()?;
    let length = serializer.output.length;
    slot[1 + width] = length as u8;
    Some(2 + width + length)
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
    use crate::format::{encode_entry, encode_value};
    use crate::key::StateKey;

    /// Whether the short way was taken. If so, it must give what the other gives; if not, nothing.
    fn is_short<V: StateValue>(key: &impl StateKey, value: &V) -> bool {
        let (mut short, mut plain) = (vec![7; 3], vec![7; 3]);
        let fixed = key.fixed_encoding().expect("the key is of fixed width");
        let written = encode_short_entry(&mut short, fixed, value);
        if written {
            let key = |out: &mut Vec<u8>| key.encode(out);
            encode_entry(&mut plain, key, |out| encode_value(value, out)).unwrap();
        }
        assert_eq!(short, plain);
        written
    }

    proptest! {
        #[test]
        fn numbers_are_written_as_ever(
            byte: u8, small: i16, large: u64, huge: u128, signed: i128, float: f64, letter: char,
        ) {
            prop_assert!(is_short(&large, &large));
            prop_assert!(is_short(&byte, &huge));
            prop_assert!(is_short(&huge, &(large, large)));
            prop_assert!(is_short(&signed, &signed));
            prop_assert!(is_short(&small, &(letter, byte)));
            prop_assert!(is_short(&letter, &float));
            prop_assert!(is_short(&true, &Some(small)));
            prop_assert!(is_short(&(large as usize), &[byte; 16]));
            prop_assert!(is_short(&(large as isize), &[u16::MAX; 8]));
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
    fn what_is_too_long_or_fails_leaves_nothing() {
        assert!(is_short(&u128::MAX, &Long(VALUE_BYTES_MAX as u8)));
        assert!(!is_short(&u128::MAX, &Long(VALUE_BYTES_MAX as u8 + 1)));
        assert!(!is_short(&1u8, &Long(200)));
        assert!(!is_short(&1u8, &Unserialisable));
        assert!(!is_short(&1u8, &[0u64; 3]), "large in memory");
        assert!(!is_short(&1u8, &String::new()), "owns memory");
    }
}

//! Items as bytes, for their way to another process.
//!
//! Timely asks for the length of a message first and then for its bytes. To find out the length,
//! everything has to be encoded; so that is what is done, into a buffer that the worker keeps, and
//! the bytes are copied from there. Numbers are written at once into room that is known to be
//! there, since most records consist of little else.

use std::cell::Cell;

use postcard::ser_flavors::Flavor;
use serde::Serialize;

/// Larger buffers aren't kept: items are smaller, unless a record is very large.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// At least so much room is there before a few bytes are written.
const ROOM: usize = 16;

thread_local! {
    /// The buffer of this worker, if it isn't in use.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// An encoded value, in a buffer that goes back to its worker.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// What is behind `length` is left from other values.
    buffer: Vec<u8>,
    length: usize,
}

impl Encoded {
    /// Encodes with postcard.
    pub(crate) fn new(value: &impl Serialize) -> postcard::Result<Encoded> {
        let encoded = Encoded {
            buffer: SPARE.take(),
            length: 0,
        };
        postcard::serialize_with_flavor(value, encoded)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    #[cold]
    fn grow(&mut self, room: usize) {
        let length = (self.length + room).next_power_of_two();
        self.buffer.resize(length.max(4096), 0);
    }

    #[inline]
    fn ensure(&mut self, room: usize) {
        if self.buffer.len() - self.length < room {
            self.grow(room);
        }
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.ensure(ROOM);
        self.buffer[self.length..][..N].copy_from_slice(&bytes);
        self.length += N;
    }
}

impl Drop for Encoded {
    fn drop(&mut self) {
        if self.buffer.len() <= KEPT_BYTES_MAX {
            SPARE.set(std::mem::take(&mut self.buffer));
        }
    }
}

/// Inlined in any case: as calls, these cost as much again as what they do.
impl Flavor for Encoded {
    type Output = Encoded;

    #[inline(always)]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.put([byte]);
        Ok(())
    }

    #[inline(always)]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        // Copies of a known length are a store or two, and not a call.
        match *bytes {
            [a] => self.put([a]),
            [a, b] => self.put([a, b]),
            [a, b, c] => self.put([a, b, c]),
            [a, b, c, d] => self.put([a, b, c, d]),
            [a, b, c, d, e] => self.put([a, b, c, d, e]),
            _ => {
                self.ensure(bytes.len());
                self.buffer[self.length..][..bytes.len()].copy_from_slice(bytes);
                self.length += bytes.len();
            }
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Encoded> {
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What items are made of, and what is between.
    type Anything = (Vec<(u64, i32)>, String, Vec<u8>, u128, Option<Vec<String>>);

    proptest! {
        #[test]
        fn bytes_are_those_of_postcard(values: Vec<Anything>) {
            for value in values {
                let encoded = Encoded::new(&value).unwrap();
                prop_assert_eq!(encoded.bytes(), postcard::to_stdvec(&value).unwrap());
            }
        }
    }

    #[test]
    fn a_buffer_is_used_again_unless_it_is_very_large() {
        let long = "x".repeat(10_000);
        drop(Encoded::new(&long).unwrap());
        let again = Encoded::new(&7u8).unwrap();
        assert_eq!(again.bytes(), [7]);
        assert!(again.buffer.len() >= 10_000);
        let another = Encoded::new(&8u8).unwrap();
        assert_eq!((another.bytes(), again.bytes()), (&[8][..], &[7][..]));
        drop((again, another));

        drop(Encoded::new(&"x".repeat(KEPT_BYTES_MAX + 1)).unwrap());
        assert!(Encoded::new(&9u8).unwrap().buffer.len() <= KEPT_BYTES_MAX);
    }
}

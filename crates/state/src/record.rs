//! What flows between operators, and how much memory it holds.
//!
//! Flow control counts bytes, so every record can tell how many it owns on the heap. For types
//! without heap data the answer is a constant 0 that the compiler folds away.

use std::path::PathBuf;

use compact_str::CompactString;

use crate::key::heap_bytes_of;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value that operators can exchange, also between processes.
///
/// Derive it (`#[derive(Record)]`) next to serde's `Serialize` and `Deserialize`.
pub trait Record: Clone + Send + Sync + Serialize + DeserializeOwned + 'static {
    /// Bytes this value owns on the heap, besides its own size: an estimate that ignores spare
    /// capacity and the allocator's overhead. 0 for types that own none; it isn't asked of those
    /// that need no dropping (`std::mem::needs_drop`), which can't own any.
    #[inline]
    fn heap_bytes(&self) -> usize {
        0
    }
}

macro_rules! plain_records {
    ($($type:ty),*) => {$(impl Record for $type {})*};
}

plain_records!(
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    f32,
    f64,
    bool,
    char,
    ()
);

impl Record for String {
    #[inline]
    fn heap_bytes(&self) -> usize {
        self.len()
    }
}

impl Record for CompactString {
    #[inline]
    fn heap_bytes(&self) -> usize {
        heap_bytes_of(self)
    }
}

impl Record for PathBuf {
    #[inline]
    fn heap_bytes(&self) -> usize {
        self.as_os_str().len()
    }
}

impl<T: Record> Record for Vec<T> {
    #[inline]
    fn heap_bytes(&self) -> usize {
        let nested: usize = self.iter().map(T::heap_bytes).sum();
        self.len() * size_of::<T>() + nested
    }
}

impl<T: Record> Record for Option<T> {
    #[inline]
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, T::heap_bytes)
    }
}

impl<T: Record> Record for Box<T> {
    #[inline]
    fn heap_bytes(&self) -> usize {
        size_of::<T>() + T::heap_bytes(self)
    }
}

impl<T: Record, const N: usize> Record for [T; N]
where
    [T; N]: Serialize + DeserializeOwned,
{
    #[inline]
    fn heap_bytes(&self) -> usize {
        self.iter().map(T::heap_bytes).sum()
    }
}

macro_rules! tuple_records {
    ($(($($name:ident),*)),*) => {$(
        impl<$($name: Record),*> Record for ($($name,)*) {
            #[inline]
            #[allow(non_snake_case)]
            fn heap_bytes(&self) -> usize {
                let ($($name,)*) = self;
                0 $(+ $name.heap_bytes())*
            }
        }
    )*};
}

tuple_records!(
    (A),
    (A, B),
    (A, B, C),
    (A, B, C, D),
    (A, B, C, D, E),
    (A, B, C, D, E, F)
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_types_own_nothing() {
        assert_eq!(7u64.heap_bytes(), 0);
        assert_eq!(
            (1u8, 'c', 2.0f64, [1u16; 4], Some(3i128), ()).heap_bytes(),
            0
        );
    }

    #[test]
    fn owned_bytes_add_up() {
        assert_eq!("abc".to_owned().heap_bytes(), 3);
        assert_eq!(vec![1u64, 2].heap_bytes(), 16);
        let words = vec!["ab".to_owned(), "c".to_owned()];
        assert_eq!(words.heap_bytes(), 2 * size_of::<String>() + 3);
        assert_eq!(Box::new((1u32, "abcd".to_owned())).heap_bytes(), 32 + 4);
        assert_eq!((1u8, Some("xy".to_owned())).heap_bytes(), 2);
    }

    #[test]
    fn small_strings_own_nothing() {
        for (length, bytes) in [(0, 0), (24, 0), (25, 25)] {
            let text = CompactString::from("x".repeat(length));
            assert_eq!((1u8, text).heap_bytes(), bytes);
        }
    }
}

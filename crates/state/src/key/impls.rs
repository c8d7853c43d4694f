//! Canonical encodings of the built-in key types.

use compact_str::CompactString;
use tidegate_types::{hash_bytes, hash_each};

use super::inline::same_text;
use super::short::same_bytes;
use super::{FixedEncoding, KeyError, StateKey, take};

macro_rules! integer_keys {
    ($($type:ty as $unsigned:ty),*) => {$(
        impl StateKey for $type {
            fn schema(out: &mut String) {
                out.push_str(stringify!($type));
            }

            #[inline]
            fn encode_element(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn decode_element(input: &mut &[u8]) -> Result<Self, KeyError> {
                let bytes = take(input, size_of::<$type>())?;
                Ok(<$type>::from_le_bytes(bytes.try_into().expect("took as many bytes")))
            }

            #[inline]
            fn fixed_encoding(&self) -> Option<FixedEncoding> {
                let bits = *self as $unsigned;
                Some(FixedEncoding::new(bits.into(), size_of::<$type>()))
            }

            #[inline]
            fn key_hash(&self) -> u64 {
                hash_bytes(&self.to_le_bytes())
            }
        }
    )*};
}

integer_keys!(
    u8 as u8,
    u16 as u16,
    u32 as u32,
    u64 as u64,
    u128 as u128,
    i8 as u8,
    i16 as u16,
    i32 as u32,
    i64 as u64,
    i128 as u128
);

macro_rules! pointer_sized_keys {
    ($($type:ty as $wide:ty),*) => {$(
        impl StateKey for $type {
            fn schema(out: &mut String) {
                out.push_str(stringify!($wide));
            }

            #[inline]
            fn encode_element(&self, out: &mut Vec<u8>) {
                (*self as $wide).encode_element(out);
            }

            fn decode_element(input: &mut &[u8]) -> Result<Self, KeyError> {
                let wide = <$wide>::decode_element(input)?;
                <$type>::try_from(wide).map_err(|_| KeyError::Invalid {
                    value: wide as u64,
                    of: stringify!($type),
                })
            }

            #[inline]
            fn fixed_encoding(&self) -> Option<FixedEncoding> {
                (*self as $wide).fixed_encoding()
            }

            #[inline]
            fn key_hash(&self) -> u64 {
                (*self as $wide).key_hash()
            }
        }
    )*};
}

pointer_sized_keys!(usize as u64, isize as i64);

impl StateKey for bool {
    fn schema(out: &mut String) {
        out.push_str("bool");
    }

    #[inline]
    fn encode_element(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn decode_element(input: &mut &[u8]) -> Result<Self, KeyError> {
        match u8::decode_element(input)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(KeyError::Invalid {
                value: value.into(),
                of: "bool",
            }),
        }
    }

    #[inline]
    fn fixed_encoding(&self) -> Option<FixedEncoding> {
        u8::from(*self).fixed_encoding()
    }

    #[inline]
    fn key_hash(&self) -> u64 {
        u8::from(*self).key_hash()
    }
}

impl StateKey for char {
    fn schema(out: &mut String) {
        out.push_str("char");
    }

    #[inline]
    fn encode_element(&self, out: &mut Vec<u8>) {
        u32::from(*self).encode_element(out);
    }

    fn decode_element(input: &mut &[u8]) -> Result<Self, KeyError> {
        let value = u32::decode_element(input)?;
        char::from_u32(value).ok_or(KeyError::Invalid {
            value: value.into(),
            of: "char",
        })
    }

    #[inline]
    fn fixed_encoding(&self) -> Option<FixedEncoding> {
        u32::from(*self).fixed_encoding()
    }

    #[inline]
    fn key_hash(&self) -> u64 {
        u32::from(*self).key_hash()
    }
}

impl StateKey for () {
    fn schema(out: &mut String) {
        out.push_str("()");
    }

    fn encode_element(&self, _out: &mut Vec<u8>) {}

    fn decode_element(_input: &mut &[u8]) -> Result<Self, KeyError> {
        Ok(())
    }
}

/// Appends a length and the bytes.
///
/// # Panics
/// If there are 4 GiB or more of them: no key is that large, and a wrapped length would be wrong
/// for ever.
fn encode_prefixed(bytes: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(bytes.len()).expect("a key's part is smaller than 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn decode_prefixed<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], KeyError> {
    let length = u32::decode_element(input)?;
    take(input, length as usize)
}

fn utf8<K: for<'a> From<&'a str>>(bytes: &[u8]) -> Result<K, KeyError> {
    str::from_utf8(bytes)
        .map(K::from)
        .map_err(|_| KeyError::Utf8)
}

macro_rules! string_keys {
    ($($type:ty, $is_same:expr);*) => {$(
        impl StateKey for $type {
            fn schema(out: &mut String) {
                out.push_str("string");
            }

            fn encode_element(&self, out: &mut Vec<u8>) {
                encode_prefixed(self.as_bytes(), out);
            }

            fn decode_element(input: &mut &[u8]) -> Result<Self, KeyError> {
                utf8(decode_prefixed(input)?)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }

            fn decode(bytes: &[u8]) -> Result<Self, KeyError> {
                utf8(bytes)
            }

            #[inline]
            fn is_same(&self, other: &Self) -> bool {
                $is_same(self, other)
            }

            #[inline]
            fn key_hash(&self) -> u64 {
                hash_bytes(self.as_bytes())
            }

            #[inline]
            fn key_hashes<'a, T>(
                records: &'a [T],
                key_of: impl Fn(&'a T) -> &'a Self,
                hashes: &mut [u64],
            ) {
                hash_each(records, |record| key_of(record).as_bytes(), hashes);
            }
        }
    )*};
}

string_keys!(
    String, |left: &String, right: &String| same_bytes(left.as_bytes(), right.as_bytes());
    CompactString, same_text
);

impl StateKey for Vec<u8> {
    fn schema(out: &mut String) {
        out.push_str("bytes");
    }

    fn encode_element(&self, out: &mut Vec<u8>) {
        encode_prefixed(self, out);
    }

    fn decode_element(input: &mut &[u8]) -> Result<Self, KeyError> {
        decode_prefixed(input).map(<[u8]>::to_vec)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Result<Self, KeyError> {
        Ok(bytes.to_vec())
    }

    #[inline]
    fn key_hash(&self) -> u64 {
        hash_bytes(self)
    }
}

impl<const N: usize> StateKey for [u8; N] {
    fn schema(out: &mut String) {
        out.push_str(&format!("[u8;{N}]"));
    }

    fn encode_element(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode_element(input: &mut &[u8]) -> Result<Self, KeyError> {
        Ok(take(input, N)?.try_into().expect("took as many bytes"))
    }

    #[inline]
    fn key_hash(&self) -> u64 {
        hash_bytes(self)
    }
}

impl<T: StateKey> StateKey for Option<T> {
    fn schema(out: &mut String) {
        out.push_str("option<");
        T::schema(out);
        out.push('>');
    }

    fn encode_element(&self, out: &mut Vec<u8>) {
        self.is_some().encode_element(out);
        if let Some(value) = self {
            value.encode_element(out);
        }
    }

    fn decode_element(input: &mut &[u8]) -> Result<Self, KeyError> {
        match bool::decode_element(input)? {
            true => T::decode_element(input).map(Some),
            false => Ok(None),
        }
    }
}

macro_rules! tuple_keys {
    ($(($first:ident $(, $rest:ident)*)),*) => {$(
        impl<$first: StateKey $(, $rest: StateKey)*> StateKey for ($first, $($rest,)*) {
            fn schema(out: &mut String) {
                out.push('(');
                $first::schema(out);
                $(
                    out.push(',');
                    $rest::schema(out);
                )*
                out.push(')');
            }

            #[inline]
            #[allow(non_snake_case)]
            fn encode_element(&self, out: &mut Vec<u8>) {
                let ($first, $($rest,)*) = self;
                $first.encode_element(out);
                $($rest.encode_element(out);)*
            }

            fn decode_element(input: &mut &[u8]) -> Result<Self, KeyError> {
                Ok(($first::decode_element(input)?, $($rest::decode_element(input)?,)*))
            }
        }
    )*};
}

tuple_keys!((A), (A, B), (A, B, C), (A, B, C, D));

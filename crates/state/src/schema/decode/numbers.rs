//! Reading what has no parts.

use super::{DecodeError, Decoder, Encoding};
use crate::schema::{Dynamic, Plain};

impl Decoder<'_> {
    pub(super) fn plain(&mut self, plain: Plain) -> Result<Dynamic, DecodeError> {
        match plain {
            Plain::Unit => Ok(Dynamic::Unit),
            Plain::Bool => self.bool().map(Dynamic::Bool),
            Plain::U8 => self.fixed(1).map(Dynamic::Unsigned),
            Plain::U16 => self.unsigned(16).map(Dynamic::Unsigned),
            Plain::U32 => self.unsigned(32).map(Dynamic::Unsigned),
            Plain::U64 => self.unsigned(64).map(Dynamic::Unsigned),
            Plain::U128 => self.unsigned(128).map(Dynamic::Unsigned),
            Plain::I8 => self.fixed(1).map(|bits| sign_extended(bits, 8)),
            Plain::I16 => self.signed(16),
            Plain::I32 => self.signed(32),
            Plain::I64 => self.signed(64),
            Plain::I128 => self.signed(128),
            Plain::F32 => {
                let bits = self.no_key("f32")?.fixed(4)?;
                Ok(Dynamic::F32(f32::from_bits(bits as u32)))
            }
            Plain::F64 => {
                let bits = self.no_key("f64")?.fixed(8)?;
                Ok(Dynamic::F64(f64::from_bits(bits as u64)))
            }
            Plain::Char => self.char().map(Dynamic::Char),
            Plain::String => {
                let length = self.length()?;
                self.utf8(usize::try_from(length).unwrap_or(usize::MAX))
            }
            Plain::Bytes => {
                let length = self.length()?;
                Ok(Dynamic::Bytes(self.take(length)?.to_vec()))
            }
        }
    }

    pub(super) fn bool(&mut self) -> Result<bool, DecodeError> {
        let at = self.at;
        match self.fixed(1)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid { at, of: "bool" }),
        }
    }

    pub(super) fn variant_index(&mut self) -> Result<u32, DecodeError> {
        Ok(self.unsigned(32)? as u32)
    }

    /// The number of elements of a sequence or map.
    pub(super) fn count(&mut self, shape: &'static str) -> Result<u64, DecodeError> {
        Ok(self.no_key(shape)?.varint(64)? as u64)
    }

    /// The length of a text or of bytes.
    fn length(&mut self) -> Result<u64, DecodeError> {
        match self.encoding {
            Encoding::Postcard => Ok(self.varint(64)? as u64),
            Encoding::Key => Ok(self.fixed(4)? as u64),
        }
    }

    pub(super) fn utf8(&mut self, length: usize) -> Result<Dynamic, DecodeError> {
        let at = self.at;
        let text = str::from_utf8(self.take(length as u64)?);
        let invalid = |_| DecodeError::Invalid { at, of: "string" };
        Ok(Dynamic::String(text.map_err(invalid)?.to_owned()))
    }

    fn char(&mut self) -> Result<char, DecodeError> {
        let invalid = DecodeError::Invalid {
            at: self.at,
            of: "char",
        };
        if self.encoding == Encoding::Key {
            return char::from_u32(self.fixed(4)? as u32).ok_or(invalid);
        }
        let length = self.varint(64)? as u64;
        if length > 4 {
            return Err(invalid);
        }
        let text = str::from_utf8(self.take(length)?).unwrap_or_default();
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (Some(character), None) => Ok(character),
            _ => Err(invalid),
        }
    }

    fn no_key(&mut self, shape: &'static str) -> Result<&mut Self, DecodeError> {
        match self.encoding {
            Encoding::Postcard => Ok(self),
            Encoding::Key => Err(DecodeError::NoKey { shape }),
        }
    }

    /// A number of so many bytes, little endian.
    fn fixed(&mut self, width: usize) -> Result<u128, DecodeError> {
        let mut bytes = [0; 16];
        bytes[..width].copy_from_slice(self.take(width as u64)?);
        Ok(u128::from_le_bytes(bytes))
    }

    fn unsigned(&mut self, bits: u32) -> Result<u128, DecodeError> {
        match self.encoding {
            Encoding::Postcard => self.varint(bits),
            Encoding::Key => self.fixed(bits as usize / 8),
        }
    }

    fn signed(&mut self, bits: u32) -> Result<Dynamic, DecodeError> {
        let number = self.unsigned(bits)?;
        Ok(match self.encoding {
            // Zigzag: 0, -1, 1, -2, …
            Encoding::Postcard => Dynamic::Signed((number >> 1) as i128 ^ -((number & 1) as i128)),
            Encoding::Key => sign_extended(number, bits),
        })
    }

    /// An unsigned LEB128 number below 2^`bits`. As in postcard, zeros may precede it.
    fn varint(&mut self, bits: u32) -> Result<u128, DecodeError> {
        let invalid = DecodeError::Invalid {
            at: self.at,
            of: "varint of its width",
        };
        let mut value = 0;
        for shift in (0..bits).step_by(7) {
            let byte = self.fixed(1)?;
            let low = byte & 0x7f;
            if low >> (bits - shift).min(7) != 0 {
                return Err(invalid);
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(invalid)
    }
}

fn sign_extended(number: u128, bits: u32) -> Dynamic {
    let unused = 128 - bits;
    Dynamic::Signed((number << unused) as i128 >> unused)
}

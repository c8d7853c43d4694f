//! Reading bytes by a schema: values as postcard writes them, keys in their canonical encoding.
//!
//! The bytes may be damaged, and the schema may be another one's: reading is total. Nesting and
//! the number of values are bounded, and memory by the bytes that are there: a length is only
//! believed as far as bytes follow.

mod numbers;

use super::{Content, Dynamic, Field, Plain, Schema, Shape, Variant};

/// How deep values nest at most. A linked list takes two levels for each of its elements.
const DEPTH_MAX: usize = 256;

/// Values that may be made of no bytes at all (units take none) …
const VALUES_FREE: usize = 1 << 16;

/// … and of each byte.
const VALUES_PER_BYTE: usize = 16;

/// Bytes don't fit a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("value ends `{missing}` bytes too early, at byte `{at}`")]
    Truncated {
        /// Where more bytes were wanted.
        at: usize,
        /// How many more.
        missing: u64,
    },
    /// Bytes are left over.
    #[error("value is followed by `{bytes}` bytes that don't belong to it")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// There is no such value.
    #[error("byte `{at}` is no `{of}`")]
    Invalid {
        /// Where it begins.
        at: usize,
        /// What it should be.
        of: &'static str,
    },
    /// An enum has no such variant.
    #[error("byte `{at}` is variant `{index}` of an enum with `{variants}`")]
    Variant {
        /// Where it begins.
        at: usize,
        /// The variant in the bytes.
        index: u32,
        /// How many there are.
        variants: usize,
    },
    /// Values are nested too deep.
    #[error("value is nested more than `{DEPTH_MAX}` levels deep at byte `{at}`")]
    TooDeep {
        /// Where.
        at: usize,
    },
    /// There are more values than so many bytes have reason to hold.
    #[error("value has too many parts at byte `{at}`")]
    TooMany {
        /// Where.
        at: usize,
    },
    /// The schema has something that keys don't.
    #[error("keys hold no `{shape}`")]
    NoKey {
        /// What it is.
        shape: &'static str,
    },
}

/// Reads a value that postcard wrote.
///
/// ```
/// use tidegate_state::schema::{Schema, decode_value};
///
/// let schema = Schema::parse("{name:string,total:option<i64>}").unwrap();
/// let value = decode_value(&schema, &[2, b'a', b'b', 1, 5]).unwrap();
/// assert_eq!(value.to_string(), r#"{"name":"ab","total":-3}"#);
/// ```
///
/// # Errors
/// [`DecodeError`] if the bytes aren't exactly one value of this schema, or are nested deeper than
/// 256 levels.
pub fn decode_value(schema: &Schema, bytes: &[u8]) -> Result<Dynamic, DecodeError> {
    let mut decoder = Decoder::new(Encoding::Postcard, bytes);
    let value = decoder.shape(schema, &schema.root)?;
    decoder.end().map(|()| value)
}

/// Reads the [canonical encoding](crate::key) of a whole key.
///
/// # Errors
/// [`DecodeError`] if the bytes aren't exactly one key of this schema.
pub fn decode_key(schema: &Schema, bytes: &[u8]) -> Result<Dynamic, DecodeError> {
    let mut decoder = Decoder::new(Encoding::Key, bytes);
    let key = match schema.root {
        // Alone, these need no length.
        Shape::Plain(Plain::String) => decoder.utf8(bytes.len())?,
        Shape::Plain(Plain::Bytes) => Dynamic::Bytes(decoder.take(bytes.len() as u64)?.to_vec()),
        _ => decoder.shape(schema, &schema.root)?,
    };
    decoder.end().map(|()| key)
}

/// Reads several keys, each in the encoding that delimits itself.
///
/// # Errors
/// [`DecodeError`] if the bytes aren't exactly one key of each schema.
pub fn decode_key_elements(schemas: &[&Schema], bytes: &[u8]) -> Result<Vec<Dynamic>, DecodeError> {
    let mut decoder = Decoder::new(Encoding::Key, bytes);
    let keys = schemas
        .iter()
        .map(|schema| decoder.shape(schema, &schema.root));
    let keys = keys.collect::<Result<_, _>>()?;
    decoder.end().map(|()| keys)
}

/// How many bytes at the front of `bytes` are the first of several keys, and how many of these are
/// only there to delimit it. `None` if the schema doesn't say.
pub(crate) fn first_key_extent(schema: &Schema, bytes: &[u8]) -> Option<(usize, usize)> {
    let mut decoder = Decoder::new(Encoding::Key, bytes);
    decoder.shape(schema, &schema.root).ok()?;
    let delimiter = match schema.root {
        Shape::Plain(Plain::String | Plain::Bytes) => size_of::<u32>(),
        _ => 0,
    };
    (!decoder.lost).then_some((decoder.at, delimiter))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// Lengths, variants and wide numbers are varints.
    Postcard,
    /// They have fixed widths, little endian.
    Key,
}

struct Decoder<'a> {
    encoding: Encoding,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    /// How many more values there may be.
    values_left: usize,
    /// Something opaque has taken the rest.
    lost: bool,
}

impl<'a> Decoder<'a> {
    fn new(encoding: Encoding, bytes: &'a [u8]) -> Self {
        Decoder {
            encoding,
            bytes,
            at: 0,
            depth: 0,
            values_left: VALUES_FREE.saturating_add(bytes.len().saturating_mul(VALUES_PER_BYTE)),
            lost: false,
        }
    }

    fn end(&self) -> Result<(), DecodeError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            bytes => Err(DecodeError::Trailing { bytes }),
        }
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], DecodeError> {
        let rest = &self.bytes[self.at..];
        let found = usize::try_from(count)
            .ok()
            .and_then(|count| rest.get(..count));
        let found = found.ok_or(DecodeError::Truncated {
            at: self.at,
            missing: count.saturating_sub(rest.len() as u64),
        })?;
        self.at += found.len();
        Ok(found)
    }

    fn shape(&mut self, schema: &Schema, shape: &Shape) -> Result<Dynamic, DecodeError> {
        if self.lost {
            return Ok(Dynamic::Opaque(Vec::new()));
        }
        let at = self.at;
        self.values_left = self
            .values_left
            .checked_sub(1)
            .ok_or(DecodeError::TooMany { at })?;
        if self.depth == DEPTH_MAX {
            return Err(DecodeError::TooDeep { at });
        }
        self.depth += 1;
        let value = self.content(schema, shape)?;
        self.depth -= 1;
        Ok(value)
    }

    fn content(&mut self, schema: &Schema, shape: &Shape) -> Result<Dynamic, DecodeError> {
        match shape {
            Shape::Plain(plain) => self.plain(*plain),
            Shape::Option(content) => match self.bool()? {
                false => Ok(Dynamic::None),
                true => self
                    .shape(schema, content)
                    .map(|it| Dynamic::Some(Box::new(it))),
            },
            Shape::Sequence(element) => {
                let count = self.count("sequence")?;
                self.elements(schema, element, count)
            }
            Shape::Array(element, count) => self.elements(schema, element, (*count).into()),
            Shape::Map(key, value) => self.map(schema, key, value),
            Shape::Tuple(elements) => self.tuple(schema, elements),
            Shape::Struct(fields) => self.fields(schema, fields),
            Shape::Enum(variants) => self.variant(schema, variants),
            Shape::Defined(number) => {
                // A schema is only made if all its definitions are there.
                let definition = &schema.definitions[*number as usize];
                self.content(schema, definition)
            }
            Shape::Opaque => {
                self.lost = true;
                let rest = &self.bytes[self.at..];
                self.at = self.bytes.len();
                Ok(Dynamic::Opaque(rest.to_vec()))
            }
        }
    }

    fn elements(
        &mut self,
        schema: &Schema,
        element: &Shape,
        count: u64,
    ) -> Result<Dynamic, DecodeError> {
        let mut elements = Vec::new();
        for _ in 0..count {
            if self.lost {
                break;
            }
            elements.push(self.shape(schema, element)?);
        }
        Ok(Dynamic::List(elements))
    }

    fn map(&mut self, schema: &Schema, key: &Shape, value: &Shape) -> Result<Dynamic, DecodeError> {
        let mut entries = Vec::new();
        for _ in 0..self.count("map")? {
            if self.lost {
                break;
            }
            let key = self.shape(schema, key)?;
            entries.push((key, self.shape(schema, value)?));
        }
        Ok(Dynamic::Map(entries))
    }

    fn tuple(&mut self, schema: &Schema, elements: &[Shape]) -> Result<Dynamic, DecodeError> {
        let elements = elements.iter().map(|element| self.shape(schema, element));
        elements.collect::<Result<_, _>>().map(Dynamic::List)
    }

    fn fields(&mut self, schema: &Schema, fields: &[Field]) -> Result<Dynamic, DecodeError> {
        let fields = fields
            .iter()
            .map(|field| Ok((field.name.clone(), self.shape(schema, &field.shape)?)));
        fields.collect::<Result<_, _>>().map(Dynamic::Struct)
    }

    fn variant(&mut self, schema: &Schema, variants: &[Variant]) -> Result<Dynamic, DecodeError> {
        let at = self.at;
        let index = self.variant_index()?;
        let variant = variants.get(index as usize).ok_or(DecodeError::Variant {
            at,
            index,
            variants: variants.len(),
        })?;
        let content = match &variant.content {
            Content::Unit => Dynamic::Unit,
            Content::Tuple(parts) => match parts.as_slice() {
                [part] => self.shape(schema, part)?,
                parts => self.tuple(schema, parts)?,
            },
            Content::Struct(fields) => self.fields(schema, fields)?,
        };
        Ok(Dynamic::Variant(variant.name.clone(), Box::new(content)))
    }
}

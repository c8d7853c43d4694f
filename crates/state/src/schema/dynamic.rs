//! Values whose type isn't known to this program.

use std::fmt::{self, Display, Formatter, Write};
use std::sync::Arc;

/// A value that was read by its schema.
///
/// Displays as JSON, the way `serde_json` writes the type it was made from, with these additions,
/// so that everything can be shown: bytes are a string of hexadecimal digits after `0x`; what is
/// opaque is the same after `?0x`; numbers that JSON doesn't have are the strings `NaN`, `inf` and
/// `-inf`; a map whose keys aren't all texts, numbers, booleans or characters is a list of pairs.
#[derive(Clone, Debug, PartialEq)]
pub enum Dynamic {
    /// A unit.
    Unit,
    /// A boolean.
    Bool(bool),
    /// A number without sign, of any width.
    Unsigned(u128),
    /// A number with sign, of any width.
    Signed(i128),
    /// A small floating-point number.
    F32(f32),
    /// A floating-point number.
    F64(f64),
    /// A character.
    Char(char),
    /// A text.
    String(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An option without content.
    None,
    /// An option with content.
    Some(Box<Dynamic>),
    /// A sequence, array or tuple.
    List(Vec<Dynamic>),
    /// A map, in the order of the bytes.
    Map(Vec<(Dynamic, Dynamic)>),
    /// A struct.
    Struct(Vec<(Arc<str>, Dynamic)>),
    /// A variant with what it holds: unit, a list, a struct, or a single value as it is.
    Variant(Arc<str>, Box<Dynamic>),
    /// The bytes from here on, of which the schema says nothing. Whatever follows holds none.
    Opaque(Vec<u8>),
}

impl Display for Dynamic {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Dynamic::Unit | Dynamic::None => f.write_str("null"),
            Dynamic::Bool(value) => write!(f, "{value}"),
            Dynamic::Unsigned(value) => write!(f, "{value}"),
            Dynamic::Signed(value) => write!(f, "{value}"),
            // Debug, since that always has a fraction or an exponent, as in JSON.
            Dynamic::F32(value) if value.is_finite() => write!(f, "{value:?}"),
            Dynamic::F64(value) if value.is_finite() => write!(f, "{value:?}"),
            Dynamic::F32(value) => write!(f, "\"{value}\""),
            Dynamic::F64(value) => write!(f, "\"{value}\""),
            Dynamic::Char(value) => quoted(value.encode_utf8(&mut [0; 4]), f),
            Dynamic::String(value) => quoted(value, f),
            Dynamic::Bytes(value) => hexadecimal("0x", value, f),
            Dynamic::Some(value) => value.fmt(f),
            Dynamic::List(items) => list(items, f),
            Dynamic::Map(entries) => map(entries, f),
            Dynamic::Struct(fields) => object(fields.iter().map(|(name, it)| (&**name, it)), f),
            Dynamic::Variant(name, content) if **content == Dynamic::Unit => quoted(name, f),
            Dynamic::Variant(name, content) => object([(&**name, &**content)].into_iter(), f),
            Dynamic::Opaque(value) => hexadecimal("?0x", value, f),
        }
    }
}

fn quoted(text: &str, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            control if control < ' ' => write!(f, "\\u{:04x}", u32::from(control))?,
            other => f.write_char(other)?,
        }
    }
    f.write_char('"')
}

fn hexadecimal(prefix: &str, bytes: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "\"{prefix}")?;
    for byte in bytes {
        write!(f, "{byte:02x}")?;
    }
    f.write_char('"')
}

fn list(items: &[Dynamic], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_char('[')?;
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            f.write_char(',')?;
        }
        item.fmt(f)?;
    }
    f.write_char(']')
}

fn object<'a>(
    members: impl Iterator<Item = (&'a str, &'a Dynamic)>,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    f.write_char('{')?;
    for (at, (name, value)) in members.enumerate() {
        if at > 0 {
            f.write_char(',')?;
        }
        quoted(name, f)?;
        f.write_char(':')?;
        value.fmt(f)?;
    }
    f.write_char('}')
}

fn map(entries: &[(Dynamic, Dynamic)], f: &mut Formatter<'_>) -> fmt::Result {
    let names: Option<Vec<String>> = entries.iter().map(|(key, _)| member_name(key)).collect();
    if let Some(names) = names {
        let values = entries.iter().map(|(_, value)| value);
        return object(names.iter().map(String::as_str).zip(values), f);
    }
    f.write_char('[')?;
    for (at, (key, value)) in entries.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        write!(f, "{comma}[{key},{value}]")?;
    }
    f.write_char(']')
}

/// The name of a member of an object for a map's key.
fn member_name(key: &Dynamic) -> Option<String> {
    match key {
        Dynamic::String(text) => Some(text.clone()),
        Dynamic::Char(character) => Some(character.to_string()),
        Dynamic::Bool(_) | Dynamic::Unsigned(_) | Dynamic::Signed(_) => Some(key.to_string()),
        Dynamic::Variant(name, content) if **content == Dynamic::Unit => Some(name.to_string()),
        _ => None,
    }
}

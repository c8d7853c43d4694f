//! Schemas as text.

use std::fmt::{self, Display, Formatter, Write};

use super::{Content, Field, Schema, Shape, Variant};

impl Display for Schema {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        shape(&self.root, f)?;
        for definition in &self.definitions {
            f.write_char(';')?;
            shape(definition, f)?;
        }
        Ok(())
    }
}

fn shape(it: &Shape, f: &mut Formatter<'_>) -> fmt::Result {
    match it {
        Shape::Plain(plain) => f.write_str(plain.name()),
        Shape::Option(content) => enclosed("option<", content, f, ">"),
        Shape::Sequence(element) => enclosed("[", element, f, "]"),
        Shape::Array(element, count) => {
            enclosed("[", element, f, ";")?;
            write!(f, "{count}]")
        }
        Shape::Map(key, value) => {
            enclosed("map<", key, f, ":")?;
            enclosed("", value, f, ">")
        }
        Shape::Tuple(elements) => tuple(elements, f),
        Shape::Struct(members) => fields(members, f),
        Shape::Enum(variants) => {
            f.write_str("enum{")?;
            separated(variants, f, variant)?;
            f.write_char('}')
        }
        Shape::Defined(number) => write!(f, "@{number}"),
        Shape::Opaque => f.write_char('?'),
    }
}

fn enclosed(open: &str, it: &Shape, f: &mut Formatter<'_>, close: &str) -> fmt::Result {
    f.write_str(open)?;
    shape(it, f)?;
    f.write_str(close)
}

fn separated<T>(
    items: &[T],
    f: &mut Formatter<'_>,
    write: impl Fn(&T, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            f.write_char(',')?;
        }
        write(item, f)?;
    }
    Ok(())
}

fn tuple(elements: &[Shape], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_char('(')?;
    separated(elements, f, shape)?;
    f.write_char(')')
}

fn fields(members: &[Field], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_char('{')?;
    separated(members, f, |field, f| {
        name(&field.name, f)?;
        f.write_char(':')?;
        shape(&field.shape, f)
    })?;
    f.write_char('}')
}

fn variant(it: &Variant, f: &mut Formatter<'_>) -> fmt::Result {
    name(&it.name, f)?;
    match &it.content {
        Content::Unit => Ok(()),
        Content::Tuple(elements) => tuple(elements, f),
        Content::Struct(members) => fields(members, f),
    }
}

/// Whether a name may contain it without quotes. No Unicode tables: they change.
pub(super) fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn name(it: &str, f: &mut Formatter<'_>) -> fmt::Result {
    if !it.is_empty() && it.bytes().all(is_bare) {
        return f.write_str(it);
    }
    f.write_char('"')?;
    for character in it.chars() {
        if matches!(character, '"' | '\\') {
            f.write_char('\\')?;
        }
        f.write_char(character)?;
    }
    f.write_char('"')
}

//! Reading a schema's text.
//!
//! The text may come from a damaged or forged file: nesting is bounded, and whatever isn't exactly
//! what [`Schema`] displays is refused, so that equal schemas have equal texts.

use std::sync::Arc;

use super::text::is_bare;
use super::{Content, DEPTH_MAX, Field, Plain, Schema, Shape, Variant};

/// A text is no schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It isn't as the grammar says.
    #[error("schema is malformed at byte `{at}`: {problem}")]
    Malformed {
        /// Offset in the text, in bytes.
        at: usize,
        /// What was expected, or is wrong.
        problem: &'static str,
    },
    /// It refers to a definition that doesn't follow.
    #[error("schema refers to definition `{number}`, but has `{definitions}` of them")]
    Undefined {
        /// The number it refers to.
        number: u32,
        /// How many there are.
        definitions: usize,
    },
    /// It is of a later version of the text.
    #[error("schema is in a version of the text that this build doesn't know")]
    Version,
}

impl Schema {
    /// Reads a schema's text.
    ///
    /// # Errors
    /// [`SchemaError`] if it isn't exactly what some schema displays as.
    pub fn parse(text: &str) -> Result<Schema, SchemaError> {
        if text.starts_with('#') {
            return Err(SchemaError::Version);
        }
        let mut parser = Parser {
            text,
            at: 0,
            depth: 0,
            reference_max: None,
        };
        let root = parser.shape()?;
        let mut definitions = Vec::new();
        while parser.take(";") {
            let start = parser.at;
            match parser.shape()? {
                Shape::Defined(_) => {
                    return Err(malformed(start, "a definition is another one"));
                }
                shape => definitions.push(shape),
            }
        }
        if parser.at < text.len() {
            return Err(parser.expected("`;` or the end"));
        }
        match parser.reference_max {
            Some(number) if number as usize >= definitions.len() => Err(SchemaError::Undefined {
                number,
                definitions: definitions.len(),
            }),
            _ => Ok(Schema { root, definitions }),
        }
    }
}

fn malformed(at: usize, problem: &'static str) -> SchemaError {
    SchemaError::Malformed { at, problem }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    reference_max: Option<u32>,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn expected(&self, what: &'static str) -> SchemaError {
        malformed(self.at, what)
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn demand(&mut self, token: &str, problem: &'static str) -> Result<(), SchemaError> {
        match self.take(token) {
            true => Ok(()),
            false => Err(self.expected(problem)),
        }
    }

    fn shape(&mut self) -> Result<Shape, SchemaError> {
        if self.depth == DEPTH_MAX {
            return Err(self.expected("it is nested too deep"));
        }
        self.depth += 1;
        let shape = self.any_shape()?;
        self.depth -= 1;
        Ok(shape)
    }

    fn any_shape(&mut self) -> Result<Shape, SchemaError> {
        if self.take("()") {
            Ok(Shape::Plain(Plain::Unit))
        } else if self.take("(") {
            let elements = self.separated(")", Self::shape)?;
            Ok(Shape::Tuple(elements))
        } else if self.take("[") {
            self.sequence()
        } else if self.take("{") {
            self.separated("}", Self::field).map(Shape::Struct)
        } else if self.take("enum{") {
            self.separated("}", Self::variant).map(Shape::Enum)
        } else if self.take("option<") {
            let content = self.shape()?;
            self.demand(">", "expected `>`")?;
            Ok(Shape::Option(Box::new(content)))
        } else if self.take("map<") {
            self.map()
        } else if self.take("@") {
            let number = self.number()?;
            self.reference_max = self.reference_max.max(Some(number));
            Ok(Shape::Defined(number))
        } else if self.take("?") {
            Ok(Shape::Opaque)
        } else {
            self.plain()
        }
    }

    fn sequence(&mut self) -> Result<Shape, SchemaError> {
        let element = Box::new(self.shape()?);
        if self.take("]") {
            return Ok(Shape::Sequence(element));
        }
        self.demand(";", "expected `]` or `;`")?;
        let count = self.number()?;
        self.demand("]", "expected `]`")?;
        Ok(Shape::Array(element, count))
    }

    fn map(&mut self) -> Result<Shape, SchemaError> {
        let key = self.shape()?;
        self.demand(":", "expected `:`")?;
        let value = self.shape()?;
        self.demand(">", "expected `>`")?;
        Ok(Shape::Map(Box::new(key), Box::new(value)))
    }

    fn plain(&mut self) -> Result<Shape, SchemaError> {
        let length = self.rest().bytes().take_while(|byte| is_bare(*byte));
        let word = &self.rest()[..length.count()];
        let plain = Plain::ALL.iter().find(|plain| plain.name() == word);
        let plain = *plain.ok_or_else(|| self.expected("expected a shape"))?;
        self.at += plain.name().len();
        Ok(Shape::Plain(plain))
    }

    /// Items with commas between them, up to `close`.
    fn separated<T>(
        &mut self,
        close: &str,
        item: impl Fn(&mut Self) -> Result<T, SchemaError>,
    ) -> Result<Vec<T>, SchemaError> {
        let mut items = Vec::new();
        if self.take(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.take(close) {
                return Ok(items);
            }
            self.demand(",", "expected `,` or the end of the list")?;
        }
    }

    fn field(&mut self) -> Result<Field, SchemaError> {
        let name = self.name()?;
        self.demand(":", "expected `:`")?;
        let shape = self.shape()?;
        Ok(Field { name, shape })
    }

    fn variant(&mut self) -> Result<Variant, SchemaError> {
        let name = self.name()?;
        let content = if self.take("(") {
            Content::Tuple(self.separated(")", Self::shape)?)
        } else if self.take("{") {
            Content::Struct(self.separated("}", Self::field)?)
        } else {
            Content::Unit
        };
        Ok(Variant { name, content })
    }

    fn name(&mut self) -> Result<Arc<str>, SchemaError> {
        if self.take("\"") {
            return self.quoted_name();
        }
        let length = self
            .rest()
            .bytes()
            .take_while(|byte| is_bare(*byte))
            .count();
        if length == 0 {
            return Err(self.expected("expected a name"));
        }
        let name = Arc::from(&self.rest()[..length]);
        self.at += length;
        Ok(name)
    }

    fn quoted_name(&mut self) -> Result<Arc<str>, SchemaError> {
        let start = self.at;
        let mut name = String::new();
        let mut characters = self.rest().char_indices();
        let end = loop {
            let (at, character) = characters
                .next()
                .ok_or_else(|| malformed(start, "a quoted name has no end"))?;
            match character {
                '"' => break at + 1,
                '\\' => match characters.next() {
                    Some((_, escaped @ ('"' | '\\'))) => name.push(escaped),
                    _ => return Err(malformed(start + at, "only `\"` and `\\` are escaped")),
                },
                other => name.push(other),
            }
        };
        if !name.is_empty() && name.bytes().all(is_bare) {
            return Err(malformed(start, "a name has quotes that it doesn't need"));
        }
        self.at += end;
        Ok(Arc::from(name))
    }

    fn number(&mut self) -> Result<u32, SchemaError> {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let text = &self.rest()[..digits];
        if digits > 1 && text.starts_with('0') {
            return Err(self.expected("a number begins with 0"));
        }
        let number = text
            .parse()
            .map_err(|_| self.expected("expected a number below 2^32"))?;
        self.at += digits;
        Ok(number)
    }
}

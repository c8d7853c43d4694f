//! The shape of a value type, as its serde implementation tells it.
//!
//! State files are positional: `u64` bytes read as a `String` may decode to garbage instead of an
//! error. So each file carries the shape of each state's values, and a restore compares before it
//! reads. The shape is found by running the type's `Deserialize` against a deserializer that has no
//! data: it writes down what it is asked for and answers with dummies.
//!
//! Shapes name fields and variants but no types (a type may be renamed or moved). What is not seen:
//! the contents of variants other than the first, whatever follows a dummy that the type rejects,
//! and nesting beyond [`DEPTH_MAX`]. A change there is what the descriptor's version is for.

use std::fmt::{self, Display};

use serde::de::value::U32Deserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// How deep types are followed; recursive ones have no end.
const DEPTH_MAX: usize = 8;

/// Longest shape, in bytes; what comes after is not compared.
const LENGTH_MAX: usize = 4096;

/// The shape of `V`, the same in every run and process.
pub(crate) fn value_schema<V: DeserializeOwned>() -> String {
    let mut out = String::new();
    // An error only means that the type rejected a dummy: the shape ends there, in every run.
    let _ = V::deserialize(Tracer {
        out: &mut out,
        depth: 0,
    });
    out
}

/// The type wants something a dummy can't satisfy.
#[derive(Debug)]
struct Stopped;

impl Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shape ends here")
    }
}

impl std::error::Error for Stopped {}

impl de::Error for Stopped {
    fn custom<T: Display>(_message: T) -> Self {
        Stopped
    }
}

struct Tracer<'a> {
    out: &'a mut String,
    depth: usize,
}

impl Tracer<'_> {
    fn note(&mut self, what: &str) -> Result<(), Stopped> {
        if self.out.len() + what.len() > LENGTH_MAX {
            return Err(Stopped);
        }
        self.out.push_str(what);
        Ok(())
    }

    fn nested(&mut self) -> Tracer<'_> {
        Tracer {
            out: self.out,
            depth: self.depth + 1,
        }
    }

    /// Traces a sequence whose elements have these names (or none).
    fn sequence<'de, V: Visitor<'de>>(
        mut self,
        brackets: (&str, &str),
        names: &'static [&'static str],
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.note(brackets.0)?;
        let length = if self.depth < DEPTH_MAX { length } else { 0 };
        let elements = Elements {
            tracer: self.nested(),
            names,
            length,
            next: 0,
        };
        let value = visitor.visit_seq(elements)?;
        self.note(brackets.1)?;
        Ok(value)
    }
}

macro_rules! trace_plain {
    ($($method:ident $name:literal $visit:ident($($dummy:expr)?);)*) => {$(
        fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stopped> {
            self.note($name)?;
            visitor.$visit($($dummy)?)
        }
    )*};
}

// Numbers are answered with 1, which non-zero types accept too.
impl<'de> de::Deserializer<'de> for Tracer<'_> {
    type Error = Stopped;

    trace_plain! {
        deserialize_bool "bool" visit_bool(false);
        deserialize_i8 "i8" visit_i8(1);
        deserialize_i16 "i16" visit_i16(1);
        deserialize_i32 "i32" visit_i32(1);
        deserialize_i64 "i64" visit_i64(1);
        deserialize_i128 "i128" visit_i128(1);
        deserialize_u8 "u8" visit_u8(1);
        deserialize_u16 "u16" visit_u16(1);
        deserialize_u32 "u32" visit_u32(1);
        deserialize_u64 "u64" visit_u64(1);
        deserialize_u128 "u128" visit_u128(1);
        deserialize_f32 "f32" visit_f32(1.0);
        deserialize_f64 "f64" visit_f64(1.0);
        deserialize_char "char" visit_char('a');
        deserialize_str "string" visit_str("");
        deserialize_string "string" visit_str("");
        deserialize_bytes "bytes" visit_bytes(&[]);
        deserialize_byte_buf "bytes" visit_bytes(&[]);
        deserialize_unit "()" visit_unit();
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stopped> {
        self.note("option<")?;
        if self.depth >= DEPTH_MAX {
            return visitor.visit_none();
        }
        let value = visitor.visit_some(self.nested())?;
        self.note(">")?;
        Ok(value)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stopped> {
        self.sequence(("[", "]"), &[], 1, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.sequence(("(", ")"), &[], length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Stopped> {
        self.note("map<")?;
        let length = usize::from(self.depth < DEPTH_MAX);
        let entries = Elements {
            tracer: self.nested(),
            names: &[],
            length,
            next: 0,
        };
        let value = visitor.visit_map(entries)?;
        self.note(">")?;
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.sequence(("{", "}"), fields, fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.note("enum<")?;
        self.note(&variants.join("|"))?;
        self.note(">")?;
        if self.depth >= DEPTH_MAX {
            return Err(Stopped);
        }
        visitor.visit_enum(FirstVariant(self.nested()))
    }

    fn deserialize_any<V: Visitor<'de>>(mut self, _visitor: V) -> Result<V::Value, Stopped> {
        self.note("any")?;
        Err(Stopped)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! { identifier ignored_any }
}

/// Elements of a sequence, or keys and values of a map.
struct Elements<'a> {
    tracer: Tracer<'a>,
    names: &'static [&'static str],
    length: usize,
    next: usize,
}

impl Elements<'_> {
    fn start_element(&mut self) -> Result<bool, Stopped> {
        if self.next == self.length {
            return Ok(false);
        }
        if self.next > 0 {
            self.tracer.note(",")?;
        }
        if let Some(name) = self.names.get(self.next) {
            self.tracer.note(name)?;
            self.tracer.note(":")?;
        }
        self.next += 1;
        Ok(true)
    }

    fn trace<'de, S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stopped> {
        seed.deserialize(Tracer {
            out: self.tracer.out,
            depth: self.tracer.depth,
        })
    }
}

impl<'de> de::SeqAccess<'de> for Elements<'_> {
    type Error = Stopped;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Stopped> {
        match self.start_element()? {
            true => self.trace(seed).map(Some),
            false => Ok(None),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.length - self.next)
    }
}

impl<'de> de::MapAccess<'de> for Elements<'_> {
    type Error = Stopped;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Stopped> {
        match self.start_element()? {
            true => self.trace(seed).map(Some),
            false => Ok(None),
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Stopped> {
        self.tracer.note(":")?;
        self.trace(seed)
    }
}

struct FirstVariant<'a>(Tracer<'a>);

impl<'de> de::EnumAccess<'de> for FirstVariant<'_> {
    type Error = Stopped;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Stopped> {
        let index: U32Deserializer<Stopped> = 0u32.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for FirstVariant<'_> {
    type Error = Stopped;

    fn unit_variant(self) -> Result<(), Stopped> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Stopped> {
        seed.deserialize(self.0)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.0.sequence(("(", ")"), &[], length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stopped> {
        self.0.sequence(("{", "}"), fields, fields.len(), visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::num::NonZeroU16;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[allow(dead_code)]
    struct Order {
        id: NonZeroU16,
        lines: Vec<(String, f64)>,
        state: Phase,
        note: Option<Box<Order>>,
        tags: BTreeMap<u8, bool>,
    }

    #[derive(Deserialize)]
    #[allow(dead_code)]
    enum Phase {
        Open { since: u64 },
        Closed,
    }

    #[test]
    fn shapes_of_plain_types() {
        assert_eq!(value_schema::<u64>(), "u64");
        assert_eq!(value_schema::<String>(), "string");
        assert_eq!(value_schema::<(u8, Option<char>)>(), "(u8,option<char>)");
        assert_eq!(
            value_schema::<BTreeMap<String, Vec<i64>>>(),
            "map<string:[i64]>"
        );
        assert_eq!(value_schema::<()>(), "()");
    }

    #[test]
    fn structs_show_fields_and_recursion_ends() {
        let shape = value_schema::<Order>();
        let start = "{id:u16,lines:[(string,f64)],state:enum<Open|Closed>{since:u64},note:option<{";
        assert!(shape.starts_with(start), "{shape}");
        assert!(shape.len() <= LENGTH_MAX);
        assert_eq!(shape, value_schema::<Order>());
    }

    #[test]
    fn renamed_types_keep_their_shape() {
        #[derive(Deserialize)]
        #[allow(dead_code)]
        struct Total(u64);
        assert_eq!(value_schema::<Total>(), value_schema::<u64>());
    }
}

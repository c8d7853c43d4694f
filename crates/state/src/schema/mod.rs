//! Schemas: what the bytes of a state's keys and values mean, written down as text.
//!
//! State files are positional: `u64` bytes read as a `String` may decode to garbage instead of an
//! error. So each file carries the schema of its keys and of each state's values. A restore
//! compares before it reads, and a tool that doesn't have the job's types [decodes](decode_value)
//! by it.
//!
//! The schema of a value is found by [tracing](Schema::of_value) its `Deserialize`; that of a key
//! is what [`StateKey::schema`] says. Both have one text form, version 1:
//!
//! ```text
//! schema   = shape *( ";" shape )                    the root, then definitions 0, 1, …
//! shape    = "bool" | "u8" … "u128" | "i8" … "i128" | "f32" | "f64" | "char" | "string" | "bytes"
//!          | "()"                                    nothing
//!          | "option<" shape ">"
//!          | "[" shape "]"                           any number of them
//!          | "[" shape ";" number "]"                so many of them
//!          | "map<" shape ":" shape ">"
//!          | "(" shape *( "," shape ) ")"            tuple
//!          | "{" [ field *( "," field ) ] "}"        struct; field = name ":" shape
//!          | "enum{" [ variant *( "," variant ) ] "}"
//!          | "@" number                              the definition with this number
//!          | "?"                                     opaque: the shape is not known from here on
//! variant  = name [ "(" [ shape *( "," shape ) ] ")" | "{" [ field *( "," field ) ] "}" ]
//! name     = letters, digits, "_" and "-" of ASCII; any other in quotes, with \" and \\
//! ```
//!
//! There is no space, and numbers are decimal without leading zeros: a schema has one text. A
//! later version of the text would begin with `#`.
//!
//! A struct, enum, tuple or map that occurs more than once is a definition, and so is whatever
//! contains itself: `@0;{value:u64,next:option<@0>}`. Shapes name fields and variants but no types,
//! and types of equal shape are one: where a type is renamed or moved, the text stays.

mod canonical;
mod decode;
mod dynamic;
mod parse;
mod shape;
mod text;
mod trace;

use serde::de::DeserializeOwned;

pub(crate) use decode::first_key_extent;
pub use decode::{DecodeError, decode_key, decode_key_elements, decode_value};
pub use dynamic::Dynamic;
pub use parse::SchemaError;
pub use shape::{Content, Field, Plain, Schema, Shape, Variant};

use crate::key::{StateKey, schema_of};

/// How deep a shape nests at most, in a text or in a type; definitions count from their own start.
const DEPTH_MAX: usize = 128;

impl Schema {
    /// Finds the schema of a value type by running its `Deserialize` on dummies, until every
    /// variant of every enum has been seen. The same in every run and process.
    ///
    /// What a type doesn't show is [opaque](Shape::Opaque): what follows a dummy that the type
    /// refuses (after some others were tried), what is asked for as "any" type, nesting beyond 128
    /// levels. A panic in the type's code counts as a refusal, apart from the message of the panic
    /// hook (with `panic = "abort"` it ends the process). Never seen is a `Deserialize` written by
    /// hand that asks for different things depending on what it reads.
    ///
    /// ```
    /// use tidegate_state::schema::Schema;
    ///
    /// #[derive(serde::Deserialize)]
    /// enum Place { Nowhere, Shelf { shop: u32, label: String } }
    ///
    /// let schema = Schema::of_value::<Option<Place>>();
    /// let text = "option<enum{Nowhere,Shelf{shop:u32,label:string}}>";
    /// assert_eq!(schema.to_string(), text);
    /// assert_eq!(Schema::parse(text).unwrap(), schema);
    /// ```
    pub fn of_value<V: DeserializeOwned>() -> Schema {
        let (graph, root) = trace::trace::<V>();
        canonical::schema(&graph, root)
    }

    /// The schema of a key type.
    ///
    /// # Errors
    /// [`SchemaError`] if [`StateKey::schema`] was written by hand and isn't a schema's text.
    pub fn of_key<K: StateKey>() -> Result<Schema, SchemaError> {
        Schema::parse(&schema_of::<K>())
    }
}

/// The schema of `V` as text.
pub(crate) fn value_schema<V: DeserializeOwned>() -> String {
    Schema::of_value::<V>().to_string()
}

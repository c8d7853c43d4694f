//! A schema as a tree.

use std::sync::Arc;

/// What bytes mean: a shape, and definitions that shapes refer to by number. Made by
/// [`parse`](Schema::parse), [`of_value`](Schema::of_value) and [`of_key`](Schema::of_key).
///
/// Invariant: every [`Shape::Defined`] has a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub(super) root: Shape,
    pub(super) definitions: Vec<Shape>,
}

impl Schema {
    /// The shape of the whole.
    pub fn root(&self) -> &Shape {
        &self.root
    }

    /// The definitions, by number.
    pub fn definitions(&self) -> &[Shape] {
        &self.definitions
    }

    /// The schema of something about which nothing is known.
    pub fn opaque() -> Schema {
        Schema {
            root: Shape::Opaque,
            definitions: Vec::new(),
        }
    }
}

/// What a part of the bytes means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Something without parts.
    Plain(Plain),
    /// Nothing, or one of these.
    Option(Box<Shape>),
    /// Any number of these.
    Sequence(Box<Shape>),
    /// So many of these.
    Array(Box<Shape>, u32),
    /// Any number of keys with values.
    Map(Box<Shape>, Box<Shape>),
    /// One of each; at least one.
    Tuple(Vec<Shape>),
    /// Named fields.
    Struct(Vec<Field>),
    /// One of the variants, by position.
    Enum(Vec<Variant>),
    /// The definition with this number.
    Defined(u32),
    /// Not known, nor what follows: its length isn't known either.
    Opaque,
}

/// Shapes without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the types of these names
pub enum Plain {
    Unit,
    Bool,
    U8,
    U16,
    U32,
    U64,
    U128,
    I8,
    I16,
    I32,
    I64,
    I128,
    F32,
    F64,
    Char,
    String,
    Bytes,
}

impl Plain {
    /// All of them, for reading names.
    pub(super) const ALL: [Plain; 17] = [
        Plain::Unit,
        Plain::Bool,
        Plain::U8,
        Plain::U16,
        Plain::U32,
        Plain::U64,
        Plain::U128,
        Plain::I8,
        Plain::I16,
        Plain::I32,
        Plain::I64,
        Plain::I128,
        Plain::F32,
        Plain::F64,
        Plain::Char,
        Plain::String,
        Plain::Bytes,
    ];

    /// Its name in a schema's text.
    pub fn name(self) -> &'static str {
        match self {
            Plain::Unit => "()",
            Plain::Bool => "bool",
            Plain::U8 => "u8",
            Plain::U16 => "u16",
            Plain::U32 => "u32",
            Plain::U64 => "u64",
            Plain::U128 => "u128",
            Plain::I8 => "i8",
            Plain::I16 => "i16",
            Plain::I32 => "i32",
            Plain::I64 => "i64",
            Plain::I128 => "i128",
            Plain::F32 => "f32",
            Plain::F64 => "f64",
            Plain::Char => "char",
            Plain::String => "string",
            Plain::Bytes => "bytes",
        }
    }
}

/// A field of a struct or variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, as serialised.
    pub name: Arc<str>,
    /// What it holds.
    pub shape: Shape,
}

/// A variant of an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name, as serialised.
    pub name: Arc<str>,
    /// What it holds.
    pub content: Content,
}

/// What a variant holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing.
    Unit,
    /// One of each.
    Tuple(Vec<Shape>),
    /// Named fields.
    Struct(Vec<Field>),
}

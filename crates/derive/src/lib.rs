//! Derive macros for what users declare: keys (`StateKey`) and records (`Record`).
//!
//! The generated code names its traits through the facade, `::tidegate::__private::state`. Where
//! that path doesn't exist, `#[tidegate(crate = path)]` on the type names another one that exports
//! the same items, e.g. `#[tidegate(crate = tidegate_state)]`.

mod input;
mod record;
mod state_key;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Derives `StateKey`: the fields in order; for an enum first the variant's position as `u32`.
///
/// The encoding is part of the format of state files. Renaming, reordering, adding or removing
/// fields or variants makes another key type, which a restore tells from the old one; renaming the
/// type itself doesn't. `Clone` and `Eq` have to be derived beside it.
///
/// ```
/// use tidegate_state::StateKey;
///
/// #[derive(Clone, PartialEq, Eq, tidegate_derive::StateKey)]
/// #[tidegate(crate = tidegate_state)]
/// struct Shelf {
///     shop: u32,
///     label: String,
/// }
///
/// let mut bytes = Vec::new();
/// Shelf { shop: 7, label: "ab".into() }.encode(&mut bytes);
/// assert_eq!(bytes, [7, 0, 0, 0, 2, 0, 0, 0, b'a', b'b']);
/// ```
///
/// Floats are no keys:
///
/// ```compile_fail
/// #[derive(Clone, PartialEq, tidegate_derive::StateKey)]
/// #[tidegate(crate = tidegate_state)]
/// struct Position {
///     x: f64,
/// }
/// ```
#[proc_macro_derive(StateKey, attributes(tidegate))]
pub fn derive_state_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    state_key::expand(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

/// Derives `Record`: the heap bytes of a value are those of its fields.
///
/// `Clone`, `Serialize` and `Deserialize` have to be derived beside it.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tidegate_state::Record;
///
/// #[derive(Clone, Serialize, Deserialize, tidegate_derive::Record)]
/// #[tidegate(crate = tidegate_state)]
/// struct Click {
///     at: u64,
///     page: String,
/// }
///
/// assert_eq!(Click { at: 1, page: "/home".into() }.heap_bytes(), 5);
/// ```
#[proc_macro_derive(Record, attributes(tidegate))]
pub fn derive_record(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    record::expand(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

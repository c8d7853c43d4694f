//! What both derives read from a type: where the traits live, and names for its fields.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Fields, Generics, Ident, Path, Result, parse_quote};

/// Path of the module that exports the traits.
pub(crate) fn crate_path(input: &DeriveInput) -> Result<Path> {
    let mut path: Path = parse_quote!(::tidegate::__private::state);
    for attribute in input
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("tidegate"))
    {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("unknown attribute; expected `crate = path`"));
            }
            path = meta.value()?.parse()?;
            Ok(())
        })?;
    }
    Ok(path)
}

/// The generics with `bound` on every type parameter.
pub(crate) fn bounded(generics: &Generics, bound: &TokenStream) -> Generics {
    let mut generics = generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#bound));
    }
    generics
}

/// A struct, or one variant of an enum.
pub(crate) struct Shape<'a> {
    /// Path of its constructor: `Self` or `Self::Variant`.
    pub(crate) constructor: TokenStream,
    /// The variant's name; `None` for a struct.
    pub(crate) variant: Option<&'a Ident>,
    pub(crate) fields: &'a Fields,
}

impl Shape<'_> {
    /// A variable per field.
    pub(crate) fn bindings(&self) -> Vec<Ident> {
        (0..self.fields.len())
            .map(|at| format_ident!("field_{at}"))
            .collect()
    }

    /// A pattern, or an expression, of the shape with its fields in those variables.
    pub(crate) fn with_bindings(&self) -> TokenStream {
        let (constructor, bindings) = (&self.constructor, self.bindings());
        match self.fields {
            Fields::Named(named) => {
                let names = named.named.iter().map(|field| &field.ident);
                quote!(#constructor { #(#names: #bindings),* })
            }
            Fields::Unnamed(_) => quote!(#constructor(#(#bindings),*)),
            Fields::Unit => quote!(#constructor),
        }
    }
}

/// The struct, or the variants in order.
pub(crate) fn shapes(input: &DeriveInput) -> Result<Vec<Shape<'_>>> {
    match &input.data {
        Data::Struct(data) => Ok(vec![Shape {
            constructor: quote!(Self),
            variant: None,
            fields: &data.fields,
        }]),
        Data::Enum(data) => Ok(data
            .variants
            .iter()
            .map(|variant| {
                let name = &variant.ident;
                Shape {
                    constructor: quote!(Self::#name),
                    variant: Some(name),
                    fields: &variant.fields,
                }
            })
            .collect()),
        Data::Union(_) => Err(Error::new_spanned(input, "unions can't be derived for")),
    }
}

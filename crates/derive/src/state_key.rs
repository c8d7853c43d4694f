//! Expansion of `#[derive(StateKey)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{DeriveInput, Error, Fields, Path, Result};

use crate::input::{Shape, bounded, crate_path, shapes};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let root = crate_path(input)?;
    let shapes = shapes(input)?;
    if shapes.is_empty() {
        return Err(Error::new_spanned(input, "a type without values is no key"));
    }
    let generics = bounded(&input.generics, &quote!(#root::StateKey));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let name = &input.ident;
    let is_enum = shapes[0].variant.is_some();
    let schema = schema(&root, &shapes, is_enum);
    let encode = encode(&root, &shapes);
    let decode = decode(&root, &shapes, &name.to_string(), is_enum);
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #root::StateKey for #name #type_generics #where_clause {
            fn schema(out: &mut ::std::string::String) {
                #schema
            }

            #[inline]
            fn encode_element(&self, out: &mut ::std::vec::Vec<u8>) {
                #encode
            }

            fn decode_element(
                input: &mut &[u8],
            ) -> ::std::result::Result<Self, #root::KeyError> {
                #decode
            }
        }
    })
}

fn schema(root: &Path, shapes: &[Shape<'_>], is_enum: bool) -> TokenStream {
    let bodies = shapes.iter().enumerate().map(|(at, shape)| {
        let comma = (at > 0).then(|| quote!(out.push(',');));
        let variant = shape.variant.map(|name| {
            let name = schema_name(&name.unraw().to_string());
            quote!(out.push_str(#name);)
        });
        let fields = fields_schema(root, shape.fields);
        quote!(#comma #variant #fields)
    });
    match is_enum {
        true => quote!(out.push_str("enum{"); #(#bodies)* out.push('}');),
        false if matches!(shapes[0].fields, Fields::Unit) => quote!(out.push_str("()");),
        false => quote!(#(#bodies)*),
    }
}

/// A name as schemas spell it: in quotes, if it has other letters than ASCII's.
fn schema_name(name: &str) -> String {
    match name.is_ascii() {
        true => name.to_owned(),
        false => format!("\"{name}\""),
    }
}

fn fields_schema(root: &Path, fields: &Fields) -> TokenStream {
    let (open, close) = match fields {
        Fields::Named(_) => ('{', '}'),
        Fields::Unnamed(_) => ('(', ')'),
        Fields::Unit => return quote!(),
    };
    let parts = fields.iter().enumerate().map(|(at, field)| {
        let comma = (at > 0).then(|| quote!(out.push(',');));
        let name = field.ident.as_ref().map(|name| {
            let name = format!("{}:", schema_name(&name.unraw().to_string()));
            quote!(out.push_str(#name);)
        });
        let kind = &field.ty;
        quote!(#comma #name <#kind as #root::StateKey>::schema(out);)
    });
    quote!(out.push(#open); #(#parts)* out.push(#close);)
}

fn encode(root: &Path, shapes: &[Shape<'_>]) -> TokenStream {
    let arms = (0u32..).zip(shapes).map(|(index, shape)| {
        let (pattern, bindings) = (shape.with_bindings(), shape.bindings());
        let position = shape
            .variant
            .map(|_| quote!(#root::StateKey::encode_element(&#index, out);));
        quote!(#pattern => {
            #position
            #(#root::StateKey::encode_element(#bindings, out);)*
        })
    });
    quote!(match self { #(#arms)* })
}

fn decode(root: &Path, shapes: &[Shape<'_>], name: &str, is_enum: bool) -> TokenStream {
    let bodies = shapes.iter().map(|shape| {
        let (value, bindings) = (shape.with_bindings(), shape.bindings());
        quote! {{
            #(let #bindings = #root::StateKey::decode_element(input)?;)*
            ::std::result::Result::Ok(#value)
        }}
    });
    if !is_enum {
        return quote!(#(#bodies)*);
    }
    let indexes = 0u32..;
    let arms = indexes
        .zip(bodies)
        .map(|(index, body)| quote!(#index => #body));
    quote! {
        match <u32 as #root::StateKey>::decode_element(input)? {
            #(#arms)*
            other => ::std::result::Result::Err(#root::KeyError::Invalid {
                value: ::std::convert::From::from(other),
                of: #name,
            }),
        }
    }
}

//! Expansion of `#[derive(Record)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Result};

use crate::input::{bounded, crate_path, shapes};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let root = crate_path(input)?;
    let shapes = shapes(input)?;
    let generics = bounded(&input.generics, &quote!(#root::Record));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let name = &input.ident;
    let arms = shapes.iter().map(|shape| {
        let (pattern, bindings) = (shape.with_bindings(), shape.bindings());
        quote!(#pattern => 0usize #(+ #root::Record::heap_bytes(#bindings))*,)
    });
    let body = match shapes.is_empty() {
        true => quote!(match *self {}),
        false => quote!(match self { #(#arms)* }),
    };
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #root::Record for #name #type_generics #where_clause {
            #[inline]
            fn heap_bytes(&self) -> usize {
                #body
            }
        }
    })
}

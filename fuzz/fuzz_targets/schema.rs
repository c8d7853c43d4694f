//! The text of a schema.
#![no_main]

#[path = "../shared/state.rs"]
mod state;

libfuzzer_sys::fuzz_target!(|text: &str| state::schema(text));

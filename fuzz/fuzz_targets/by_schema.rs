//! Any bytes by any schema.
#![no_main]

#[path = "../shared/state.rs"]
mod state;

libfuzzer_sys::fuzz_target!(|input: (&str, &[u8])| state::by_schema(input.0, input.1));

//! Values, with and without their types.
#![no_main]

#[path = "../shared/state.rs"]
mod state;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| state::value(bytes));

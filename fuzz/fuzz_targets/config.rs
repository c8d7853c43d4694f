//! A job's configuration file.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| tidegate::fuzzing::config(text));

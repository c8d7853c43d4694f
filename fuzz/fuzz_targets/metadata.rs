//! A checkpoint's `_metadata`, as it is and with its checksums made right.
#![no_main]

#[path = "../shared/reseal.rs"]
mod reseal;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    tidegate_storage::fuzzing::metadata(bytes);
    let mut forged = bytes.to_vec();
    reseal::metadata(&mut forged);
    tidegate_storage::fuzzing::metadata(&forged);
});

//! The records of a job's namespace, as they are and with their checksums made right.
#![no_main]

#[path = "../shared/reseal.rs"]
mod reseal;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    tidegate_storage::fuzzing::record(bytes);
    let mut forged = bytes.to_vec();
    reseal::record(&mut forged);
    tidegate_storage::fuzzing::record(&forged);
});

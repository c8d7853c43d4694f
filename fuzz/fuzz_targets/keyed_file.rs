//! A keyed state file, as it is and with its checksums made right.
#![no_main]

#[path = "../shared/reseal.rs"]
mod reseal;
#[path = "../shared/state.rs"]
mod state;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    state::keyed_file(bytes);
    let mut forged = bytes.to_vec();
    reseal::keyed_file(&mut forged);
    let [verified, _, before, after] = state::keyed_file(&forged);
    assert!(
        verified || !(before || after),
        "what isn't whole was restored"
    );
});

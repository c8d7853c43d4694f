//! A piece of changes on top of a full piece, as it is and with its checksums made right.
#![no_main]

use std::sync::LazyLock;

#[path = "../shared/reseal.rs"]
mod reseal;
#[path = "../shared/state.rs"]
mod state;

static FULL: LazyLock<Vec<u8>> = LazyLock::new(|| state::pieces()[0].clone());

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    state::changes(&FULL, bytes);
    let mut forged = bytes.to_vec();
    reseal::keyed_file(&mut forged);
    let [before, after, _] = state::changes(&FULL, &forged);
    assert_eq!(before, after, "both ways to restore accept the same");
});

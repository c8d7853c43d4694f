//! Asking the processor for memory before it is needed.
//!
//! An access to a table that has outgrown the cache waits for memory, and does nothing else
//! meanwhile. Who knows which keys come next asks for all of their entries, and then works on the
//! first while the others are on their way: the waits of a chunk of keys are spent at the same
//! time.
//!
//! One of the two modules of the engine with `unsafe`: the instruction takes an address, and the
//! language can't know that nothing is read there. Invariant: a prefetch changes nothing that the
//! program can see, apart from how long it takes.

#![allow(unsafe_code)]

/// Bytes of entries from which on looking ahead pays: about what the cache of one core holds, given
/// that a table is larger than its entries. Measured on keys and counts of 8 bytes each: with
/// 10 000 it costs 1 ns per access, with 30 000 it makes no difference, with 100 000 it saves 2 ns.
pub(super) const OUTGROWS_CACHE_BYTES: usize = 512 << 10;

/// Bytes that a cache fetches at once.
const LINE_BYTES: usize = 64;

/// Asks for all that lies between `one` and `other`, from `one` on and at most `bytes_max`, to be
/// fetched into the cache. Returns at once.
#[inline]
pub(super) fn prefetch_between<T>(one: &T, other: &T, bytes_max: usize) {
    let (one, other) = (std::ptr::from_ref(one), std::ptr::from_ref(other));
    let bytes = one.addr().abs_diff(other.addr()).min(bytes_max);
    let ascending = one < other;
    for offset in (0..=bytes).step_by(LINE_BYTES) {
        prefetch_address(match ascending {
            true => one.wrapping_byte_add(offset),
            false => one.wrapping_byte_sub(offset),
        });
    }
}

/// Asks for `place` to be fetched into the cache. Returns at once.
#[inline]
pub(super) fn prefetch<T>(place: &T) {
    prefetch_address(std::ptr::from_ref(place));
}

#[inline]
fn prefetch_address<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint. It accesses nothing in the sense of the language, never
        // faults, whatever the address (this one is valid besides), and has no effect but on the
        // cache. The instruction is part of every x86-64 processor (SSE).
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    // Elsewhere the intrinsic isn't stable yet.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

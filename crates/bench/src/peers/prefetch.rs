//! Asks for memory ahead of its use.
//!
//! # Safety
//! `_mm_prefetch` takes an address and has no effect but on caches: it reads nothing that the
//! program could see, and never faults, whatever the address. The intrinsic is marked as unsafe
//! because it takes a raw pointer; here the pointer is that of a reference. SSE, which it needs, is
//! part of every x86-64.
#![allow(unsafe_code)]

/// Asks for the cache line at which `value` begins.
#[inline(always)]
pub(super) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: see the head of this file.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

//! Buffers for encoded entries, used again from snapshot to snapshot.
//!
//! What is freshly allocated has to be mapped page by page when it is first written, and is given
//! back to the system once the snapshot is done: with a short interval, for ever. A pool keeps some
//! buffers instead. Invariants: no more than [`KEPT_MAX`] are kept, and none that is larger than
//! [`KEPT_BYTES_MAX`].

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers that a pool keeps.
const KEPT_MAX: usize = 64;

/// Capacity of the largest buffer that a pool keeps, in bytes.
const KEPT_BYTES_MAX: usize = 128 << 10;

/// Buffers that nobody uses. Belongs to a backend, and is shared with its snapshots.
#[derive(Default)]
pub(super) struct BufferPool {
    free: Mutex<Vec<Vec<u8>>>,
}

impl BufferPool {
    /// An empty buffer. If it is a new one, there is room for `bytes` bytes in it.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Buffer {
        let kept = self.free().pop();
        Buffer {
            bytes: kept.unwrap_or_else(|| Vec::with_capacity(bytes)),
            pool: Some(Arc::clone(self)),
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        // Nothing panics while the lock is held.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut free = self.free();
        if free.len() < KEPT_MAX && (1..=KEPT_BYTES_MAX).contains(&bytes.capacity()) {
            free.push(bytes);
        }
    }
}

/// A buffer that goes back to its pool when it is dropped.
#[derive(Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    pool: Option<Arc<BufferPool>>,
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    #[inline]
    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give_back(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_and_is_empty() {
        let pool = Arc::new(BufferPool::default());
        let mut buffer = pool.take(100);
        buffer.extend_from_slice(&[1; 100]);
        let (at, capacity) = (buffer.as_ptr(), buffer.capacity());
        drop(buffer);
        let again = pool.take(1);
        assert!(again.is_empty());
        assert_eq!((again.as_ptr(), again.capacity()), (at, capacity));
        assert_ne!(pool.take(1).as_ptr(), at, "it is in use");
    }

    #[test]
    fn neither_many_nor_large_buffers_are_kept() {
        let pool = Arc::new(BufferPool::default());
        drop(pool.take(KEPT_BYTES_MAX + 1));
        assert_eq!(pool.free().len(), 0);
        drop(Vec::from_iter((0..2 * KEPT_MAX).map(|_| pool.take(1))));
        assert_eq!(pool.free().len(), KEPT_MAX);
    }
}

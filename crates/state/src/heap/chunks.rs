//! Gathers encoded entries by state and key group until they make a chunk worth writing.
//!
//! Copies arrive in the order in which the stream touched them; in the file the entries of a key
//! group should lie together, so that a restore reads few, large pieces.

use std::collections::BTreeMap;
use std::io;

use tidegate_types::KeyGroup;

use crate::format::KeyedFileWriter;

/// Payload of a chunk that is written without waiting for more.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes that may wait in all chunks together.
const WAITING_BYTES_MAX: usize = 16 << 20;

#[derive(Default)]
struct Chunk {
    entries: u32,
    payload: Vec<u8>,
}

/// Chunks that are being filled.
#[derive(Default)]
pub(super) struct ChunkBuffers {
    filling: BTreeMap<(u32, KeyGroup), Chunk>,
    /// Those of `filling` that are due.
    full: Vec<(u32, KeyGroup)>,
    waiting_bytes: usize,
    scratch: Vec<u8>,
}

impl ChunkBuffers {
    /// The chunk for this state and key group.
    pub(super) fn chunk(&mut self, state: u32, key_group: KeyGroup) -> OpenChunk<'_> {
        let chunk = self.filling.entry((state, key_group)).or_default();
        OpenChunk {
            bytes_before: chunk.payload.len(),
            chunk,
            place: (state, key_group),
            full: &mut self.full,
            waiting_bytes: &mut self.waiting_bytes,
            scratch: &mut self.scratch,
        }
    }

    /// Writes what is due.
    pub(super) fn write_full(&mut self, file: &mut KeyedFileWriter<'_>) -> io::Result<()> {
        if self.waiting_bytes > WAITING_BYTES_MAX {
            return self.write_all(file);
        }
        for place in std::mem::take(&mut self.full) {
            // A place is listed twice if it was appended to again before being written.
            if let Some(chunk) = self.filling.remove(&place) {
                self.waiting_bytes -= chunk.payload.len();
                file.chunk(place.0, place.1, chunk.entries, &chunk.payload)?;
            }
        }
        Ok(())
    }

    /// Writes everything, by state and key group.
    pub(super) fn write_all(&mut self, file: &mut KeyedFileWriter<'_>) -> io::Result<()> {
        self.full.clear();
        self.waiting_bytes = 0;
        for ((state, key_group), chunk) in std::mem::take(&mut self.filling) {
            file.chunk(state, key_group, chunk.entries, &chunk.payload)?;
        }
        Ok(())
    }
}

/// Access to one chunk that is being filled.
pub(super) struct OpenChunk<'a> {
    chunk: &'a mut Chunk,
    place: (u32, KeyGroup),
    bytes_before: usize,
    full: &'a mut Vec<(u32, KeyGroup)>,
    waiting_bytes: &'a mut usize,
    scratch: &'a mut Vec<u8>,
}

impl OpenChunk<'_> {
    /// Appends an entry that `encode` writes, given a scratch buffer.
    pub(super) fn append<E>(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        encode(self.scratch, &mut self.chunk.payload)?;
        self.count(1);
        Ok(())
    }

    /// Appends entries that are encoded already.
    pub(super) fn append_raw(&mut self, entries: u32, payload: &[u8]) {
        self.chunk.payload.extend_from_slice(payload);
        self.count(entries);
    }

    fn count(&mut self, entries: u32) {
        let sum = self.chunk.entries.checked_add(entries);
        self.chunk.entries = sum.expect("a chunk is written long before 2^32 entries");
    }
}

impl Drop for OpenChunk<'_> {
    fn drop(&mut self) {
        let bytes = self.chunk.payload.len();
        *self.waiting_bytes += bytes - self.bytes_before;
        if bytes >= CHUNK_BYTES {
            self.full.push(self.place);
        }
    }
}

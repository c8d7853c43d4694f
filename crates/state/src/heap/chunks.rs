//! Gathers encoded entries by state and key group until they make a chunk worth writing.
//!
//! Copies arrive in the order in which the stream touched them; in the file the entries of a key
//! group should lie together, so that a restore reads few, large pieces.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tidegate_types::KeyGroup;

use super::buffers::{Buffer, BufferPool};
use crate::format::{ChunkRole, KeyedFileWriter, PieceKind, encode_tombstone};

/// Payload of a chunk that is written without waiting for more.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes that may wait in all chunks together.
const WAITING_BYTES_MAX: usize = 16 << 20;

#[derive(Default)]
struct Chunk {
    entries: u32,
    payload: Buffer,
}

impl Chunk {
    #[inline]
    fn count(&mut self, entries: u32) {
        let sum = self.entries.checked_add(entries);
        self.entries = sum.expect("a chunk is written long before 2^32 entries");
    }

    /// The payload, in a buffer of the pool. Not that of tombstones: they are few and rare.
    #[inline]
    fn payload(&mut self, pool: &Arc<BufferPool>) -> &mut Vec<u8> {
        if self.payload.capacity() == 0 {
            self.payload = pool.take(0);
        }
        &mut self.payload
    }
}

/// What is gathered for one state and key group.
#[derive(Default)]
struct Filling {
    tombstones: Chunk,
    entries: Chunk,
    short: Chunk,
}

impl Filling {
    fn bytes(&self) -> usize {
        let chunks = [&self.tombstones, &self.entries, &self.short];
        chunks.into_iter().map(|chunk| chunk.payload.len()).sum()
    }

    fn write(self, place: (u32, KeyGroup), file: &mut KeyedFileWriter<'_>) -> io::Result<()> {
        let (state, key_group) = place;
        for (role, chunk) in [
            (ChunkRole::Tombstones, self.tombstones),
            (ChunkRole::Entries, self.entries),
            (ChunkRole::ShortEntries, self.short),
        ] {
            file.chunk((state, key_group, role), chunk.entries, &chunk.payload)?;
        }
        Ok(())
    }
}

/// Chunks that are being filled.
pub(super) struct ChunkBuffers {
    kind: PieceKind,
    pool: Arc<BufferPool>,
    filling: BTreeMap<(u32, KeyGroup), Filling>,
    /// Those of `filling` that are due.
    full: Vec<(u32, KeyGroup)>,
    waiting_bytes: usize,
}

impl ChunkBuffers {
    /// Buffers for a piece of this kind.
    pub(super) fn new(kind: PieceKind, pool: Arc<BufferPool>) -> Self {
        ChunkBuffers {
            kind,
            pool,
            filling: BTreeMap::new(),
            full: Vec::new(),
            waiting_bytes: 0,
        }
    }

    /// The chunk for this state and key group.
    pub(super) fn chunk(&mut self, state: u32, key_group: KeyGroup) -> OpenChunk<'_> {
        let place = (state, key_group);
        let filling = self.filling.entry(place).or_default();
        OpenChunk {
            kind: self.kind,
            pool: &self.pool,
            bytes_before: filling.bytes(),
            filling,
            place,
            full: &mut self.full,
            waiting_bytes: &mut self.waiting_bytes,
        }
    }

    /// Writes what is due.
    pub(super) fn write_full(&mut self, file: &mut KeyedFileWriter<'_>) -> io::Result<()> {
        if self.waiting_bytes > WAITING_BYTES_MAX {
            return self.write_all(file);
        }
        for place in std::mem::take(&mut self.full) {
            // A place is listed twice if it was appended to again before being written.
            if let Some(filling) = self.filling.remove(&place) {
                self.waiting_bytes -= filling.bytes();
                filling.write(place, file)?;
            }
        }
        Ok(())
    }

    /// Writes everything, by state and key group.
    pub(super) fn write_all(&mut self, file: &mut KeyedFileWriter<'_>) -> io::Result<()> {
        self.full.clear();
        self.waiting_bytes = 0;
        for (place, filling) in std::mem::take(&mut self.filling) {
            filling.write(place, file)?;
        }
        Ok(())
    }
}

/// Access to the chunk of one state and key group that is being filled.
pub(super) struct OpenChunk<'a> {
    kind: PieceKind,
    pool: &'a Arc<BufferPool>,
    filling: &'a mut Filling,
    place: (u32, KeyGroup),
    bytes_before: usize,
    full: &'a mut Vec<(u32, KeyGroup)>,
    waiting_bytes: &'a mut usize,
}

impl OpenChunk<'_> {
    /// Appends an entry, which `encode` writes.
    #[inline]
    pub(super) fn append(
        &mut self,
        encode: impl FnOnce(&mut Vec<u8>) -> postcard::Result<()>,
    ) -> postcard::Result<()> {
        let chunk = &mut self.filling.entries;
        encode(chunk.payload(self.pool))?;
        chunk.count(1);
        Ok(())
    }

    /// Appends entries that are encoded already.
    pub(super) fn append_raw(&mut self, entries: u32, payload: &[u8]) {
        let chunk = &mut self.filling.entries;
        chunk.payload(self.pool).extend_from_slice(payload);
        chunk.count(entries);
    }

    /// Appends entries that are encoded already, in short form, with keys of `width` bytes.
    pub(super) fn append_short(&mut self, width: u8, entries: u32, payload: &[u8]) {
        let chunk = &mut self.filling.short;
        let short = chunk.payload(self.pool);
        match short.first() {
            None => short.push(width),
            Some(first) => assert_eq!(*first, width, "keys of a state are of one type"),
        }
        short.extend_from_slice(payload);
        chunk.count(entries);
    }

    /// Forgets what earlier pieces have under the key that `key` writes. A full piece has nothing
    /// to forget.
    #[inline]
    pub(super) fn forget(&mut self, key: impl FnOnce(&mut Vec<u8>)) {
        if self.kind == PieceKind::Changes {
            let chunk = &mut self.filling.tombstones;
            encode_tombstone(&mut chunk.payload, key);
            chunk.count(1);
        }
    }
}

impl Drop for OpenChunk<'_> {
    fn drop(&mut self) {
        let bytes = self.filling.bytes();
        *self.waiting_bytes += bytes - self.bytes_before;
        if bytes >= CHUNK_BYTES {
            self.full.push(self.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::{CheckpointId, HASH_ID, KeyGroupRange, MaxParallelism};

    use super::*;
    use crate::descriptor::StateKind;
    use crate::format::{FileIndex, KeyedFileReader, StateMeta};

    fn index() -> FileIndex {
        let state = StateMeta {
            name: "state".to_owned(),
            kind: StateKind::Value,
            version: 1,
            namespace_schema: String::new(),
            map_key_schema: String::new(),
            value_schema: "u64".to_owned(),
        };
        FileIndex {
            checkpoint: CheckpointId::NONE,
            base: CheckpointId::NONE,
            max_parallelism: MaxParallelism::new(MaxParallelism::LIMIT).unwrap(),
            key_groups: KeyGroupRange {
                start: 0,
                end: 32767,
            },
            hash_id: HASH_ID.to_owned(),
            key_schema: "u64".to_owned(),
            states: vec![state],
            replaced: Vec::new(),
            chunks: Vec::new(),
        }
    }

    /// Appends `payloads` (key group and bytes) and returns the chunks (key group, entries, bytes)
    /// of the file, and the most bytes that ever waited.
    fn written(payloads: &[(u16, usize)]) -> (Vec<(u16, u32, u64)>, usize) {
        let (mut out, mut most) = (Vec::new(), 0);
        let mut file = KeyedFileWriter::start(&mut out, index()).unwrap();
        let mut chunks = ChunkBuffers::new(PieceKind::Full, Arc::default());
        for &(group, bytes) in payloads {
            chunks
                .chunk(0, KeyGroup(group))
                .append_raw(1, &vec![0; bytes]);
            chunks.write_full(&mut file).unwrap();
            let waiting = chunks.filling.values().map(Filling::bytes).sum::<usize>();
            assert_eq!(chunks.waiting_bytes, waiting);
            most = most.max(waiting);
        }
        chunks.write_all(&mut file).unwrap();
        file.finish().unwrap();
        let mut input = io::Cursor::new(out);
        let reader = KeyedFileReader::open(&mut input).unwrap();
        let chunks = reader.index().chunks.iter();
        let found = chunks.map(|chunk| (chunk.key_group.0, chunk.entries, chunk.payload_bytes));
        (found.collect(), most)
    }

    #[test]
    fn entries_of_a_key_group_end_up_together() {
        let (chunks, _) = written(&[(2, 10), (1, 5), (2, 10), (0, 1), (1, 5)]);
        assert_eq!(chunks, [(0, 1, 1), (1, 2, 10), (2, 2, 20)]);
    }

    #[test]
    fn large_chunks_are_written_at_once() {
        let (chunks, most) = written(&[(7, 40_000), (3, 1), (7, 40_000), (7, 5)]);
        assert_eq!(chunks, [(7, 2, 80_000), (3, 1, 1), (7, 1, 5)]);
        assert_eq!(most, 40_001);
    }

    #[test]
    fn many_small_chunks_are_bounded_together() {
        let payloads: Vec<_> = (0..2000).map(|group| (group, 30_000)).collect();
        let (chunks, most) = written(&payloads);
        assert_eq!(chunks.len(), 2000);
        assert!(most <= WAITING_BYTES_MAX, "{most}");
    }
}

//! Writing a keyed state file front to back.

use std::io::{self, Write};

use tidegate_types::KeyGroup;

use super::{
    ChunkIndex, ChunkRole, FORMAT_VERSION, FileIndex, HEADER_BYTES, KeyedFileSummary, MAGIC,
    MAGIC_END, PieceKind,
};

/// Writes header and chunks as they come, then the index of what it wrote.
pub(crate) struct KeyedFileWriter<'a> {
    out: &'a mut dyn Write,
    index: FileIndex,
    bytes: u64,
    entries: u64,
    tombstones: u64,
}

impl<'a> KeyedFileWriter<'a> {
    /// Writes the header. The chunks of `index` must be empty: they are filled in as they come.
    pub(crate) fn start(out: &'a mut dyn Write, index: FileIndex) -> io::Result<Self> {
        assert!(
            index.chunks.is_empty(),
            "chunks are listed as they are written"
        );
        let mut writer = KeyedFileWriter {
            out,
            index,
            bytes: 0,
            entries: 0,
            tombstones: 0,
        };
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
        writer.put(&header)?;
        assert_eq!(writer.bytes, HEADER_BYTES, "header length");
        Ok(writer)
    }

    /// Writes one chunk. A chunk without entries is left out.
    pub(crate) fn chunk(
        &mut self,
        (state, key_group, role): (u32, KeyGroup, ChunkRole),
        entries: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        assert!(
            (state as usize) < self.index.states.len(),
            "state {state} is listed"
        );
        assert!(
            self.index.key_groups.contains(key_group),
            "key group {key_group} is in range"
        );
        if entries == 0 {
            return Ok(());
        }
        assert!(
            role != ChunkRole::Tombstones || self.index.kind() == PieceKind::Changes,
            "a full piece has nothing to remove"
        );
        let payload_bytes = payload.len() as u64;
        let offset = self.bytes;
        self.index.chunks.push(ChunkIndex {
            state,
            key_group,
            role,
            entries,
            offset,
            payload_bytes,
        });
        match role {
            ChunkRole::Entries | ChunkRole::ShortEntries => self.entries += u64::from(entries),
            ChunkRole::Tombstones => self.tombstones += u64::from(entries),
        }
        let header = chunk_header(self.index.chunks.last().expect("it was just pushed"));
        let crc = crc32c::crc32c_append(crc32c::crc32c(&header), payload);
        self.put(&header)?;
        self.put(&crc.to_le_bytes())?;
        self.put(payload)
    }

    /// Writes footer and trailer. Doesn't flush: durability is the caller's business.
    pub(crate) fn finish(mut self) -> io::Result<KeyedFileSummary> {
        let footer = self.index.encode();
        self.put(&footer)?;
        let mut trailer = (footer.len() as u64).to_le_bytes().to_vec();
        trailer.extend_from_slice(&crc32c::crc32c(&footer).to_le_bytes());
        trailer.extend_from_slice(&crc32c::crc32c(&trailer).to_le_bytes());
        trailer.extend_from_slice(MAGIC_END);
        self.put(&trailer)?;
        Ok(KeyedFileSummary {
            bytes: self.bytes,
            entries: self.entries,
            tombstones: self.tombstones,
            chunks: self.index.chunks.len() as u64,
        })
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Bytes 0 to 19 of a chunk.
pub(super) fn chunk_header(chunk: &ChunkIndex) -> [u8; 20] {
    let mut header = [0; 20];
    header[0..4].copy_from_slice(&chunk.state.to_le_bytes());
    header[4..6].copy_from_slice(&chunk.key_group.0.to_le_bytes());
    header[6..8].copy_from_slice(&(chunk.role as u16).to_le_bytes());
    header[8..12].copy_from_slice(&chunk.entries.to_le_bytes());
    header[12..20].copy_from_slice(&chunk.payload_bytes.to_le_bytes());
    header
}

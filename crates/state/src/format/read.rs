//! Reading a keyed state file: the index from its end, then any chunks.

use std::io::{self, Read, Seek, SeekFrom};

use tidegate_types::KeyGroupRange;

use super::short::expand_short_entries;
use super::write::chunk_header;
use super::{
    CHUNK_HEADER_BYTES, ChunkIndex, ChunkRole, FORMAT_VERSION, FileError, FileIndex, HEADER_BYTES,
    MAGIC, MAGIC_END, SHORT_ENTRIES_VERSION, TRAILER_BYTES, check_crc,
};

/// A keyed state file whose header, index and end have been verified.
pub struct KeyedFileReader<'a, R> {
    input: &'a mut R,
    index: FileIndex,
    /// Where `input` stands, so that chunks in a row are read without seeking.
    position: u64,
    /// A payload of short entries, as it lies in the file.
    short: Vec<u8>,
}

impl<'a, R: Read + Seek> KeyedFileReader<'a, R> {
    /// Reads and verifies all but the chunks.
    ///
    /// # Errors
    /// [`FileError`] if the file can't be read, is of another version, or is truncated or altered.
    pub fn open(input: &'a mut R) -> Result<Self, FileError> {
        let bytes = input
            .seek(SeekFrom::End(0))
            .map_err(|cause| FileError::Read {
                part: "length".to_owned(),
                cause,
            })?;
        if bytes < HEADER_BYTES {
            return Err(FileError::Truncated { bytes });
        }
        let mut header = [0; HEADER_BYTES as usize];
        read_at(input, 0, &mut header, "header")?;
        let version = check_header(&header)?;
        if bytes < HEADER_BYTES + TRAILER_BYTES {
            return Err(FileError::Truncated { bytes });
        }
        let index = read_footer(input, bytes)?;
        let is_short = |chunk: &ChunkIndex| chunk.role == ChunkRole::ShortEntries;
        if version < SHORT_ENTRIES_VERSION && index.chunks.iter().any(is_short) {
            return Err(FileError::Malformed {
                part: "footer".to_owned(),
                problem: "a chunk has a role that its version doesn't know",
            });
        }
        Ok(KeyedFileReader {
            input,
            index,
            position: bytes,
            short: Vec::new(),
        })
    }

    /// What the file says about itself.
    pub fn index(&self) -> &FileIndex {
        &self.index
    }

    /// The chunks whose key groups lie in `range`, in the order in which they lie in the file.
    pub fn chunks_in(&self, range: KeyGroupRange) -> Vec<ChunkIndex> {
        let chunks = self.index.chunks.iter();
        chunks
            .filter(|chunk| range.contains(chunk.key_group))
            .copied()
            .collect()
    }

    /// Reads the payload of a chunk of this file into `payload`, replacing what it held, and
    /// verifies it. Short entries become plain ones: whoever walks them sees no difference.
    ///
    /// # Errors
    /// [`FileError::Read`], or [`FileError::Checksum`] or [`FileError::Malformed`] if the chunk was
    /// altered.
    pub fn read_chunk(
        &mut self,
        chunk: &ChunkIndex,
        payload: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        if chunk.role != ChunkRole::ShortEntries {
            return self.read_raw(chunk, payload);
        }
        let mut short = std::mem::take(&mut self.short);
        self.read_raw(chunk, &mut short)?;
        payload.clear();
        let expanded = expand_short_entries(&short, chunk.entries, payload);
        self.short = short;
        expanded.ok_or_else(|| FileError::Malformed {
            part: part_of(chunk),
            problem: "its short entries don't add up",
        })
    }

    /// Reads the payload of a chunk as it lies in the file.
    fn read_raw(&mut self, chunk: &ChunkIndex, payload: &mut Vec<u8>) -> Result<(), FileError> {
        let part = || part_of(chunk);
        let read = |cause| FileError::Read {
            part: part(),
            cause,
        };
        if self.position != chunk.offset {
            self.input
                .seek(SeekFrom::Start(chunk.offset))
                .map_err(read)?;
        }
        self.position = u64::MAX;
        let mut header = [0; CHUNK_HEADER_BYTES as usize];
        self.input.read_exact(&mut header).map_err(read)?;
        let length = usize::try_from(chunk.payload_bytes).map_err(|_| FileError::Malformed {
            part: part(),
            problem: "it is larger than this machine can address",
        })?;
        payload.clear();
        payload.resize(length, 0);
        self.input.read_exact(payload).map_err(read)?;
        self.position = chunk.offset + CHUNK_HEADER_BYTES + chunk.payload_bytes;

        let (fields, crc) = header.split_at(20);
        let expected = u32::from_le_bytes(crc.try_into().expect("four bytes follow the fields"));
        let actual = crc32c::crc32c_append(crc32c::crc32c(fields), payload);
        check_crc(part, expected, actual)?;
        if fields != chunk_header(chunk) {
            let problem = "it isn't the chunk that the footer lists";
            return Err(FileError::Malformed {
                part: part(),
                problem,
            });
        }
        Ok(())
    }

    /// Reads every chunk and verifies it; for offline inspection.
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk), for the first chunk that is damaged.
    pub fn verify_chunks(&mut self) -> Result<(), FileError> {
        let mut payload = Vec::new();
        for at in 0..self.index.chunks.len() {
            let chunk = self.index.chunks[at];
            self.read_chunk(&chunk, &mut payload)?;
        }
        Ok(())
    }
}

/// What errors call a chunk.
fn part_of(chunk: &ChunkIndex) -> String {
    let ChunkIndex {
        offset, key_group, ..
    } = chunk;
    format!("chunk at byte `{offset}` of key group `{key_group}`")
}

/// Verifies a header and returns the version.
fn check_header(header: &[u8; HEADER_BYTES as usize]) -> Result<u32, FileError> {
    if &header[0..8] != MAGIC {
        return Err(FileError::Magic);
    }
    // Before the checksum: another version may put it elsewhere.
    let version = u32_at(header, 8);
    if !(1..=FORMAT_VERSION).contains(&version) {
        return Err(FileError::Version { version });
    }
    check_crc(
        || "header".to_owned(),
        u32_at(header, 12),
        crc32c::crc32c(&header[0..12]),
    )?;
    Ok(version)
}

fn read_footer(input: &mut (impl Read + Seek), bytes: u64) -> Result<FileIndex, FileError> {
    let mut trailer = [0; TRAILER_BYTES as usize];
    read_at(input, bytes - TRAILER_BYTES, &mut trailer, "trailer")?;
    if &trailer[16..24] != MAGIC_END {
        return Err(FileError::Incomplete { bytes });
    }
    check_crc(
        || "trailer".to_owned(),
        u32_at(&trailer, 12),
        crc32c::crc32c(&trailer[0..12]),
    )?;
    let length = u64::from(u32_at(&trailer, 0)) | u64::from(u32_at(&trailer, 4)) << 32;
    let offset = bytes
        .checked_sub(TRAILER_BYTES + HEADER_BYTES)
        .and_then(|rest| rest.checked_sub(length))
        .map(|chunks| chunks + HEADER_BYTES)
        .ok_or(FileError::Truncated { bytes })?;
    let length = usize::try_from(length).map_err(|_| FileError::Malformed {
        part: "trailer".to_owned(),
        problem: "the footer is larger than this machine can address",
    })?;
    let mut footer = vec![0; length];
    read_at(input, offset, &mut footer, "footer")?;
    check_crc(
        || "footer".to_owned(),
        u32_at(&trailer, 8),
        crc32c::crc32c(&footer),
    )?;
    FileIndex::decode(&footer, offset)
}

fn read_at(
    input: &mut (impl Read + Seek),
    offset: u64,
    buffer: &mut [u8],
    part: &str,
) -> Result<(), FileError> {
    let read = |cause: io::Error| FileError::Read {
        part: part.to_owned(),
        cause,
    };
    input.seek(SeekFrom::Start(offset)).map_err(read)?;
    input.read_exact(buffer).map_err(read)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

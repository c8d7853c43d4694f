//! Reading `_metadata`. The format is described in the parent module.
//!
//! Nothing in the bytes is trusted: a length or count is compared with what is left before
//! anything is allocated for it.

use tidegate_types::{
    AttemptNumber, CheckpointId, CompletedCheckpoint, FileHandle, JobId, KeyGroupRange, KeyedPiece,
    KeyedStateHandle, ListState, MaxParallelism, OperatorCheckpoint, OperatorUid, Owner,
    Redistribution, SnapshotKind, SubtaskState, UnixMillis,
};

use super::{
    FLAG_FINISHED, FLAG_KEYED, HEADER_BYTES, MAGIC, PIECE_FILE, PIECE_INLINE, VERSION, check,
};
use crate::error::StorageError;

/// Decodes the metadata in `bytes`; `file` names them in errors.
///
/// # Errors
/// [`StorageError::Malformed`], [`StorageError::WrongLength`] or [`StorageError::WrongChecksum`]
/// for damage, [`StorageError::Version`] for another version.
pub(crate) fn decode(file: &str, bytes: &[u8]) -> Result<CompletedCheckpoint, StorageError> {
    let malformed = |reason: String| StorageError::Malformed {
        file: file.to_owned(),
        reason,
    };
    let body = checked_body(file, bytes)?;
    let mut cursor = Cursor { rest: body };
    let checkpoint = take_checkpoint(&mut cursor).map_err(malformed)?;
    if !cursor.rest.is_empty() {
        let count = cursor.rest.len();
        return Err(malformed(format!("{count} bytes follow the last field")));
    }
    check(&checkpoint).map_err(malformed)?;
    Ok(checkpoint)
}

/// Verifies the header and both checksums and returns the body.
fn checked_body<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a [u8], StorageError> {
    let malformed = |reason: String| StorageError::Malformed {
        file: file.to_owned(),
        reason,
    };
    let mut header = Cursor { rest: bytes };
    let magic = header.array::<8>().map_err(malformed)?;
    if &magic != MAGIC {
        return Err(malformed("it doesn't start with `TIDEMETA`".to_owned()));
    }
    let version = header.u32().map_err(malformed)?;
    let body_bytes = header.u64().map_err(malformed)?;
    let body_checksum = header.u32().map_err(malformed)?;
    let header_checksum = header.u32().map_err(malformed)?;
    check_sum(file, header_checksum, &bytes[..HEADER_BYTES - 4])?;
    if version != VERSION {
        return Err(StorageError::Version {
            file: file.to_owned(),
            found: version,
            supported: VERSION,
        });
    }
    if header.rest.len() as u64 != body_bytes {
        return Err(StorageError::WrongLength {
            file: file.to_owned(),
            expected: body_bytes.saturating_add(HEADER_BYTES as u64),
            actual: bytes.len() as u64,
        });
    }
    check_sum(file, body_checksum, header.rest)?;
    Ok(header.rest)
}

fn check_sum(file: &str, expected: u32, bytes: &[u8]) -> Result<(), StorageError> {
    let actual = crc32c::crc32c(bytes);
    if actual == expected {
        return Ok(());
    }
    Err(StorageError::WrongChecksum {
        file: file.to_owned(),
        expected,
        actual,
    })
}

type Parsed<T> = Result<T, String>;

/// What is left to read.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn slice(&mut self, count: usize) -> Parsed<&'a [u8]> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or_else(|| format!("{count} bytes expected, {} left", self.rest.len()))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let slice = self.slice(N)?;
        Ok(slice.try_into().expect("the slice has N bytes"))
    }

    fn u8(&mut self) -> Parsed<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Parsed<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Parsed<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Parsed<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Parsed<&'a [u8]> {
        let count = self.u32()?;
        self.slice(count as usize)
    }

    fn text(&mut self) -> Parsed<String> {
        let bytes = self.bytes()?;
        let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
        Ok(text.to_owned())
    }

    /// A count and that many items, each of which takes at least `bytes_min` bytes.
    fn all<T>(
        &mut self,
        bytes_min: usize,
        take: impl Fn(&mut Cursor<'a>) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / bytes_min {
            return Err(format!("{count} items in {} bytes", self.rest.len()));
        }
        (0..count).map(|_| take(self)).collect()
    }
}

fn take_checkpoint(cursor: &mut Cursor<'_>) -> Parsed<CompletedCheckpoint> {
    Ok(CompletedCheckpoint {
        id: CheckpointId(cursor.u64()?),
        job: JobId(cursor.array().map(u128::from_le_bytes)?),
        attempt: AttemptNumber(cursor.u64()?),
        kind: match cursor.u8()? {
            0 => SnapshotKind::Checkpoint,
            1 => SnapshotKind::Final,
            2 => SnapshotKind::Savepoint,
            3 => SnapshotKind::StopWithSavepoint { drain: false },
            4 => SnapshotKind::StopWithSavepoint { drain: true },
            other => return Err(format!("{other} is no kind of checkpoint")),
        },
        // Not in the bytes: whoever reads them knows where they lie and why.
        location: None,
        owner: Owner::Job,
        triggered_at: UnixMillis(cursor.u64()?),
        hash_id: cursor.text()?,
        operators: cursor.all(12, take_operator)?,
    })
}

fn take_operator(cursor: &mut Cursor<'_>) -> Parsed<OperatorCheckpoint> {
    Ok(OperatorCheckpoint {
        uid: OperatorUid(cursor.text()?),
        max_parallelism: MaxParallelism::new(cursor.u32()?).map_err(|e| e.to_string())?,
        subtasks: cursor.all(5, take_subtask)?,
    })
}

fn take_subtask(cursor: &mut Cursor<'_>) -> Parsed<SubtaskState> {
    let flags = cursor.u8()?;
    if flags & !(FLAG_KEYED | FLAG_FINISHED) != 0 {
        return Err(format!("unknown flags {flags:#04x}"));
    }
    let keyed = if flags & FLAG_KEYED != 0 {
        Some(take_keyed(cursor)?)
    } else {
        None
    };
    Ok(SubtaskState {
        keyed,
        lists: cursor.all(9, take_list)?,
        finished: flags & FLAG_FINISHED != 0,
    })
}

fn take_keyed(cursor: &mut Cursor<'_>) -> Parsed<KeyedStateHandle> {
    Ok(KeyedStateHandle {
        key_groups: KeyGroupRange {
            start: cursor.u16()?,
            end: cursor.u16()?,
        },
        pieces: cursor.all(5, take_piece)?,
    })
}

fn take_piece(cursor: &mut Cursor<'_>) -> Parsed<KeyedPiece> {
    match cursor.u8()? {
        PIECE_FILE => Ok(KeyedPiece::File(FileHandle {
            name: cursor.text()?,
            bytes: cursor.u64()?,
            crc32c: cursor.u32()?,
        })),
        PIECE_INLINE => Ok(KeyedPiece::Inline(cursor.bytes()?.into())),
        other => Err(format!("{other} is no kind of piece")),
    }
}

fn take_list(cursor: &mut Cursor<'_>) -> Parsed<ListState> {
    Ok(ListState {
        name: cursor.text()?,
        redistribution: match cursor.u8()? {
            0 => Redistribution::Split,
            1 => Redistribution::Union,
            2 => Redistribution::Broadcast,
            other => return Err(format!("{other} is no redistribution")),
        },
        elements: cursor.all(4, |cursor| cursor.bytes().map(<[u8]>::to_vec))?,
    })
}

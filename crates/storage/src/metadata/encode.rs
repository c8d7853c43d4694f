//! Writing `_metadata`. The format is described in the parent module.

use tidegate_types::{
    CompletedCheckpoint, KeyedPiece, KeyedStateHandle, ListState, OperatorCheckpoint,
    Redistribution, SnapshotKind, SubtaskState,
};

use super::{
    FLAG_FINISHED, FLAG_KEYED, HEADER_BYTES, MAGIC, METADATA_BYTES_MAX, PIECE_FILE, PIECE_INLINE,
    VERSION, check,
};
use crate::error::StorageError;

/// Encodes a checkpoint's metadata.
///
/// # Errors
/// If it would be larger than [`METADATA_BYTES_MAX`] or breaks a rule of the format.
pub(crate) fn encode(checkpoint: &CompletedCheckpoint) -> Result<Vec<u8>, StorageError> {
    let id = checkpoint.id;
    check(checkpoint).map_err(|reason| StorageError::Unencodable {
        checkpoint: id,
        reason,
    })?;
    let too_large = StorageError::MetadataTooLarge {
        checkpoint: id,
        limit: METADATA_BYTES_MAX,
    };
    let Some(body) = encode_body(checkpoint) else {
        return Err(too_large);
    };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    assert_eq!(bytes.len(), HEADER_BYTES);
    bytes.extend_from_slice(&body);
    if bytes.len() as u64 > METADATA_BYTES_MAX {
        return Err(too_large);
    }
    Ok(bytes)
}

/// `None` if a length doesn't fit its field, far above the limit on the whole.
fn encode_body(checkpoint: &CompletedCheckpoint) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(&checkpoint.id.0.to_le_bytes());
    out.extend_from_slice(&checkpoint.job.0.to_le_bytes());
    out.extend_from_slice(&checkpoint.attempt.0.to_le_bytes());
    out.push(match checkpoint.kind {
        SnapshotKind::Checkpoint => 0,
        SnapshotKind::Final => 1,
        SnapshotKind::Savepoint => 2,
        SnapshotKind::StopWithSavepoint { drain: false } => 3,
        SnapshotKind::StopWithSavepoint { drain: true } => 4,
    });
    out.extend_from_slice(&checkpoint.triggered_at.0.to_le_bytes());
    put_bytes(&mut out, checkpoint.hash_id.as_bytes())?;
    put_all(&mut out, &checkpoint.operators, put_operator)?;
    Some(out)
}

fn put_operator(out: &mut Vec<u8>, operator: &OperatorCheckpoint) -> Option<()> {
    put_bytes(out, operator.uid.0.as_bytes())?;
    out.extend_from_slice(&operator.max_parallelism.get().to_le_bytes());
    put_all(out, &operator.subtasks, put_subtask)
}

fn put_subtask(out: &mut Vec<u8>, subtask: &SubtaskState) -> Option<()> {
    let keyed = if subtask.keyed.is_some() {
        FLAG_KEYED
    } else {
        0
    };
    let finished = if subtask.finished { FLAG_FINISHED } else { 0 };
    out.push(keyed | finished);
    if let Some(keyed) = &subtask.keyed {
        put_keyed(out, keyed)?;
    }
    put_all(out, &subtask.lists, put_list)
}

fn put_keyed(out: &mut Vec<u8>, keyed: &KeyedStateHandle) -> Option<()> {
    out.extend_from_slice(&keyed.key_groups.start.to_le_bytes());
    out.extend_from_slice(&keyed.key_groups.end.to_le_bytes());
    put_all(out, &keyed.pieces, put_piece)
}

fn put_piece(out: &mut Vec<u8>, piece: &KeyedPiece) -> Option<()> {
    match piece {
        KeyedPiece::File(file) => {
            out.push(PIECE_FILE);
            put_bytes(out, file.name.as_bytes())?;
            out.extend_from_slice(&file.bytes.to_le_bytes());
            out.extend_from_slice(&file.crc32c.to_le_bytes());
            Some(())
        }
        KeyedPiece::Inline(bytes) => {
            out.push(PIECE_INLINE);
            put_bytes(out, bytes)
        }
    }
}

fn put_list(out: &mut Vec<u8>, list: &ListState) -> Option<()> {
    put_bytes(out, list.name.as_bytes())?;
    out.push(match list.redistribution {
        Redistribution::Split => 0,
        Redistribution::Union => 1,
        Redistribution::Broadcast => 2,
    });
    put_all(out, &list.elements, |out, element| put_bytes(out, element))
}

fn put_all<T>(
    out: &mut Vec<u8>,
    items: &[T],
    put: impl Fn(&mut Vec<u8>, &T) -> Option<()>,
) -> Option<()> {
    out.extend_from_slice(&u32::try_from(items.len()).ok()?.to_le_bytes());
    items.iter().try_for_each(|item| put(out, item))
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    // Checked as it grows: encoding must not need much more memory than the limit either.
    if (out.len() + bytes.len()) as u64 > METADATA_BYTES_MAX {
        return None;
    }
    out.extend_from_slice(&u32::try_from(bytes.len()).ok()?.to_le_bytes());
    out.extend_from_slice(bytes);
    Some(())
}

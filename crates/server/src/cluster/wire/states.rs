//! Handles to state.

use tidegate_types::{FileHandle, KeyGroupRange, KeyedPiece, KeyedStateHandle, Redistribution};

use super::list_state::Redistribution as DealtOut;
use super::{BadMessage, File, KeyGroups, KeyedState, ListState, Piece, piece, required};

impl From<KeyGroupRange> for KeyGroups {
    fn from(range: KeyGroupRange) -> Self {
        KeyGroups {
            start: u32::from(range.start),
            end: u32::from(range.end),
        }
    }
}

impl TryFrom<KeyGroups> for KeyGroupRange {
    type Error = BadMessage;

    fn try_from(range: KeyGroups) -> Result<Self, BadMessage> {
        let bound = |bound: u32| {
            u16::try_from(bound).map_err(|_| BadMessage::new("a key group out of range"))
        };
        let (start, end) = (bound(range.start)?, bound(range.end)?);
        if start > end {
            return Err(BadMessage::new("key groups end before they begin"));
        }
        Ok(KeyGroupRange { start, end })
    }
}

impl From<FileHandle> for File {
    fn from(file: FileHandle) -> Self {
        File {
            name: file.name,
            bytes: file.bytes,
            crc32c: file.crc32c,
        }
    }
}

impl From<File> for FileHandle {
    fn from(file: File) -> Self {
        FileHandle {
            name: file.name,
            bytes: file.bytes,
            crc32c: file.crc32c,
        }
    }
}

impl From<KeyedPiece> for Piece {
    fn from(piece: KeyedPiece) -> Self {
        let piece = match piece {
            KeyedPiece::File(file) => piece::Piece::File(file.into()),
            KeyedPiece::Inline(bytes) => piece::Piece::Inline(bytes.to_vec()),
        };
        Piece { piece: Some(piece) }
    }
}

impl TryFrom<Piece> for KeyedPiece {
    type Error = BadMessage;

    fn try_from(piece: Piece) -> Result<Self, BadMessage> {
        Ok(
            match required(piece.piece, "a piece of state without content")? {
                piece::Piece::File(file) => KeyedPiece::File(file.into()),
                piece::Piece::Inline(bytes) => KeyedPiece::Inline(bytes.into()),
            },
        )
    }
}

impl From<KeyedStateHandle> for KeyedState {
    fn from(keyed: KeyedStateHandle) -> Self {
        KeyedState {
            key_groups: Some(keyed.key_groups.into()),
            pieces: keyed.pieces.into_iter().map(Piece::from).collect(),
        }
    }
}

impl TryFrom<KeyedState> for KeyedStateHandle {
    type Error = BadMessage;

    fn try_from(keyed: KeyedState) -> Result<Self, BadMessage> {
        let key_groups = required(keyed.key_groups, "keyed state without key groups")?;
        let pieces = keyed.pieces.into_iter().map(KeyedPiece::try_from);
        Ok(KeyedStateHandle {
            pieces: pieces.collect::<Result<_, _>>()?,
            key_groups: key_groups.try_into()?,
        })
    }
}

impl From<tidegate_types::ListState> for ListState {
    fn from(list: tidegate_types::ListState) -> Self {
        let redistribution = match list.redistribution {
            Redistribution::Split => DealtOut::Split,
            Redistribution::Union => DealtOut::Union,
            Redistribution::Broadcast => DealtOut::Broadcast,
        };
        ListState {
            name: list.name,
            redistribution: redistribution.into(),
            elements: list.elements,
        }
    }
}

impl TryFrom<ListState> for tidegate_types::ListState {
    type Error = BadMessage;

    fn try_from(list: ListState) -> Result<Self, BadMessage> {
        let redistribution = DealtOut::try_from(list.redistribution)
            .map_err(|_| BadMessage::new("an unknown way to deal out a list"))?;
        Ok(tidegate_types::ListState {
            name: list.name,
            redistribution: match redistribution {
                DealtOut::Split => Redistribution::Split,
                DealtOut::Union => Redistribution::Union,
                DealtOut::Broadcast => Redistribution::Broadcast,
            },
            elements: list.elements,
        })
    }
}

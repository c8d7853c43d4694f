//! Which pieces a snapshot of keyed state may rest on.
//!
//! A barrier names the latest completed checkpoint as the base. Its pieces are those that this
//! subtask acknowledged for it, so it remembers what it acknowledged until a barrier names a later
//! base: bases only grow. It is not the notice of completion that counts, which may overtake a
//! barrier that was sent before. Whatever is not remembered (another attempt's, one of too many)
//! means a snapshot that is whole by itself.
//!
//! Invariants: ids grow; pieces are known before the acknowledgement that lists them is sent; at
//! most [`TAKEN_MAX`] are remembered.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use tidegate_state::{ChainPolicy, FrozenKeyedState};
use tidegate_types::{CheckpointId, KeyedPiece};

/// Snapshots whose pieces are remembered at most. Many are only there if checkpoints overlap, or
/// fail one after the other.
const TAKEN_MAX: usize = 64;

/// The pieces of one snapshot, once they are known. Shared by the subtask and the writer.
#[derive(Clone, Debug, Default)]
pub(crate) struct TakenPieces(Arc<OnceLock<Vec<KeyedPiece>>>);

impl TakenPieces {
    /// Makes them known.
    pub(crate) fn set(&self, pieces: &[KeyedPiece]) {
        // Once is enough: a snapshot is written once.
        let _ = self.0.set(pieces.to_vec());
    }

    fn get(&self) -> Option<&[KeyedPiece]> {
        self.0.get().map(Vec::as_slice)
    }
}

/// Keyed state of a subtask at the instant of a snapshot, still to be written.
#[derive(Debug)]
pub struct KeyedSnapshot {
    /// What is to be written.
    pub(crate) frozen: FrozenKeyedState,
    /// The pieces that it rests on, oldest first; none if it is whole by itself.
    pub(crate) below: Vec<KeyedPiece>,
    /// Where the writer says which pieces there are, for snapshots to come.
    pub(crate) pieces: TakenPieces,
}

impl KeyedSnapshot {
    /// A snapshot on which nothing will rest.
    pub(crate) fn apart(frozen: FrozenKeyedState) -> Self {
        KeyedSnapshot {
            frozen,
            below: Vec::new(),
            pieces: TakenPieces::default(),
        }
    }
}

/// The snapshots that later ones may rest on. See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct PieceChains {
    policy: ChainPolicy,
    taken: VecDeque<(CheckpointId, TakenPieces)>,
}

impl PieceChains {
    /// The pieces of `base`, if a snapshot may be put on top of them. Forgets what is older.
    pub(crate) fn below(&mut self, base: CheckpointId) -> Option<Vec<KeyedPiece>> {
        while self.taken.front().is_some_and(|(id, _)| *id < base) {
            self.taken.pop_front();
        }
        let (_, pieces) = self.taken.front().filter(|(id, _)| *id == base)?;
        let pieces = pieces.get()?;
        let lengths = pieces.iter().map(KeyedPiece::bytes);
        self.policy.may_grow(lengths).then(|| pieces.to_vec())
    }

    /// Remembers a snapshot that is about to be written.
    pub(crate) fn insert(&mut self, checkpoint: CheckpointId) -> TakenPieces {
        let last = self.taken.back();
        debug_assert!(last.is_none_or(|(last, _)| *last < checkpoint));
        if self.taken.len() == TAKEN_MAX {
            self.taken.pop_front();
        }
        let pieces = TakenPieces::default();
        self.taken.push_back((checkpoint, pieces.clone()));
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(lengths: &[usize]) -> Vec<KeyedPiece> {
        let piece = |length: &usize| KeyedPiece::Inline(vec![0; *length].into());
        lengths.iter().map(piece).collect()
    }

    fn taken(snapshots: &[(u64, &[usize])]) -> PieceChains {
        let mut chains = PieceChains::default();
        for (id, lengths) in snapshots {
            chains.insert(CheckpointId(*id)).set(&pieces(lengths));
        }
        chains
    }

    #[test]
    fn a_base_is_there_as_long_as_barriers_name_it() {
        let mut chains = taken(&[(3, &[100]), (4, &[100, 5]), (7, &[100, 5, 6])]);
        assert_eq!(chains.below(CheckpointId(3)), Some(pieces(&[100])));
        assert_eq!(chains.below(CheckpointId(3)), Some(pieces(&[100])));
        assert_eq!(chains.below(CheckpointId(4)), Some(pieces(&[100, 5])));
        assert_eq!(
            chains.below(CheckpointId(3)),
            None,
            "barriers don't go back"
        );
        assert_eq!(chains.below(CheckpointId(5)), None, "it was never taken");
        assert_eq!(chains.below(CheckpointId(7)), Some(pieces(&[100, 5, 6])));
    }

    // RX-03: what was never written is no base.
    #[test]
    fn pieces_that_are_not_written_are_not_rested_on() {
        let mut chains = PieceChains::default();
        let pieces = chains.insert(CheckpointId(1));
        assert_eq!(chains.below(CheckpointId(1)), None);
        pieces.set(&[KeyedPiece::Inline([1].as_slice().into())]);
        assert!(chains.below(CheckpointId(1)).is_some());
    }

    #[test]
    fn a_chain_that_is_long_enough_begins_anew() {
        let mut chains = taken(&[(1, &[10, 5, 6]), (2, &[])]);
        assert_eq!(chains.below(CheckpointId(1)), None);
        assert_eq!(chains.below(CheckpointId(2)), None, "there was no key");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut chains = PieceChains::default();
        for id in 1..=1000 {
            chains.insert(CheckpointId(id)).set(&pieces(&[10]));
        }
        assert_eq!(chains.taken.len(), TAKEN_MAX);
        assert!(chains.below(CheckpointId(1000)).is_some());
    }
}

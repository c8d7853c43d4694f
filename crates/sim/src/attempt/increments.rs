//! Incremental snapshots: what a subtask remembers of those that it took, and what it refers to.

use std::collections::BTreeMap;

use tidegate_types::{CheckpointBarrier, CheckpointId, KeyedPiece, KeyedStateHandle};

use crate::mutation::Mutation;
use crate::outside::Outside;
use crate::store::Counts;

/// Pieces that a restore may have to read of one subtask: then it is written whole again.
const PIECES_MAX: usize = 4;

/// One snapshot of this attempt.
#[derive(Debug)]
struct Taken {
    counts: Counts,
    /// What was acknowledged.
    handle: Option<KeyedStateHandle>,
}

/// The snapshots of one subtask that later ones may rest on.
#[derive(Debug, Default)]
pub(super) struct TakenState(BTreeMap<CheckpointId, Taken>);

impl TakenState {
    /// The older pieces that a snapshot refers to, and what is new in it, if anything. Now and then
    /// it is whole by itself, though it needn't be.
    pub(super) fn changes(
        &mut self,
        barrier: &CheckpointBarrier,
        counts: Counts,
        outside: &mut Outside,
    ) -> (Vec<KeyedPiece>, Option<Counts>) {
        let mut base = barrier.base;
        if let Some(base) = base {
            self.0.retain(|taken, _| *taken >= base);
        }
        if base.is_some() && outside.has(Mutation::UnknownFileAccepted) {
            // Whatever was taken last.
            base = self.0.keys().next_back().copied();
        }
        let old = base.and_then(|base| self.0.get(&base));
        let old = old.and_then(|old| Some((&old.counts, old.handle.as_ref()?)));
        let old = old.filter(|(_, handle)| handle.pieces.len() < PIECES_MAX);
        let (pieces, changed) = match old.filter(|_| outside.rng.chance(0.8)) {
            None => (Vec::new(), counts.clone()),
            Some((old, handle)) => {
                let is_new = |(key, count): &(&u32, &(u64, u64))| old.get(key) != Some(count);
                let changed = counts.iter().filter(is_new);
                let changed = changed.map(|(key, count)| (*key, *count)).collect();
                (handle.pieces.clone(), changed)
            }
        };
        let handle = None;
        self.0.insert(barrier.checkpoint, Taken { counts, handle });
        (pieces, (!changed.is_empty()).then_some(changed))
    }

    /// The snapshot is durable, as this.
    pub(super) fn acknowledged(&mut self, checkpoint: CheckpointId, handle: &KeyedStateHandle) {
        if let Some(taken) = self.0.get_mut(&checkpoint) {
            taken.handle = Some(handle.clone());
        }
    }
}

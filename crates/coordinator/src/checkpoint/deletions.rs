//! How many checkpoints are being deleted: a storage that deletes more slowly than it is written
//! to must slow checkpoints down, or it fills up (Flink's cleaning back-pressure).

use std::collections::BTreeMap;

use tidegate_types::CheckpointId;

/// Deletions that have been issued and have not reported back.
#[derive(Debug, Default)]
pub(crate) struct Deletions {
    under_way: BTreeMap<CheckpointId, u32>,
}

impl Deletions {
    /// One more deletion for `checkpoint` has been issued.
    pub(crate) fn begin(&mut self, checkpoint: CheckpointId) {
        *self.under_way.entry(checkpoint).or_default() += 1;
    }

    /// One of them has ended.
    pub(crate) fn end(&mut self, checkpoint: CheckpointId) {
        if let Some(count) = self.under_way.get_mut(&checkpoint) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&checkpoint);
            }
        }
    }

    /// Whether any concerns this checkpoint.
    pub(crate) fn concern(&self, checkpoint: CheckpointId) -> bool {
        self.under_way.contains_key(&checkpoint)
    }

    /// How many checkpoints they concern.
    pub(crate) fn checkpoints(&self) -> usize {
        self.under_way.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_counts_once_until_all_its_deletions_have_ended() {
        let (one, two) = (CheckpointId(1), CheckpointId(2));
        let mut deletions = Deletions::default();
        deletions.begin(one);
        deletions.begin(one);
        deletions.begin(two);
        assert_eq!(deletions.checkpoints(), 2);
        assert!(deletions.concern(two) && !deletions.concern(CheckpointId(3)));
        deletions.end(one);
        assert_eq!(deletions.checkpoints(), 2);
        deletions.end(one);
        deletions.end(one);
        assert_eq!(deletions.checkpoints(), 1);
        deletions.end(two);
        assert_eq!(deletions.checkpoints(), 0);
    }
}

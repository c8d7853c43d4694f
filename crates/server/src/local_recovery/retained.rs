//! Which copies may still be needed: pure bookkeeping of names.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::CheckpointId;

/// What there is, and which checkpoints need it. Each method gives the names that nothing needs any
/// more, and forgets them.
///
/// A checkpoint that completes is what the next attempt restores, so all that is older goes; what
/// is newer may complete yet. Files that several checkpoints share stay as long as one of those.
#[derive(Debug, Default)]
pub(super) struct Retained {
    /// What each checkpoint consists of: the restored one, and those acknowledged since.
    needed: BTreeMap<CheckpointId, BTreeSet<String>>,
    /// The copies, and the checkpoint that each was made for.
    there: BTreeMap<String, CheckpointId>,
}

impl Retained {
    /// A copy was made for `checkpoint`.
    pub(super) fn made(&mut self, checkpoint: CheckpointId, name: String) {
        self.there.insert(name, checkpoint);
    }

    /// A copy is gone.
    pub(super) fn lost(&mut self, name: &str) {
        self.there.remove(name);
    }

    /// `checkpoint` consists of these files, among others.
    pub(super) fn needed<'a>(
        &mut self,
        checkpoint: CheckpointId,
        names: impl IntoIterator<Item = &'a str>,
    ) {
        let of_checkpoint = self.needed.entry(checkpoint).or_default();
        of_checkpoint.extend(names.into_iter().map(str::to_owned));
    }

    /// Nothing older than `checkpoint` will be restored.
    pub(super) fn completed(&mut self, checkpoint: CheckpointId) -> Vec<String> {
        self.needed = self.needed.split_off(&checkpoint);
        self.drop_if(|made_for| made_for <= checkpoint)
    }

    /// `checkpoint` will not be restored.
    pub(super) fn aborted(&mut self, checkpoint: CheckpointId) -> Vec<String> {
        self.needed.remove(&checkpoint);
        self.drop_if(|made_for| made_for == checkpoint)
    }

    fn drop_if(&mut self, is_over: impl Fn(CheckpointId) -> bool) -> Vec<String> {
        let Retained { needed, there } = self;
        let is_needed = |name: &String| needed.values().any(|names| names.contains(name));
        let unneeded =
            there.extract_if(.., |name, made_for| is_over(*made_for) && !is_needed(name));
        unneeded.map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn chk(id: u64) -> CheckpointId {
        CheckpointId(id)
    }

    /// `chk-3` is restored, from the files a and b.
    fn restored() -> Retained {
        let mut retained = Retained::default();
        retained.needed(chk(3), ["a", "b"]);
        retained.made(chk(3), "a".to_owned());
        retained.made(chk(3), "b".to_owned());
        retained
    }

    fn write(retained: &mut Retained, checkpoint: CheckpointId, name: &str) {
        retained.made(checkpoint, name.to_owned());
        retained.needed(checkpoint, [name]);
    }

    // LR-02
    #[test]
    fn what_completes_replaces_what_is_older_and_leaves_what_is_newer() {
        let mut retained = restored();
        write(&mut retained, chk(5), "five");
        write(&mut retained, chk(6), "six");
        retained.made(chk(7), "being acknowledged".to_owned());
        assert_eq!(retained.completed(chk(5)), ["a", "b"]);
        assert_eq!(retained.completed(chk(5)), [""; 0]);
        assert_eq!(retained.completed(chk(6)), ["five"]);
        assert_eq!(retained.completed(chk(8)), ["being acknowledged", "six"]);
    }

    // BC-54
    #[test]
    fn what_was_restored_stays_until_something_newer_has_completed() {
        let mut retained = restored();
        write(&mut retained, chk(5), "five");
        assert_eq!(retained.aborted(chk(5)), ["five"]);
        // Also when it is told again that it has completed.
        assert_eq!(retained.completed(chk(3)), [""; 0]);
        write(&mut retained, chk(6), "six");
        assert_eq!(retained.completed(chk(6)), ["a", "b"]);
    }

    // LR-02
    #[test]
    fn shared_files_stay_as_long_as_one_checkpoint_needs_them() {
        let mut retained = Retained::default();
        write(&mut retained, chk(1), "base");
        assert_eq!(retained.completed(chk(1)), [""; 0]);
        write(&mut retained, chk(2), "changes");
        retained.needed(chk(2), ["base"]);
        write(&mut retained, chk(3), "more changes");
        retained.needed(chk(3), ["base"]);
        assert_eq!(retained.completed(chk(2)), [""; 0]);
        assert_eq!(retained.aborted(chk(3)), ["more changes"]);
        write(&mut retained, chk(4), "all anew");
        assert_eq!(retained.completed(chk(4)), ["base", "changes"]);
    }

    #[test]
    fn news_in_another_order_make_no_difference_in_the_end() {
        let mut retained = restored();
        write(&mut retained, chk(5), "five");
        write(&mut retained, chk(6), "six");
        assert_eq!(retained.completed(chk(6)), ["a", "b", "five"]);
        assert_eq!(retained.completed(chk(5)), [""; 0]);
        // What an aborted checkpoint still wrote goes with the next one.
        assert_eq!(retained.aborted(chk(7)), [""; 0]);
        write(&mut retained, chk(7), "late");
        assert_eq!(retained.completed(chk(8)), ["late", "six"]);
    }

    #[test]
    fn a_lost_copy_is_not_dropped_again() {
        let mut retained = restored();
        retained.lost("a");
        assert_eq!(retained.completed(chk(4)), ["b"]);
    }
}

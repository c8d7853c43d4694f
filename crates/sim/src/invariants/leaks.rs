//! After a clean end nothing is left that nobody refers to: no file, no metadata, no transaction.
//!
//! Source: design section 5 and BC-55, a cleanup that depended on every message. What
//! could not be deleted on the way is found by the sweep at the end.

use tidegate_types::SnapshotLocation;

use super::{Checked, ensure};
use crate::external::{External, State};
use crate::store::Store;

const NAME: &str = "leaks";

/// What the job has claimed is gone with all its files.
pub(crate) fn claimed_is_gone(claimed: &SnapshotLocation, store: &Store) -> Checked {
    let inside = format!("{claimed}/");
    let left = store.files.keys().find(|name| name.starts_with(&inside));
    let gone = left.is_none() && !store.elsewhere.contains_key(claimed);
    // A pointer that could not be deleted still leads to all of it.
    let listed = store
        .pointers
        .values()
        .any(|to| to.location.as_ref() == Some(claimed));
    ensure(gone || listed, NAME, || {
        format!("left of what was claimed: `{claimed}` {left:?}")
    })
}

/// Whatever could not be deleted on the way has been swept.
pub(crate) fn nothing_left(store: &Store, external: &External) -> Checked {
    let orphans = store.orphans();
    ensure(orphans.is_empty(), NAME, || {
        format!("left in the store: {orphans:?}")
    })?;
    let invisible = external
        .transactions
        .iter()
        .find(|(_, t)| t.state != State::Committed);
    ensure(invisible.is_none(), NAME, || {
        format!("left by a sink: {invisible:?}")
    })
}

//! Nothing that a pointer leads to is ever deleted.
//!
//! Source: design section 5, "verified before its predecessor is deleted"; BC-02.

use super::{Checked, ensure};
use crate::store::{Store, Target};

pub(crate) fn may_delete(store: &Store, target: &Target) -> Checked {
    let leads_to = |id| match target {
        Target::Pointer(_) => false,
        Target::Metadata(metadata) => *metadata == id,
        Target::File(name) => {
            let metadata = store.metadata.get(&id);
            metadata.is_some_and(|found| found.files().any(|file| file.name == *name))
        }
    };
    let by = store.pointers.iter().copied().find(|id| leads_to(*id));
    ensure(by.is_none(), "reachable", || {
        format!("{target:?} is deleted, but {by:?} needs it")
    })
}

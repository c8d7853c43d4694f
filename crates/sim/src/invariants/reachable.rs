//! Nothing that a pointer leads to is ever deleted.
//!
//! Source: design section 5, "verified before its predecessor is deleted"; BC-02.

use super::{Checked, ensure};
use crate::store::{Store, Target};

pub(crate) fn may_delete(store: &Store, target: &Target) -> Checked {
    let leads_to = |id| {
        let Some(checkpoint) = store.completed(id) else {
            return false;
        };
        match target {
            Target::Pointer(_) | Target::Folder(_) => false,
            Target::Metadata(metadata, location) => {
                *metadata == id && *location == checkpoint.location
            }
            Target::File(name) => checkpoint.files().any(|file| file.name == *name),
        }
    };
    let by = store.pointers.keys().copied().find(|id| leads_to(*id));
    ensure(by.is_none(), "reachable", || {
        format!("{target:?} is deleted, but {by:?} needs it")
    })
}

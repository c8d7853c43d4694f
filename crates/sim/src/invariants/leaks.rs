//! After a clean end nothing is left that nobody refers to: no file, no metadata, no transaction.
//!
//! Source: design section 5 and BC-55, a cleanup that depended on every message. What
//! could not be deleted on the way is found by the sweep at the end.

use super::{Checked, ensure};
use crate::external::{External, State};
use crate::store::Store;

const NAME: &str = "leaks";

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

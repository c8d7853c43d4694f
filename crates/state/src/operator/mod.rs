//! Operator state: what belongs to a subtask rather than to a key.
//!
//! There are three modes, which differ in what a restore makes of it. The elements of a *split
//! list* are dealt out among the subtasks; each subtask gets all elements of a *union list*; of a
//! *broadcast map* all subtasks hold the same, and get it back.
//!
//! Operator state is meant for what is small: it lives in memory, and a snapshot serialises it at
//! once, into lists that travel in the acknowledgement. Beside the elements of each state goes a
//! list of one element, its *type*, by which a restore tells another mode or type before it reads
//! anything. A state that is empty leaves nothing.
//!
//! | List | Elements |
//! |---|---|
//! | *name* | split or union list: each element, as postcard |
//! | | broadcast map: each entry in order: varint length and encoding of the key, varint length and postcard of the value |
//! | *name*`/type` | one: version of this table (1), then as postcard mode (0 split, 1 union, 2 broadcast), version, key schema, value schema |
//!
//! Invariants: a snapshot shares nothing with the live state; names with the ending `/type` are
//! not for states.

mod backend;
mod broadcast;
mod list;
mod typed;

pub use backend::OperatorStateBackend;
pub use broadcast::BroadcastState;
pub use list::OperatorListState;

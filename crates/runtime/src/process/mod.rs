//! Process functions: what users write when a record alone isn't enough, with state, timers, side
//! outputs and a second input, under Flink's names.
//!
//! A function is opened once per subtask and attempt; there it binds its states, which gives it
//! typed handles. While it runs it gets, beside each record, a context that says for which key: a
//! handle and a context together are an access to state, one hash lookup and no more.
//!
//! All keyed functions share one operator, [`Keyed`]: it holds the state backend and the timers,
//! knows the watermark, fires timers one by one as far as the output has room, and cuts snapshots.
//! What differs between one input, two, and a broadcast one is a small [`KeyedFunction`] around the
//! user's.

mod broadcast;
mod connected;
mod context;
mod keyed;
mod open;
mod operator;
mod plain;
#[cfg(test)]
mod tests;

pub use broadcast::{
    BroadcastContext, BroadcastProcessFunction, BroadcastState, KeyedBroadcastProcessFunction,
    WithBroadcast,
};
pub use connected::{Connected, KeyedCoProcessFunction};
pub use context::{KeyedContext, TimeDomain, Timer, TimerService};
pub use keyed::{KeyedProcessFunction, Single};
pub use open::{KeyedOpenContext, OpenContext, OutputTag};
pub use operator::{Keyed, KeyedCore, KeyedFunction};
pub use plain::{One, OneWithBroadcast, ProcessContext, ProcessFunction, Unkeyed, UnkeyedFunction};

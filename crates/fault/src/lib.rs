//! Named places at which a test may kill the process or make an operation fail.
//!
//! Exactly-once is a claim about crashes *between* two effects, so those gaps have names
//! ([`POINTS`]) and the code passes through [`point`] there. Without the feature `fault-points`
//! every function here is empty and inlined away.
//!
//! # Crash points, driven by another process
//!
//! With the feature on, the environment decides, once per process:
//!
//! - `TIDEGATE_FAULT_ANNOUNCE`: `stdout`, `stderr` or the path of a FIFO, file or `/dev/fd/N`.
//!   Every hit of a point writes one line there, `<name> <hit>`, with hits counted per name from 1.
//! - `TIDEGATE_FAULT_POINTS`: `<name>#<k>`. The `k`-th hit of that point writes its line with
//!   ` armed` appended and then never returns; nor does any thread that comes to a point after it.
//!   Whoever reads the line kills the process. If the line can't be written, nobody is watching and
//!   the process aborts.
//!
//! The easiest pipe without unsafe code: make one with `std::io::pipe`, give the write end to the
//! child as its *stdin* and announce to `/dev/fd/0`; stdout and stderr stay free.
//!
//! # Injected errors, within one process
//!
//! [`fail`] marks an operation that a test can make fail ([`FAILURES`]), by `inject`. The registry
//! is one per process: tests that inject must not run beside tests that don't expect it.

#[cfg(feature = "fault-points")]
mod registry;

#[cfg(feature = "fault-points")]
pub use registry::{Injection, inject};

/// Environment variable that arms one point, as `<name>#<k>`.
pub const ARM_VARIABLE: &str = "TIDEGATE_FAULT_POINTS";

/// Environment variable that says where hits are announced.
pub const ANNOUNCE_VARIABLE: &str = "TIDEGATE_FAULT_ANNOUNCE";

/// Every crash point of the product, in the order in which a checkpoint passes them.
pub const POINTS: [&str; 18] = [
    "barrier:before",
    "barrier:after",
    "snapshot:before",
    "snapshot:after",
    "state-file:before",
    "state-file:after",
    "acknowledge:before",
    "acknowledge:after",
    "metadata:before",
    "metadata:after",
    "pointer:before",
    "pointer:after",
    "commit-link:before",
    "commit-link:after",
    "commit-unlink:before",
    "commit-unlink:after",
    "commit-sync:before",
    "commit-sync:after",
];

/// Every operation that can be made to fail. `write` fails before anything happened, `reply` after
/// the write took effect (the outcome is unknown to the writer), `read-back` the look afterwards;
/// `read` and `list` are looks on their own.
pub const FAILURES: [&str; 16] = [
    "state-file:write",
    "state-file:reply",
    "metadata:write",
    "metadata:reply",
    "metadata:read-back",
    "metadata:read",
    "pointer:write",
    "pointer:reply",
    "pointer:read-back",
    "record:write",
    "record:reply",
    "record:read-back",
    "record:list",
    "delete:write",
    "savepoint:prepare",
    "commit:write",
];

/// Passes the crash point `name`, one of [`POINTS`].
///
/// # Panics
/// With the feature on, if there is no such point: a typo would silently test nothing.
#[inline(always)]
pub fn point(name: &'static str) {
    #[cfg(feature = "fault-points")]
    registry::hit(name);
    #[cfg(not(feature = "fault-points"))]
    let _ = name;
}

/// The error that a test has injected into the operation `name`, one of [`FAILURES`]; `None`
/// without the feature.
///
/// # Panics
/// With the feature on, if there is no such operation.
#[inline(always)]
pub fn fail(name: &'static str) -> Option<std::io::Error> {
    #[cfg(feature = "fault-points")]
    return registry::injected(name);
    #[cfg(not(feature = "fault-points"))]
    {
        let _ = name;
        None
    }
}

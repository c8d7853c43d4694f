//! Panics that say nothing: a process that loses a peer makes each of timely's communication
//! threads panic, two for every other process, and then its workers. What has happened is in a
//! report by then, so these messages are for the debug log.

use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Once;

/// Texts of panics that follow from the loss of a connection, in timely's words.
const CONSEQUENCES: &[&str] = &[
    "MergeQueue poisoned",
    "MergeQueue mutex poisoned",
    "timely communication error",
    "Send thread panic",
    "Recv thread panic",
];

/// Names of timely's communication threads begin like this.
const THREADS: &[&str] = &["timely:send-", "timely:recv-"];

/// Whether a failure that says this is a consequence of a lost connection, or of one that this
/// process has closed.
pub(crate) fn follows_from_a_loss(cause: &str) -> bool {
    CONSEQUENCES.iter().any(|text| cause.contains(text))
}

/// From now on, such panics don't go to standard error. Panics of anybody else go where they went
/// before. Once per process.
pub(super) fn silence_consequences() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if is_consequence(info) {
                tracing::debug!(panic = %info, "communication ended");
            } else {
                before(info);
            }
        }));
    });
}

fn is_consequence(info: &PanicHookInfo<'_>) -> bool {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    let message = info.payload_as_str().unwrap_or_default();
    // Texts that merely quote such a message are somebody else's.
    THREADS.iter().any(|prefix| name.starts_with(prefix))
        || CONSEQUENCES.iter().any(|text| message.starts_with(text))
}

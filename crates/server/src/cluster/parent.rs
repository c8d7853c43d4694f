//! Processes that are nobody's without the one that started them.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Has this process die with the thread that started it, also if that is killed. One that has
/// died already is noticed, too.
pub(super) fn die_with_parent() {
    // What fails here is found otherwise, later: nobody is heard of any more.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid().is_none_or(Pid::is_init) {
        std::process::exit(1);
    }
}

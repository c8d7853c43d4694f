//! Processes of the same binary, which are nobody's without the one that started them.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tokio::process::Command;

/// Runs the binary that runs here, also if another has been put in its place.
pub(super) fn this_binary() -> Command {
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    command
}

/// Has this process die with the thread that started it, also if that is killed. A `parent` that
/// has died already is noticed, too: then this process has another one.
pub(super) fn die_with_parent(parent: u32) {
    // What fails here is found otherwise, later: nobody is heard of any more.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let now = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if now != Some(parent) {
        std::process::exit(1);
    }
}

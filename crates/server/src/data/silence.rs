//! A peer that can't be reached any more, although nobody has closed anything: its machine has
//! vanished, or the network between the two of us, while both may well be heard by the JobManager.
//! Nobody else would notice that: the kernel goes on sending for a quarter of an hour.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout,
};

/// What the kernel counts in.
const SECOND: Duration = Duration::from_secs(1);

/// Has a connection break when what was sent is not acknowledged for this long, by the kernel on
/// the other side: that of a process that is only busy, or paused, acknowledges until it has no
/// more room. One on which nothing is sent is probed, every second at most.
///
/// # Errors
/// What the operating system says.
pub(super) fn break_after(stream: &impl AsFd, silence: Duration) -> io::Result<()> {
    let millis = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    set_tcp_user_timeout(stream, millis.max(1))?;
    let probe = (silence / 5).max(SECOND);
    set_tcp_keepidle(stream, probe)?;
    set_tcp_keepintvl(stream, probe)?;
    set_socket_keepalive(stream, true)?;
    Ok(())
}

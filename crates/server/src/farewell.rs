//! Closing a connection so that the last that was said is heard.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// How long somebody who has been turned away may take to read why.
const PATIENCE: Duration = Duration::from_secs(1);

/// Lets the other side read the last that was said, for a second at most. If a connection is closed
/// while something that was sent to it hasn't been read, what is on its way the other way may be
/// lost.
pub(crate) async fn close_gently(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    // It may have gone already, and needn't know.
    let _ = stream.shutdown().await;
    let drained = async {
        let mut nothing = [0; 1024];
        while matches!(stream.read(&mut nothing).await, Ok(read) if read > 0) {}
    };
    let _ = timeout(PATIENCE, drained).await;
}

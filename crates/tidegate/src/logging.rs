//! Where messages go unless the program says otherwise.

use tracing_subscriber::EnvFilter;

/// Logs warnings to standard error, or what `RUST_LOG` says, unless the program has set up logging
/// itself.
pub(crate) fn log_to_standard_error() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    // Fails only if logging is set up already, which is fine.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}

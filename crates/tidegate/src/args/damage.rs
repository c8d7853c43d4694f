//! Damaged configuration files: reading ends in settings or in messages, whatever stands there.
//!
//! The damage is that of the fuzz targets (`fuzz/`), on seeds instead of what a fuzzer finds.

#[path = "../../../../fuzz/shared/mutate.rs"]
mod mutate;

use mutate::Mutator;

use super::read_config;

const ROUNDS: usize = 20_000;

const VALID: &str = r#"# Kept for a week of trouble.
checkpoint-dir = "/var/lib/wordcount/checkpoints"
checkpoint-interval = "1m 30s"
checkpoint-timeout = "10m"
retained-checkpoints = 3
tolerable-failed-checkpoints = "unlimited"
max-concurrent-checkpoints = 0x02
restart = "fixed-delay:100,10s"
mode = "at-least-once"
quiet = true
"#;

/// Pieces that matter to the parsers of the file and of values.
const PIECES: &str = "\"\"\"'''[[x]]{a=1}\n#=.,:_-+0x0b0o1e99nan inf 1979-05-27 \
                      18446744073709551616 9999999999999999999999s 1years fixed-delay:-1,0s \
                      exponential-delay: failure-rate:0,0s,1h parallelism = 0\n\
                      parallelism = 70000\n\u{0}\u{feff}é";

#[test]
fn damaged_files_end_in_settings_or_messages() {
    read_config(VALID).unwrap();
    let mut mutator = Mutator::new(1);
    let mut accepted = 0;
    for round in 0..ROUNDS {
        let damaged = mutator.damaged(VALID.as_bytes(), PIECES.as_bytes());
        let text = String::from_utf8_lossy(&damaged);
        match read_config(&text) {
            Ok(args) => accepted += usize::from(args.quiet.is_some()),
            Err(problems) => {
                let mut messages = problems.messages().peekable();
                assert!(messages.peek().is_some(), "round {round}");
                assert!(messages.all(|message| !message.is_empty()), "round {round}");
            }
        }
    }
    // Damage to comments and within values leaves files that are read.
    assert!(
        (ROUNDS / 100..ROUNDS).contains(&accepted),
        "{accepted} were accepted"
    );
}

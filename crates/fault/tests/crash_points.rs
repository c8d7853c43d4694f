//! A child process announces its crash points, stops at the armed one and is killed there.
//!
//! The child is this binary, told apart by an environment variable; therefore no test harness.

#![allow(clippy::print_stdout, reason = "it is its own test harness")]

#[cfg(feature = "fault-points")]
mod parent {
    use std::io::{BufRead, BufReader, PipeReader};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    const CHILD: &str = "TIDEGATE_FAULT_TEST_CHILD";

    pub(super) fn main() {
        if std::env::var_os(CHILD).is_some() {
            return child();
        }
        announces_every_hit();
        stops_at_the_armed_hit_until_killed();
        aborts_if_nobody_watches();
        refuses_bad_settings();
        println!("crash points: 4 scenarios passed");
    }

    /// Two threads, so that the armed one doesn't end the other by being blocked itself.
    fn child() {
        let other = std::thread::spawn(|| {
            for _ in 0..3 {
                tidegate_fault::point("barrier:before");
            }
        });
        other.join().expect("nothing is armed there");
        for _ in 0..3 {
            tidegate_fault::point("pointer:before");
            tidegate_fault::point("pointer:after");
        }
    }

    /// Starts the child with the write end of a pipe as its stdin, and announcing there.
    fn start(armed: &str) -> (Child, BufReader<PipeReader>) {
        let (reader, writer) = std::io::pipe().expect("pipes can be made");
        let child = Command::new(std::env::current_exe().expect("this test has a path"))
            .env(CHILD, "1")
            .env(tidegate_fault::ANNOUNCE_VARIABLE, "/dev/fd/0")
            .env(tidegate_fault::ARM_VARIABLE, armed)
            .stdin(Stdio::from(writer))
            .stderr(Stdio::piped())
            .spawn()
            .expect("this binary can be started");
        (child, BufReader::new(reader))
    }

    fn announces_every_hit() {
        let (mut child, lines) = start("");
        let lines: Vec<String> = lines.lines().map(|line| line.expect("text")).collect();
        assert!(child.wait().expect("the child ends").success());
        let mut expected: Vec<String> = (1..=3).map(|k| format!("barrier:before {k}")).collect();
        for k in 1..=3 {
            expected.push(format!("pointer:before {k}"));
            expected.push(format!("pointer:after {k}"));
        }
        assert_eq!(lines, expected);
    }

    fn stops_at_the_armed_hit_until_killed() {
        let (mut child, lines) = start("pointer:after#2");
        let mut lines = lines.lines();
        let last = lines
            .by_ref()
            .map(|line| line.expect("text"))
            .find(|line| line.ends_with("armed"));
        assert_eq!(last.as_deref(), Some("pointer:after 2 armed"));
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(100) {
            assert!(
                child.try_wait().expect("it can be asked").is_none(),
                "it waits"
            );
            std::thread::yield_now();
        }
        child.kill().expect("it can be killed");
        assert!(!child.wait().expect("it is dead").success());
        assert!(lines.next().is_none(), "nothing follows the armed line");
    }

    fn aborts_if_nobody_watches() {
        let (child, lines) = start("pointer:before#1");
        drop(lines);
        let ended = child.wait_with_output().expect("the child ends");
        assert!(!ended.status.success(), "{:?}", ended.status);
    }

    fn refuses_bad_settings() {
        for (setting, reason) in [
            ("pointer:before", "is not `<name>#<k>`"),
            ("nowhere#1", "`nowhere` is none of"),
            ("pointer:before#0", "is not a hit number from 1"),
        ] {
            let (child, _lines) = start(setting);
            let ended = child.wait_with_output().expect("the child ends");
            assert_eq!(ended.status.code(), Some(2), "{setting}");
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(said.contains(reason), "{said}");
        }
    }
}

fn main() {
    // nextest asks for the list of tests.
    if std::env::args().any(|argument| argument == "--list") {
        if !std::env::args().any(|argument| argument == "--ignored") {
            println!("crash_points: test");
        }
        return;
    }
    #[cfg(feature = "fault-points")]
    parent::main();
}

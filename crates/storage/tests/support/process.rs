//! A server that a test starts, which ends with the test, however that ends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any server takes to start.
const START_MAX: Duration = Duration::from_secs(60);

/// A process behind a shell that ends it once the test's end of a pipe is closed.
pub(crate) struct Server {
    shell: Child,
}

impl Server {
    /// Starts `program`, which says nothing on the test's output.
    pub(crate) fn start(program: &str, args: &[&str]) -> Server {
        let script = r#""$@" </dev/null >/dev/null 2>&1 & read -r _; kill -9 $!; wait"#;
        let shell = Command::new("sh")
            .args(["-c", script, "server", program])
            .args(args)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Server { shell }
    }

    /// Sends it a signal: `STOP`, `CONT`.
    pub(crate) fn signal(&self, signal: &str) {
        let shell = self.shell.id();
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        let children = children.unwrap();
        // The shell's only one: it has the built-in `read` wait besides.
        let [pid] = children.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("not one server: {children}");
        };
        let signal = format!("-{signal}");
        let sent = Command::new("kill").args([&signal, "--", pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        drop(self.shell.stdin.take());
        self.shell.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port on loopback that is free at this moment.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Asks the server at `port` until its answer contains `ready`.
pub(crate) fn wait_until_ready(port: u16, question: &str, ready: &str) {
    let begun = Instant::now();
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(question.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    while !ask().is_ok_and(|answer| answer.contains(ready)) {
        assert!(begun.elapsed() < START_MAX, "nothing serves port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

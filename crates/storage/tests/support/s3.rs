//! A real S3 server, started by the test with a port of its own.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::{Server, free_port, wait_until_ready};

/// The bucket that is there from the beginning.
pub(crate) const BUCKET: &str = "tidegate-test";

pub(crate) struct S3 {
    pub(crate) port: u16,
    server: Server,
}

impl S3 {
    /// One with an empty bucket. It forgets everything when it ends.
    pub(crate) fn start() -> S3 {
        let python = python();
        assert!(
            python.exists(),
            "no {}: run scripts/setup.sh",
            python.display()
        );
        // Tests of other crates start it, too.
        let script = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = script.join("../storage/tests/support/s3_server.py");
        let port = free_port();
        let args = [script.to_str().unwrap(), &port.to_string()];
        let server = Server::start(python.to_str().unwrap(), &args);
        let health = "GET /moto-api/ HTTP/1.0\r\nHost: localhost\r\n\r\n";
        wait_until_ready(port, health, "200 OK");
        create_bucket(port);
        S3 { port, server }
    }

    /// Has it stand still: whoever asks it waits for an answer.
    pub(crate) fn pause(&self) {
        self.server.signal("STOP");
    }

    /// Has it go on, with what was asked meanwhile.
    pub(crate) fn resume(&self) {
        self.server.signal("CONT");
    }
}

/// What a client needs to know to find the server at `port`.
pub(crate) fn options(port: u16) -> Vec<(&'static str, String)> {
    let fixed = [
        ("aws_access_key_id", "test"),
        ("aws_secret_access_key", "test"),
        ("aws_region", "us-east-1"),
        ("aws_allow_http", "true"),
    ];
    let mut options: Vec<_> = fixed.map(|(name, value)| (name, value.to_owned())).into();
    options.push(("aws_endpoint", format!("http://127.0.0.1:{port}")));
    options
}

/// Set where the environment is as it should be.
const CHILD: &str = "TIDEGATE_TEST_BUCKET_CHILD";

/// Whether the calling test is to run here; otherwise it has run elsewhere.
pub(crate) fn has_bucket(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let server = S3::start();
    let environment = options(server.port)
        .into_iter()
        .map(|(name, value)| (name.to_uppercase(), value));
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .envs(environment)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&child.stderr)
    );
    false
}

/// Where scripts/setup.sh has installed it.
fn python() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache =
        cache.unwrap_or_else(|| Path::new(&std::env::var_os("HOME").unwrap()).join(".cache"));
    cache.join("tidegate/moto-5.2.5/bin/python")
}

fn create_bucket(port: u16) {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let request = format!("PUT /{BUCKET} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("200 OK"), "{answer}");
}

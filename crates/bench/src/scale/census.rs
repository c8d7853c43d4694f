//! The processes of a local cluster and their data sockets, as the kernel counts them.
//!
//! Sockets are listed by `ss` (iproute2): what each has sent, in bytes and in segments that carry
//! data. Every write of timely's is sent at once, so a segment is at least a part of a write, and a
//! large write is several; on loopback one holds up to 64 KiB.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::error::{Error, Result};

/// What processes of one kind have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Taken {
    pub(super) threads: u64,
    pub(super) resident_bytes: u64,
    pub(super) cpu_seconds: f64,
}

impl Taken {
    fn add(&mut self, other: Taken) {
        self.threads += other.threads;
        self.resident_bytes += other.resident_bytes;
        self.cpu_seconds += other.cpu_seconds;
    }
}

/// A cluster at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Census {
    /// Processes of the attempt.
    pub(super) processes: Vec<Taken>,
    pub(super) jobmanager: Taken,
    /// TaskManagers together.
    pub(super) taskmanagers: Taken,
    /// Sent on connections between processes of the attempt: segments with data, and bytes.
    pub(super) data: (u64, u64),
    /// Ends of those connections.
    pub(super) data_sockets: usize,
    /// The same as `data` between them, the TaskManagers and the JobManager.
    pub(super) control: (u64, u64),
}

impl Census {
    /// Of the cluster whose JobManager and TaskManagers the process `root` has started.
    ///
    /// # Errors
    /// If `ss` can't be run.
    pub(super) fn take(root: u32) -> Result<Census> {
        let mut census = Census::default();
        let mut pids = BTreeMap::new();
        for pid in children(root) {
            match role(pid).as_str() {
                "jobmanager" => {
                    census.jobmanager = taken(pid);
                    pids.insert(pid, false);
                }
                "taskmanager" => {
                    census.taskmanagers.add(taken(pid));
                    pids.insert(pid, false);
                    for process in children(pid) {
                        census.processes.push(taken(process));
                        pids.insert(process, true);
                    }
                }
                _ => {}
            }
        }
        census.count_sockets(&pids)?;
        Ok(census)
    }

    fn count_sockets(&mut self, pids: &BTreeMap<u32, bool>) -> Result<()> {
        let listed = Command::new("ss")
            .args(["-tinpHO", "state", "established"])
            .output();
        let listed = listed.map_err(Error::io("run", "ss"))?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let sockets: Vec<Socket> = listed.lines().filter_map(Socket::parse).collect();
        let owners: BTreeMap<&str, u32> = sockets.iter().map(|s| (s.local, s.pid)).collect();
        for socket in &sockets {
            let ours = pids.get(&socket.pid);
            let theirs = owners.get(socket.peer).and_then(|pid| pids.get(pid));
            let (segments, bytes) = match (ours, theirs) {
                (Some(true), Some(true)) => {
                    self.data_sockets += 1;
                    &mut self.data
                }
                (Some(_), Some(_)) => &mut self.control,
                _ => continue,
            };
            *segments += socket.segments;
            *bytes += socket.bytes;
        }
        Ok(())
    }
}

/// One end of a connection.
#[derive(Debug, PartialEq)]
struct Socket<'a> {
    local: &'a str,
    peer: &'a str,
    pid: u32,
    segments: u64,
    bytes: u64,
}

impl<'a> Socket<'a> {
    /// Of a line of `ss`: two queues, two addresses, the owner, and what there is to say.
    fn parse(line: &'a str) -> Option<Socket<'a>> {
        let mut words = line.split_whitespace().skip(2);
        let (local, peer) = (words.next()?, words.next()?);
        let number = |key: &str| {
            let value = line.split(key).nth(1)?;
            let end = value
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(value.len());
            value[..end].parse::<u64>().ok()
        };
        Some(Socket {
            local,
            peer,
            pid: number("pid=")? as u32,
            segments: number("data_segs_out:").unwrap_or(0),
            bytes: number("bytes_sent:").unwrap_or(0),
        })
    }
}

/// Processes that a process has started.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let listed = threads.map(|thread| fs::read_to_string(thread.path().join("children")));
    let listed: String = listed.filter_map(|listed| listed.ok()).collect();
    listed
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// The first argument of a process.
fn role(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let role = line.split(|byte| *byte == 0).nth(1).unwrap_or_default();
    String::from_utf8_lossy(role).into_owned()
}

/// Nothing of a process that has ended.
fn taken(pid: u32) -> Taken {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or(0)
    };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Taken {
        threads: field("Threads:"),
        resident_bytes: field("VmRSS:") * 1024,
        // Linux counts a hundred a second, whatever the machine.
        cpu_seconds: ticks / 100.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_ss_is_understood() {
        let line = "0 0 127.0.0.1:40123 127.0.0.1:40124 users:((\"job\",pid=17,fd=9)) cubic \
                    bytes_sent:1234 bytes_acked:1234 segs_out:40 data_segs_out:30 send 1bps";
        let socket = Socket::parse(line).unwrap();
        assert_eq!(
            (socket.local, socket.peer),
            ("127.0.0.1:40123", "127.0.0.1:40124")
        );
        assert_eq!((socket.pid, socket.segments, socket.bytes), (17, 30, 1234));
        assert_eq!(Socket::parse(""), None);
    }

    #[test]
    fn this_process_has_threads_memory_and_a_name() {
        let taken = taken(std::process::id());
        assert!(
            taken.threads >= 1 && taken.resident_bytes > 100_000,
            "{taken:?}"
        );
    }
}

//! Where and with what something was measured.

use std::fs;
use std::process::Command;
use std::time::SystemTime;

use serde::Serialize;

use crate::peers::flink;

/// What figures depend on besides the programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    /// Model of its processor.
    pub(crate) cpu: String,
    /// Processors that the suite may use.
    pub(crate) cores: usize,
    /// Memory, in bytes.
    pub(crate) memory_bytes: u64,
    /// Release of its kernel.
    pub(crate) kernel: String,
}

impl Machine {
    /// The one that this is.
    pub(crate) fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Machine {
            cpu: cpu_model(&read("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }

    /// In a few words, for below a table.
    pub(crate) fn text(&self) -> String {
        let Machine {
            cpu, cores, kernel, ..
        } = self;
        let gigabytes = self.memory_bytes as f64 / 1e9;
        format!("{cpu}, {cores} cores, {gigabytes:.0} GB, Linux {kernel}")
    }
}

fn cpu_model(cpuinfo: &str) -> String {
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let name = model.and_then(|line| line.split_once(':'));
    name.map_or("unknown", |(_, name)| name.trim()).to_owned()
}

fn memory_bytes(meminfo: &str) -> u64 {
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// What was compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Versions {
    /// Of Tidegate.
    pub(crate) tidegate: String,
    /// Of timely.
    pub(crate) timely: String,
    /// Of Flink.
    pub(crate) flink: String,
    /// Of renoir.
    pub(crate) renoir: String,
    /// Of the Java that Flink runs on; empty if there is none.
    pub(crate) java: String,
}

impl Versions {
    /// Those of this build and this machine.
    pub(crate) fn these() -> Self {
        let java = Command::new("java").arg("--version").output();
        let java = java.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        Versions {
            tidegate: env!("CARGO_PKG_VERSION").to_owned(),
            timely: locked("timely", include_str!("../../../../Cargo.lock")),
            flink: flink::VERSION.to_owned(),
            renoir: locked("renoir", include_str!("../../renoir/Cargo.lock")),
            java: java
                .unwrap_or_default()
                .lines()
                .next()
                .unwrap_or("")
                .to_owned(),
        }
    }
}

/// The version of a package in `Cargo.lock`.
fn locked(package: &str, lock: &str) -> String {
    let name = format!("name = \"{package}\"");
    let mut behind = lock.lines().skip_while(|line| *line != name);
    let version = behind
        .nth(1)
        .and_then(|line| line.strip_prefix("version = "));
    version.unwrap_or("unknown").trim_matches('"').to_owned()
}

/// Now, in UTC, to the second.
pub(crate) fn date() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::case::System;
    use super::*;

    #[test]
    fn the_kernel_says_what_machine_it_is() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A Processor: 7\nmodel name\t: other\n";
        assert_eq!(cpu_model(cpuinfo), "A Processor: 7");
        assert_eq!(cpu_model("processor\t: 0\n"), "unknown");
        assert_eq!(
            memory_bytes("MemTotal:       2048 kB\nMemFree: 1 kB\n"),
            2 << 20
        );
        assert_eq!(memory_bytes(""), 0);
    }

    #[test]
    fn the_lock_file_knows_versions() {
        let lock = "[[package]]\nname = \"timely_bytes\"\nversion = \"0.1.0\"\n\n\
                    [[package]]\nname = \"timely\"\nversion = \"0.32.4\"\nsource = \"x\"\n";
        assert_eq!(locked("timely", lock), "0.32.4");
        assert_eq!(locked("other", lock), "unknown");
        let these = Versions::these();
        assert_ne!(these.timely, "unknown");
        // As the table's head has it.
        let title = System::Renoir.title().replace("renoir ", "");
        assert!(these.renoir.starts_with(&title), "{these:?}");
    }
}

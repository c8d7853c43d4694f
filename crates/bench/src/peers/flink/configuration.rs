//! How clusters are configured: in files that one can read, and the few lines that differ.

use std::path::Path;

/// Name of the jobs' jar among those that were uploaded.
pub(super) const JAR: &str = "0_jobs.jar";
/// What is logged, and where to.
pub(super) const LOGGING: &str = include_str!("../../../flink/conf/log4j.properties");

const COMMON: &str = include_str!("../../../flink/conf/common.yaml");
const FAST_FAILOVER: &str = include_str!("../../../flink/conf/fast-failover.yaml");

/// What a cluster is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Slots of each TaskManager: the largest parallelism of a job.
    pub(crate) slots: u32,
    /// How much memory a TaskManager may have in all, in MiB.
    pub(crate) task_manager_mib: u32,
    /// Whether the dead are found, and jobs restarted, as fast as settings allow.
    pub(crate) fast_failover: bool,
}

impl Shape {
    /// Memory enough that collecting garbage hardly costs anything.
    pub(crate) fn fast(slots: u32) -> Self {
        Shape {
            slots,
            task_manager_mib: 8192,
            fast_failover: false,
        }
    }

    /// The smallest that runs the suite's jobs at nearly full speed.
    pub(crate) fn small(slots: u32) -> Self {
        Shape {
            task_manager_mib: 1280,
            ..Self::fast(slots)
        }
    }

    /// Tuned for the shortest time between a failure and the next attempt.
    pub(crate) fn fast_failover(slots: u32) -> Self {
        Shape {
            task_manager_mib: 4096,
            fast_failover: true,
            ..Self::fast(slots)
        }
    }
}

/// Where the JobManager listens. The others are any that are free.
pub(super) struct Ports {
    /// For REST.
    pub(super) rest: u16,
    /// For TaskManagers.
    pub(super) rpc: u16,
}

/// `config.yaml` of a cluster whose files are all in `folder`.
pub(super) fn yaml(folder: &Path, shape: &Shape, ports: &Ports) -> String {
    let folder = folder.display();
    let Shape {
        slots,
        task_manager_mib,
        fast_failover,
    } = shape;
    let Ports { rest, rpc } = ports;
    let failover = if *fast_failover { FAST_FAILOVER } else { "" };
    format!(
        "{COMMON}{failover}\
         rest.port: {rest}\n\
         jobmanager.rpc.port: {rpc}\n\
         taskmanager.numberOfTaskSlots: {slots}\n\
         taskmanager.memory.process.size: {task_manager_mib}m\n\
         execution.checkpointing.dir: file://{folder}/checkpoints\n\
         io.tmp.dirs: {folder}/tmp\n\
         web.upload.dir: {folder}/web\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTS: Ports = Ports {
        rest: 4001,
        rpc: 4002,
    };

    fn settings(shape: &Shape) -> Vec<(String, String)> {
        yaml(Path::new("/data/one"), shape, &PORTS)
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| {
                let (name, value) = line.split_once(": ").expect(line);
                (name.to_owned(), value.to_owned())
            })
            .collect()
    }

    #[test]
    fn every_line_is_a_setting_and_none_is_there_twice() {
        for shape in [Shape::fast(2), Shape::small(2), Shape::fast_failover(2)] {
            let settings = settings(&shape);
            for (at, (name, _)) in settings.iter().enumerate() {
                let again = settings[..at].iter().any(|(other, _)| other == name);
                assert!(!again, "{name}");
            }
        }
    }

    #[test]
    fn a_cluster_listens_where_it_is_told_and_writes_to_its_folder() {
        let settings = settings(&Shape::small(3));
        let has = |name: &str, value: &str| {
            assert!(
                settings.contains(&(name.to_owned(), value.to_owned())),
                "{name}"
            );
        };
        has("rest.port", "4001");
        has("jobmanager.rpc.port", "4002");
        has("taskmanager.numberOfTaskSlots", "3");
        has("rest.bind-address", "localhost");
        has(
            "execution.checkpointing.dir",
            "file:///data/one/checkpoints",
        );
        assert!(
            !settings
                .iter()
                .any(|(name, _)| name.starts_with("heartbeat"))
        );
    }
}

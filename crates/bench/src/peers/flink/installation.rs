//! Where `crates/bench/flink/setup.sh` has put Flink and the compiled jobs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::FlinkError;

/// The release that the set-up script installs.
pub(crate) const VERSION: &str = "2.3.0";

/// What Flink's own start scripts tell every JVM: modules that it looks into.
const OPENED: [&str; 14] = [
    "--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.text=ALL-UNNAMED",
    "--add-opens=java.base/java.time=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.locks=ALL-UNNAMED",
];

/// Flink on this machine, complete.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    /// The suite's folder, in which clusters make theirs.
    pub(crate) home: PathBuf,
    /// The compiled jobs.
    pub(crate) jobs: PathBuf,
    /// What sizes memory, apart from the rest: it brings a logging of its own.
    sizing: PathBuf,
    /// All that a process of the cluster needs.
    class_path: OsString,
}

impl Installation {
    /// Finds it in `$TIDEGATE_BENCH_HOME`, by default `~/.cache/tidegate-bench`.
    ///
    /// # Errors
    /// [`FlinkError::NotSetUp`] if it isn't there, or not complete.
    pub(crate) fn find() -> Result<Self, FlinkError> {
        let own = std::env::var_os("TIDEGATE_BENCH_HOME").map(PathBuf::from);
        let cache = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/tidegate-bench"));
        Self::within(&own.or_else(cache).ok_or(FlinkError::NoHome)?)
    }

    /// Finds it in a folder.
    ///
    /// # Errors
    /// [`FlinkError::NotSetUp`] names what is missing.
    pub(crate) fn within(home: &Path) -> Result<Self, FlinkError> {
        let there = |path: PathBuf| match path.exists() {
            true => Ok(path),
            false => Err(FlinkError::NotSetUp { missing: path }),
        };
        let flink = there(home.join(format!("flink-{VERSION}")))?;
        let jobs = there(home.join("jobs.jar"))?;
        let sizing = there(flink.join("bash-java-utils.jar"))?;
        let libraries = there(flink.join("lib"))?;
        // A class path may name all jars of a folder so.
        let mut class_path = libraries.join("*").into_os_string();
        class_path.push(":");
        class_path.push(&jobs);
        Ok(Installation {
            home: home.to_owned(),
            jobs,
            sizing,
            class_path,
        })
    }

    /// A JVM for `class`, which is killed when the suite is: also by `kill -9`, if the machine has
    /// `setpriv`.
    pub(super) fn java(&self, options: &[String], class: &str) -> Command {
        let mut command = match Path::new("/usr/bin/setpriv").exists() {
            true => {
                let mut command = Command::new("/usr/bin/setpriv");
                command.args(["--pdeathsig", "KILL", "java"]);
                command
            }
            false => Command::new("java"),
        };
        command
            .args(options)
            .args(OPENED)
            .arg("-cp")
            .arg(&self.class_path)
            .arg(class);
        command
    }

    /// Asks Flink what its start scripts ask: how a process of the cluster divides its memory.
    ///
    /// # Errors
    /// If it doesn't say.
    pub(super) fn memory(&self, of: Process, configuration: &Path) -> Result<Memory, FlinkError> {
        let mut class_path = self.sizing.clone().into_os_string();
        class_path.push(":");
        class_path.push(&self.class_path);
        let output = Command::new("java")
            .arg("-cp")
            .arg(class_path)
            .arg("org.apache.flink.runtime.util.bash.BashJavaUtils")
            .arg(of.sizing())
            .arg("--configDir")
            .arg(configuration)
            .output()
            .map_err(FlinkError::Java)?;
        let text = String::from_utf8_lossy(&output.stdout);
        Memory::parse(&text).ok_or_else(|| FlinkError::Memory {
            output: format!("{text}{}", String::from_utf8_lossy(&output.stderr)),
        })
    }
}

/// The two kinds of process of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Process {
    /// Decides.
    JobManager,
    /// Works.
    TaskManager,
}

impl Process {
    /// Its main class.
    pub(super) fn class(self) -> &'static str {
        match self {
            Process::JobManager => {
                "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
            }
            Process::TaskManager => "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
        }
    }

    fn sizing(self) -> &'static str {
        match self {
            Process::JobManager => "GET_JM_RESOURCE_PARAMS",
            Process::TaskManager => "GET_TM_RESOURCE_PARAMS",
        }
    }
}

/// How much memory a process of the cluster may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// Options of the JVM.
    pub(super) jvm: Vec<String>,
    /// What the process itself is told.
    pub(super) flink: Vec<String>,
}

impl Memory {
    /// Reads two marked lines, among others that are logging.
    fn parse(output: &str) -> Option<Self> {
        let mut marked = output
            .lines()
            .filter_map(|line| line.split_once("BASH_JAVA_UTILS_EXEC_RESULT:"))
            .map(|(_, result)| result.split_whitespace().map(str::to_owned).collect());
        Some(Memory {
            jvm: marked.next()?,
            flink: marked.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_missing_is_named_and_how_to_get_it() {
        let home = tempfile::tempdir().unwrap();
        let flink = home.path().join(format!("flink-{VERSION}"));
        let steps = [
            flink.clone(),
            home.path().join("jobs.jar"),
            flink.join("bash-java-utils.jar"),
            flink.join("lib"),
        ];
        for step in steps {
            let error = Installation::within(home.path()).unwrap_err().to_string();
            assert!(error.contains(&*step.to_string_lossy()), "{error}");
            assert!(error.contains("run crates/bench/flink/setup.sh"), "{error}");
            fs::create_dir(&step).unwrap();
        }
        let found = Installation::within(home.path()).unwrap();
        let class_path = found.class_path.to_string_lossy().into_owned();
        let jobs = home.path().join("jobs.jar");
        assert!(
            class_path.ends_with(&*jobs.to_string_lossy()),
            "{class_path}"
        );
    }

    #[test]
    fn memory_is_read_from_between_the_logging() {
        let output = "INFO  [] - Final TaskExecutor Memory configuration:\n\
            BASH_JAVA_UTILS_EXEC_RESULT:-Xmx359 -Xms359\n\
            INFO  [] - more\n\
            BASH_JAVA_UTILS_EXEC_RESULT:-D a=1b -D b=2.0\n";
        let memory = Memory::parse(output).unwrap();
        assert_eq!(memory.jvm, ["-Xmx359", "-Xms359"]);
        assert_eq!(memory.flink, ["-D", "a=1b", "-D", "b=2.0"]);
        assert_eq!(Memory::parse("BASH_JAVA_UTILS_EXEC_RESULT:-Xmx1\n"), None);
    }
}

//! Removes the network namespaces of a run, however it ends: a shell that waits for the end of a
//! pipe, which the kernel closes whatever becomes of this process.

use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::network::run;

/// What namespaces are called, before the process id of the run and the name of the machine.
const PREFIX: &str = "tidegate-chaos-";
/// Where `ip netns` has them.
const NAMESPACES: &str = "/var/run/netns";

/// Ends whatever still runs in the namespaces, and removes them.
const SCRIPT: &str = r#"
trap "" INT TERM HUP
echo ready
read -r _
for namespace in $(ip netns list | cut -d' ' -f1 | grep "^$1"); do
    for pid in $(ip netns pids "$namespace"); do kill -9 "$pid"; done
    ip netns delete "$namespace"
done 2>/dev/null
"#;

pub(crate) struct Janitor {
    prefix: String,
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Janitor {
    /// Removes what is left of runs that are over, then looks after those of this one.
    pub(crate) fn start() -> Result<Janitor, String> {
        sweep();
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let mut command = Command::new("sh");
        command
            .args(["-c", SCRIPT, "janitor", &prefix])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // Ctrl-C is not for it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut shell = command.spawn().map_err(|error| format!("`sh`: {error}"))?;
        let pipe = shell.stdin.take();
        let mut ready = [0];
        let output = shell.stdout.take();
        let read = output.map(|mut output| output.read_exact(&mut ready));
        match read {
            Some(Ok(())) => Ok(Janitor {
                prefix,
                shell,
                pipe,
            }),
            _ => Err("`sh` has ended".to_owned()),
        }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns when everything is gone.
    pub(crate) fn clean_up(&mut self) {
        drop(self.pipe.take());
        let _ = self.shell.wait();
    }
}

/// Runs that were ended together with their janitor leave their namespaces.
fn sweep() {
    let entries = std::fs::read_dir(NAMESPACES).into_iter().flatten();
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let rest = name.strip_prefix(PREFIX);
        let Some((run_id, _)) = rest.and_then(|rest| rest.split_once('-')) else {
            continue;
        };
        if !Path::new("/proc").join(run_id).exists() {
            let _ = run("ip", &["netns", "delete", &name]);
        }
    }
}

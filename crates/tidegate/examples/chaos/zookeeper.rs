//! A real ZooKeeper on a machine of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::network::{Network, ZOOKEEPER};
use crate::process::{Running, signal};

/// Where Debian's package `libzookeeper-java` puts it.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// Longer than it takes to start.
const START_MAX: Duration = Duration::from_secs(60);

pub(crate) struct ZooKeeper {
    folder: PathBuf,
    address: String,
    port: u16,
    server: Option<Running>,
}

impl ZooKeeper {
    /// Whether there is one to be started, and this program's jobs can talk to it.
    pub(crate) fn is_available() -> bool {
        cfg!(feature = "zookeeper") && Path::new(JAR).exists()
    }

    /// One whose sessions may be as short as 200 ms.
    pub(crate) fn start(network: &Network, folder: PathBuf, port: u16) -> Result<Self, String> {
        let address = network.address(ZOOKEEPER);
        let settings = format!(
            "tickTime=100\nmaxSessionTimeout=20000\ndataDir={}\nclientPort={port}\n\
             clientPortAddress={address}\nadmin.enableServer=false\nmaxClientCnxns=0\n\
             4lw.commands.whitelist=srvr\n",
            folder.join("data").display()
        );
        let write = || {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join("zoo.cfg"), settings)
        };
        write().map_err(|error| format!("`{}`: {error}", folder.display()))?;
        let mut zookeeper = ZooKeeper {
            folder,
            address,
            port,
            server: None,
        };
        zookeeper.launch(network)?;
        zookeeper.wait(network)?;
        Ok(zookeeper)
    }

    /// Where JobManagers find it.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("zk://{}:{}/{path}", self.address, self.port)
    }

    /// Ends it as `kill -9` does. Its data stays.
    pub(crate) fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            signal(server.pid(), "KILL");
        }
    }

    /// Starts it, also after a kill. It takes a second until it serves.
    pub(crate) fn launch(&mut self, network: &Network) -> Result<(), String> {
        let mut command = network.command(ZOOKEEPER, "java");
        command
            .args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .args([
                "-cp",
                JAR,
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            ])
            .arg(self.folder.join("zoo.cfg"));
        let log = self.folder.join("log");
        self.server = Some(Running::start(command, &log, Box::new(|_| {}))?);
        Ok(())
    }

    /// Asks until it serves: its port is open before it does.
    pub(crate) fn wait(&self, network: &Network) -> Result<(), String> {
        let deadline = Instant::now() + START_MAX;
        let question = format!(
            "exec 3<>/dev/tcp/{}/{} && printf srvr >&3 && grep -q Mode: <&3",
            self.address, self.port
        );
        let serves = || {
            // One that is about to serve may take the question and never answer.
            let mut ask = network.command(ZOOKEEPER, "timeout");
            ask.args(["1", "bash", "-c", &question])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            ask.status().is_ok_and(|status| status.success())
        };
        while !serves() {
            if Instant::now() >= deadline {
                return Err(format!("ZooKeeper does not serve within {START_MAX:?}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

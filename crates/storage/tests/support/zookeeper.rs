//! A real ZooKeeper, started by the test with a port and a folder of its own.

use std::path::Path;

use tempfile::TempDir;

use super::process::{Server, free_port, wait_until_ready};

/// Where Debian's package `zookeeper` puts it.
const JAR: &str = "/usr/share/java/zookeeper.jar";

pub(crate) struct ZooKeeper {
    pub(crate) port: u16,
    folder: TempDir,
    server: Server,
}

impl ZooKeeper {
    /// One whose sessions may be as short as 200 ms.
    pub(crate) fn start() -> ZooKeeper {
        assert!(Path::new(JAR).exists(), "no {JAR}: run scripts/setup.sh");
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let data = folder.path().display();
        let settings = format!(
            "tickTime=100\ndataDir={data}/data\nclientPort={port}\n\
             clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n\
             4lw.commands.whitelist=srvr,dump\n"
        );
        std::fs::write(folder.path().join("zoo.cfg"), settings).unwrap();
        let server = launch(folder.path());
        let zookeeper = ZooKeeper {
            port,
            folder,
            server,
        };
        zookeeper.wait();
        zookeeper
    }

    /// Ends it as `kill -9` does. Its data stays.
    pub(crate) fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it again after a kill.
    pub(crate) fn restart(&mut self) {
        self.server = launch(self.folder.path());
        self.wait();
    }

    fn wait(&self) {
        // The port is open before it serves.
        wait_until_ready(self.port, "srvr", "Mode:");
    }
}

fn launch(folder: &Path) -> Server {
    let settings = folder.join("zoo.cfg");
    let main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
    let class_path = ["-cp", JAR, main, settings.to_str().unwrap()];
    let light = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
    Server::start("java", &[&light[..], &class_path[..]].concat())
}

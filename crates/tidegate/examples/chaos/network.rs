//! The network between the machines of a cluster: a namespace for each, as if it were a machine of
//! its own, on a bridge in another one. Nothing of it is seen by the rest of this machine.
//!
//! Needs root, and `ip` and `tc`. Where that isn't to be had, all machines are loopback, and there
//! are no faults of the network.
//!
//! What is cut off is lost without a word, as in a real network: a machine sends to an address of
//! hardware that nobody has, so one direction can be cut and the other not. A machine that is
//! unplugged has lost its cable. A slow link is a token bucket with a queue in front.

use std::process::{Command, Stdio};

use crate::janitor::Janitor;

/// A machine of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine(pub(crate) usize);

pub(crate) const JOBMANAGERS: [Machine; 2] = [Machine(0), Machine(1)];
pub(crate) const TASKMANAGERS: [Machine; 4] = [Machine(2), Machine(3), Machine(4), Machine(5)];
pub(crate) const ZOOKEEPER: Machine = Machine(6);
const NAMES: [&str; 7] = ["jm0", "jm1", "tm0", "tm1", "tm2", "tm3", "zk"];

/// An address of hardware that nobody has.
const NOWHERE: &str = "02:00:00:00:00:01";
/// What a slow link lets through.
const SLOW: &str = "2mbit";

impl Machine {
    pub(crate) fn name(self) -> &'static str {
        NAMES[self.0]
    }

    pub(crate) fn all() -> impl Iterator<Item = Machine> {
        (0..NAMES.len()).map(Machine)
    }

    fn others(self) -> impl Iterator<Item = Machine> {
        Machine::all().filter(move |other| *other != self)
    }
}

/// Who can't reach whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// What one sends to the other is lost.
    OneWay(Machine, Machine),
    /// Nothing passes between these.
    Between(Machine, Machine),
    /// What it sends is lost.
    Mute(Machine),
    /// What is sent to it is lost.
    Deaf(Machine),
    /// It has lost its cable.
    Unplugged(Machine),
}

/// How machines are reached.
pub(crate) enum Network {
    /// All are this one. Why it is no better.
    Loopback(String),
    Namespaces(Namespaces),
}

/// A namespace for each machine, removed when dropped or when this process dies.
pub(crate) struct Namespaces {
    prefix: String,
    janitor: Janitor,
}

impl Network {
    /// Namespaces, if this process may make some.
    pub(crate) fn new(loopback: bool) -> Network {
        if loopback {
            return Network::Loopback("--loopback was asked for".to_owned());
        }
        match Namespaces::create() {
            Ok(namespaces) => Network::Namespaces(namespaces),
            Err(why) => Network::Loopback(why),
        }
    }

    pub(crate) fn has_faults(&self) -> bool {
        matches!(self, Network::Namespaces(_))
    }

    pub(crate) fn address(&self, machine: Machine) -> String {
        match self {
            Network::Loopback(_) => "127.0.0.1".to_owned(),
            Network::Namespaces(_) => format!("10.77.0.{}", machine.0 + 1),
        }
    }

    /// A program on a machine, which dies with this process (more exactly, with the thread that
    /// starts it).
    pub(crate) fn command(&self, machine: Machine, program: &str) -> Command {
        let mut command = match self {
            Network::Loopback(_) => Command::new("setpriv"),
            Network::Namespaces(namespaces) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &namespaces.name(machine), "setpriv"]);
                command
            }
        };
        command.args(["--pdeathsig", "KILL", "--", program]);
        command
    }

    pub(crate) fn cut(&self, cut: Cut) -> Result<(), String> {
        let namespaces = self.namespaces()?;
        match cut {
            Cut::Unplugged(machine) => namespaces.plug(machine, "down"),
            _ => namespaces.each_way(cut, &["replace"], &["lladdr", NOWHERE, "nud", "permanent"]),
        }
    }

    pub(crate) fn mend(&self, cut: Cut) -> Result<(), String> {
        let namespaces = self.namespaces()?;
        match cut {
            Cut::Unplugged(machine) => namespaces.plug(machine, "up"),
            _ => {
                // Another fault may have cut the same, and been mended.
                let _ = namespaces.each_way(cut, &["del"], &[]);
                Ok(())
            }
        }
    }

    /// Makes the link of a machine slow, in both directions.
    pub(crate) fn slow_down(&self, machine: Machine) -> Result<(), String> {
        let bucket = ["tbf", "rate", SLOW, "burst", "16kb", "latency", "400ms"];
        self.namespaces()?.link(machine, "replace", &bucket)
    }

    pub(crate) fn speed_up(&self, machine: Machine) -> Result<(), String> {
        // As above.
        let _ = self.namespaces()?.link(machine, "del", &[]);
        Ok(())
    }

    fn namespaces(&self) -> Result<&Namespaces, String> {
        match self {
            Network::Loopback(why) => Err(format!("there is no network to disturb: {why}")),
            Network::Namespaces(namespaces) => Ok(namespaces),
        }
    }
}

impl Namespaces {
    fn create() -> Result<Namespaces, String> {
        let janitor = Janitor::start()?;
        let prefix = janitor.prefix().to_owned();
        let namespaces = Namespaces { prefix, janitor };
        let switch = namespaces.switch();
        run("ip", &["netns", "add", &switch])?;
        run(
            "ip",
            &["-n", &switch, "link", "add", "bridge", "type", "bridge"],
        )?;
        run("ip", &["-n", &switch, "link", "set", "bridge", "up"])?;
        for machine in Machine::all() {
            namespaces.add(machine)?;
        }
        Ok(namespaces)
    }

    fn add(&self, machine: Machine) -> Result<(), String> {
        let (switch, name, port) = (self.switch(), self.name(machine), port(machine));
        let address = format!("10.77.0.{}/24", machine.0 + 1);
        run("ip", &["netns", "add", &name])?;
        let veth = ["type", "veth", "peer", "name", "eth0", "netns", &name];
        run(
            "ip",
            &[&["-n", &switch, "link", "add", &port][..], &veth].concat(),
        )?;
        run(
            "ip",
            &[
                "-n", &switch, "link", "set", &port, "master", "bridge", "up",
            ],
        )?;
        run(
            "ip",
            &["-n", &name, "address", "add", &address, "dev", "eth0"],
        )?;
        run("ip", &["-n", &name, "link", "set", "eth0", "up"])?;
        run("ip", &["-n", &name, "link", "set", "lo", "up"])
    }

    fn name(&self, machine: Machine) -> String {
        format!("{}{}", self.prefix, machine.name())
    }

    fn switch(&self) -> String {
        format!("{}switch", self.prefix)
    }

    fn plug(&self, machine: Machine, state: &str) -> Result<(), String> {
        run(
            "ip",
            &["-n", &self.switch(), "link", "set", &port(machine), state],
        )
    }

    /// Changes what a machine knows of the hardware of another, for each direction that is cut.
    fn each_way(&self, cut: Cut, verb: &[&str], what: &[&str]) -> Result<(), String> {
        let mut outcome = Ok(());
        for (from, to) in cut.directions() {
            let (from, to) = (self.name(from), format!("10.77.0.{}", to.0 + 1));
            let neighbour = [
                &["-n", &from, "neigh"][..],
                verb,
                &[&to, "dev", "eth0"],
                what,
            ];
            outcome = outcome.and(run("ip", &neighbour.concat()));
        }
        outcome
    }

    fn link(&self, machine: Machine, verb: &str, bucket: &[&str]) -> Result<(), String> {
        let (own, port) = (self.name(machine), port(machine));
        let mut outcome = Ok(());
        for (namespace, device) in [(&own, "eth0"), (&self.switch(), port.as_str())] {
            let root = ["-n", namespace, "qdisc", verb, "dev", device, "root"];
            outcome = outcome.and(run("tc", &[&root[..], bucket].concat()));
        }
        outcome
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.janitor.clean_up();
    }
}

impl Cut {
    fn directions(self) -> Vec<(Machine, Machine)> {
        match self {
            Cut::OneWay(from, to) => vec![(from, to)],
            Cut::Between(one, other) => vec![(one, other), (other, one)],
            Cut::Mute(machine) => machine.others().map(|other| (machine, other)).collect(),
            Cut::Deaf(machine) => machine.others().map(|other| (other, machine)).collect(),
            Cut::Unplugged(_) => Vec::new(),
        }
    }
}

fn port(machine: Machine) -> String {
    format!("port-{}", machine.name())
}

/// Runs a program that is done in a moment.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let said = |what: &str| format!("`{program} {}`: {what}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| said(&error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(said(String::from_utf8_lossy(&output.stderr).trim())),
    }
}

//! Lets a fault happen to whom chance chooses, and puts an end to it.

use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;

use crate::cluster::Cluster;
use crate::faults::{Kind, choose};
use crate::network::{Cut, Machine, TASKMANAGERS, ZOOKEEPER};
use crate::process::signal;

/// A fault that has struck, and isn't over.
pub(crate) struct Struck {
    pub(crate) kind: Kind,
    /// Whom.
    pub(crate) whom: String,
    pub(crate) at: Instant,
    /// For how long.
    pub(crate) lasts: Duration,
    undo: Vec<Undo>,
}

/// What puts an end to a fault.
enum Undo {
    Continue(u32),
    Mend(Cut),
    SpeedUp(Machine),
    StartStore,
}

impl Struck {
    /// Puts an end to it. What was killed is started again by whoever looks after the cluster.
    pub(crate) fn heal(self, cluster: &mut Cluster) -> Result<(), String> {
        for undo in self.undo {
            match undo {
                Undo::Continue(pid) => signal(pid, "CONT"),
                Undo::Mend(cut) => cluster.parts.network.mend(cut)?,
                Undo::SpeedUp(machine) => cluster.parts.network.speed_up(machine)?,
                Undo::StartStore => {
                    let parts = &mut cluster.parts;
                    if let Some(zookeeper) = &mut parts.zookeeper {
                        zookeeper.launch(&parts.network)?;
                        zookeeper.wait(&parts.network)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whom a fault is about to strike.
struct Victim {
    machine: Machine,
    pid: u32,
}

/// Lets a fault of this kind happen. `None` if there is nobody at the moment to whom it could.
pub(crate) fn strike(
    kind: Kind,
    cluster: &mut Cluster,
    random: &mut StdRng,
) -> Result<Option<Struck>, String> {
    let Some(victim) = victim(kind, cluster, random) else {
        return Ok(None);
    };
    let lasts = duration(kind, cluster, random);
    let Victim { machine, pid } = victim;
    let mut struck = Struck {
        kind,
        whom: machine.name().to_owned(),
        at: Instant::now(),
        lasts,
        undo: Vec::new(),
    };
    if let Some(cut) = cut(kind, machine, cluster, random) {
        cluster.parts.network.cut(cut)?;
        struck.whom = format!("{cut:?}");
        struck.undo.push(Undo::Mend(cut));
        return Ok(Some(struck));
    }
    match kind {
        Kind::SlowTaskManager | Kind::SlowLeader => {
            cluster.parts.network.slow_down(machine)?;
            struck.undo.push(Undo::SpeedUp(machine));
        }
        Kind::KillStore | Kind::StoreGone => {
            if let Some(zookeeper) = &mut cluster.parts.zookeeper {
                zookeeper.kill();
            }
            struck.undo.push(Undo::StartStore);
        }
        _ if lasts > Duration::ZERO => {
            signal(pid, "STOP");
            struck.undo.push(Undo::Continue(pid));
        }
        _ => signal(pid, "KILL"),
    }
    Ok(Some(struck))
}

fn victim(kind: Kind, cluster: &Cluster, random: &mut StdRng) -> Option<Victim> {
    use Kind::*;
    let of = |(machine, pid)| Some(Victim { machine, pid });
    match kind {
        KillStore | StoreGone => of((ZOOKEEPER, 0)),
        KillLeader | PauseLeaderBriefly | PauseLeader | UnplugLeader | CutLeaderFromStore
        | MuteLeaderToStore | DeafLeaderToStore | SlowLeader => of(cluster.leader()?),
        KillWaiting | PauseWaiting => of(cluster.waiting()?),
        KillTask | PauseTaskBriefly | PauseTask => {
            let managers = cluster.taskmanagers();
            let tasks = managers
                .iter()
                .filter_map(|(machine, _, task)| Some((*machine, (*task)?)));
            of(choose(random, &tasks.collect::<Vec<_>>())?)
        }
        _ => {
            let managers = cluster.taskmanagers();
            let works = |task: &Option<u32>| task.is_some() != (kind == KillStandby);
            let fit = managers.iter().filter(|(_, _, task)| works(task));
            let fit: Vec<_> = fit.map(|(machine, pid, _)| (*machine, *pid)).collect();
            of(choose(random, &fit)?)
        }
    }
}

/// What of the network is cut, if that is what the fault is.
fn cut(kind: Kind, machine: Machine, cluster: &Cluster, random: &mut StdRng) -> Option<Cut> {
    let other = |random: &mut StdRng| {
        let managers = cluster.taskmanagers().into_iter();
        let working = managers
            .filter(|(_, _, task)| task.is_some())
            .map(|(m, ..)| m);
        let others: Vec<_> = working.filter(|other| *other != machine).collect();
        choose(random, &others).unwrap_or(TASKMANAGERS[0])
    };
    match kind {
        Kind::UnplugTaskManager | Kind::BlinkTaskManager | Kind::UnplugLeader => {
            Some(Cut::Unplugged(machine))
        }
        Kind::MuteTaskManager => Some(Cut::Mute(machine)),
        Kind::DeafTaskManager => Some(Cut::Deaf(machine)),
        Kind::CutTaskManagers | Kind::CutTaskManagersForLong => {
            Some(Cut::Between(machine, other(random)))
        }
        Kind::CutTaskManagersOneWay => Some(Cut::OneWay(machine, other(random))),
        Kind::CutLeaderFromStore => Some(Cut::Between(machine, ZOOKEEPER)),
        Kind::MuteLeaderToStore => Some(Cut::OneWay(machine, ZOOKEEPER)),
        Kind::DeafLeaderToStore => Some(Cut::OneWay(ZOOKEEPER, machine)),
        _ => None,
    }
}

/// For how long a fault lasts; zero if it can't be undone.
fn duration(kind: Kind, cluster: &Cluster, random: &mut StdRng) -> Duration {
    use Kind::*;
    let patience = cluster.parts.patience;
    let longer = patience.heartbeat.max(patience.lease);
    let (unit, factors) = match kind {
        KillTask | KillTaskManager | KillStandby | KillLeader | KillWaiting => {
            return Duration::ZERO;
        }
        KillStore => return Duration::from_millis(1),
        PauseTaskBriefly | PauseTaskManagerBriefly | PauseLeaderBriefly | BlinkTaskManager => {
            (patience.heartbeat.min(patience.lease), 0.1..0.5)
        }
        StoreGone | CutLeaderFromStore | MuteLeaderToStore | DeafLeaderToStore | PauseWaiting
        | PauseLeader | UnplugLeader => (longer, 1.5..2.5),
        CutTaskManagersForLong => (patience.heartbeat, 6.0..8.0),
        _ => (patience.heartbeat, 1.5..2.5),
    };
    unit.mul_f64(random.random_range(factors))
}

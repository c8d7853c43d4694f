//! What can go wrong, and the order in which it does, as a seed says.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    KillTask,
    KillTaskManager,
    KillStandby,
    KillLeader,
    KillWaiting,
    PauseTaskBriefly,
    PauseTask,
    PauseTaskManagerBriefly,
    PauseTaskManager,
    PauseLeaderBriefly,
    PauseLeader,
    PauseWaiting,
    UnplugTaskManager,
    UnplugLeader,
    MuteTaskManager,
    DeafTaskManager,
    BlinkTaskManager,
    CutTaskManagers,
    CutTaskManagersOneWay,
    CutTaskManagersForLong,
    CutLeaderFromStore,
    MuteLeaderToStore,
    DeafLeaderToStore,
    SlowTaskManager,
    SlowLeader,
    KillStore,
    StoreGone,
}

use Kind::*;

/// All kinds, in the order of the report.
pub(crate) const KINDS: [Kind; 27] = [
    KillTask,
    KillTaskManager,
    KillStandby,
    KillLeader,
    KillWaiting,
    PauseTaskBriefly,
    PauseTask,
    PauseTaskManagerBriefly,
    PauseTaskManager,
    PauseLeaderBriefly,
    PauseLeader,
    PauseWaiting,
    UnplugTaskManager,
    UnplugLeader,
    MuteTaskManager,
    DeafTaskManager,
    BlinkTaskManager,
    CutTaskManagers,
    CutTaskManagersOneWay,
    CutTaskManagersForLong,
    CutLeaderFromStore,
    MuteLeaderToStore,
    DeafLeaderToStore,
    SlowTaskManager,
    SlowLeader,
    KillStore,
    StoreGone,
];

/// Whether a fault makes the job restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// It does, unless whoever is struck has no part in the job any more.
    Always,
    /// It may: that depends on what else happens, and on how fast this machine is.
    Perhaps,
}

/// What a kind of fault needs to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Means {
    pub(crate) network: bool,
    pub(crate) zookeeper: bool,
}

impl Kind {
    pub(crate) fn label(self) -> &'static str {
        match self {
            KillTask => "kill -9, process of an attempt",
            KillTaskManager => "kill -9, TaskManager",
            KillStandby => "kill -9, standby TaskManager",
            KillLeader => "kill -9, leading JobManager",
            KillWaiting => "kill -9, waiting JobManager",
            PauseTaskBriefly => "brief SIGSTOP, process of an attempt",
            PauseTask => "long SIGSTOP, process of an attempt",
            PauseTaskManagerBriefly => "brief SIGSTOP, TaskManager",
            PauseTaskManager => "long SIGSTOP, TaskManager",
            PauseLeaderBriefly => "brief SIGSTOP, leading JobManager",
            PauseLeader => "long SIGSTOP, leading JobManager",
            PauseWaiting => "long SIGSTOP, waiting JobManager",
            UnplugTaskManager => "unplugged, TaskManager's machine",
            UnplugLeader => "unplugged, leader's machine",
            MuteTaskManager => "all it sends lost, TaskManager's machine",
            DeafTaskManager => "all sent to it lost, TaskManager's machine",
            BlinkTaskManager => "briefly unplugged, TaskManager's machine",
            CutTaskManagers => "nothing passes, between two TaskManagers",
            CutTaskManagersOneWay => "one way lost, between two TaskManagers",
            CutTaskManagersForLong => "nothing passes for long, two TaskManagers",
            CutLeaderFromStore => "nothing passes, leader and ZooKeeper",
            MuteLeaderToStore => "one way lost, leader to ZooKeeper",
            DeafLeaderToStore => "one way lost, ZooKeeper to leader",
            SlowTaskManager => "slow link, TaskManager",
            SlowLeader => "slow link, leading JobManager",
            KillStore => "kill -9 and restart, ZooKeeper",
            StoreGone => "gone for longer, ZooKeeper",
        }
    }

    pub(crate) fn restart(self) -> Restart {
        match self {
            KillTask | KillTaskManager | KillLeader | PauseTask | PauseTaskManager
            | UnplugTaskManager | UnplugLeader => Restart::Always,
            _ => Restart::Perhaps,
        }
    }

    /// Whether the job can't go on before it is over, wherever it runs.
    pub(crate) fn counts_from_its_end(self) -> bool {
        matches!(self, KillStore | StoreGone)
    }

    pub(crate) fn is_possible(self, means: Means) -> bool {
        match self {
            UnplugTaskManager
            | UnplugLeader
            | MuteTaskManager
            | DeafTaskManager
            | BlinkTaskManager
            | CutTaskManagers
            | CutTaskManagersOneWay
            | SlowTaskManager
            | SlowLeader => means.network,
            CutLeaderFromStore | MuteLeaderToStore | DeafLeaderToStore => {
                means.network && means.zookeeper
            }
            KillStore | StoreGone => means.zookeeper,
            _ => true,
        }
    }

    /// Its name in `--only`.
    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }
}

/// Draws kinds: all that are possible, in random order, again and again.
pub(crate) struct Deck {
    kinds: Vec<Kind>,
    left: Vec<Kind>,
}

impl Deck {
    /// With `only`, none but those.
    ///
    /// # Errors
    /// If one of those isn't known, or nothing is left.
    pub(crate) fn new(means: Means, only: &[String]) -> Result<Deck, String> {
        let known = |name: &&String| KINDS.iter().all(|kind| kind.name() != **name);
        if let Some(unknown) = only.iter().find(known) {
            let names: Vec<_> = KINDS.iter().map(|kind| kind.name()).collect();
            return Err(format!("`{unknown}` is none of {}", names.join(", ")));
        }
        let wanted = |kind: &Kind| only.is_empty() || only.contains(&kind.name());
        let possible = KINDS.into_iter().filter(|kind| kind.is_possible(means));
        let kinds: Vec<Kind> = possible.filter(wanted).collect();
        match kinds.is_empty() {
            true => Err("none of these faults is possible here".to_owned()),
            false => Ok(Deck {
                kinds,
                left: Vec::new(),
            }),
        }
    }

    pub(crate) fn draw(&mut self, random: &mut StdRng) -> Kind {
        if self.left.is_empty() {
            self.left = self.kinds.clone();
            self.left.shuffle(random);
        }
        self.left.pop().unwrap_or(self.kinds[0])
    }
}

/// One of several, or nothing of nothing.
pub(crate) fn choose<T: Copy>(random: &mut StdRng, from: &[T]) -> Option<T> {
    match from.len() {
        0 => None,
        len => Some(from[random.random_range(0..len)]),
    }
}

//! Which part of an attempt runs in this process, and what timely needs for that.

use std::ops::Range;

use timely::communication::allocator::ProcessBuilder;
use timely::communication::allocator::zero_copy::initialize::{
    CommsGuard, initialize_networking_from_sockets,
};
use timely::communication::{AllocatorBuilder, Config, Hooks};

use super::StartError;
use super::connection::{Connection, Watch, Watched};
use super::quiet::silence_consequences;

/// Empty buffers that timely keeps for each peer and worker, a MiB each, so that memory that a
/// burst took is given back.
const SPARE_SLABS: usize = 2;

/// This process's part of an attempt that runs in several processes.
///
/// Each of them runs the same [`JobPlan`](crate::JobPlan) with as many worker threads, and is
/// connected with each other one. Subtask *i* of every operator runs on worker *i*, counted over
/// all processes in order; workers beyond the largest parallelism are idle.
#[derive(Debug)]
pub struct ClusterPart {
    /// Index of this process.
    pub process: u32,
    /// Worker threads of every process.
    pub threads: u32,
    /// The connection to every other process, by its index; `None` at this process's own.
    pub connections: Vec<Option<Connection>>,
}

/// Where the workers of an attempt are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) process: u32,
    pub(super) processes: u32,
    pub(super) threads: u32,
}

impl Layout {
    /// All workers are in this process.
    pub(super) fn whole(workers: u32) -> Layout {
        Layout {
            process: 0,
            processes: 1,
            threads: workers,
        }
    }

    /// # Errors
    /// If there are too few workers, or a connection is missing or one too many.
    pub(super) fn of(part: &ClusterPart, parallelism: u32) -> Result<Layout, StartError> {
        let layout = Layout {
            process: part.process,
            processes: part.connections.len() as u32,
            threads: part.threads,
        };
        let workers = u64::from(layout.processes) * u64::from(layout.threads);
        if workers < u64::from(parallelism) || workers > u64::from(u32::MAX) {
            return Err(StartError::Workers {
                processes: layout.processes,
                threads: layout.threads,
                parallelism,
            });
        }
        for (process, connection) in (0..).zip(&part.connections) {
            if connection.is_some() == (process == part.process) {
                return Err(StartError::Connections { process });
            }
        }
        match part.process < layout.processes {
            true => Ok(layout),
            false => Err(StartError::Connections {
                process: part.process,
            }),
        }
    }

    /// The workers of this process, by their indexes in the whole attempt.
    pub(super) fn workers(self) -> Range<u32> {
        let first = self.process * self.threads;
        first..first + self.threads
    }
}

/// Timely's ends of what connects the workers of this process with each other and with others.
pub(super) struct Communication {
    pub(super) builders: Vec<AllocatorBuilder>,
    /// Timely's threads that send and receive, if there are other processes.
    pub(super) threads: Option<CommsGuard>,
}

fn hooks() -> Hooks {
    let mut hooks = Hooks::default();
    hooks.refill.limit = Some(SPARE_SLABS);
    hooks
}

/// Connects workers within this process alone.
pub(super) fn within(workers: u32, serialize: bool) -> Result<Communication, String> {
    let config = match serialize {
        true => Config::ProcessBinary(workers as usize),
        false => Config::Process(workers as usize),
    };
    let (builders, _nothing) = config.try_build_with(hooks())?;
    Ok(Communication {
        builders,
        threads: None,
    })
}

/// Connects the workers of this process with those of all others, too.
pub(super) fn across(
    layout: Layout,
    connections: Vec<Option<Connection>>,
    serialize: bool,
    watch: &Watch,
) -> Result<Communication, String> {
    silence_consequences();
    let hooks = hooks();
    let threads = layout.threads as usize;
    let make = match serialize {
        true => ProcessBuilder::new_bytes_vector,
        false => ProcessBuilder::new_typed_vector,
    };
    let within = make(threads, hooks.refill.clone(), hooks.spill.clone());
    let watched = |(process, connection): (u32, Option<Connection>)| {
        connection.map(|connection| Watched::new(connection, process, watch))
    };
    let sockets = (0..).zip(connections).map(watched).collect();
    let process = layout.process as usize;
    let (builders, guard) =
        initialize_networking_from_sockets(within, sockets, process, threads, hooks)
            .map_err(|error| error.to_string())?;
    Ok(Communication {
        builders: builders.into_iter().map(AllocatorBuilder::Tcp).collect(),
        threads: Some(guard),
    })
}

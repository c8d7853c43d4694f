//! How large a cluster may be: its control plane simulated, and its data plane measured.

mod census;
mod cluster;
mod control_plane;
mod figures;
mod fit;
mod processes;
mod report;

pub(crate) use control_plane::{ControlPlane, run as run_control_plane};
pub(crate) use processes::{Processes, run as run_processes};

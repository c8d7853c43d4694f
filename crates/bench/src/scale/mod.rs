//! How large a cluster may be: its control plane simulated, and its data plane measured.

mod census;
mod control_plane;
mod fit;
mod processes;

pub(crate) use control_plane::{ControlPlane, run as run_control_plane};
pub(crate) use processes::{Processes, run as run_processes};

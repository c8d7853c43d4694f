//! A job on several machines.

mod wire;

//! Real timely workers, driven by hand: checkpoints, restore, failures, ends.

mod support;

mod checkpoints;
mod ends;
mod failures;
mod jobs;
mod pipelines;
mod stop;

//! What can't be started is refused before any thread runs.

use std::sync::Arc;

use tidegate_runtime::{Attempt, ClusterPart, JobPlan};
use tidegate_types::ErrorChain;

use super::parts::{connections, context};
use crate::pipelines::keyed_count;
use crate::support::{Files, Numbers};

/// Why process 0 doesn't start a job of parallelism 3 with such a part.
fn refusal(mut part: ClusterPart, loses_restore: bool) -> String {
    let plan: JobPlan = keyed_count(Numbers::up_to(1), 1, 3).0;
    part.threads = part.threads.max(1);
    let mut context = context(plan.graph(), &Files::default(), None, part, |_| {});
    if loses_restore {
        context.restore.subtasks.pop_last();
    }
    let error = Attempt::start(Arc::new(plan), context).err();
    ErrorChain(&error.expect("refused")).to_string()
}

fn part(process: u32, processes: u32, threads: u32) -> ClusterPart {
    let connections = connections(processes).into_iter().nth(process as usize);
    ClusterPart {
        process,
        threads,
        connections: connections.unwrap_or_default(),
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    assert_eq!(
        refusal(part(0, 2, 1), false),
        "`2` processes of `1` threads have no room for a parallelism of `3`"
    );
    let mut own = part(0, 3, 1);
    own.connections[0] = own.connections[2].take();
    assert_eq!(
        refusal(own, false),
        "the connections don't fit the cluster: see process `0`"
    );
    let mut missing = part(0, 3, 1);
    missing.connections[2] = None;
    assert_eq!(
        refusal(missing, false),
        "the connections don't fit the cluster: see process `2`"
    );
    let mut outside = part(0, 3, 1);
    outside.process = 3;
    let again = outside.connections[1]
        .as_ref()
        .map(|one| one.try_clone().unwrap());
    outside.connections[0] = again;
    assert_eq!(
        refusal(outside, false),
        "the connections don't fit the cluster: see process `3`"
    );
    assert_eq!(
        refusal(part(0, 2, 2), true),
        "subtask `op3[1]` has no part in what is restored"
    );
}

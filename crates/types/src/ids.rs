//! Ids as newtypes: small, `Copy` where they can be, and displayed as logs print them.

use std::fmt;
use std::str::FromStr;

/// Number of a checkpoint or savepoint within a job's namespace.
///
/// Ids only grow and are never reused, across restarts and failovers: the counter behind them is
/// durable. `0` stands for "before the first checkpoint". Displays as `chk-42`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct CheckpointId(pub u64);

impl CheckpointId {
    /// The id that precedes every real checkpoint.
    pub const NONE: CheckpointId = CheckpointId(0);

    /// The id after this one.
    ///
    /// # Panics
    /// After `u64::MAX` checkpoints.
    pub fn next(self) -> CheckpointId {
        CheckpointId(
            self.0
                .checked_add(1)
                .expect("fewer than 2^64 checkpoints are taken"),
        )
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chk-{}", self.0)
    }
}

/// Number of one run of the whole job graph. Grows with every restart and is never reused in a
/// job's namespace, so files and messages of a dead run can be told apart. The first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptNumber(pub u64);

impl fmt::Display for AttemptNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt-{}", self.0)
    }
}

/// Number of one leadership over a job's namespace. Grows whenever somebody takes the lead and is
/// never reused; what a leader of an older epoch writes is rejected. Displays as `epoch-3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderEpoch(pub u64);

impl fmt::Display for LeaderEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch-{}", self.0)
    }
}

/// Random identity of a job, made once when its namespace is created.
///
/// Displays as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u128);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The text is not 32 hexadecimal digits.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not a job id of 32 hexadecimal digits")]
pub struct ParseJobIdError {
    /// What was given.
    pub text: String,
}

impl FromStr for JobId {
    type Err = ParseJobIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseJobIdError {
            text: text.to_owned(),
        };
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(error());
        }
        u128::from_str_radix(text, 16)
            .map(JobId)
            .map_err(|_| error())
    }
}

/// Stable name of an operator, by which its state is found again after a restart.
///
/// Chosen by the user; never derived from the operator's position in the graph.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorUid(pub String);

impl fmt::Display for OperatorUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Position of an operator in the [job graph](crate::graph::JobGraph) of one attempt.
///
/// Only meaningful together with that graph: what is kept on disk names operators by
/// [`OperatorUid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorId(pub u32);

impl fmt::Display for OperatorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op{}", self.0)
    }
}

/// One parallel instance of an operator. `index` counts from 0 to the operator's parallelism − 1;
/// subtask *i* runs on timely worker *i*. Displays as `op3[1]`;
/// [`JobGraph::display`](crate::graph::JobGraph::display) gives `count[1]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubtaskId {
    /// The operator.
    pub operator: OperatorId,
    /// Which of its parallel instances, from 0.
    pub index: u32,
}

impl fmt::Display for SubtaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.operator, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_as_logs_print_them() {
        let subtask = SubtaskId {
            operator: OperatorId(3),
            index: 1,
        };
        assert_eq!(CheckpointId(42).to_string(), "chk-42");
        assert_eq!(AttemptNumber(2).to_string(), "attempt-2");
        assert_eq!(subtask.to_string(), "op3[1]");
    }

    #[test]
    fn job_id_round_trips_and_refuses_other_text() {
        let id = JobId(0x00ff_1234);
        assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
        assert!("xyz".parse::<JobId>().is_err());
        assert!("+0000000000000000000000000000000".parse::<JobId>().is_err());
    }
}

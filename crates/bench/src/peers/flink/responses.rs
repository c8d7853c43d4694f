//! What the JobManager answers, as far as it is looked at (Flink 2.3's REST interface, version 1).

use std::collections::BTreeMap;

use serde::Deserialize;

/// `GET /overview`.
#[derive(Debug, Deserialize)]
pub(super) struct Overview {
    /// Slots of registered TaskManagers that run nothing.
    #[serde(rename = "slots-available")]
    pub(super) slots_available: u32,
}

/// `GET /taskmanagers`.
#[derive(Debug, Deserialize)]
pub(super) struct TaskManagers {
    /// Those that are registered.
    pub(super) taskmanagers: Vec<TaskManager>,
}

/// One of them.
#[derive(Debug, Deserialize)]
pub(super) struct TaskManager {
    /// Its resource id, which the driver has given it.
    pub(super) id: String,
    /// Slots that it has.
    #[serde(rename = "slotsNumber")]
    pub(super) slots: u32,
    /// Slots that run nothing.
    #[serde(rename = "freeSlots")]
    pub(super) free: u32,
}

/// `POST /jars/:jar/run`.
#[derive(Debug, Deserialize)]
pub(super) struct Submitted {
    /// Id of the job.
    pub(super) jobid: String,
}

/// `GET /jobs/:job`.
#[derive(Debug, Deserialize)]
pub(super) struct Job {
    /// `RUNNING`, `FINISHED`, `FAILED` and so on.
    pub(super) state: String,
    /// When it came to each state, in milliseconds since 1970; 0 if it didn't.
    pub(super) timestamps: BTreeMap<String, i64>,
    /// Its tasks: chains of operators.
    pub(super) vertices: Vec<Vertex>,
}

impl Job {
    /// Milliseconds from running to its end; `None` before.
    pub(super) fn ran_ms(&self) -> Option<i64> {
        let reached = |state| self.timestamps.get(state).filter(|&&time| time > 0);
        Some(reached("FINISHED")? - reached("RUNNING")?)
    }
}

/// A task of a job.
#[derive(Debug, Deserialize)]
pub(super) struct Vertex {
    /// Its id.
    pub(super) id: String,
}

/// `GET /jobs/:job/vertices/:vertex/subtasktimes`.
#[derive(Debug, Deserialize)]
pub(super) struct SubtaskTimes {
    /// One entry per subtask, of its latest attempt.
    pub(super) subtasks: Vec<SubtaskTime>,
}

/// A subtask's times.
#[derive(Debug, Deserialize)]
pub(super) struct SubtaskTime {
    /// When it came to each state, in milliseconds since 1970; 0 if it didn't.
    pub(super) timestamps: BTreeMap<String, i64>,
}

impl SubtaskTimes {
    /// When the last subtask began to run, if all have since `since`. A subtask that is restored is
    /// `INITIALIZING` until its state is there.
    pub(super) fn all_running(&self, since: i64) -> Option<i64> {
        let running = |subtask: &SubtaskTime| {
            let time = subtask.timestamps.get("RUNNING").copied();
            time.filter(|&time| time > since)
        };
        let times: Option<Vec<i64>> = self.subtasks.iter().map(running).collect();
        times?.into_iter().max()
    }
}

/// `GET /jobs/:job/accumulators`.
#[derive(Debug, Deserialize)]
pub(super) struct Accumulators {
    /// Those that the job has added to.
    #[serde(rename = "user-task-accumulators")]
    pub(super) user: Vec<Accumulator>,
}

/// A sum over all subtasks.
#[derive(Debug, Deserialize)]
pub(super) struct Accumulator {
    /// Its name.
    pub(super) name: String,
    /// Its value, as text.
    pub(super) value: String,
}

impl Accumulators {
    /// The accumulator of this name, if it is a count.
    pub(super) fn count(&self, name: &str) -> Option<u64> {
        let found = self.user.iter().find(|one| one.name == name)?;
        found.value.parse().ok()
    }
}

/// `GET /jobs/:job/exceptions`.
#[derive(Debug, Deserialize)]
pub(super) struct Exceptions {
    /// The latest ones.
    #[serde(rename = "exceptionHistory")]
    pub(super) history: ExceptionHistory,
}

/// The latest exceptions.
#[derive(Debug, Deserialize)]
pub(super) struct ExceptionHistory {
    /// Newest first.
    pub(super) entries: Vec<Exception>,
}

/// One exception.
#[derive(Debug, Deserialize)]
pub(super) struct Exception {
    /// Begins with what happened.
    pub(super) stacktrace: String,
}

/// `GET /jobs/:job/checkpoints`.
#[derive(Debug, Deserialize)]
pub(super) struct Checkpoints {
    /// How many there were.
    pub(super) counts: CheckpointCounts,
    /// Newest first.
    pub(super) history: Vec<Checkpoint>,
}

impl Checkpoints {
    /// When the first one completed that was triggered after `since`.
    pub(super) fn completed_since(&self, since: i64) -> Option<i64> {
        let later = |one: &&Checkpoint| one.completed() && one.trigger_timestamp > since;
        let completed = self.history.iter().filter(later);
        completed.map(|one| one.latest_ack_timestamp).min()
    }
}

/// How many checkpoints there were.
#[derive(Debug, Deserialize)]
pub(super) struct CheckpointCounts {
    /// Completed.
    pub(super) completed: u64,
    /// Not.
    pub(super) failed: u64,
}

/// A checkpoint.
#[derive(Debug, Deserialize)]
pub(super) struct Checkpoint {
    /// Its id.
    pub(super) id: u64,
    /// `COMPLETED` or not.
    pub(super) status: String,
    /// When it was triggered, in milliseconds since 1970.
    pub(super) trigger_timestamp: i64,
    /// When the last subtask acknowledged it.
    pub(super) latest_ack_timestamp: i64,
    /// From trigger to completion, in milliseconds.
    pub(super) end_to_end_duration: i64,
    /// What it holds, in bytes.
    pub(super) state_size: u64,
}

impl Checkpoint {
    /// Whether it has been completed, and not failed or is still under way.
    pub(super) fn completed(&self) -> bool {
        self.status == "COMPLETED"
    }
}

/// `GET /jobs/:job/checkpoints/details/:id/subtasks/:vertex`.
#[derive(Debug, Deserialize)]
pub(super) struct CheckpointDetails {
    /// One entry per subtask.
    pub(super) subtasks: Vec<SubtaskCheckpoint>,
}

/// A subtask's part of a checkpoint; nothing but `status` is there if it had ended before.
#[derive(Debug, Deserialize)]
pub(super) struct SubtaskCheckpoint {
    /// How long its parts took.
    pub(super) checkpoint: Option<CheckpointParts>,
    /// How long it waited for barriers.
    pub(super) alignment: Option<Alignment>,
}

/// How long the parts of a subtask's snapshot took.
#[derive(Debug, Deserialize)]
pub(super) struct CheckpointParts {
    /// During which it processed nothing, in milliseconds.
    pub(super) sync: i64,
}

/// How long a subtask waited for barriers.
#[derive(Debug, Deserialize)]
pub(super) struct Alignment {
    /// From the first to the last, in milliseconds.
    pub(super) duration: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(running: [i64; 2]) -> SubtaskTimes {
        let subtask = |time| {
            format!(r#"{{"subtask":0,"timestamps":{{"RUNNING":{time},"DEPLOYING":5,"FAILED":0}}}}"#)
        };
        let text = format!(
            r#"{{"id":"a","now":9,"subtasks":[{},{}]}}"#,
            subtask(running[0]),
            subtask(running[1])
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_job_runs_again_when_its_last_subtask_does() {
        assert_eq!(times([20, 30]).all_running(0), Some(30));
        assert_eq!(times([20, 0]).all_running(0), None);
        // The first has not been restarted yet: what it says is from before the kill.
        assert_eq!(times([20, 30]).all_running(25), None);
        assert_eq!(times([26, 30]).all_running(25), Some(30));
    }

    #[test]
    fn how_long_a_job_ran_is_known_when_it_has_finished() {
        let job = |finished| -> Job {
            let text = format!(
                r#"{{"state":"X","timestamps":{{"RUNNING":1000,"FINISHED":{finished}}},
                    "vertices":[{{"id":"v","name":"count"}}]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        assert_eq!(job(0).ran_ms(), None);
        assert_eq!(job(3500).ran_ms(), Some(2500));
    }

    #[test]
    fn the_first_checkpoint_after_a_restart_is_one_that_was_triggered_there() {
        let one = |status, trigger, ack| {
            format!(
                r#"{{"id":1,"status":"{status}","trigger_timestamp":{trigger},
                    "latest_ack_timestamp":{ack},"end_to_end_duration":5,"state_size":9}}"#
            )
        };
        let history = [
            one("IN_PROGRESS", 90, 91),
            one("COMPLETED", 70, 75),
            one("COMPLETED", 60, 64),
            one("FAILED", 50, 55),
            one("COMPLETED", 40, 48),
        ];
        let text = format!(
            r#"{{"counts":{{"completed":3,"failed":1}},"history":[{}]}}"#,
            history.join(",")
        );
        let checkpoints: Checkpoints = serde_json::from_str(&text).unwrap();
        assert_eq!(checkpoints.completed_since(45), Some(64));
        assert_eq!(checkpoints.completed_since(39), Some(48));
        assert_eq!(checkpoints.completed_since(70), None);
    }

    #[test]
    fn accumulators_are_numbers_in_text() {
        let text = r#"{"job-accumulators":[],"user-task-accumulators":[
            {"name":"records","type":"LongCounter","value":"60000000"},
            {"name":"note","type":"Other","value":"none"}]}"#;
        let accumulators: Accumulators = serde_json::from_str(text).unwrap();
        assert_eq!(accumulators.count("records"), Some(60_000_000));
        assert_eq!(accumulators.count("note"), None);
        assert_eq!(accumulators.count("missing"), None);
    }

    #[test]
    fn a_subtask_that_has_ended_has_no_part() {
        let text = r#"{"id":8,"subtasks":[
            {"index":0,"checkpoint":{"sync":2,"async":1},"alignment":{"duration":7},
             "status":"completed"},
            {"index":1,"status":"pending_or_failed"}]}"#;
        let details: CheckpointDetails = serde_json::from_str(text).unwrap();
        let [one, other] = &details.subtasks[..] else {
            panic!("two subtasks: {details:?}");
        };
        assert_eq!(one.checkpoint.as_ref().map(|parts| parts.sync), Some(2));
        assert_eq!(one.alignment.as_ref().map(|one| one.duration), Some(7));
        assert!(other.checkpoint.is_none() && other.alignment.is_none());
    }
}

//! Processor time of the JobManager by what it is spent on, and what it hears and says.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What a JobManager spends time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Decoding what is said to it.
    Decode,
    /// `Fleet::step`, and asking for its next deadline.
    Fleet,
    /// Taking over what subtasks have done.
    Progress,
    /// `Job::step`, and asking for its next deadline.
    Job,
    /// Encoding what it says.
    Encode,
    /// Pictures of the statistics for clients and progress lines.
    Pictures,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 6] = [
        Part::Decode,
        Part::Fleet,
        Part::Progress,
        Part::Job,
        Part::Encode,
        Part::Pictures,
    ];
}

/// Messages and their bytes, without the 14 that framing takes for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Traffic {
    pub(super) fn count(&mut self, message: &[u8]) {
        self.messages += 1;
        self.bytes += message.len() as u64;
    }
}

/// What was spent, heard and said since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    spent: [Duration; Part::ALL.len()],
    /// What came from TaskManagers and processes.
    pub heard: Traffic,
    /// What went to them.
    pub said: Traffic,
}

impl Meter {
    /// Time spent on one part.
    pub fn spent_on(&self, part: Part) -> Duration {
        self.spent[part as usize]
    }

    /// Time spent in all.
    pub fn spent(&self) -> Duration {
        self.spent.iter().sum()
    }

    /// Adds what was done between two readings.
    pub(super) fn add_between(&mut self, before: &Meter, after: &Meter) {
        for ((sum, from), to) in self.spent.iter_mut().zip(before.spent).zip(after.spent) {
            *sum += to - from;
        }
        let traffics = [(&before.heard, &after.heard), (&before.said, &after.said)];
        for (sum, (from, to)) in [&mut self.heard, &mut self.said].into_iter().zip(traffics) {
            sum.messages += to.messages - from.messages;
            sum.bytes += to.bytes - from.bytes;
        }
    }

    /// Does something, and notes how long it took.
    pub(super) fn time<T>(&mut self, part: Part, work: impl FnOnce() -> T) -> T {
        let begun = processor_time();
        let done = work();
        self.spent[part as usize] += processor_time().saturating_sub(begun);
        done
    }
}

/// Of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

//! Who waits for the answer to which request.
//!
//! Invariant: whoever has been registered is answered exactly once, at the latest when the job's
//! loop has ended.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

use tidegate_coordinator::{Answer, RequestId, TriggerRefusal};

/// The requests of one job.
#[derive(Debug, Default)]
pub(super) struct Requests {
    last: u64,
    waiting: BTreeMap<RequestId, Sender<Answer>>,
    closed: bool,
}

impl Requests {
    /// Registers somebody. Once requests are closed, the answer is there at once.
    pub(super) fn register(&mut self) -> (RequestId, Receiver<Answer>) {
        self.last += 1;
        let request = RequestId(self.last);
        let (sender, receiver) = channel();
        if self.closed {
            let _ = sender.send(Answer::Refused(TriggerRefusal::Ended));
        } else {
            self.waiting.insert(request, sender);
        }
        (request, receiver)
    }

    pub(super) fn answer(&mut self, request: RequestId, answer: Answer) {
        if let Some(waiting) = self.waiting.remove(&request) {
            // Whoever asked may have gone.
            let _ = waiting.send(answer);
        }
    }

    /// Nobody looks at requests any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            let _ = waiting.send(Answer::Refused(TriggerRefusal::Ended));
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::CheckpointId;

    use super::*;

    const ENDED: Answer = Answer::Refused(TriggerRefusal::Ended);

    // Answered also when the loop has ended, whatever the order.
    #[test]
    fn everybody_is_answered_once() {
        let checkpoint = CheckpointId(1);
        let mut requests = Requests::default();
        let (first, answered) = requests.register();
        let (second, left) = requests.register();
        assert_ne!(first, second);
        requests.answer(first, Answer::Aborted { checkpoint });
        requests.answer(first, ENDED);
        assert_eq!(answered.try_recv(), Ok(Answer::Aborted { checkpoint }));
        assert!(answered.try_recv().is_err());
        requests.close();
        assert_eq!(left.try_recv(), Ok(ENDED));
        let (_, late) = requests.register();
        assert_eq!(late.try_recv(), Ok(ENDED));
    }
}

//! A simulated subtask around the real `Alignment`. It takes items, works and ends by the same
//! rules as the real one, but one small piece at a time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tidegate_runtime::alignment::{Alignment, AlignmentAction, ChannelIndex};
use tidegate_types::message::{Notice, Report};
use tidegate_types::{AlignmentMode, CheckpointId, KeyGroupRange, SubtaskId, SubtaskRestore};

use crate::mutation::Mutation;
use crate::outside::Outside;
use crate::record::{Channel, Payload, Record, Split, record_at};
use crate::topology::Kind;

use super::increments::TakenState;
use super::logic::{Held, Logic};
use super::output::EdgeOutput;
use super::{Hands, Lane, Stop, Thread};

/// Splits that may wait at each reader.
const SPLITS_AHEAD: u64 = 2;

enum Phase {
    Created(SubtaskRestore),
    Running(Logic),
}

/// Set when nobody wants a snapshot any more.
pub(super) type Cancelled = Rc<Cell<bool>>;

pub(crate) struct Subtask {
    pub(super) id: SubtaskId,
    pub(super) kind: Kind,
    pub(super) inputs: Vec<usize>,
    ended: Vec<bool>,
    pub(super) outputs: Vec<EdgeOutput>,
    pub(super) alignment: Alignment,
    pub(super) alignment_actions: Vec<AlignmentAction>,
    /// The records of an item that is half done, and the input they came on.
    current: Option<(usize, VecDeque<Record>)>,
    pub(super) passed: CheckpointId,
    pub(super) snapshots: Vec<(CheckpointId, Cancelled)>,
    pub(super) taken: Rc<RefCell<TakenState>>,
    pub(super) finished: bool,
    pub(super) end_sent: bool,
    /// A stop's barrier has passed: a source emits nothing any more.
    pub(super) stopped: bool,
    pub(super) mailbox: VecDeque<Notice>,
    pub(super) mode: AlignmentMode,
    pub(super) key_groups: KeyGroupRange,
    parallelism: u32,
    phase: Phase,
    /// It has failed. What it gave to background threads goes on.
    dead: bool,
}

impl Subtask {
    pub(super) fn new(
        (id, parallelism): (SubtaskId, u32),
        kind: Kind,
        inputs: Vec<usize>,
        outputs: Vec<EdgeOutput>,
        mode: AlignmentMode,
        restore: SubtaskRestore,
    ) -> Self {
        Subtask {
            id,
            kind,
            ended: vec![false; inputs.len()],
            alignment: Alignment::new(mode, inputs.len() as u32),
            alignment_actions: Vec::new(),
            inputs,
            outputs,
            current: None,
            passed: CheckpointId::NONE,
            snapshots: Vec::new(),
            taken: Rc::default(),
            finished: restore.finished,
            end_sent: false,
            stopped: false,
            mailbox: VecDeque::new(),
            mode,
            key_groups: restore.key_groups,
            parallelism,
            phase: Phase::Created(restore),
            dead: false,
        }
    }

    pub(super) fn lane(&self) -> Lane {
        (Thread::Worker, self.id.index)
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.dead
    }

    pub(super) fn logic(&mut self) -> Option<&mut Logic> {
        match &mut self.phase {
            Phase::Running(logic) => Some(logic),
            Phase::Created(_) => None,
        }
    }

    /// A dead subtask takes what is sent to it and does nothing about it.
    pub(super) fn die(&mut self, channels: &mut [Channel]) {
        self.dead = true;
        self.current = None;
        for at in &self.inputs {
            channels[*at].outstanding = 0;
        }
    }

    pub(super) fn describe(&self) -> String {
        let phase = match self.phase {
            Phase::Created(_) => "created",
            _ if self.dead => "dead",
            Phase::Running(_) => "running",
        };
        let waiting = self.alignment.waiting_for();
        format!(
            "{} {phase} passed {} ended {} {waiting:?}",
            self.id, self.passed, self.end_sent
        )
    }

    fn is_full(&self, channels: &[Channel], outside: &Outside) -> bool {
        let window = match self.kind {
            Kind::Enumerator { .. } => SPLITS_AHEAD,
            _ => outside.scenario.window,
        };
        self.outputs
            .iter()
            .any(|output| output.is_full(channels, window))
    }

    fn may_take(
        &self,
        input: usize,
        markers_only: bool,
        channels: &[Channel],
        outside: &Outside,
    ) -> bool {
        let Some(head) = channels[self.inputs[input]].head() else {
            return false;
        };
        let busy = self
            .current
            .as_ref()
            .is_some_and(|(current, _)| *current == input);
        let is_blocked = self.alignment.is_blocked(ChannelIndex(input as u32));
        let blocked = is_blocked && !(head.is_data() && outside.has(Mutation::NoBlocking));
        let held_back = markers_only && head.is_data();
        !busy && !blocked && !held_back
    }

    /// Whether an activation would achieve anything.
    pub(super) fn has_work(&self, channels: &[Channel], outside: &Outside) -> bool {
        let logic = match &self.phase {
            _ if self.dead => return false,
            Phase::Created(_) => return true,
            Phase::Running(logic) => logic,
        };
        let full = self.is_full(channels, outside);
        let markers_only = self.current.is_some() || full;
        !self.mailbox.is_empty()
            || (self.current.is_some() && !full)
            || self.outputs.iter().any(EdgeOutput::holds_records)
            || (!full && self.would_poll(logic))
            || (0..self.inputs.len())
                .any(|input| self.may_take(input, markers_only, channels, outside))
    }

    fn would_poll(&self, logic: &Logic) -> bool {
        match logic {
            _ if self.end_sent => false,
            Logic::Enumerator { .. } | Logic::Reader { .. } if self.stopped => false,
            Logic::Reader { .. } if self.finished => true,
            Logic::Enumerator { .. } => true,
            Logic::Reader { held } if !held.is_empty() => true,
            _ => self.input_ended(),
        }
    }

    fn input_ended(&self) -> bool {
        self.current.is_none() && self.ended.iter().all(|ended| *ended)
    }

    pub(super) fn activate(&mut self, hands: &mut Hands<'_>) -> Result<(), Stop> {
        if let Phase::Created(restore) = &self.phase {
            let logic = Logic::open(self.kind, self.id, self.parallelism, restore, hands)?;
            self.phase = Phase::Running(logic);
            hands.report(self.lane(), Report::Running { subtask: self.id });
            return Ok(());
        }
        while let Some(notice) = self.mailbox.pop_front() {
            self.on_notice(notice, hands)?;
        }
        let pieces = hands.outside.rng.between(1, 4);
        for _ in 0..pieces {
            if !self.piece(hands)? {
                self.flush(hands);
                return Ok(());
            }
        }
        if hands.outside.rng.chance(0.1) {
            self.flush(hands);
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, hands: &mut Hands<'_>) {
        self.outputs
            .iter_mut()
            .for_each(|output| output.flush(hands.channels));
    }

    /// One piece of work; false if there was none.
    fn piece(&mut self, hands: &mut Hands<'_>) -> Result<bool, Stop> {
        let full = self.is_full(hands.channels, hands.outside);
        if self.current.is_some() && !full {
            self.process_current(hands);
            return Ok(true);
        }
        let markers_only = self.current.is_some() || full;
        let (channels, outside) = (&*hands.channels, &*hands.outside);
        let ready: Vec<usize> = (0..self.inputs.len())
            .filter(|input| self.may_take(*input, markers_only, channels, outside))
            .collect();
        if !ready.is_empty() {
            let input = *hands.outside.rng.pick(&ready);
            self.take(input, hands)?;
            return Ok(true);
        }
        Ok(!full && self.poll(hands))
    }

    fn take(&mut self, input: usize, hands: &mut Hands<'_>) -> Result<(), Stop> {
        if hands.outside.has(Mutation::OvertakingItems) && hands.outside.rng.chance(0.01) {
            hands.channels[self.inputs[input]].overtake();
        }
        let channel = &mut hands.channels[self.inputs[input]];
        let taken = channel.take();
        let (in_order, payload) = taken.expect("only channels with a head are chosen");
        let alignment = &hands.outside.invariants.alignment;
        alignment.on_item(self.id, channel, in_order)?;
        match payload {
            Payload::Records(records) => self.current = Some((input, records)),
            Payload::Split(split) => {
                hands.channels[self.inputs[input]].processed += 1;
                if let Some(Logic::Reader { held }) = self.logic() {
                    held.push_back(Held {
                        split,
                        assigned: true,
                    });
                }
            }
            Payload::Barrier(barrier) => self.on_barrier(input, barrier, hands)?,
            Payload::Cancel(checkpoint) => self.on_cancel(input, checkpoint, hands)?,
            Payload::EndOfData => {
                self.ended[input] = true;
                // The end is worked off before the next marker, as in the runtime.
                if self.input_ended() {
                    self.poll(hands);
                }
            }
        }
        Ok(())
    }

    fn process_current(&mut self, hands: &mut Hands<'_>) {
        let Some((input, records)) = &mut self.current else {
            return;
        };
        let (input, record) = (*input, records.pop_front());
        if records.is_empty() {
            self.current = None;
        }
        let channel = &mut hands.channels[self.inputs[input]];
        channel.processed += 1;
        channel.outstanding = channel.outstanding.saturating_sub(1);
        let record = record.expect("items are never empty");
        let emitted = self.logic().and_then(|logic| logic.process(record));
        if let Some(emitted) = emitted {
            self.emit(emitted, hands);
        }
    }

    fn emit(&mut self, record: Record, hands: &mut Hands<'_>) {
        let limits = (hands.outside.scenario.window, hands.outside.scenario.batch);
        for output in &mut self.outputs {
            output.emit(record, hands.channels, limits, hands.outside);
        }
    }

    /// Works on what doesn't come from the input; false if there was nothing.
    fn poll(&mut self, hands: &mut Hands<'_>) -> bool {
        let is_source = matches!(self.kind, Kind::Enumerator { .. } | Kind::Reader { .. });
        if self.end_sent || (self.stopped && is_source) {
            return false;
        }
        if self.finished && is_source {
            // It had come to its end before the restore, drained or not.
            self.end(hands);
            return true;
        }
        let input_ended = self.input_ended();
        match self.logic() {
            Some(Logic::Enumerator { source, next }) => {
                let (source, index) = (*source, *next as u32);
                let splits = &hands.outside.scenario.splits[source as usize];
                if let Some(length) = splits.get(*next as usize).copied() {
                    *next += 1;
                    self.assign(
                        Split {
                            source,
                            index,
                            position: 0,
                            length,
                        },
                        hands,
                    );
                    return true;
                }
            }
            Some(Logic::Reader { held }) if !held.is_empty() => {
                self.read(hands);
                return true;
            }
            _ if input_ended => {}
            _ => return false,
        }
        self.end(hands);
        true
    }

    fn assign(&mut self, split: Split, hands: &mut Hands<'_>) {
        let payload = Payload::Split(split);
        let rng = &mut hands.outside.rng;
        self.outputs[0].assign(payload, hands.channels, SPLITS_AHEAD, rng);
    }

    /// Emits one record, or lets go of a split that has none left.
    fn read(&mut self, hands: &mut Hands<'_>) {
        let keys = hands.outside.scenario.keys;
        let Some(Logic::Reader { held }) = self.logic() else {
            return;
        };
        let Some(Held { split, assigned }) = held.front_mut() else {
            return;
        };
        if split.is_finished() {
            let assigned = *assigned;
            held.pop_front();
            let assignments = &mut hands.channels[self.inputs[0]];
            assignments.outstanding -= u64::from(assigned && assignments.outstanding > 0);
            return;
        }
        let record = record_at(split.source, split.index, split.position, keys);
        split.position += 1;
        self.emit(record, hands);
    }

    /// All input has ended and nothing is left to do.
    pub(super) fn end(&mut self, hands: &mut Hands<'_>) {
        self.finished = true;
        self.flush(hands);
        for output in &self.outputs {
            output.send_marker(&Payload::EndOfData, hands.channels);
        }
        self.end_sent = true;
        if matches!(self.kind, Kind::Reader { .. }) {
            hands.report(self.lane(), Report::SourceEnded { subtask: self.id });
        }
    }
}

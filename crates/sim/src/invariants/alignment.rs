//! Channels keep their order, carry each barrier once and no data behind that of a stop, and a
//! snapshot contains exactly what came before its barriers.
//!
//! Source: Carbone et al., "Lightweight Asynchronous Snapshots for Distributed Dataflows" (2015),
//! section 4; design section 2. At least once, a snapshot may contain more, never less.

use tidegate_types::{AlignmentMode, CheckpointId, SubtaskId};

use super::{Checked, ensure};
use crate::record::Channel;

const NAME: &str = "alignment";

/// Counts what was checked, so that a run can't pass without having looked.
#[derive(Debug, Default)]
pub(crate) struct Alignments {
    pub(crate) snapshots: u64,
}

impl Alignments {
    pub(crate) fn on_item(
        &self,
        receiver: SubtaskId,
        channel: &Channel,
        in_order: bool,
    ) -> Checked {
        let repeated = channel.repeated;
        ensure(repeated.is_none(), NAME, || {
            format!("the barrier of {repeated:?} is sent twice to {receiver} on one channel")
        })?;
        let stop = channel.stop.filter(|(_, data_after)| *data_after);
        ensure(stop.is_none(), NAME, || {
            format!("{receiver} gets data from behind the barrier of a stop: {stop:?}")
        })?;
        ensure(in_order, NAME, || {
            format!("{receiver} took an item out of order")
        })
    }

    /// `receiver` snapshots; `channels` are its inputs.
    pub(crate) fn on_snapshot<'a>(
        &mut self,
        receiver: SubtaskId,
        checkpoint: CheckpointId,
        mode: AlignmentMode,
        channels: impl Iterator<Item = &'a Channel>,
    ) -> Checked {
        self.snapshots += 1;
        for (index, channel) in channels.enumerate() {
            let has = channel.processed;
            let Some(before) = channel.sent_before(checkpoint) else {
                return ensure(false, NAME, || {
                    format!("{receiver} snapshots {checkpoint}, not sent on input {index}")
                });
            };
            let holds = match mode {
                AlignmentMode::ExactlyOnce => has == before,
                AlignmentMode::AtLeastOnce => has >= before,
            };
            ensure(holds, NAME, || {
                format!(
                    "{receiver} snapshots {checkpoint} with {has} records of input {index}, of \
                     which {before} came before the barrier"
                )
            })?;
        }
        Ok(())
    }
}

//! Outputs of an operator beside its main one, each with a type of its own.
//!
//! A logic keeps a [`SideCollector`] for each and emits to it as to the main [`Collector`]. All
//! else goes through the main one, which passes on to its sides what concerns the operator as a
//! whole: markers, flushing, credit. So a barrier, a watermark or the end of data stands at the
//! same place of the stream on every output; and the main collector is full if any of its sides is,
//! which stops the operator whichever of its receivers can't keep up.
//!
//! Unlike the main collector, which a logic has only while it may emit, the handle of a side is
//! there at any time. So a side closes itself behind its last data: no record may follow the end of
//! data or the barrier of a stop.
//!
//! Emitting to a side is a call that is known at compile time; there is one dynamic call per side
//! for a marker, a flush, or an activation's credit.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tidegate_state::Record;

use super::{Collector, SideHandle};
use crate::item::Marker;

/// Takes the records that an operator emits to one of its side outputs. Clones are the same output.
///
/// What is emitted goes nowhere if the job has no use for it, or if no data may follow any more
/// because the operator's data has come to its end, or the job is being stopped with a savepoint.
/// An operator that emits on its own account, such as when it hears that a checkpoint is complete,
/// can be late for that.
pub struct SideCollector<T> {
    side: Option<Rc<RefCell<Side<T>>>>,
}

impl<T> Clone for SideCollector<T> {
    fn clone(&self) -> Self {
        SideCollector {
            side: self.side.clone(),
        }
    }
}

impl<T: Record> SideCollector<T> {
    /// Leads nowhere.
    pub(super) fn unused() -> Self {
        SideCollector { side: None }
    }

    /// Sends `record` downstream, on every edge of this output, unless no data may follow there.
    /// Afterwards the operator's [`Collector`] may be full.
    #[inline]
    pub fn emit(&self, record: T) {
        if let Some(side) = &self.side {
            let side = &mut *side.borrow_mut();
            if side.closed {
                return;
            }
            side.collector.emit(record);
            side.tell_fullness();
        }
    }

    /// A collector that keeps what is emitted until [`take_collected`](Self::take_collected), so
    /// that tests can drive an operator by hand. It doesn't fill the main collector.
    pub fn collecting() -> Self {
        let collector = Collector::collecting(usize::MAX);
        let side = Side::new(collector, Rc::default());
        SideCollector {
            side: Some(Rc::new(RefCell::new(side))),
        }
    }

    /// As [`Collector::take_collected`].
    pub fn take_collected(&self) -> Vec<T> {
        let side = self.side.as_ref();
        side.map_or_else(Vec::new, |side| {
            side.borrow_mut().collector.take_collected()
        })
    }
}

/// A side output, shared by the logic, which emits, and the main collector, which does the rest.
pub(crate) struct Side<T> {
    collector: Collector<T>,
    /// Side outputs of the operator that are full.
    full_count: Rc<Cell<u32>>,
    /// Whether this one is among them.
    counted: bool,
    /// A marker has passed that no data may follow.
    closed: bool,
}

impl<T: Record> Side<T> {
    fn new(collector: Collector<T>, full_count: Rc<Cell<u32>>) -> Self {
        let mut side = Side {
            collector,
            full_count,
            counted: false,
            closed: false,
        };
        side.tell_fullness();
        side
    }

    /// The end for the main collector and the end for the logic, which is kept as `Any`.
    pub(crate) fn open(
        collector: Collector<T>,
        full_count: &Rc<Cell<u32>>,
    ) -> (Box<dyn SideOutput>, SideHandle) {
        let side = Side::new(collector, Rc::clone(full_count));
        let side = Rc::new(RefCell::new(side));
        let handle = SideHandle::new(SideCollector {
            side: Some(Rc::clone(&side)),
        });
        (Box::new(side), handle)
    }

    #[inline]
    fn tell_fullness(&mut self) {
        let full = self.collector.is_full();
        if full != self.counted {
            self.counted = full;
            let count = self.full_count.get();
            self.full_count
                .set(if full { count + 1 } else { count - 1 });
        }
    }
}

/// What the main collector does for a side, whatever the type of its records.
pub(crate) trait SideOutput {
    fn send_marker(&self, marker: &Marker);
    fn flush(&self);
    fn receive_credit(&self);
    fn holds_records(&self) -> bool;
    fn emitted(&self) -> u64;
}

impl<T: Record> SideOutput for Rc<RefCell<Side<T>>> {
    fn send_marker(&self, marker: &Marker) {
        let side = &mut *self.borrow_mut();
        side.collector.send_marker(marker);
        side.tell_fullness();
        side.closed |= marker.ends_data();
    }

    fn flush(&self) {
        let side = &mut *self.borrow_mut();
        side.collector.flush();
        side.tell_fullness();
    }

    fn receive_credit(&self) {
        let side = &mut *self.borrow_mut();
        side.collector.receive_credit();
        side.tell_fullness();
    }

    fn holds_records(&self) -> bool {
        self.borrow().collector.holds_records()
    }

    fn emitted(&self) -> u64 {
        self.borrow().collector.emitted()
    }
}

/// All side outputs of one collector; most have none.
#[derive(Default)]
pub(super) struct Sides {
    outputs: Vec<Box<dyn SideOutput>>,
    /// Of them, how many are full. `None` if there are none at all.
    full_count: Option<Rc<Cell<u32>>>,
}

impl Sides {
    #[inline]
    pub(super) fn any_full(&self) -> bool {
        let count = self.full_count.as_ref();
        count.is_some_and(|count| count.get() > 0)
    }

    pub(super) fn each(&self, act: impl FnMut(&Box<dyn SideOutput>)) {
        self.outputs.iter().for_each(act);
    }

    pub(super) fn hold_records(&self) -> bool {
        self.outputs.iter().any(|side| side.holds_records())
    }

    pub(super) fn emitted(&self) -> u64 {
        self.outputs.iter().map(|side| side.emitted()).sum()
    }
}

impl<T> Collector<T> {
    /// Takes on the operator's side outputs, whose fullness is counted in `full_count`.
    pub(crate) fn with_sides(
        mut self,
        outputs: Vec<Box<dyn SideOutput>>,
        full_count: Rc<Cell<u32>>,
    ) -> Self {
        self.sides = Sides {
            full_count: (!outputs.is_empty()).then_some(full_count),
            outputs,
        };
        self
    }
}

//! The valve by example, and against a model that keeps what has been said and nothing else.

use proptest::prelude::*;

use super::*;
use WatermarkStatus::{Active, Idle};

fn watermark(time: i64) -> ValveChange {
    ValveChange {
        watermark: Some(EventTime(time)),
        status: None,
    }
}

fn status(status: WatermarkStatus) -> ValveChange {
    ValveChange {
        watermark: None,
        status: Some(status),
    }
}

const NOTHING: ValveChange = ValveChange {
    watermark: None,
    status: None,
};

const END: ValveChange = ValveChange {
    watermark: Some(EventTime::MAX),
    status: None,
};

/// A valve that is spoken to by numbers.
struct Valve(WatermarkValve);

impl Valve {
    fn new(channels: u32) -> Valve {
        Valve(WatermarkValve::new(channels))
    }

    fn watermark(&mut self, channel: u32, time: i64) -> ValveChange {
        self.0.on_watermark(ChannelIndex(channel), EventTime(time))
    }

    fn idle(&mut self, channel: u32) -> ValveChange {
        self.0.on_idle(ChannelIndex(channel))
    }

    fn active(&mut self, channel: u32) -> ValveChange {
        self.0.on_active(ChannelIndex(channel))
    }

    fn end(&mut self, channel: u32) -> ValveChange {
        self.0.on_end(ChannelIndex(channel))
    }
}

#[test]
fn one_channel_goes_through_as_far_as_it_advances() {
    let mut valve = Valve::new(1);
    assert_eq!(valve.watermark(0, 5), watermark(5));
    assert_eq!(valve.watermark(0, 5), NOTHING);
    assert_eq!(valve.watermark(0, 4), NOTHING);
    assert_eq!(valve.watermark(0, 6), watermark(6));
    assert_eq!(valve.active(0), NOTHING, "it is active already");
    assert_eq!(valve.idle(0), status(Idle));
    assert_eq!(valve.idle(0), NOTHING);
    assert_eq!(
        valve.watermark(0, 7),
        NOTHING,
        "an idle channel has nothing to say"
    );
    assert_eq!(valve.active(0), status(Active));
    assert_eq!(valve.watermark(0, 7), watermark(7));
    assert_eq!(valve.end(0), END);
    assert_eq!(valve.end(0), NOTHING);
}

#[test]
fn the_slowest_channel_holds_the_others_back() {
    let mut valve = Valve::new(3);
    assert_eq!(valve.watermark(0, 10), NOTHING);
    assert_eq!(valve.watermark(1, 20), NOTHING);
    assert_eq!(valve.watermark(2, 5), watermark(5));
    assert_eq!(valve.watermark(2, 8), watermark(8));
    assert_eq!(valve.watermark(2, 30), watermark(10));
    assert_eq!(valve.watermark(1, 25), NOTHING);
    assert_eq!(valve.watermark(0, 50), watermark(25));
}

#[test]
fn an_idle_channel_holds_nobody_back() {
    let mut valve = Valve::new(2);
    assert_eq!(valve.watermark(0, 10), NOTHING);
    assert_eq!(valve.idle(1), watermark(10));
    assert_eq!(valve.watermark(0, 11), watermark(11));
}

#[test]
fn a_channel_that_is_active_again_counts_once_it_has_caught_up() {
    let mut valve = Valve::new(2);
    valve.watermark(1, 3);
    valve.watermark(0, 10);
    assert_eq!(valve.idle(1), watermark(10));
    assert_eq!(valve.active(1), NOTHING);
    assert_eq!(valve.watermark(0, 11), watermark(11), "3 is not waited for");
    assert_eq!(valve.watermark(1, 9), NOTHING);
    assert_eq!(valve.watermark(0, 12), watermark(12), "nor is 9");
    assert_eq!(valve.watermark(1, 12), NOTHING);
    assert_eq!(
        valve.watermark(0, 20),
        NOTHING,
        "it has caught up, and counts"
    );
    assert_eq!(valve.watermark(1, 15), watermark(15));
}

#[test]
fn a_channel_that_was_ahead_counts_at_once() {
    let mut valve = Valve::new(2);
    valve.watermark(0, 5);
    valve.watermark(1, 20);
    assert_eq!(valve.idle(1), NOTHING);
    assert_eq!(valve.active(1), NOTHING);
    assert_eq!(valve.watermark(0, 30), watermark(20));
}

#[test]
fn when_all_are_idle_the_furthest_is_let_through() {
    let mut valve = Valve::new(3);
    valve.watermark(0, 10);
    valve.watermark(1, 20);
    assert_eq!(valve.watermark(2, 7), watermark(7));
    assert_eq!(valve.idle(1), NOTHING);
    assert_eq!(valve.idle(2), watermark(10));
    let change = ValveChange {
        watermark: Some(EventTime(20)),
        status: Some(Idle),
    };
    assert_eq!(valve.idle(0), change);
    assert_eq!(valve.active(0), status(Active));
    assert_eq!(valve.watermark(0, 15), NOTHING, "20 has been said");
    assert_eq!(valve.watermark(0, 21), watermark(21));
}

#[test]
fn an_ended_channel_bounds_nothing() {
    let mut valve = Valve::new(2);
    valve.watermark(0, 10);
    assert_eq!(valve.end(1), watermark(10));
    assert_eq!(valve.watermark(0, 11), watermark(11));
    assert_eq!((valve.idle(1), valve.active(1)), (NOTHING, NOTHING));
    assert_eq!(valve.end(0), END);
}

// What is ended can't wake up again, what is idle can; its records must not be late then.
#[test]
fn an_idle_channel_beside_an_ended_one_is_idle_and_not_ended() {
    let mut valve = Valve::new(2);
    valve.watermark(0, 10);
    valve.watermark(1, 10);
    valve.idle(1);
    valve.watermark(0, 50);
    assert_eq!(valve.end(0), status(Idle));
    assert_eq!(valve.active(1), status(Active));
    assert_eq!(valve.watermark(1, 60), watermark(60));
    valve.idle(1);
    assert_eq!(valve.end(1), END, "also from an idle channel");
}

#[test]
fn no_channel_at_all_says_nothing() {
    assert_eq!(Valve::new(0).0.combined(), EventTime::MIN);
}

/// What each channel has said, with Flink's flags taken literally.
#[derive(Clone, Copy, Debug)]
struct Said {
    watermark: i64,
    idle: bool,
    aligned: bool,
    ended: bool,
}

struct Model {
    channels: Vec<Said>,
    combined: i64,
    idle: bool,
}

#[derive(Clone, Copy, Debug)]
enum Word {
    Watermark(i64),
    Idle,
    Active,
    End,
}

impl Model {
    fn hear(&mut self, channel: usize, word: Word) -> ValveChange {
        let combined = self.combined;
        let said = &mut self.channels[channel];
        if said.ended {
            return NOTHING;
        }
        match word {
            Word::Watermark(time) if !said.idle && time > said.watermark => {
                said.watermark = time;
                said.aligned |= time >= combined;
            }
            Word::Watermark(_) => return NOTHING,
            Word::Idle => (said.idle, said.aligned) = (true, false),
            Word::Active if said.idle => {
                said.idle = false;
                said.aligned = said.watermark >= combined;
            }
            Word::Active => return NOTHING,
            Word::End => (said.ended, said.aligned) = (true, false),
        }
        self.conclude()
    }

    fn conclude(&mut self) -> ValveChange {
        let open: Vec<_> = self.channels.iter().filter(|said| !said.ended).collect();
        if open.is_empty() {
            return END;
        }
        let idle = open.iter().all(|said| said.idle);
        let watermarks = |wanted: fn(&Said) -> bool| {
            let wanted = open.iter().filter(move |said| wanted(said));
            wanted.map(|said| said.watermark)
        };
        let combined = match idle {
            true => watermarks(|_| true).max(),
            false => watermarks(|said| said.aligned).min(),
        };
        let combined = combined.unwrap_or(i64::MIN).max(self.combined);
        let change = ValveChange {
            watermark: (combined > self.combined).then_some(EventTime(combined)),
            status: (idle != self.idle).then_some(if idle { Idle } else { Active }),
        };
        (self.combined, self.idle) = (combined, idle);
        change
    }
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        8 => (0..40i64).prop_map(Word::Watermark),
        3 => Just(Word::Idle),
        3 => Just(Word::Active),
        1 => Just(Word::End),
    ]
}

proptest! {
    #[test]
    fn the_valve_says_what_the_model_says(
        count in 1..5u32,
        words in prop::collection::vec((0..5u32, word()), 0..120),
    ) {
        let mut valve = Valve::new(count);
        let said = Said { watermark: i64::MIN, idle: false, aligned: true, ended: false };
        let mut model = Model {
            channels: vec![said; count as usize],
            combined: i64::MIN,
            idle: false,
        };
        for (channel, word) in words {
            let channel = channel % count;
            let said = match word {
                Word::Watermark(time) => valve.watermark(channel, time),
                Word::Idle => valve.idle(channel),
                Word::Active => valve.active(channel),
                Word::End => valve.end(channel),
            };
            prop_assert_eq!(said, model.hear(channel as usize, word), "{:?}", word);
        }
    }
}

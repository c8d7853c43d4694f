//! Process functions in whole jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::connectors::CollectCommitted;
use tidegate::prelude::*;
use tidegate::testing;

const ORDERS: u64 = 4_000;

/// Orders and payments of the same numbers, each of which waits for the other.
struct Matched {
    order: ValueState<u64, u64>,
    payment: ValueState<u64, u64>,
}

impl Matched {
    fn open(states: &mut KeyedOpenContext<'_, u64>) -> Result<Self, BoxError> {
        Ok(Matched {
            order: states.value("order")?,
            payment: states.value("payment")?,
        })
    }
}

impl KeyedCoProcessFunction for Matched {
    type Key = u64;
    type Left = (u64, u64);
    type Right = (u64, String);
    type Out = (u64, u64, u64);

    fn process_left(
        &mut self,
        (number, price): (u64, u64),
        ctx: &mut KeyedContext<'_, u64>,
        out: &mut Collector<(u64, u64, u64)>,
    ) -> Result<(), BoxError> {
        match self.payment.get(ctx)? {
            Some(paid) => {
                self.payment.clear(ctx)?;
                out.emit((number, price, paid));
            }
            None => self.order.set(ctx, price)?,
        }
        Ok(())
    }

    fn process_right(
        &mut self,
        (number, paid): (u64, String),
        ctx: &mut KeyedContext<'_, u64>,
        out: &mut Collector<(u64, u64, u64)>,
    ) -> Result<(), BoxError> {
        let paid: u64 = paid.parse()?;
        match self.order.get(ctx)? {
            Some(price) => {
                self.order.clear(ctx)?;
                out.emit((number, price, paid));
            }
            None => self.payment.set(ctx, paid)?,
        }
        Ok(())
    }
}

// IT-02: two inputs of different types over one keyed state, under failures.
#[test]
fn connected_streams_match_exactly_once() {
    for seed in 0..4 {
        let matched = CollectCommitted::new();
        let env = testing::under_failures(seed, 6).with_parallelism(1 + seed as u32 % 3);
        let orders = Generator::new(Some(ORDERS), |number| (number, number * 3)).rate(20_000.0);
        // In another order.
        let payments = Generator::new(Some(ORDERS), |index| {
            let number = index * 7 % ORDERS;
            (number, (number * 3).to_string())
        });
        let payments = env
            .source("payments", payments.rate(15_000.0))
            .key_by(|(number, _)| number);
        env.source("orders", orders)
            .key_by(|(number, _)| number)
            .connect(payments)
            .process("match", Matched::open)
            .sink("matched", matched.clone());
        let report = env.execute("orders").unwrap();
        assert!(report.statistics.restarts > 0);
        let mut matched = matched.take();
        matched.sort_unstable();
        let expected = (0..ORDERS).map(|number| (number, number * 3, number * 3));
        assert!(matched.into_iter().eq(expected), "seed {seed}");
    }
}

/// Emits what a key's readings come to in each second, when the second is over in event time.
struct PerSecond {
    sums: MapState<u64, i64, u64>,
}

impl KeyedProcessFunction for PerSecond {
    type Key = u64;
    type In = (u64, i64);
    type Out = (u64, i64, u64);

    fn process(
        &mut self,
        (_, time): (u64, i64),
        ctx: &mut KeyedContext<'_, u64>,
        _out: &mut Collector<(u64, i64, u64)>,
    ) -> Result<(), BoxError> {
        let second = time.div_euclid(1000);
        self.sums.update_or(ctx, second, 0, |sum| *sum += 1)?;
        let end = EventTime(second * 1000 + 999);
        ctx.timer_service().register_event_time_timer(end)?;
        Ok(())
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        ctx: &mut KeyedContext<'_, u64>,
        out: &mut Collector<(u64, i64, u64)>,
    ) -> Result<(), BoxError> {
        let second = timer.time.div_euclid(1000);
        if let Some(sum) = self.sums.remove(ctx, &second)? {
            out.emit((*ctx.key(), second, sum));
        }
        Ok(())
    }
}

// BC-39, L11, M7: timers and maps under failures; every second comes out once, whole.
#[test]
fn every_second_is_summed_once() {
    const READINGS: u64 = 10_000;
    let reading = |index: u64| (index % 5, index as i64 * 7);
    let mut expected: BTreeMap<(u64, i64), u64> = BTreeMap::new();
    for (key, time) in (0..READINGS).map(reading) {
        *expected.entry((key, time / 1000)).or_default() += 1;
    }
    for seed in 0..4 {
        let sums = CollectCommitted::new();
        let env = testing::under_failures(seed, 8).with_parallelism(1 + seed as u32 % 3);
        let strategy = WatermarkStrategy::monotonous(|reading: &(u64, i64)| EventTime(reading.1));
        env.source(
            "readings",
            Generator::new(Some(READINGS), reading).rate(25_000.0),
        )
        .parallelism(1)
        .watermarks("times", strategy.every(Duration::from_millis(5)))
        .parallelism(1)
        .key_by(|(key, _)| key)
        .process("per-second", |states| {
            let sums = states.map("sums")?;
            Ok(PerSecond { sums })
        })
        .sink("sums", sums.clone());
        let report = env.execute("seconds").unwrap();
        assert!(report.statistics.restarts > 0);
        let mut sums = sums.take();
        sums.sort_unstable();
        let found = sums
            .into_iter()
            .map(|(key, second, sum)| ((key, second), sum));
        assert!(found.eq(expected.clone()), "seed {seed}");
    }
}

const LATE: OutputTag<(i64, String)> = OutputTag::new("late");

/// Lets records pass that aren't late, and puts the others aside with the reason.
struct NotLate {
    late: SideCollector<(i64, String)>,
}

impl ProcessFunction for NotLate {
    type In = i64;
    type Out = i64;

    fn process(
        &mut self,
        time: i64,
        _ctx: &mut ProcessContext<'_>,
        out: &mut Collector<i64>,
    ) -> Result<(), BoxError> {
        match time % 3 {
            0 => self.late.emit((time, "a multiple of 3".to_owned())),
            _ => out.emit(time),
        }
        Ok(())
    }
}

// Both outputs are cut by the same barriers: under failures neither loses or doubles anything.
#[test]
fn side_outputs_are_as_exact_as_the_main_one() {
    const RECORDS: u64 = 6_000;
    for seed in 0..4 {
        let (kept, late) = (CollectCommitted::new(), CollectCommitted::new());
        let env = testing::under_failures(seed, 6).with_parallelism(1 + seed as u32 % 3);
        let times = Generator::new(Some(RECORDS), |index| index as i64).rate(20_000.0);
        let not_late = env.source("times", times).process("not-late", |states| {
            let late = states.side_output(&LATE)?;
            Ok(NotLate { late })
        });
        let aside = not_late.side_output(&LATE).unwrap();
        aside.rebalance().sink("late", late.clone());
        not_late.sink("kept", kept.clone());
        let report = env.execute("late").unwrap();
        assert!(report.statistics.restarts > 0);
        let mut late: Vec<i64> = late.take().into_iter().map(|(time, _)| time).collect();
        let mut kept = kept.take();
        late.sort_unstable();
        kept.sort_unstable();
        let all = 0..RECORDS as i64;
        assert!(
            late.into_iter()
                .eq(all.clone().filter(|time| time % 3 == 0))
        );
        assert!(kept.into_iter().eq(all.filter(|time| time % 3 != 0)));
    }
}

#[test]
fn a_side_output_has_one_type() {
    let env = Environment::for_tests();
    let numbers = env.source("numbers", Generator::new(Some(1), |index| index));
    numbers.side_output(&LATE).unwrap();
    let other = numbers.side_output(&OutputTag::<u8>::new("late"));
    let refused = tidegate::Error::from(other.err().unwrap()).to_string();
    assert!(
        refused.starts_with("side output `late` carries"),
        "{refused}"
    );
}

// What `filter` makes is a stream of another operator.
#[test]
fn a_side_output_that_nobody_emits_to_is_an_error() {
    let env = Environment::for_tests()
        .with_options(|options| options.settings.restart = tidegate::RestartStrategy::None);
    let not_late = env
        .source("times", Generator::new(Some(10), |index| index as i64))
        .process("not-late", |states| {
            let late = states.side_output(&LATE)?;
            Ok(NotLate { late })
        })
        .filter("positive", |time| *time > 0);
    not_late.side_output(&LATE).unwrap().sink("late", Discard);
    not_late.sink("kept", Discard);
    let refused = format!("{:?}", env.execute("mistaken").unwrap_err());
    let cause = "operator `positive` emits to no side output `late`; it has none";
    assert!(refused.contains(cause), "{refused}");
}

/// Average of numbers.
#[derive(Clone)]
struct Average;

impl Aggregate for Average {
    type In = u64;
    type Acc = (u64, u64);
    type Out = f64;

    fn create(&self) -> (u64, u64) {
        (0, 0)
    }

    fn add(&self, (sum, count): &mut (u64, u64), value: u64) {
        *sum += value;
        *count += 1;
    }

    fn get_result(&self, (sum, count): &(u64, u64)) -> f64 {
        *sum as f64 / *count as f64
    }
}

#[test]
fn aggregate_emits_what_a_key_has_come_to() {
    let averages = Collect::new();
    let env = Environment::for_tests();
    env.source("numbers", Generator::new(Some(6), |index| index))
        .key_by_value(|number| number % 2)
        .aggregate("average", Average)
        .sink("averages", averages.clone());
    env.execute("averages").unwrap();
    let expected = [(0, 0.0), (1, 1.0), (0, 1.0), (1, 2.0), (0, 2.0), (1, 3.0)];
    assert_eq!(averages.take(), expected);
}

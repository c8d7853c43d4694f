//! One job, from the first fault to its end.

use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;

use crate::cluster::Cluster;
use crate::faults::{Deck, Kind, Restart};
use crate::recovery::{PATIENCE, Recovery, Watch};
use crate::report::Report;
use crate::strike::{Struck, strike};

/// A job that runs as fast as it can is done by then.
const END_PATIENCE: Duration = Duration::from_secs(180);

/// Disturbs a job for some time; it goes on after every fault.
///
/// # Errors
/// If it doesn't.
pub(crate) fn disturb(
    cluster: &mut Cluster,
    deck: &mut Deck,
    random: &mut StdRng,
    lasts: Duration,
    overlap: u32,
) -> Result<Report, String> {
    let name = cluster.parts.job.name;
    let mut start = Watch::new(cluster, Restart::Perhaps);
    start
        .until_it_goes_on(cluster)
        .map_err(|error| format!("at the start: {error}"))?;
    let began = Instant::now();
    let mut report = Report::default();
    while began.elapsed() < lasts {
        let pause = Duration::from_millis(random.random_range(100..900));
        cluster.tend_until(Instant::now() + pause)?;
        let kind = deck.draw(random);
        let second = (random.random_range(0..100) < overlap).then(|| deck.draw(random));
        let Some(survived) = survive(cluster, kind, second, random)? else {
            continue;
        };
        match survived.other {
            None => report.survived(kind, survived.recovery),
            Some(other) => {
                report.survived(kind, None);
                report.survived_within_another(other);
            }
        }
        let (seconds, line) = (began.elapsed().as_secs_f64(), survived.line);
        println!("{name} {seconds:>6.1} s  {line}");
    }
    Ok(report)
}

/// A fault that was survived.
struct Survived {
    line: String,
    /// If it made the job restart.
    recovery: Option<Recovery>,
    /// What struck before that was over.
    other: Option<Kind>,
}

/// One fault, and perhaps another one within its recovery. `None` if there was nobody to strike.
fn survive(
    cluster: &mut Cluster,
    kind: Kind,
    second: Option<Kind>,
    random: &mut StdRng,
) -> Result<Option<Survived>, String> {
    let restart = match second {
        None => kind.restart(),
        Some(_) => Restart::Perhaps,
    };
    let mut watch = Watch::new(cluster, restart);
    let Some(struck) = strike(kind, cluster, random)? else {
        return Ok(None);
    };
    watch.count_from(struck.at);
    let mut line = format!("{} ({})", kind.label(), struck.whom);
    let hung = |error: String, line: &str| format!("{line}: {error}");
    let over = struck.at + struck.lasts;
    let other = match second {
        None => None,
        Some(second) => {
            let delay = Duration::from_millis(random.random_range(0..300));
            watch
                .until(cluster, Instant::now() + delay)
                .map_err(|error| hung(error, &line))?;
            strike(second, cluster, random)?
        }
    };
    let other_kind = other.as_ref().map(|other| other.kind);
    if let Some(other) = &other {
        line += &format!(", meanwhile {} ({})", other.kind.label(), other.whom);
    }
    heal_in_turn(cluster, &mut watch, struck, over, other).map_err(|error| hung(error, &line))?;
    if kind.counts_from_its_end() {
        watch.count_from(Instant::now());
    }
    let recovery = watch
        .until_it_goes_on(cluster)
        .map_err(|error| hung(error, &line))?;
    line += &outcome(recovery);
    Ok(Some(Survived {
        line,
        recovery,
        other: other_kind,
    }))
}

fn heal_in_turn(
    cluster: &mut Cluster,
    watch: &mut Watch,
    struck: Struck,
    over: Instant,
    other: Option<Struck>,
) -> Result<(), String> {
    let mut faults = vec![(over, struck)];
    faults.extend(other.map(|other| (other.at + other.lasts, other)));
    faults.sort_by_key(|(over, _)| *over);
    for (over, struck) in faults {
        watch.until(cluster, over)?;
        struck.heal(cluster)?;
    }
    Ok(())
}

fn outcome(recovery: Option<Recovery>) -> String {
    let Some(recovery) = recovery else {
        return ": no restart".to_owned();
    };
    let record = recovery
        .record
        .map_or("-".to_owned(), |time| time.as_millis().to_string());
    format!(
        ": runs after {}, first record after {record}, first output after {} ms",
        recovery.running.as_millis(),
        recovery.output.as_millis()
    )
}

/// Lets the job run to its end as fast as it can, and checks its output. Gives its lines.
///
/// # Errors
/// If it doesn't end, or is wrong.
pub(crate) fn finish(cluster: &mut Cluster) -> Result<u64, String> {
    cluster.hurry();
    let deadline = Instant::now() + PATIENCE + END_PATIENCE;
    while !cluster.is_over() {
        if Instant::now() > deadline {
            return Err("it does not come to its end".to_owned());
        }
        cluster.tend_until(Instant::now() + Duration::from_millis(20))?;
    }
    cluster.parts.job.check()
}

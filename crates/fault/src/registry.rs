//! The process-wide state behind the fault points.
//!
//! Idea: one lock. A thread that reaches the armed point keeps it for ever, so that no other thread
//! gets past another point and no line follows the armed one. Between two points threads do run on
//! until the kill arrives; a real crash can be no later than that.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{ANNOUNCE_VARIABLE, ARM_VARIABLE, FAILURES, POINTS};

type Sink = Box<dyn Write + Send>;

struct Armed {
    name: String,
    hit: u64,
}

struct Crashes {
    hits: HashMap<&'static str, u64>,
    armed: Option<Armed>,
    announce: Option<Sink>,
}

struct Planned {
    error: io::ErrorKind,
    calls: Range<u64>,
    seen: u64,
    id: u64,
}

fn crashes() -> MutexGuard<'static, Crashes> {
    static CRASHES: OnceLock<Mutex<Crashes>> = OnceLock::new();
    CRASHES
        .get_or_init(|| Mutex::new(Crashes::from_environment()))
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

fn planned() -> MutexGuard<'static, HashMap<&'static str, Vec<Planned>>> {
    static PLANNED: OnceLock<Mutex<HashMap<&'static str, Vec<Planned>>>> = OnceLock::new();
    PLANNED
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

impl Crashes {
    /// A bad setting ends the process: going on would test something else than was asked for.
    fn from_environment() -> Crashes {
        let armed = std::env::var(ARM_VARIABLE)
            .ok()
            .filter(|spec| !spec.is_empty())
            .map(|spec| parse_armed(&spec).unwrap_or_else(|reason| refuse(ARM_VARIABLE, &reason)));
        let announce = std::env::var(ANNOUNCE_VARIABLE)
            .ok()
            .filter(|target| !target.is_empty())
            .map(|target| {
                open_sink(&target)
                    .unwrap_or_else(|e| refuse(ANNOUNCE_VARIABLE, &format!("`{target}`: {e}")))
            });
        Crashes {
            hits: HashMap::new(),
            armed,
            announce,
        }
    }

    fn announce(&mut self, line: &str) -> io::Result<()> {
        match &mut self.announce {
            // One write per line, so that lines of several processes never mix.
            Some(sink) => sink.write_all(line.as_bytes()).and_then(|()| sink.flush()),
            None => Ok(()),
        }
    }
}

fn refuse(variable: &str, reason: &str) -> ! {
    eprintln!("{variable}: {reason}");
    std::process::exit(2)
}

fn parse_armed(spec: &str) -> Result<Armed, String> {
    let (name, hit) = spec
        .split_once('#')
        .ok_or_else(|| format!("`{spec}` is not `<name>#<k>`"))?;
    if !POINTS.contains(&name) {
        return Err(format!("`{name}` is none of {POINTS:?}"));
    }
    match hit.parse() {
        Ok(hit @ 1..) => Ok(Armed {
            name: name.to_owned(),
            hit,
        }),
        _ => Err(format!("`{hit}` is not a hit number from 1")),
    }
}

fn open_sink(target: &str) -> io::Result<Sink> {
    match target {
        "stdout" => return Ok(Box::new(io::stdout())),
        "stderr" => return Ok(Box::new(io::stderr())),
        _ => {}
    }
    // Without `create` first: Linux may refuse O_CREAT on a FIFO in a shared folder.
    let existing = OpenOptions::new().append(true).open(target);
    let file = match existing {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            OpenOptions::new().append(true).create(true).open(target)?
        }
        other => other?,
    };
    Ok(Box::new(file))
}

pub(crate) fn hit(name: &'static str) {
    assert!(
        POINTS.contains(&name),
        "fault point `{name}` isn't in POINTS"
    );
    let mut crashes = crashes();
    let count = crashes.hits.entry(name).or_default();
    *count += 1;
    let count = *count;
    let armed = crashes
        .armed
        .as_ref()
        .is_some_and(|armed| armed.name == name && armed.hit == count);
    if !armed {
        // Nobody listens any more: that is their affair as long as nothing is armed here.
        let _ = crashes.announce(&format!("{name} {count}\n"));
        return;
    }
    let told = crashes.announce(&format!("{name} {count} armed\n"));
    if told.is_err() || crashes.announce.is_none() {
        std::process::abort();
    }
    // Still holding the lock, see the head of this module.
    loop {
        std::thread::park();
    }
}

/// An injected error; dropping it takes back what has not been used.
#[derive(Debug)]
#[must_use = "dropping it takes the injection back"]
pub struct Injection {
    name: &'static str,
    id: u64,
}

/// Makes calls of [`fail`](crate::fail) for `name` give an error of this kind, namely those in
/// `calls`, counted from 0 and from now: `0..1` is the next one. [`io::ErrorKind::StorageFull`] is
/// a full disk. Of several injections that apply to a call, the earliest decides.
///
/// # Panics
/// If `name` isn't one of [`FAILURES`].
pub fn inject(name: &'static str, error: io::ErrorKind, calls: Range<u64>) -> Injection {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    assert!(FAILURES.contains(&name), "`{name}` isn't in FAILURES");
    let id = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    planned().entry(name).or_default().push(Planned {
        error,
        calls,
        seen: 0,
        id,
    });
    Injection { name, id }
}

impl Injection {
    /// How many of its errors are still to come.
    pub fn remaining(&self) -> u64 {
        planned()
            .get(self.name)
            .into_iter()
            .flatten()
            .find(|plan| plan.id == self.id)
            .map_or(0, |plan| {
                plan.calls
                    .end
                    .saturating_sub(plan.seen.max(plan.calls.start))
            })
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        if let Some(plans) = planned().get_mut(self.name) {
            plans.retain(|plan| plan.id != self.id);
        }
    }
}

pub(crate) fn injected(name: &'static str) -> Option<io::Error> {
    assert!(FAILURES.contains(&name), "`{name}` isn't in FAILURES");
    let mut planned = planned();
    let mut error = None;
    for plan in planned.get_mut(name)? {
        let applies = plan.calls.contains(&plan.seen);
        plan.seen += 1;
        if applies && error.is_none() {
            error = Some(io::Error::new(plan.error, "injected by a fault point"));
        }
    }
    error
}

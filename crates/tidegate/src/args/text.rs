//! How values are written: the same in flags, variables, files, errors and documentation.
//!
//! Invariant: what [`TextForm::text`] writes, [`TextForm::parse`] reads back as the same value.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use tidegate_coordinator::{RestartStrategy, Retention};
use tidegate_server::OnSigterm;
use tidegate_types::{AlignmentMode, RestoreMode};

/// What a value must be instead; follows the words "must be".
pub(crate) type Allowed = Cow<'static, str>;

/// A value that users write.
pub(crate) trait TextForm: Sized {
    /// What the text may be.
    fn allowed() -> Allowed;

    /// The value that the text stands for.
    fn parse(text: &str) -> Result<Self, Allowed>;

    /// The text that stands for the value.
    fn text(&self) -> String;
}

/// When checkpoints are triggered without being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointInterval {
    /// Never; only the final checkpoint of a job that ends is taken, and those asked for.
    Off,
    /// So long after the trigger of the one before. At least 1 ms.
    Every(Duration),
}

impl fmt::Display for CheckpointInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Every(time) => humantime::format_duration(*time).fmt(f),
        }
    }
}

/// Where the keyed state of checkpoints and savepoints is kept. Displays as users write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CheckpointStorage {
    /// In files, apart from what is small; see [`Args::state_inline_threshold`](crate::Args).
    #[default]
    Filesystem,
    /// In the metadata, which the coordinator of the job (Flink's JobManager) holds in memory. A
    /// subtask may have up to 5 MiB.
    JobManager,
}

impl CheckpointStorage {
    /// Every one there is.
    pub const ALL: [CheckpointStorage; 2] = [Self::Filesystem, Self::JobManager];
}

impl fmt::Display for CheckpointStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Filesystem => "filesystem",
            Self::JobManager => "jobmanager",
        })
    }
}

/// A number of bytes. Displays as users write it: `20KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// From the largest.
const SIZE_UNITS: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, bytes): &&(&str, u64)| self.0 >= *bytes && self.0.is_multiple_of(*bytes);
        let (unit, bytes) = SIZE_UNITS.iter().find(whole).unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / bytes)
    }
}

/// How many checkpoints in a row may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TolerableFailures {
    /// Any number.
    Unlimited,
    /// So many; one more restarts the job.
    UpTo(u32),
}

impl fmt::Display for TolerableFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::UpTo(count) => count.fmt(f),
        }
    }
}

impl TextForm for Duration {
    fn allowed() -> Allowed {
        "a time with its unit, as `500ms`, `10s` or `1h 30m`".into()
    }

    fn parse(text: &str) -> Result<Self, Allowed> {
        humantime::parse_duration(text).map_err(|error| match error {
            humantime::DurationError::NumberOverflow => {
                "a time of less than 500 billion years and not finer than `1ns`".into()
            }
            _ => Self::allowed(),
        })
    }

    fn text(&self) -> String {
        humantime::format_duration(*self).to_string()
    }
}

impl TextForm for CheckpointInterval {
    fn allowed() -> Allowed {
        format!("{}, or `off`", Duration::allowed()).into()
    }

    fn parse(text: &str) -> Result<Self, Allowed> {
        if text == "off" {
            return Ok(Self::Off);
        }
        Duration::parse(text)
            .map(Self::Every)
            .map_err(|allowed| format!("{allowed}, or `off`").into())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl TextForm for u32 {
    fn allowed() -> Allowed {
        format!("a whole number from 0 to {}", u32::MAX).into()
    }

    fn parse(text: &str) -> Result<Self, Allowed> {
        text.parse().map_err(|_| Self::allowed())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl TextForm for NonZeroU32 {
    fn allowed() -> Allowed {
        format!("a whole number from 1 to {}", u32::MAX).into()
    }

    fn parse(text: &str) -> Result<Self, Allowed> {
        text.parse().map_err(|_| Self::allowed())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl TextForm for TolerableFailures {
    fn allowed() -> Allowed {
        format!("{}, or `unlimited`", u32::allowed()).into()
    }

    fn parse(text: &str) -> Result<Self, Allowed> {
        match text {
            "unlimited" => Ok(Self::Unlimited),
            count => u32::parse(count)
                .map(Self::UpTo)
                .map_err(|_| Self::allowed()),
        }
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl TextForm for bool {
    fn allowed() -> Allowed {
        one_of(&[true, false])
    }

    fn parse(text: &str) -> Result<Self, Allowed> {
        pick(&[true, false], text)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl TextForm for IpAddr {
    fn allowed() -> Allowed {
        "an IP address".into()
    }

    fn parse(text: &str) -> Result<Self, Allowed> {
        text.parse().map_err(|_| Self::allowed())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl TextForm for RestartStrategy {
    fn allowed() -> Allowed {
        Self::FORMS.into()
    }

    fn parse(text: &str) -> Result<Self, Allowed> {
        text.parse().map_err(|_| Self::allowed())
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// Settings of which there are a few choices, each with a name that it displays as.
macro_rules! text_form_of_choices {
    ($($choices:ty),*) => {$(
        impl TextForm for $choices {
            fn allowed() -> Allowed {
                one_of(&Self::ALL)
            }

            fn parse(text: &str) -> Result<Self, Allowed> {
                pick(&Self::ALL, text)
            }

            fn text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

text_form_of_choices!(Retention, CheckpointStorage, OnSigterm, RestoreMode);

impl TextForm for ByteSize {
    fn allowed() -> Allowed {
        "a size with its unit, as `512B`, `20KiB` or `1MiB`".into()
    }

    fn parse(text: &str) -> Result<Self, Allowed> {
        let unit = SIZE_UNITS.iter().find_map(|(unit, bytes)| {
            let number = text.strip_suffix(unit)?.trim_end();
            let plain = number.bytes().all(|byte| byte.is_ascii_digit());
            plain.then_some((number, *bytes))
        });
        let (number, unit) = unit.ok_or_else(Self::allowed)?;
        let count: u64 = number.parse().map_err(|_| Self::allowed())?;
        count
            .checked_mul(unit)
            .map(ByteSize)
            .ok_or_else(Self::allowed)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

const MODES: [(AlignmentMode, &str); 2] = [
    (AlignmentMode::ExactlyOnce, "exactly-once"),
    (AlignmentMode::AtLeastOnce, "at-least-once"),
];

impl TextForm for AlignmentMode {
    fn allowed() -> Allowed {
        one_of(&MODES.map(|(_, word)| word))
    }

    fn parse(text: &str) -> Result<Self, Allowed> {
        let known = MODES.iter().find(|(_, word)| *word == text);
        known.map(|(mode, _)| *mode).ok_or_else(Self::allowed)
    }

    fn text(&self) -> String {
        let known = MODES.iter().find(|(mode, _)| mode == self);
        known
            .map(|(_, word)| (*word).to_owned())
            .unwrap_or_default()
    }
}

fn pick<T: fmt::Display + Copy>(all: &[T], text: &str) -> Result<T, Allowed> {
    let known = all.iter().find(|value| value.to_string() == text);
    known.copied().ok_or_else(|| one_of(all))
}

/// "`a`, `b` or `c`".
fn one_of<T: fmt::Display>(all: &[T]) -> Allowed {
    let mut words: Vec<String> = all.iter().map(|value| format!("`{value}`")).collect();
    let last = words.pop().unwrap_or_default();
    if words.is_empty() {
        return last.into();
    }
    format!("{} or {last}", words.join(", ")).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_back<T: TextForm>(value: &T) -> Result<T, Allowed> {
        T::parse(&value.text())
    }

    proptest! {
        #[test]
        fn times_and_counts_are_read_back(
            seconds in any::<u64>(), nanos in 0..1_000_000_000u32, count in any::<u32>()
        ) {
            let small = Duration::from_nanos(seconds % 1_000_000_000_000);
            for time in [Duration::new(seconds, nanos), small] {
                prop_assert_eq!(read_back(&time), Ok(time));
                let interval = CheckpointInterval::Every(time);
                prop_assert_eq!(read_back(&interval), Ok(interval));
            }
            prop_assert_eq!(read_back(&count), Ok(count));
            for size in [seconds, u64::from(count), u64::from(count) << 10, seconds << 30] {
                prop_assert_eq!(read_back(&ByteSize(size)), Ok(ByteSize(size)));
            }
            let tolerable = TolerableFailures::UpTo(count);
            prop_assert_eq!(read_back(&tolerable), Ok(tolerable));
            let parallelism = NonZeroU32::MIN.saturating_add(count);
            prop_assert_eq!(read_back(&parallelism), Ok(parallelism));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = Duration::parse(&text);
            let _ = RestartStrategy::parse(&format!("exponential-delay:{text}"));
            let _ = TolerableFailures::parse(&text);
            let _ = ByteSize::parse(&format!("{text}KiB"));
        }
    }

    #[test]
    fn words_are_read_back() {
        for value in Retention::ALL {
            assert_eq!(read_back(&value), Ok(value));
        }
        for value in RestoreMode::ALL {
            assert_eq!(read_back(&value), Ok(value));
        }
        for value in CheckpointStorage::ALL {
            assert_eq!(read_back(&value), Ok(value));
        }
        for (value, _) in MODES {
            assert_eq!(read_back(&value), Ok(value));
        }
        for value in [true, false] {
            assert_eq!(read_back(&value), Ok(value));
        }
        let off = CheckpointInterval::Off;
        assert_eq!(read_back(&off), Ok(off));
        let unlimited = TolerableFailures::Unlimited;
        assert_eq!(read_back(&unlimited), Ok(unlimited));
    }

    #[test]
    fn times_are_shown_as_people_write_them() {
        let shown = |text| Duration::parse(text).unwrap().text();
        assert_eq!(shown("10000ms"), "10s");
        assert_eq!(shown("90s"), "1m 30s");
        assert_eq!(shown("0s"), "0s");
        assert_eq!(shown("1h30m"), "1h 30m");
    }

    #[test]
    fn sizes_have_units_and_fit() {
        let size = |text| ByteSize::parse(text).map(|size| size.0);
        assert_eq!(size("0B"), Ok(0));
        assert_eq!(size("20 KiB"), Ok(20_480));
        assert_eq!(size("1024KiB"), Ok(1 << 20));
        for wrong in [
            "",
            "20",
            "B",
            "-1B",
            "+1B",
            "1.5MiB",
            "20KB",
            "20kib",
            "99999999999GiB",
        ] {
            assert!(size(wrong).unwrap_err().contains("`20KiB`"), "{wrong}");
        }
        assert_eq!(ByteSize(1 << 20).to_string(), "1MiB");
        assert_eq!(ByteSize(1025).to_string(), "1025B");
        assert_eq!(ByteSize(0).to_string(), "0B");
    }

    #[test]
    fn what_is_no_time_is_told_from_what_is_too_long() {
        let allowed = |text| Duration::parse(text).unwrap_err();
        for wrong in ["", "soon", "10", "-1s", "1.s.", "10 apples"] {
            assert!(allowed(wrong).contains("`10s`"), "{wrong}");
        }
        assert!(allowed("99999999999999999999y").contains("500 billion years"));
        assert!(allowed("999999999999999y").contains("500 billion years"));
        assert!(Duration::parse("1000y").is_ok());
    }

    #[test]
    fn what_is_allowed_is_listed() {
        assert_eq!(
            Retention::parse("keep").unwrap_err(),
            "`retain-on-cancellation`, `delete-on-cancellation` or `no-retention`"
        );
        assert_eq!(bool::parse("yes").unwrap_err(), "`true` or `false`");
        assert!(NonZeroU32::parse("0").unwrap_err().contains("from 1 to"));
    }
}

//! Flags, files and defaults in this process; variables are tested in processes of their own, in
//! `tests/bad_input`.

use std::fs;
use std::path::PathBuf;

use clap::{CommandFactory, Parser};
use tidegate_coordinator::JobSettings;
use tidegate_runtime::StatePlacement;
use tidegate_server::{CheckpointLocation, JobOptions};
use tidegate_types::SnapshotFormat;

use super::cluster::CLUSTER;
use super::table::SETTINGS;
use super::*;

#[derive(Debug, Parser)]
#[command(name = "job")]
struct Job {
    #[command(flatten)]
    tidegate: Args,
}

fn parse(flags: &[&str]) -> Result<Args, clap::Error> {
    Job::try_parse_from(std::iter::once(&"job").chain(flags)).map(|job| job.tidegate)
}

fn options(flags: &[&str]) -> Result<JobOptions, InvalidSettings> {
    parse(flags).unwrap().job_options()
}

/// Parses with a file of this content, in which `job.toml` stands for its path in messages.
fn with_file(content: impl AsRef<[u8]>, flags: &[&str]) -> Result<Args, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.toml");
    fs::write(&path, content).unwrap();
    let path = path.display().to_string();
    parse(&[&["--config", path.as_str()], flags].concat())
        .map_err(|error| error.to_string().replace(&path, "job.toml"))
}

/// Checks that a file is refused with exactly these messages.
fn assert_refused(content: &str, messages: &[&str]) {
    let error = with_file(content, &[]).unwrap_err();
    let expected = match messages {
        [message] => format!("error: invalid setting: {message}\n"),
        messages => {
            let list: String = messages.iter().map(|m| format!("\n- {m}")).collect();
            format!("error: {} invalid settings:{list}\n", messages.len())
        }
    };
    let told = error.split("\nUsage").next().unwrap();
    assert_eq!(told.trim_end(), expected.trim_end());
}

#[test]
fn the_table_and_clap_agree() {
    let command = Job::command();
    command.clone().debug_assert();
    for setting in SETTINGS {
        let mut args = command.get_arguments();
        let arg = args
            .find(|arg| arg.get_long() == Some(setting.name))
            .unwrap();
        assert_eq!(arg.get_env(), Some(setting.variable().as_ref()));
    }
    let help = Job::command().render_long_help().to_string();
    assert!(help.contains("[default: exponential-delay:100ms,1m]"));
    assert!(help.contains("[env: TIDEGATE_MIN_PAUSE]"), "{help}");
}

#[test]
fn without_a_directory_nothing_is_periodic() {
    let options = options(&[]).unwrap();
    assert_eq!(options.settings, JobSettings::default());
    assert_eq!(options.settings.checkpoints.interval, None);
    assert_eq!(options.location, CheckpointLocation::Memory);
    assert_eq!((options.restore, options.dry_run), (None, false));
}

/// The defaults that the table promises are those that apply.
#[test]
fn defaults_are_those_of_the_table() {
    let mut written = parse(&["--checkpoint-dir", "/checkpoints"]).unwrap();
    let unwritten = written.job_options().unwrap();
    let parallelism = written.parallelism();
    for setting in SETTINGS {
        if !setting.default.starts_with('(') && setting.name != "restore-mode" {
            (setting.field.set)(&mut written, setting.default).unwrap();
            // Shown as it is written.
            let shown = (setting.field.get)(&written);
            assert_eq!(shown.as_deref(), Some(setting.default));
        }
    }
    let written_options = written.job_options().unwrap();
    assert_eq!(format!("{written_options:?}"), format!("{unwritten:?}"));
    assert_eq!(written.parallelism(), parallelism);
    assert_eq!(written.quiet, Some(false));
    assert_eq!(RestoreMode::default().to_string(), "no-claim");
}

#[test]
fn a_directory_brings_an_interval_unless_it_is_turned_off() {
    let interval = |flags: &[&str]| options(flags).unwrap().settings.checkpoints.interval;
    let dir = ["--checkpoint-dir", "/checkpoints"];
    assert_eq!(interval(&dir), Some(Duration::from_secs(10)));
    let off = ["--checkpoint-interval", "off"];
    assert_eq!(interval(&[dir, off].concat()), None);
    assert_eq!(interval(&off), None);
}

/// A value for each setting that is not its default.
const OTHERS: &[(&str, &str)] = &[
    ("parallelism", "3"),
    ("parallelism-min", "2"),
    ("stabilization-timeout", "3s"),
    ("checkpoint-dir", "/checkpoints"),
    ("checkpoint-storage", "jobmanager"),
    ("state-inline-threshold", "0B"),
    ("incremental-checkpoints", "true"),
    ("checkpoint-interval", "1m 30s"),
    ("checkpoint-timeout", "1000years"),
    ("min-pause", "250ms"),
    ("max-concurrent-checkpoints", "4"),
    ("tolerable-failed-checkpoints", "unlimited"),
    ("retained-checkpoints", "5"),
    ("checkpoint-retention", "no-retention"),
    ("checkpoint-history", "0"),
    ("savepoint-dir", "file:///savepoints"),
    ("restore-from", "/savepoints/savepoint-1"),
    ("restore-mode", "claim"),
    ("allow-non-restored-state", "true"),
    ("dry-run", "true"),
    ("mode", "at-least-once"),
    ("on-sigterm", "stop"),
    ("restart", "failure-rate:3,5m,1s"),
    ("buffer-timeout", "0s"),
    ("quiet", "true"),
];

fn other(setting: &Setting) -> &'static str {
    let other = OTHERS.iter().find(|(name, _)| *name == setting.name);
    other.unwrap_or_else(|| panic!("`{}`", setting.name)).1
}

fn shown(args: &Args) -> Vec<(&'static str, Option<String>)> {
    let show = |setting: &Setting| (setting.name, (setting.field.get)(args));
    SETTINGS.iter().map(show).collect()
}

/// A setting and its value as a line of a file.
fn line(setting: &Setting, value: &str) -> String {
    match setting.kind {
        Kind::Text | Kind::CountOrWord => format!("{} = {value:?}\n", setting.name),
        Kind::Count | Kind::Switch => format!("{} = {value}\n", setting.name),
    }
}

#[test]
fn flags_and_files_set_the_same() {
    let expected: Vec<_> = SETTINGS
        .iter()
        .map(|setting| (setting.name, Some(other(setting).to_owned())))
        .collect();
    let flags: Vec<String> = SETTINGS
        .iter()
        .map(|setting| format!("--{}={}", setting.name, other(setting)))
        .collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    assert_eq!(shown(&parse(&flags).unwrap()), expected);
    let file: String = SETTINGS
        .iter()
        .map(|setting| line(setting, other(setting)))
        .collect();
    assert_eq!(shown(&with_file(&file, &[]).unwrap()), expected);
}

#[test]
fn what_is_given_reaches_the_job() {
    let flags: Vec<String> = OTHERS
        .iter()
        .filter(|(name, _)| *name != "checkpoint-storage")
        .map(|(name, value)| format!("--{name}={value}"))
        .collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let options = options(&flags).unwrap();
    let all_in_files = StatePlacement::Files {
        inline_bytes_max: 0,
    };
    assert_eq!(options.placement, all_in_files);
    let checkpoints = &options.settings.checkpoints;
    assert_eq!(checkpoints.interval, Some(Duration::from_secs(90)));
    assert_eq!(checkpoints.min_pause, Duration::from_millis(250));
    assert_eq!(checkpoints.max_concurrent, 4);
    assert_eq!(checkpoints.tolerable_failures, None);
    assert_eq!(checkpoints.retained, 5);
    assert_eq!(checkpoints.retention, Retention::NoRetention);
    assert_eq!(checkpoints.history, 0);
    let savepoints = checkpoints.savepoint_dir.as_ref().unwrap();
    assert_eq!(savepoints.as_str(), "file:///savepoints");
    let restore = options.restore.unwrap();
    assert_eq!(restore.from.as_str(), "file:///savepoints/savepoint-1");
    assert_eq!(restore.mode, RestoreMode::Claim);
    assert!(options.dry_run && options.settings.allow_non_restored_state);
    assert_eq!(options.mode, AlignmentMode::AtLeastOnce);
    assert_eq!(options.buffer_timeout, Duration::ZERO);
    let restart = "failure-rate:3,5m,1s".parse::<RestartStrategy>().unwrap();
    assert_eq!(options.settings.restart, restart);
}

// L2, L3
#[test]
fn where_keyed_state_goes() {
    let placement = |flags: &[&str]| options(flags).map(|options| options.placement);
    let files = |inline_bytes_max| StatePlacement::Files { inline_bytes_max };
    assert_eq!(placement(&[]).unwrap(), files(20_480));
    let threshold = |size: &'static str| ["--state-inline-threshold", size];
    assert_eq!(placement(&threshold("1MiB")).unwrap(), files(1 << 20));
    assert_eq!(
        placement(&threshold("1025KiB")).unwrap_err().to_string(),
        "invalid setting: `--state-inline-threshold 1025KiB`: must be at most `1MiB`"
    );
    let jobmanager = ["--checkpoint-storage", "jobmanager"];
    let bytes_max = 5 << 20;
    assert_eq!(
        placement(&jobmanager).unwrap(),
        StatePlacement::Inline { bytes_max }
    );
    let both = [jobmanager, threshold("1KiB")].concat();
    assert_eq!(
        placement(&both).unwrap_err().to_string(),
        "invalid setting: `--state-inline-threshold 1KiB` needs --checkpoint-storage filesystem: \
         with `jobmanager` all keyed state is inline"
    );
}

#[test]
fn checkpoints_are_incremental_if_told_so() {
    let format = |flags: &[&str]| options(flags).map(|options| options.settings.checkpoints.format);
    assert_eq!(format(&[]).unwrap(), SnapshotFormat::Full);
    let incremental = ["--incremental-checkpoints"];
    assert_eq!(format(&incremental).unwrap(), SnapshotFormat::Incremental);
    let off = format(&["--incremental-checkpoints=false"]).unwrap();
    assert_eq!(off, SnapshotFormat::Full);
    let inline = [&incremental[..], &["--checkpoint-storage", "jobmanager"]].concat();
    assert_eq!(
        format(&inline).unwrap_err().to_string(),
        "invalid setting: `--incremental-checkpoints true` needs --checkpoint-storage filesystem: \
         with `jobmanager` there are no files to share"
    );
}

#[test]
fn a_flag_goes_before_the_file() {
    let file = "min-pause = '1s'\nretained-checkpoints = 2\nquiet = true\n";
    let args = with_file(file, &["--min-pause", "2s", "--quiet=false"]).unwrap();
    assert_eq!(args.min_pause, Some(Duration::from_secs(2)));
    assert_eq!(args.retained_checkpoints, Some(2));
    assert_eq!(args.quiet, Some(false));
    // A mistake in the file doesn't wait until the flag is gone.
    let error = with_file("min-pause = 'soon'", &["--min-pause", "2s"]).unwrap_err();
    assert!(error.contains("`min-pause = 'soon'` in line 1 of `job.toml`"));
}

#[test]
fn switches_need_no_value_and_take_one() {
    let quiet = |flags: &[&str]| parse(flags).unwrap().quiet;
    assert_eq!(quiet(&[]), None);
    assert_eq!(quiet(&["--quiet"]), Some(true));
    assert_eq!(quiet(&["--quiet=false"]), Some(false));
    let error = parse(&["--quiet=yes"]).unwrap_err().to_string();
    assert!(error.contains("`--quiet yes`: must be `true` or `false`"));
}

#[test]
fn a_file_is_refused_with_all_that_is_wrong() {
    let time = "a time with its unit, as `500ms`, `10s` or `1h 30m`";
    assert_refused(
        "# comment\nmin-pause = \"soon\"",
        &[&format!(
            "`min-pause = \"soon\"` in line 2 of `job.toml`: must be {time}"
        )],
    );
    assert_refused(
        "checkpoint-timeout = 10\nminpause = '1s'\nparallelism = 0\nquiet = 'true'\n\
         retained-checkpoints = -1\n[job.wordcount]\nmin-pause = '1s'",
        &[
            &format!(
                "`checkpoint-timeout = 10` in line 1 of `job.toml`: must be a string; that is \
                 {time}"
            ),
            "`job` in line 6 of `job.toml` is a table; settings stand at the top of the file",
            "unknown key `minpause` in line 2 of `job.toml`; did you mean `min-pause`?",
            "`parallelism = 0` in line 3 of `job.toml`: must be a whole number from 1 to \
             4294967295",
            "`quiet = 'true'` in line 4 of `job.toml`: must be a boolean; that is `true` or \
             `false`",
            "`retained-checkpoints = -1` in line 5 of `job.toml`: must be a whole number from 0 \
             to 4294967295",
        ],
    );
    assert_refused(
        "config = 'other.toml'",
        &["unknown key `config` in line 1 of `job.toml`"],
    );
}

#[test]
fn a_key_given_twice_is_named() {
    let error = with_file("min-pause = '1s'\n\nmin-pause = '2s'", &[]).unwrap_err();
    assert!(
        error.contains("duplicate key in line 3 of `job.toml`: `min-pause = '2s'`"),
        "{error}"
    );
    let error = parse(&["--min-pause", "1s", "--min-pause", "1s"]).unwrap_err();
    assert!(error.to_string().contains("--min-pause"), "{error}");
}

#[test]
fn what_is_no_toml_is_located() {
    let error = with_file("parallelism = 2\nmin-pause = 10s\n", &[]).unwrap_err();
    assert!(
        error.contains("in line 2 of `job.toml`: `min-pause = 10s`"),
        "{error}"
    );
    let error = with_file(b"min-pause = '\xff'", &[]).unwrap_err();
    assert!(error.contains("`--config job.toml`: "), "{error}");
    let error = parse(&["--config", "no-such/job.toml"]).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("`--config no-such/job.toml`: No such file"));
}

#[test]
fn files_of_other_editors_are_read() {
    let bom = "\u{feff}min-pause = '1s'\r\nretained-checkpoints = 1_000\r\n";
    let args = with_file(bom, &[]).unwrap();
    assert_eq!(args.min_pause, Some(Duration::from_secs(1)));
    assert_eq!(args.retained_checkpoints, Some(1000));
    assert!(with_file("", &[]).is_ok());
    let hex = with_file("tolerable-failed-checkpoints = 0x10", &[]).unwrap();
    assert_eq!(
        hex.tolerable_failed_checkpoints,
        Some(TolerableFailures::UpTo(16))
    );
}

#[test]
fn all_wrong_flags_are_told_at_once() {
    let flags = ["--min-pause=10", "--restart=maybe", "--parallelism=two"];
    let error = parse(&flags).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidValue);
    let error = error.to_string();
    for part in [
        "3 invalid settings:",
        "`--min-pause 10`: must be a time with its unit",
        "`--restart maybe`: must be `none`, `fixed-delay:ATTEMPTS,DELAY`",
        "`--parallelism two`: must be a whole number from 1",
        "--help",
    ] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

/// What the settings are refused with, when the job is made.
fn conflicts(flags: &[&str]) -> Vec<String> {
    options(flags).unwrap_err().messages().collect()
}

#[test]
fn settings_that_need_others_name_them() {
    assert_eq!(
        conflicts(&["--checkpoint-interval", "1000ms"]),
        [
            "`--checkpoint-interval 1s` needs --checkpoint-dir: checkpoints without it would not \
             outlive the process"
        ]
    );
    let starts = |flags: &[&str], start: &str| {
        let messages = conflicts(flags);
        assert!(messages[0].starts_with(start), "{messages:?}");
        assert_eq!(messages.len(), 1, "{messages:?}");
    };
    starts(
        &["--restore-mode", "claim", "--checkpoint-dir", "/c"],
        "`--restore-mode claim` needs --restore-from: ",
    );
    starts(
        &["--restore-from", "/s"],
        "`--restore-from /s` needs --checkpoint-dir: ",
    );
    starts(
        &["--dry-run"],
        "`--dry-run true` needs --restore-from or --checkpoint-dir: ",
    );
    assert!(options(&["--dry-run", "--checkpoint-dir", "/c"]).is_ok());
    assert!(options(&["--dry-run", "--restore-from", "/s"]).is_ok());
    assert!(options(&["--restore-from", "/s", "--checkpoint-dir", "/c"]).is_ok());
    assert!(options(&["--dry-run=false"]).is_ok());
}

// ST-01, B2, B3, B5
#[test]
fn values_out_of_range_are_told_together() {
    let flags = [
        "--checkpoint-dir=/c",
        "--checkpoint-interval=0s",
        "--checkpoint-timeout=999us",
        "--max-concurrent-checkpoints=0",
        "--retained-checkpoints=0",
        "--restart=exponential-delay:5s,4s",
    ];
    assert_eq!(
        conflicts(&flags),
        [
            "checkpoint-interval `0s` is below the minimum of `1ms`",
            "checkpoint-timeout `999us` is below the minimum of `1ms`",
            "max-concurrent-checkpoints `0` is below the minimum of `1`",
            "retained-checkpoints `0` is below the minimum of `1`",
            "restart: initial delay `5s` is above the longest delay `4s`",
        ]
    );
    let args = with_file("retained-checkpoints = 0", &[]).unwrap();
    let error = args.job_options().unwrap_err().to_string();
    assert!(error.contains(", from line 1 of `"), "{error}");
}

#[test]
fn places_that_cannot_be_are_named() {
    for flag in ["checkpoint-dir", "savepoint-dir"] {
        let messages = conflicts(&[&format!("--{flag}=hdfs://bucket/x")]);
        assert_eq!(messages.len(), 1);
        let start = format!("`--{flag} hdfs://bucket/x`: ");
        assert!(messages[0].starts_with(&start), "{messages:?}");
    }
    let error = parse(&["--checkpoint-dir="]).unwrap_err().to_string();
    assert!(error.contains("`--checkpoint-dir ''`: must be a path"));
}

#[test]
fn misspelt_variables_are_noticed_and_others_are_not() {
    let names = [
        "TIDEGATE_CHEKPOINT_DIR",
        "TIDEGATE_CHECKPOINT_DIR",
        "TIDEGATE_CONFIG",
        "TIDEGATE_SERVICE_HOST",
        "TIDEGATE_PORT",
        "CHECKPOINT_DIR",
    ];
    let found = misspelt_variables(names.map(str::to_owned).into_iter());
    let expected = ("TIDEGATE_CHEKPOINT_DIR".to_owned(), "checkpoint-dir");
    assert_eq!(found, [expected]);
}

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");

/// The rows of a table of `docs/configuration.md`; a table of the cluster's has one column more.
fn reference(settings: &[Setting]) -> String {
    let of = |setting: &Setting| {
        let (cluster, all) = (!setting.is_of(JOB), setting.of.len() == 4);
        let words = setting.of.iter().map(|part| match part {
            Part::Job => "job",
            Part::JobManager => "JobManager",
            Part::TaskManager => "TaskManager",
            Part::LocalCluster => "local cluster",
            Part::Request => "requests",
        });
        let words: Vec<&str> = words.collect();
        match cluster {
            true if all => " all |".to_owned(),
            true => format!(" {} |", words.join(", ")),
            false => String::new(),
        }
    };
    let row = |setting: &Setting| {
        let default = match setting.default {
            none if none.starts_with('(') => none.trim_matches(['(', ')']).to_owned(),
            default => format!("`{default}`"),
        };
        let Setting {
            name,
            meaning,
            advice,
            ..
        } = setting;
        let of = of(setting);
        format!("| `{name}` |{of} {default} | {meaning} | {advice} |\n")
    };
    let head = match settings[0].is_of(JOB) {
        true => "| Setting | Default | Meaning | When to change it |\n|---|---|---|---|\n",
        false => {
            "| Setting | Of | Default | Meaning | When to change it |\n|---|---|---|---|---|\n"
        }
    };
    settings
        .iter()
        .map(row)
        .fold(head.to_owned(), |table, row| table + &row)
}

/// With `UPDATE=1` it writes the tables instead.
#[test]
fn the_reference_lists_every_setting_as_it_is() {
    for (name, settings) in [("settings", SETTINGS), ("cluster settings", CLUSTER)] {
        let docs = fs::read_to_string(DOCS).unwrap();
        let begin = format!("<!-- {name}: begin -->\n");
        let end = format!("<!-- {name}: end -->\n");
        let (before, rest) = docs.split_once(&begin).unwrap();
        let (table, after) = rest.split_once(&end).unwrap();
        if std::env::var_os("UPDATE").is_some() {
            let docs = format!("{before}{begin}\n{}\n{end}{after}", reference(settings));
            fs::write(DOCS, docs).unwrap();
            continue;
        }
        assert_eq!(
            table.trim(),
            reference(settings).trim(),
            "run it with UPDATE=1"
        );
    }
}

#[test]
fn the_files_in_the_reference_are_valid() {
    let docs = fs::read_to_string(DOCS).unwrap();
    let files: Vec<&str> = docs
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    let job = with_file(files[0], &[]).unwrap();
    assert!(job.origins.len() >= 4);
    let cluster = read_config(files[1]).unwrap();
    for args in [job, cluster] {
        args.job_options().unwrap();
    }
}

/// Every flag of the README is one, with the default that it has.
#[test]
fn the_readme_names_settings_as_they_are() {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let readme = fs::read_to_string(PathBuf::from(readme)).unwrap();
    let mut rows = 0;
    for line in readme.lines().filter(|line| line.starts_with("| `--")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`').trim_start_matches("--");
        let setting = Setting::find(name).unwrap_or_else(|| panic!("{line}"));
        let default = cells[2].trim_matches('`');
        assert_eq!(default, setting.default.trim_matches(['(', ')']), "{line}");
        rows += 1;
    }
    assert!(rows >= 5, "the table has another shape");
}

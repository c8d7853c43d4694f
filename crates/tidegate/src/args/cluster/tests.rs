//! What the parts of a cluster take from flags and from the file that they all share; that the
//! environment counts as well is tested with processes, in `tests/bad_input`.

use std::fs;
use std::time::Duration;

use clap::{ArgMatches, Command};
use tidegate_server::cluster::ClusterSettings;
use tidegate_server::data::Secret;

use super::CLUSTER;
use crate::args::table::{Kind, Part, SETTINGS, Setting};
use crate::args::{Args, InvalidSettings, with_flags};

const ROLES: [Part; 4] = [
    Part::JobManager,
    Part::TaskManager,
    Part::LocalCluster,
    Part::Request,
];

/// A value for each setting that is not its default.
const OTHERS: &[(&str, &str)] = &[
    ("listen", "10.0.0.1:1"),
    ("jobmanager", "10.0.0.1:1, 10.0.0.2:2"),
    ("slots", "7"),
    ("taskmanagers", "3"),
    ("name", "first"),
    ("host", "10.0.0.3"),
    ("registration-timeout", "1m"),
    ("heartbeat-timeout", "50ms"),
    ("task-timeout", "2s"),
    ("ha", "dir:///lead"),
    ("ha-lease", "1s"),
    ("local-recovery", "true"),
    ("local-dir", "/copies"),
    ("insecure", "true"),
    ("tls-cert", "/cert"),
    ("tls-key", "/key"),
    ("tls-ca", "/ca"),
    ("tls-name", "other"),
];

fn other(setting: &Setting) -> &'static str {
    let other = OTHERS.iter().find(|(name, _)| *name == setting.name);
    other.unwrap_or_else(|| panic!("`{}`", setting.name)).1
}

/// A file with all settings of the cluster, and some of a job.
fn file_for_all() -> String {
    let line = |setting: &Setting| match setting.kind {
        Kind::Text | Kind::CountOrWord => format!("{} = {:?}\n", setting.name, other(setting)),
        Kind::Count | Kind::Switch => format!("{} = {}\n", setting.name, other(setting)),
    };
    let lines: String = CLUSTER.iter().map(line).collect();
    format!("parallelism = 4\n{lines}quiet = true\n")
}

fn matches(parts: &[Part], flags: &[&str]) -> Result<ArgMatches, clap::Error> {
    let command = with_flags(Command::new("job"), parts);
    command.try_get_matches_from(std::iter::once(&"job").chain(flags))
}

/// What these parts take, with a file of this content. In messages it is `cluster.toml`.
fn taken(parts: &[Part], file: &str, flags: &[&str]) -> Result<Args, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cluster.toml");
    fs::write(&path, file).unwrap();
    let path = path.display().to_string();
    let flags = [&["--config", path.as_str()], flags].concat();
    let taken = Args::of(parts, &matches(parts, &flags).unwrap());
    taken.map_err(|wrong| wrong.to_string().replace(&path, "cluster.toml"))
}

fn with_flags_of(parts: &[Part], flags: &[&str]) -> Args {
    Args::of(parts, &matches(parts, flags).unwrap()).unwrap()
}

fn shown(args: &Args) -> Vec<(&'static str, Option<String>)> {
    let show = |setting: &Setting| (setting.name, (setting.field.get)(args));
    Setting::all().map(show).collect()
}

fn settings() -> ClusterSettings {
    ClusterSettings {
        secret: Secret::new(Vec::new()),
        insecure: false,
        tls: None,
    }
}

#[test]
fn each_part_takes_what_is_for_it_from_flags_and_from_a_file_for_all() {
    for part in ROLES {
        let parts = &[part];
        let (own, foreign): (Vec<_>, Vec<_>) =
            CLUSTER.iter().partition(|setting| setting.is_of(parts));
        assert!(own.len() >= 5, "{part:?}");
        let flag = |setting: &&Setting| format!("--{}={}", setting.name, other(setting));
        let flags: Vec<String> = own.iter().map(flag).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let by_flags = with_flags_of(parts, &flags);
        let by_file = taken(parts, &file_for_all(), &[]).unwrap();
        assert_eq!(shown(&by_flags), shown(&by_file), "{part:?}");
        for (name, value) in shown(&by_file) {
            let own = own.iter().find(|setting| setting.name == name);
            assert_eq!(value.as_deref(), own.map(|own| other(own)), "{part:?}");
        }
        for setting in foreign {
            assert!(matches(parts, &[&flag(&setting)]).is_err());
        }
    }
    // A job is not disturbed by what is said to the others.
    let job = taken(&[Part::Job], &file_for_all(), &[]).unwrap();
    let set = shown(&job).into_iter().filter(|(_, value)| value.is_some());
    let names: Vec<&str> = set.map(|(name, _)| name).collect();
    assert_eq!(names, ["parallelism", "quiet"]);
}

#[test]
fn a_flag_goes_before_the_file() {
    let file = "slots = 2\nname = 'file'\n";
    let args = taken(&[Part::TaskManager], file, &["--slots", "3"]).unwrap();
    let options = args.task_manager(settings()).unwrap();
    assert_eq!((options.slots, options.name.as_str()), (3, "file"));
}

// All of it, whoever reads it: a file that is right for one part is right for all.
#[test]
fn what_is_wrong_is_told_to_every_part() {
    let file = "slots = 0\nlisten = 6123\n\nheartbeat-timeut = '1s'\ntask-timeout = 'soon'\n\
                min-pause = 'x'\ninsecure = 'true'\nhost = 'localhost'\n";
    for part in [Part::Job].into_iter().chain(ROLES) {
        let told = taken(&[part], file, &[]).unwrap_err();
        for expected in [
            "7 invalid settings",
            "`slots = 0` in line 1 of `cluster.toml`: must be a whole number from 1",
            "`listen = 6123` in line 2 of `cluster.toml`: must be a string; that is `host:port`",
            "unknown key `heartbeat-timeut` in line 4 of `cluster.toml`; did you mean \
             `heartbeat-timeout`?",
            "`task-timeout = 'soon'` in line 5 of `cluster.toml`: must be a time",
            "`min-pause = 'x'` in line 6 of `cluster.toml`: must be a time",
            "`insecure = 'true'` in line 7 of `cluster.toml`: must be a boolean",
            "`host = 'localhost'` in line 8 of `cluster.toml`: must be an IP address",
        ] {
            assert!(told.contains(expected), "{part:?}: `{expected}`, {told}");
        }
    }
}

/// Whoever is started by another one has been told what the file says, and has no file.
#[test]
fn whoever_is_handed_its_settings_reads_no_file() {
    let parts = &[Part::TaskManager];
    let matches = matches(parts, &["--config", "no-such.toml", "--slots", "3"]).unwrap();
    let mut args = Args::default();
    args.take(parts, &matches, true).unwrap();
    assert_eq!(args.task_manager(settings()).unwrap().slots, 3);
    let told = args.take(parts, &matches, false).unwrap_err().to_string();
    assert!(
        told.contains("`--config no-such.toml`: No such file"),
        "{told}"
    );
}

#[test]
fn a_local_cluster_hands_over_what_its_file_says_and_nothing_else() {
    let file = "heartbeat-timeout = '1s'\nslots = 2\nparallelism = 4\n";
    let parts = &[Part::JobManager, Part::LocalCluster, Part::Job];
    let args = taken(parts, file, &["--slots", "3", "--min-pause", "1s"]).unwrap();
    let cluster = args.local_cluster(settings(), None, Vec::new()).unwrap();
    let handed = cluster.variables.iter();
    let handed: Vec<String> = handed.map(|v| format!("{}={}", v.name, v.value)).collect();
    assert_eq!(
        handed,
        ["TIDEGATE_PARALLELISM=4", "TIDEGATE_HEARTBEAT_TIMEOUT=1s"]
    );
    // The processes of attempts get the job's alone: other machines have files of their own.
    let job = args.variables();
    let names: Vec<&str> = job.iter().map(|variable| variable.name.as_str()).collect();
    assert_eq!(names, ["TIDEGATE_PARALLELISM", "TIDEGATE_MIN_PAUSE"]);
}

/// What each part is started with.
fn started(parts: &[Part], args: &Args) -> Result<String, InvalidSettings> {
    Ok(match parts {
        [Part::JobManager] => {
            let options = args.job_manager(settings(), false, Vec::new())?;
            format!("{options:?}")
        }
        [Part::TaskManager] => format!("{:?}", args.task_manager(settings())?),
        [Part::LocalCluster] => {
            let cluster = args.local_cluster(settings(), None, Vec::new())?;
            format!("{cluster:?}")
        }
        _ => format!("{:?}", args.jobmanagers()),
    })
}

/// The defaults that the table promises are those that apply.
#[test]
fn defaults_are_those_of_the_table() {
    for part in ROLES {
        let parts = &[part];
        let mut written = Args::default();
        let unwritten = started(parts, &written).unwrap();
        for setting in CLUSTER.iter().filter(|setting| setting.is_of(parts)) {
            // Without certificates there is no name that they bear.
            if !setting.default.starts_with('(') && setting.name != "tls-name" {
                (setting.field.set)(&mut written, setting.default).unwrap();
                let shown = (setting.field.get)(&written);
                assert_eq!(shown.as_deref(), Some(setting.default));
            }
        }
        assert_eq!(started(parts, &written).unwrap(), unwritten);
        assert!(!written.insecure());
    }
    let name = CLUSTER.iter().find(|setting| setting.name == "tls-name");
    assert_eq!(name.unwrap().default, tidegate_server::tls::TlsFiles::NAME);
}

#[test]
fn what_is_given_reaches_the_parts() {
    let args = |part| taken(&[part], &file_for_all(), &[]).unwrap();
    let jobmanager = args(Part::JobManager);
    let jobmanager = jobmanager
        .job_manager(settings(), true, Vec::new())
        .unwrap();
    assert_eq!(jobmanager.listen, "10.0.0.1:1");
    assert_eq!(jobmanager.heartbeat_timeout, Duration::from_millis(50));
    assert_eq!(jobmanager.task_timeout, Some(Duration::from_secs(2)));
    assert_eq!(jobmanager.ha.unwrap().to_string(), "dir:///lead");
    assert_eq!(jobmanager.ha_lease, Duration::from_secs(1));
    assert!(jobmanager.inherited);
    let taskmanager = args(Part::TaskManager);
    assert!(taskmanager.insecure());
    let files = taskmanager.tls_files().unwrap().unwrap();
    assert_eq!((files.name.as_str(), files.key), ("other", "/key".into()));
    let taskmanager = taskmanager.task_manager(settings()).unwrap();
    assert_eq!(taskmanager.jobmanagers, ["10.0.0.1:1", "10.0.0.2:2"]);
    assert_eq!(taskmanager.registration_timeout, Duration::from_mins(1));
    assert_eq!(taskmanager.host, Some("10.0.0.3".parse().unwrap()));
    let local = taskmanager.local_recovery.unwrap();
    assert_eq!(local.directory, std::path::PathBuf::from("/copies"));
    assert!(local.keep, "it has a name");
    let local = args(Part::LocalCluster);
    let local = local.local_cluster(settings(), None, Vec::new()).unwrap();
    assert_eq!((local.taskmanagers, local.slots), (3, 7));
}

#[test]
fn what_does_not_fit_is_told_where_it_was_given() {
    let parts = &[Part::TaskManager];
    let alone = taken(parts, "local-dir = '/copies'", &[]).unwrap();
    let told = alone.task_manager(settings()).unwrap_err().to_string();
    assert!(
        told.contains("`local-dir = \"/copies\"` in line 1 of"),
        "{told}"
    );
    assert!(told.contains("needs --local-recovery"), "{told}");
    let parts = &[Part::JobManager];
    let flags = ["--heartbeat-timeout=49ms", "--ha=etcd://host/x"];
    let wrong = with_flags_of(parts, &flags);
    let told = wrong.job_manager(settings(), false, Vec::new());
    let told = told.unwrap_err().to_string();
    for expected in [
        "2 invalid settings",
        "`--heartbeat-timeout 49ms`: must be at least `50ms`",
        "`--ha etcd://host/x`: ",
    ] {
        assert!(told.contains(expected), "`{expected}`, {told}");
    }
}

/// A file that names both kinds is one for this table.
#[test]
fn no_setting_of_the_cluster_is_called_as_one_of_the_job() {
    for setting in CLUSTER {
        assert!(SETTINGS.iter().all(|job| job.name != setting.name));
        assert!(!setting.is_of(&[Part::Job]));
    }
}

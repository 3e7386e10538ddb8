//! The command line. Every setting of the library is a flag here; the library's table is the only list of them.

#[cfg(test)]
mod anything;
mod events;
mod exec;
mod http;
mod polls;
mod time;
#[cfg(any(test, feature = "fuzzing"))]
mod typed;

#[cfg(feature = "fuzzing")]
pub(crate) use typed::words;

pub(crate) use events::EventsArgs;
pub(crate) use exec::{
    BoundArgs, ExecArgs, GraceArgs, KeeperArgs, LockAction, LockArgs, LockLsArgs, SeatArgs,
};
#[cfg(target_os = "linux")]
pub(crate) use exec::{exec_seat, lock_seat, name_of};
pub(crate) use http::{HttpArgs, TokenArgs};
pub(crate) use polls::{
    AgentArgs, ApplyArgs, JobAction, JobArgs, JobsArgs, LookArgs, OneArgs, RunNowArgs, ScheduleAction,
    ScheduleAddArgs, ScheduleArgs,
};

use crate::exit::Failure;
use crate::log::LogForm;
use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::ops::Deref;
use std::path::PathBuf;
use tenure::Settings;
use tenure::settings::{FIELDS, Field, Kind, Resolved, Source};

/// Coordination for clusters that own nothing but a bucket.
#[derive(Parser)]
#[command(name = "tenure", version, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong arguments or settings, 3 no leader, 4 store not reached or \
refusing, 5 store unsafe, 6 object unreadable, 7 degraded, 8 critical, 9 health unknown, 10 no such \
schedule or job, 11 lock held by another, 12 leadership lost. `exec` and `lock` pass the command's own on."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Run a node: it stands by, leads when it is its turn, and hands over when told to stop
    Run(RunArgs),
    /// Run a command while this node leads, and only then
    Exec(ExecArgs),
    /// Run a command while holding a lock that one process at a time can have
    Lock(LockArgs),
    /// Show who leads a namespace, since when, and which nodes are there
    Status(StatusArgs),
    /// Watch a namespace: leader, epoch, nodes, workers, and what changes
    Watch(WatchArgs),
    /// Print the events of a node, by way of its HTTP
    Events(EventsArgs),
    /// Show the token that changes over HTTP need
    Token(TokenArgs),
    /// Show how the cluster is doing and why: status, nodes, workers
    Health(HealthArgs),
    /// Print the id of the live leader, and nothing else
    Leader(LeaderArgs),
    /// Ask the leader to hand over, and see who leads then
    StepDown(StepDownArgs),
    /// Show the namespaces a store holds
    Namespaces(LookArgs),
    /// Forget a node that is gone
    Node(NodeArgs),
    /// Run a worker, without a node
    Worker(WorkerArgs),
    /// Show the workers of a namespace
    Workers(WorkersArgs),
    /// Run an agent: a worker that does the checks of schedules
    Agent(AgentArgs),
    /// Write a file of schedules: what is polled, when, and by whom
    Apply(ApplyArgs),
    /// Add, show, pause, run and remove schedules
    Schedule(ScheduleArgs),
    /// Show jobs: what schedules led to, where it stands, and why it waits
    Jobs(JobsArgs),
    /// Show one job
    Job(JobArgs),
    /// Show every node's figures: latencies, contention, elections, requests
    Metrics(MetricsArgs),
    /// Show what a namespace costs a month, as measured and as projected
    Cost(CostArgs),
    /// Check whether a store can be trusted, and which presets it is fast enough for
    Doctor(DoctorArgs),
    /// Show, check or print settings
    Config(ConfigArgs),
    /// Watch three nodes survive a crash, a pause and a hand-over, in under a minute
    Demo(DemoArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Keep a command within its lease (internal)
    #[command(hide = true)]
    Keeper(KeeperArgs),
    /// Become a command that dies with its keeper (internal)
    #[command(hide = true)]
    Bound(BoundArgs),
    /// Print names this software uses, one a line, for checking the documentation
    #[command(hide = true)]
    Reference {
        /// What: settings, events, metrics, http or exit-codes
        what: String,
    },
}

#[derive(Args)]
#[command(
    after_help = "SIGTERM or SIGINT: stop the work, vacate the seat, leave. A second signal ends at once.\n\
A command after `--` gets what `tenure exec --help` says, and is started again when it ends by itself.\n\
The log level is set by TENURE_LOG (error, warn, info, debug)."
)]
pub(crate) struct RunArgs {
    /// Print every event as one JSON object per line on stdout
    #[arg(long)]
    pub(crate) events: bool,
    /// A worker of this node, enabled while it leads; may be given several times
    #[arg(long = "worker", value_name = "ID[:TYPE]")]
    pub(crate) workers: Vec<String>,
    /// Do not judge the cluster's health while this node leads: `tenure health` is then unknown
    #[arg(long)]
    pub(crate) no_health: bool,
    /// Do not run schedules while this node leads; all nodes of a namespace should agree on it
    #[arg(long)]
    pub(crate) no_polls: bool,
    #[command(flatten)]
    pub(crate) http: HttpArgs,
    /// Form of the log on stderr
    #[arg(long, value_enum, default_value = "human")]
    pub(crate) log: LogForm,
    #[command(flatten)]
    pub(crate) grace: GraceArgs,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// A command to run while this node leads, with its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
#[command(
    after_help = "Exit code 0 healthy, 7 degraded, 8 critical, 9 unknown. The leader judges; its judgement counts only while it \
is seen to renew and has published in its own epoch not long ago. Otherwise the status is unknown."
)]
pub(crate) struct HealthArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "Exit code 0 with a live leader, 3 with none. A holder counts as live if it renews while it is \
watched, for at most one hold and never longer than --wait."
)]
pub(crate) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How long to watch for a renewal at most
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = time::time)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) seat: SeatArgs,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "Reads the store and nothing else; what came and went between two looks is not seen. Without a terminal one picture is \
printed. A look watches the holder renew, so it takes up to a heartbeat. `q` or Ctrl-C ends it."
)]
pub(crate) struct WatchArgs {
    /// One picture, or one JSON object, and no more
    #[arg(long)]
    pub(crate) once: bool,
    /// One JSON object a line: what there is, then what changes
    #[arg(long)]
    pub(crate) json: bool,
    /// The pause between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time::look, allow_hyphen_values = true)]
    pub(crate) interval: u64,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "Exit code 0 with a live leader, 3 with none and nothing on standard output. A holder counts as live if it \
renews while it is watched, for at most one hold and never longer than --wait."
)]
pub(crate) struct LeaderArgs {
    /// How long to watch for a renewal at most
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = time::time)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) seat: SeatArgs,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "The leader learns of it with its next renewal, stops its work, vacates the seat and lets others try. If \
no other node is there, it leads again after a few seconds, in a new epoch.\n\
Exit code 0 if it gave up (or, without waiting, was asked), 1 if it did not in time, 3 if there is no leader."
)]
pub(crate) struct StepDownArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How long to wait for the next leader; 0s: ask and do not wait
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time::wait, allow_hyphen_values = true)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) seat: SeatArgs,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "The figures come from the presences, which every node rewrites each presenceInterval: they are up to \
that old. One list and one read per node."
)]
pub(crate) struct MetricsArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "Projected: the steady state by the settings, without starts, elections and retries; health apart. Measured: what the \
live nodes of the namespace published, if there are any, with the workers of their own processes. A month has 30 days."
)]
pub(crate) struct CostArgs {
    /// How many nodes to project for
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) nodes: u64,
    /// How many workers to project for, all together
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub(crate) workers: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Args)]
#[command(
    after_help = "Writes only below a throw-away prefix, and removes it. Exit code 5 if the store ignores \
conditions, 4 if it cannot be reached or refuses."
)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The whole suite: 32-way races and thousands of objects instead of a few hundred requests
    #[arg(long)]
    pub(crate) full: bool,
    /// A second endpoint of the same store, to check that both see one truth
    #[arg(long, value_name = "URL")]
    pub(crate) second_endpoint: Option<String>,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    pub(crate) action: NodeAction,
}

#[derive(Subcommand)]
pub(crate) enum NodeAction {
    /// Remove the presence of a node that crashed, so that it is listed no more
    Forget(OneArgs),
}

#[derive(Args)]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    pub(crate) action: WorkerAction,
}

#[derive(Subcommand)]
pub(crate) enum WorkerAction {
    /// Register, keep the heartbeat up, tell what happens, deregister on SIGTERM
    Run(WorkerRunArgs),
}

#[derive(Args)]
#[command(
    after_help = "The worker is enabled while the node named like its pod leads. The process takes no part in the election: it \
looks at the seat every electionInterval. SIGTERM or SIGINT: deregister and leave; a second signal ends at once.\n\
Exit code 1 if another live process has the id. A worker that belongs to a node: `tenure run --worker ID:TYPE`."
)]
pub(crate) struct WorkerRunArgs {
    /// The worker's id, one live process each
    #[arg(long)]
    pub(crate) id: String,
    /// The plugin it works for [default: worker]
    #[arg(long, value_name = "TYPE")]
    pub(crate) plugin_type: Option<String>,
    /// The pod it runs on [default: the setting `node`]
    #[arg(long)]
    pub(crate) pod: Option<String>,
    /// How long it may be silent before it counts as dead [default: the setting `workerTimeout`]
    #[arg(long, value_name = "TIME", value_parser = time::time, allow_hyphen_values = true)]
    pub(crate) timeout: Option<u64>,
    /// More to be known about it, a JSON object of at most 8 KiB
    #[arg(long, value_name = "JSON")]
    pub(crate) payload: Option<String>,
    /// Print every event as one JSON object per line on stdout
    #[arg(long)]
    pub(crate) events: bool,
    /// Form of the log on stderr
    #[arg(long, value_enum, default_value = "human")]
    pub(crate) log: LogForm,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Args)]
#[command(
    after_help = "States are those of the leader's last snapshot; `new` has not been judged yet. One read and one list page per \
thousand workers."
)]
pub(crate) struct WorkersArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

#[derive(Subcommand)]
pub(crate) enum ConfigAction {
    /// Check the settings and say everything that is wrong with them, at once
    Check {
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Show what is set, and from where
    Show {
        /// Every setting with its value and origin, not only those that were set
        #[arg(long)]
        resolved: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Print a complete settings file with the defaults, explained
    Default,
}

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Run on this store instead of an embedded one made for the occasion
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
}

/// The settings given on the command line, one flag per field of the library's table.
pub(crate) struct SettingsArgs {
    config: Option<PathBuf>,
    given: Vec<(&'static str, String)>,
}

impl SettingsArgs {
    /// What the environment alone says.
    pub(crate) fn of_environment() -> SettingsArgs {
        SettingsArgs { config: std::env::var_os("TENURE_CONFIG").map(PathBuf::from), given: Vec::new() }
    }

    /// Defaults, preset, file, environment, flags: the later wins.
    pub(crate) fn load(&self) -> Result<Resolved, Failure> {
        self.load_above(&[])
    }

    /// The same, with other values for what nobody set.
    pub(crate) fn load_instead(
        &self,
        defaults: impl FnOnce(&Resolved) -> Vec<(&'static str, String)>,
    ) -> Result<Resolved, Failure> {
        let usual = self.load()?;
        let unset = |name: &str| matches!(usual.source(name), Some(Source::Default | Source::Preset(_)));
        let given: Vec<_> = defaults(&usual).into_iter().filter(|(name, _)| unset(name)).collect();
        self.load_above(&given)
    }

    fn load_above(&self, floor: &[(&'static str, String)]) -> Result<Resolved, Failure> {
        let mut loader = Settings::loader().env(std::env::vars_os());
        if let Some(path) = &self.config {
            loader = loader.file(path);
        }
        for (name, value) in floor {
            loader = loader.flag(name, value.as_str());
        }
        for (name, value) in &self.given {
            loader = loader.flag(name, value.as_str());
        }
        Ok(loader.load()?)
    }

    /// The data directory of the default store is made when first needed; a directory somebody names must exist.
    pub(crate) fn prepare_store(resolved: &Resolved) -> Result<(), Failure> {
        if !matches!(resolved.source("store"), Some(Source::Default)) {
            return Ok(());
        }
        crate::data_dir::make(resolved).map_err(|error| {
            let folder = resolved.settings.data_dir.display();
            Failure::usage(format!("cannot make the data directory {folder}: {error}"))
        })
    }
}

impl FromArgMatches for SettingsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SettingsArgs, clap::Error> {
        // A command need not have a flag for every setting.
        let text = |field: &Field| matches.try_get_one::<String>(field.name).ok().flatten().cloned();
        Ok(SettingsArgs {
            config: matches.get_one::<PathBuf>("config").cloned(),
            given: FIELDS.iter().filter_map(|field| Some((field.name, text(field)?))).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = SettingsArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SettingsArgs {
    fn augment_args(command: Command) -> Command {
        FIELDS.iter().map(flag).fold(command.arg(config_file()), Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        SettingsArgs::augment_args(command)
    }
}

/// Where a command looks. What tunes a node has no flags here; it may stand in the file and the environment all the same.
pub(crate) struct PlaceArgs(SettingsArgs);

impl Deref for PlaceArgs {
    type Target = SettingsArgs;

    fn deref(&self) -> &SettingsArgs {
        &self.0
    }
}

impl FromArgMatches for PlaceArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<PlaceArgs, clap::Error> {
        SettingsArgs::from_arg_matches(matches).map(PlaceArgs)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl Args for PlaceArgs {
    fn augment_args(command: Command) -> Command {
        let place = FIELDS.iter().filter(|field| PLACE.contains(&field.name));
        place.map(flag).fold(command.arg(config_file()), Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        PlaceArgs::augment_args(command)
    }
}

/// The settings that say where things are.
const PLACE: [&str; 3] = ["store", "namespace", "dataDir"];

fn config_file() -> Arg {
    Arg::new("config")
        .long("config")
        .value_name("FILE")
        .env("TENURE_CONFIG")
        .hide_env(true)
        .value_parser(clap::value_parser!(PathBuf))
        .help("Settings file, TOML or JSON")
        .help_heading("Settings")
}

/// A setting as a flag. Help has the first sentence about it; those that tune are left to `tenure config default`, which explains
/// all of them.
fn flag(field: &'static Field) -> Arg {
    let help = match field.name {
        "preset" => {
            "default, thrifty or fast. Every setting is a flag: `tenure config default` explains them"
        }
        _ => field.doc.split_once(". ").map_or(field.doc, |(first, _)| first).trim_end_matches('.'),
    };
    let is_time = matches!(field.kind, Kind::Millis { .. });
    let parser = if is_time { ValueParser::new(time::setting) } else { ValueParser::string() };
    Arg::new(field.name)
        .value_parser(parser)
        .long(field.flag.trim_start_matches("--"))
        .value_name(placeholder(field.kind))
        // The settings say what is wrong with a value, all of them at once; clap only carries the text.
        .allow_hyphen_values(true)
        .help(help)
        .help_heading("Settings")
        .hide(!PLACE.contains(&field.name) && !["node", "preset"].contains(&field.name))
}

/// What stands for a value in the help.
fn placeholder(kind: Kind) -> &'static str {
    match kind {
        Kind::Millis { .. } => "TIME",
        Kind::Factor { .. } => "FACTOR",
        Kind::Price => "DOLLARS",
        Kind::Bool => "BOOL",
        Kind::Text => "TEXT",
        Kind::Id => "ID",
        Kind::Store => "URL",
        Kind::Choice(_) => "NAME",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// A screen, on the terminals people have.
    const LINES: usize = 50;
    const COLUMNS: usize = 100;

    #[test]
    fn the_help_of_every_command_fits_a_screen() {
        let mut left = vec![(vec!["tenure".to_owned()], Cli::command())];
        let mut seen = 0;
        while let Some((path, command)) = left.pop() {
            let asked = path.iter().cloned().chain(["--help".to_owned()]);
            let asked = Cli::command().term_width(COLUMNS).try_get_matches_from(asked);
            let help = asked.expect_err("help is no command").to_string();
            let lines = help.lines().count();
            assert!(lines <= LINES, "{path:?} has {lines} lines of help:\n{help}");
            seen += 1;
            for sub in command.get_subcommands() {
                left.push((path.iter().cloned().chain([sub.get_name().to_owned()]).collect(), sub.clone()));
            }
        }
        assert!(seen > 30, "{seen} commands");
    }
}

//! The command line. Every setting of the library is a flag here; the library's table is the only list of them.

#[cfg(test)]
mod anything;
mod events;
mod exec;
mod http;
mod jobs;
mod queues;
mod schedules;
mod time;
#[cfg(any(test, feature = "fuzzing"))]
mod typed;

#[cfg(feature = "fuzzing")]
pub(crate) use typed::words;

pub(crate) use events::EventsArgs;
pub(crate) use exec::{
    BoundArgs, CommandArgs, ExecArgs, KeeperArgs, LockAction, LockArgs, LockLsArgs, OnceArgs, SeatArgs,
};
#[cfg(target_os = "linux")]
pub(crate) use exec::{exec_seat, lock_seat, name_of, once_seat};
pub(crate) use http::{HttpArgs, TokenArgs};
pub(crate) use jobs::JobHistoryArgs;
pub(crate) use queues::{QueueAction, QueueArgs, QueueOneArgs, QueueSetArgs};
pub(crate) use schedules::{
    AgentArgs, ApplyArgs, ExportArgs, JobAction, JobArgs, JobsArgs, LogsArgs, LookArgs, OneArgs, RetryArgs,
    RunNowArgs, ScheduleAction, ScheduleAddArgs, ScheduleArgs, SubmitArgs,
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
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong arguments or settings, 3 no leader, 4 store unreachable or \
refusing, 5 store unsafe, 6 object unreadable, 7 degraded, 8 critical, 9 health unknown, 10 no such \
schedule or job, 11 lock held by another, 12 leadership lost. `exec` and `lock` pass on the command's own."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Run a node: it stands by, leads when elected, and hands over when told to stop
    Run(RunArgs),
    /// Run a command while this node leads, and only then
    Exec(ExecArgs),
    /// Run a command while holding a lock that only one process can hold
    Lock(LockArgs),
    /// Run a command on one of the hosts that this is called on
    Once(OnceArgs),
    /// Show who leads a namespace, since when, and which nodes are up
    Status(StatusArgs),
    /// Show the terms of leaders: who led, for how long, and why it ended
    History(HistoryArgs),
    /// Watch a namespace: leader, epoch, nodes, workers, and what changes
    Watch(WatchArgs),
    /// Print a node's events, read over HTTP
    Events(EventsArgs),
    /// Show the token needed to change things over HTTP
    Token(TokenArgs),
    /// Show how the cluster is doing and why: status, nodes, workers
    Health(HealthArgs),
    /// Print the id of the live leader, and nothing else
    Leader(LeaderArgs),
    /// Ask the leader to hand over, and show who leads next
    StepDown(StepDownArgs),
    /// List the namespaces in a store
    Namespaces(LookArgs),
    /// Forget a node that is gone
    Node(NodeArgs),
    /// Run a worker without a node
    Worker(WorkerArgs),
    /// Show the workers of a namespace
    Workers(WorkersArgs),
    /// Run an agent: a worker that runs commands, HTTP requests and checks
    Agent(AgentArgs),
    /// Write schedules from a file: what to do, when, and where
    Apply(ApplyArgs),
    /// Add, show, pause, run and remove schedules
    Schedule(ScheduleArgs),
    /// Submit, list, show, cancel, retry and remove jobs, and show what they printed
    Job(JobArgs),
    /// Show, pause and limit the queues that jobs wait in
    Queue(QueueArgs),
    /// Show every node's metrics: latencies, contention, elections, requests
    Metrics(MetricsArgs),
    /// Show what a namespace costs per month, measured and projected
    Cost(CostArgs),
    /// Check whether a store can be trusted, and which presets it is fast enough for
    Doctor(DoctorArgs),
    /// Show, check or print settings
    Config(ConfigArgs),
    /// Watch three nodes survive a crash, a pause and a handover, in under a minute
    Demo(DemoArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command
    #[command(hide = true)]
    Man {
        /// The folder; made if it is missing
        folder: std::path::PathBuf,
    },
    /// Keep a command within its lease (internal)
    #[command(hide = true)]
    Keeper(KeeperArgs),
    /// Become a command that dies with its keeper (internal)
    #[command(hide = true)]
    Bound(BoundArgs),
    /// Print the names this software uses, one per line, to check the documentation
    #[command(hide = true)]
    Reference {
        /// What: settings, events, metrics, http or exit-codes
        what: String,
    },
}

#[derive(Args)]
#[command(
    after_help = "On SIGTERM or SIGINT it stops its work, vacates the seat and exits; a second signal exits at once.\n\
A command after `--` runs as in `tenure exec --help`, and is restarted when it exits by itself.\n\
TENURE_LOG sets the log level (error, warn, info, debug)."
)]
pub(crate) struct RunArgs {
    /// Print every event as one JSON object per line on stdout
    #[arg(long)]
    pub(crate) events: bool,
    /// Run this worker, enabled while the node leads; may be repeated
    #[arg(long = "worker", value_name = "ID[:TYPE]")]
    pub(crate) workers: Vec<String>,
    /// Do not judge cluster health while leading: `tenure health` then reports unknown, and `tenure history` misses terms
    #[arg(long)]
    pub(crate) no_health: bool,
    /// Run no schedules and hand out no jobs while leading; use it on all nodes or on none
    #[arg(long)]
    pub(crate) no_schedules: bool,
    /// File with an address to POST to when a job fails, expires, is missed or begins late [default: TENURE_WEBHOOK]. All nodes need it
    #[arg(long, value_name = "FILE", env = "TENURE_WEBHOOK_FILE", hide_env = true)]
    pub(crate) webhook_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) http: HttpArgs,
    /// Log format on stderr
    #[arg(long, value_enum, default_value = "human")]
    pub(crate) log: LogForm,
    #[command(flatten)]
    pub(crate) grace: CommandArgs,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// A command to run while this node leads, with its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
#[command(
    after_help = "Exit code 0 healthy, 7 degraded, 8 critical, 9 unknown. The leader judges health. Its verdict counts only while the \
leader renews and has published recently in its own epoch; otherwise the status is unknown."
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
    after_help = "Exit code 0 with a live leader, 3 with none. A holder is live if it renews while this command \
watches: for at most one hold, and never longer than --wait."
)]
pub(crate) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Longest time to watch for a renewal
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = time::time)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) seat: SeatArgs,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "The leader keeps the last 1,000 terms; this needs the store and no node, and takes two reads. Terms are dated by the clocks \
of those who led. A leader of a node run with `--no-health` keeps no list; then only the newest five terms are known.\n\
`tenure job history` lists finished jobs."
)]
pub(crate) struct HistoryArgs {
    /// Most terms to show, the newest first
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=crate::history::LIMIT_MAX))]
    pub(crate) limit: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "Only reads the store; anything that comes and goes between two reads is not seen. Without a terminal it prints one \
picture. Each read waits for the holder to renew, up to one heartbeat. Quit with `q` or Ctrl-C."
)]
pub(crate) struct WatchArgs {
    /// Print one picture or one JSON object, then exit
    #[arg(long)]
    pub(crate) once: bool,
    /// One JSON object per line: the current state, then changes
    #[arg(long)]
    pub(crate) json: bool,
    /// Time between two reads
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time::look, allow_hyphen_values = true)]
    pub(crate) interval: u64,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "Exit code 0 with a live leader, 3 with none and nothing on standard output. A holder is live if it \
renews while this command watches: for at most one hold, and never longer than --wait."
)]
pub(crate) struct LeaderArgs {
    /// Longest time to watch for a renewal
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = time::time)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) seat: SeatArgs,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "The leader sees the request at its next renewal, stops its work, vacates the seat and lets others try. \
If no other node is up, it leads again after a few seconds, in a new epoch.\n\
Exit code 0 if it stepped down (or, without waiting, was asked to), 1 if it did not in time, 3 if nobody leads."
)]
pub(crate) struct StepDownArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How long to wait for the next leader; 0s asks without waiting
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time::wait, allow_hyphen_values = true)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) seat: SeatArgs,
    #[command(flatten)]
    pub(crate) settings: PlaceArgs,
}

#[derive(Args)]
#[command(
    after_help = "Every node publishes its metrics once per presenceInterval, so they can be that old. Costs one list, \
plus one read per node."
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
    after_help = "Projected: the steady state with these settings, without starts, elections and retries; health is listed apart. \
Measured: what the live nodes published, including the workers in their own processes. A month has 30 days."
)]
pub(crate) struct CostArgs {
    /// Nodes to project for
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) nodes: u64,
    /// Workers to project for, in total
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
    after_help = "Writes only under a temporary prefix, and removes it. Exit code 5 if the store ignores \
conditions, 4 if it cannot be reached or refuses."
)]
pub(crate) struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Run the whole suite: 32-way races and thousands of objects, not a few hundred requests
    #[arg(long)]
    pub(crate) full: bool,
    /// A second endpoint of the same store, to check that both agree
    #[arg(long, value_name = "URL")]
    pub(crate) second_endpoint: Option<String>,
    /// Also race another machine that runs this with the same NAME within two minutes
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Option<String>,
    /// Write what was found to FILE.md and FILE.json, to be shown to others
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<std::path::PathBuf>,
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
    /// Remove a crashed node from the list of nodes
    Forget(OneArgs),
}

#[derive(Args)]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    pub(crate) action: WorkerAction,
}

#[derive(Subcommand)]
pub(crate) enum WorkerAction {
    /// Register, send heartbeats, log what happens, deregister on SIGTERM
    Run(WorkerRunArgs),
}

#[derive(Args)]
#[command(
    after_help = "The worker is enabled while the node with its pod's name leads. It takes no part in the election: it only \
reads the seat every electionInterval. On SIGTERM or SIGINT it deregisters and exits; a second signal exits at once.\n\
Exit code 1 if another live process has the id. To run a worker inside a node: `tenure run --worker ID:TYPE`."
)]
pub(crate) struct WorkerRunArgs {
    /// The worker's id; only one live process may have it
    #[arg(long)]
    pub(crate) id: String,
    /// The plugin it works for [default: worker]
    #[arg(long, visible_alias = "type", value_name = "TYPE")]
    pub(crate) plugin_type: Option<String>,
    /// The pod it runs on [default: the setting `node`]
    #[arg(long)]
    pub(crate) pod: Option<String>,
    /// Silence after which it counts as dead [default: the setting `workerTimeout`]
    #[arg(long, value_name = "TIME", value_parser = time::time, allow_hyphen_values = true)]
    pub(crate) timeout: Option<u64>,
    /// Extra data about it: a JSON object of at most 8 KiB
    #[arg(long, value_name = "JSON")]
    pub(crate) payload: Option<String>,
    /// Print every event as one JSON object per line on stdout
    #[arg(long)]
    pub(crate) events: bool,
    /// Log format on stderr
    #[arg(long, value_enum, default_value = "human")]
    pub(crate) log: LogForm,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

#[derive(Args)]
#[command(
    after_help = "States come from the leader's last snapshot; `new` means not judged yet. Costs one read, plus one list page per \
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
    /// Check the settings and report every problem at once
    Check {
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Show what is set, and where it comes from
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
    /// Print a complete settings file with the defaults and an explanation of each
    Default,
}

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Run on this store instead of a temporary embedded one
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
            Failure::usage(format!("cannot create the data directory {folder}: {error}"))
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

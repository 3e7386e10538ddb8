//! The flags.

use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use tenure_chaos::exec;
use tenure_chaos::schedule::Kind;

#[derive(Parser)]
#[command(name = "tenure-chaos", about = "Real nodes on a real store, through faults, with a judge")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Subcommand)]
pub(crate) enum Task {
    /// Nodes through random faults, and a judge over what they recorded
    Run(Box<RunArgs>),
    /// Judge a record again
    Check {
        /// The record's directory
        record: PathBuf,
        /// Where the findings go as JSON
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Nodes and agents with schedules and queues, while leaders and agents are killed
    Jobs(Box<JobsArgs>),
    /// Nodes that run a command while they lead, with faults at the one that does
    #[command(after_help = EXEC_HELP)]
    Exec(Box<ExecArgs>),
    /// Short runs of `tenure lock` with commands that start daemons: is one of those alive afterwards?
    #[command(
        after_help = "Exact: the judge is a child subreaper, so whatever outlives its `tenure` becomes a child of the judge."
    )]
    Leftovers(LeftoversArgs),
    /// Programs that are broken on purpose: each must be caught
    Broken(BrokenArgs),
    /// Write down being alive, every few milliseconds (internal)
    #[command(hide = true)]
    Live {
        /// `daemon`: leave the session first
        word: Option<String>,
    },
}

const EXEC_HELP: &str = "\
Faults, always at the node that runs the command: kill (SIGKILL to tenure), pause (SIGSTOP to tenure alone), cut (its way to the \
store; on SQLite the store is away for all), stop (SIGTERM to tenure), keeper (SIGKILL to the keeper), freeze (SIGSTOP to tenure, \
keeper and command together).\n\
The command ignores SIGTERM and has a daemon; both write down every 5 ms that they are alive. Exit code 0: never two copies alive at \
one instant, none past its lease, none begun in an epoch that was over. The frozen are judged up to the moment they are woken.\n\
50 rounds take about seven minutes.";

/// A store to play on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum StoreKind {
    /// A real store, with two gateways
    Seaweedfs,
    /// Ceph's gateway, from Debian packages
    Ceph,
    /// AWS-like status codes, single event loop; forgets everything when restarted, so it is not
    Ministack,
    /// A file, no network: processes and the file's lock only
    Sqlite,
}

/// On what, with what, and where it is written down.
#[derive(clap::Args)]
pub(crate) struct ScenarioArgs {
    /// The program `tenure` [default: the one beside this program]
    #[arg(long)]
    pub(crate) tenure: Option<PathBuf>,
    /// The store, started for this run
    #[arg(long, value_enum, default_value = "seaweedfs")]
    pub(crate) engine: StoreKind,
    /// The nodes' settings: default, thrifty, fast
    #[arg(long, default_value = "fast")]
    pub(crate) preset: String,
    /// Where the record goes [default: `chaos` in the folder that cargo builds into]
    #[arg(long)]
    pub(crate) record: Option<PathBuf>,
    /// Keep the record of a good run too; that of a bad one is always kept
    #[arg(long)]
    pub(crate) keep: bool,
    /// Where the findings go as JSON
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,
    /// How long, in seconds
    #[arg(long, default_value_t = 600)]
    pub(crate) seconds: u64,
    /// Decides the schedule; drawn if not given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// How many nodes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=26))]
    pub(crate) nodes: u8,
    /// This fault and no other, always at the leader; may be repeated
    #[arg(long, value_name = "FAULT", value_parser = kind)]
    pub(crate) only: Vec<Kind>,
}

#[derive(clap::Args)]
pub(crate) struct JobsArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,
    /// How long, in seconds
    #[arg(long, default_value_t = 300)]
    pub(crate) seconds: u64,
    /// How many nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=26))]
    pub(crate) nodes: u8,
    /// How many agents
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=50))]
    pub(crate) agents: u8,
    /// How many schedules, each due every second
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(4..=1000))]
    pub(crate) schedules: u16,
    /// How many jobs are submitted to queues beside them
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) jobs: u32,
    /// Seconds between two kills of a leader, and of an agent. A node is killed only while another runs and health says that the last
    /// one is back: short times need four nodes
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(5..))]
    pub(crate) kill_every: u64,
}

#[derive(clap::Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioArgs,
    /// How many faults, of all kinds in turn
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) rounds: u16,
    /// This fault and no other; may be repeated
    #[arg(long, value_name = "FAULT")]
    pub(crate) only: Vec<exec::Kind>,
    /// How many seconds stopped processes stand still, and at least until a successor runs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub(crate) pause: u16,
}

#[derive(clap::Args)]
pub(crate) struct LeftoversArgs {
    /// How many runs
    #[arg(long, default_value_t = 10_000)]
    pub(crate) runs: u32,
    /// How many at a time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) at_once: u32,
    /// Decides how many daemons there are, and how far they run
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

#[derive(clap::Args)]
pub(crate) struct BrokenArgs {
    /// Only this variant
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// Only those about a command that runs while its node leads
    #[arg(long)]
    pub(crate) exec: bool,
    /// The store for those that need a network
    #[arg(long, value_enum, default_value = "seaweedfs")]
    pub(crate) engine: StoreKind,
    /// Decides the schedules
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Where the findings go as JSON
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

fn kind(name: &str) -> Result<Kind, String> {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)
        .ok_or_else(|| format!("there is no fault {name:?}"))
}

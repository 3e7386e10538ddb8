//! `cargo xtask exec`: real nodes that run a command while they lead, faults aimed at the one that does, and a judge of what the
//! commands themselves wrote.

mod broken;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::chaos::{self, StoreKind};
use crate::engine::{self, Site};
use crate::process;
use crate::workspace::Workspace;

/// The longest a fault takes besides the pause, on a busy machine.
const ROUND_LIMIT: Duration = Duration::from_secs(60);
const EXTRA: Duration = Duration::from_secs(2 * 60);
/// 10,000 runs take a few minutes; more may be requested.
const LEFTOVERS_LIMIT: Duration = Duration::from_secs(60 * 60);
/// How long stopped processes stand still, in seconds: many leases, and longer than any request timeout.
const PAUSE: u16 = 20;

#[derive(clap::Args)]
#[command(
    after_help = "Faults, always at whoever runs the command: kill (SIGKILL to tenure), pause (SIGSTOP to tenure alone), \
cut (its way to the store, both directions; on SQLite the store is away for all), stop (SIGTERM to tenure), keeper (SIGKILL to \
the keeper), freeze (SIGSTOP to tenure, keeper and command together).\n\
The command ignores SIGTERM and has a daemon of its own; both write down every 5 ms that they are alive, and by that \
they are judged. Exit code 0: never two copies alive at one instant, none past its lease, none begun in an epoch that was over. The frozen \
are judged up to the moment they are woken, and counted after.\n\
A round takes about two seconds, with pause and freeze as long as the pause. 50 rounds: about seven minutes.\n\
`--leftovers 10000` is exact: the judge is a child subreaper, so whatever outlives its `tenure` becomes a child of the judge, and `wait` \
tells."
)]
pub(crate) struct Args {
    /// How many faults, of all kinds in turn
    #[arg(long, default_value_t = 50)]
    rounds: u16,
    /// This fault and no other; may be repeated
    #[arg(long, value_name = "FAULT")]
    only: Vec<String>,
    /// How many seconds those that are stopped stand still, and at least until a successor runs [default: 20; 3 with --broken]
    #[arg(long, value_name = "SECONDS")]
    pause: Option<u16>,
    /// The nodes' settings: default, thrifty, fast
    #[arg(long, default_value = "fast")]
    preset: String,
    /// The store; on a network each node has a proxy of its own
    #[arg(long, value_enum, default_value = "seaweedfs")]
    engine: StoreKind,
    /// Where the figures go
    #[arg(long)]
    json: Option<PathBuf>,
    /// Keep the record of a good run too; that of a bad one is always kept
    #[arg(long)]
    keep: bool,
    /// Play against a binary that is broken on purpose and must be caught: a variant, or `all`; faults and rounds are the
    /// variant's own
    #[arg(long, value_name = "NAME", conflicts_with_all = ["rounds", "only", "json", "keep"])]
    broken: Option<String>,
    /// Something else: so many short runs of `tenure lock` with commands that start daemons at random moments, and whether one
    /// of those is alive afterwards
    #[arg(long, value_name = "RUNS", conflicts_with_all = ["rounds", "only", "json", "keep", "broken", "pause", "preset", "engine"])]
    leftovers: Option<u32>,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<bool> {
    for leftover in engine::clean_leftovers(workspace) {
        println!("xtask: ended and removed {leftover}, left behind by a killed run");
    }
    if let Some(name) = &args.broken {
        return broken::run(workspace, args, name);
    }
    if !process::run(&mut workspace.build(), chaos::BUILD_LIMIT)? {
        bail!("the build failed");
    }
    if let Some(runs) = args.leftovers {
        let command = leftovers(workspace, workspace.program("tenure"), runs);
        return process::run(&mut process::bound(&command), LEFTOVERS_LIMIT);
    }
    let site = args.engine.engine().map(|engine| chaos::start(workspace, engine)).transpose()?;
    let pause = args.pause.unwrap_or(PAUSE);
    let mut command = command(workspace, args, workspace.program("tenure"), pause, site.as_ref());
    command.arg(format!("--rounds={}", args.rounds)).args(args.keep.then_some("--keep"));
    command.args(args.only.iter().map(|fault| format!("--only={fault}")));
    if let Some(path) = &args.json {
        command.arg("--json").arg(std::path::absolute(path)?);
    }
    let round = ROUND_LIMIT + Duration::from_secs(pause.into());
    process::run(&mut process::bound(&command), round * u32::from(args.rounds) + EXTRA)
}

/// Short runs of commands that start daemons.
fn leftovers(workspace: &Workspace, tenure: PathBuf, runs: u32) -> Command {
    let mut command = Command::new(workspace.program("tenure-chaos"));
    command.arg("leftovers").arg("--tenure").arg(tenure).arg("--record").arg(workspace.chaos());
    command.arg(format!("--runs={runs}"));
    command
}

/// The judge's command line: what to judge, and where.
fn command(workspace: &Workspace, args: &Args, tenure: PathBuf, pause: u16, site: Option<&Site>) -> Command {
    let mut command = Command::new(workspace.program("tenure-chaos"));
    command.arg("exec").arg("--tenure").arg(tenure).arg("--record").arg(workspace.chaos());
    command.arg(format!("--pause={pause}")).arg(format!("--preset={}", args.preset));
    chaos::place(&mut command, site);
    command
}

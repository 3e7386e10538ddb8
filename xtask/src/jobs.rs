//! `cargo xtask jobs`: real nodes and agents with schedules and queues, leaders and agents that are killed again and again, and a
//! judge of what was done.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::chaos::{self, StoreKind};
use crate::engine::{self, Site};
use crate::process;
use crate::workspace::Workspace;

/// How much longer a run may take than it was given: the start, the calm at the end, the rest of the queues, the judge.
const EXTRA: Duration = Duration::from_secs(10 * 60);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long, in seconds
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// How many nodes
    #[arg(long, default_value_t = 3)]
    nodes: u8,
    /// How many agents
    #[arg(long, default_value_t = 5)]
    agents: u8,
    /// How many schedules, each due every second
    #[arg(long, default_value_t = 50)]
    schedules: u16,
    /// How many jobs are submitted to queues beside them
    #[arg(long, default_value_t = 10_000)]
    jobs: u32,
    /// How many seconds lie between two kills of a leader, and between two of an agent, at least 5. A node is killed only while
    /// another one runs, and not before health has told that it is back: short times need four nodes or more
    #[arg(long, default_value_t = 20)]
    kill_every: u64,
    /// The nodes' settings: default, thrifty, fast
    #[arg(long, default_value = "fast")]
    preset: String,
    /// The store
    #[arg(long, value_enum, default_value = "seaweedfs")]
    engine: StoreKind,
    /// Where the figures go
    #[arg(long)]
    json: Option<PathBuf>,
    /// Keep the record of a good run too; that of a bad one is always kept
    #[arg(long)]
    keep: bool,
}

impl Args {
    /// The short form that is part of every test run: one kill of an agent, one of the leader.
    pub(crate) fn short(engine: StoreKind) -> Self {
        let (seconds, nodes, agents, schedules, jobs, kill_every) = (20, 3, 2, 8, 300, 18);
        let preset = "fast".to_owned();
        Self { seconds, nodes, agents, schedules, jobs, kill_every, preset, engine, json: None, keep: false }
    }
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<bool> {
    for leftover in engine::clean_leftovers(workspace) {
        println!("xtask: ended and removed {leftover}, left behind by a killed run");
    }
    if !process::run(&mut workspace.build(), chaos::BUILD_LIMIT)? {
        bail!("the build failed");
    }
    let site = args.engine.engine().map(|engine| chaos::start(workspace, engine)).transpose()?;
    play(workspace, args, site.as_ref())
}

/// Plays on a store that is already running.
pub(crate) fn play(workspace: &Workspace, args: &Args, site: Option<&Site>) -> Result<bool> {
    let mut command = Command::new(workspace.program("tenure-chaos"));
    command.arg("jobs").arg("--tenure").arg(workspace.program("tenure"));
    command.arg("--record").arg(workspace.chaos()).arg(format!("--preset={}", args.preset));
    command.arg(format!("--seconds={}", args.seconds)).arg(format!("--kill-every={}", args.kill_every));
    command.arg(format!("--nodes={}", args.nodes)).arg(format!("--agents={}", args.agents));
    command.arg(format!("--schedules={}", args.schedules)).arg(format!("--jobs={}", args.jobs));
    command.args(args.keep.then_some("--keep"));
    if let Some(path) = &args.json {
        command.arg("--json").arg(std::path::absolute(path)?);
    }
    match engine::faketime() {
        Ok(library) => {
            command.arg(format!("--faketime={}", library.display()));
        }
        Err(error) => println!("xtask: no agent with a wrong clock: {error:#}"),
    }
    chaos::place(&mut command, site);
    process::run(&mut process::bound(&command), Duration::from_secs(args.seconds) + EXTRA)
}

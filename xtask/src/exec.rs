//! `cargo xtask exec`: real nodes that run a command while they lead, faults at whoever runs it, and a judge over what the
//! commands themselves wrote.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::chaos;
use crate::process;
use crate::workspace::Workspace;

/// No fault takes longer, on a machine that has other things to do.
const ROUND_LIMIT: Duration = Duration::from_secs(60);
const EXTRA: Duration = Duration::from_secs(2 * 60);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many faults, of all kinds in turn
    #[arg(long, default_value_t = 50)]
    rounds: u16,
    /// Where the figures go
    #[arg(long)]
    json: Option<PathBuf>,
    /// Keep the record of a good run too; that of a bad one is always kept
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<bool> {
    if !process::run(workspace.cargo().args(["build", "--workspace", "--bins"]), chaos::BUILD_LIMIT)? {
        bail!("the build failed");
    }
    let mut command = Command::new(workspace.program("tenure-chaos"));
    command.arg("exec").arg("--tenure").arg(workspace.program("tenure"));
    command.arg("--record").arg(workspace.chaos()).arg(format!("--rounds={}", args.rounds));
    command.args(args.keep.then_some("--keep"));
    if let Some(path) = &args.json {
        command.arg("--json").arg(std::path::absolute(path)?);
    }
    process::run(&mut process::bound(&command), ROUND_LIMIT * u32::from(args.rounds) + EXTRA)
}

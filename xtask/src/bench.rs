//! `cargo xtask bench`: runs the optimised benchmarks. They print figures for people to compare; no test depends on them.

use std::time::Duration;

use anyhow::Result;

use crate::process;
use crate::workspace::Workspace;

/// The optimised build takes most of it.
const LIMIT: Duration = Duration::from_secs(30 * 60);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this benchmark program, e.g. `fence`
    #[arg(long, value_name = "NAME")]
    bench: Option<String>,
    /// Passed on to the benchmark programs, e.g. part of a benchmark's name
    #[arg(last = true)]
    filter: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<bool> {
    let mut command = workspace.cargo();
    command.args(["bench", "--package", "tenure-bench"]);
    if let Some(name) = &args.bench {
        command.args(["--bench", name]);
    }
    command.arg("--").args(&args.filter);
    process::run(&mut command, LIMIT)
}

//! `cargo xtask mutants`: a second opinion on the tests. Every line of the core is broken by machine, one at a time, and
//! the tests of core and simulator must notice. What nobody can notice is listed with its reason in `.cargo/mutants.toml`.

use std::time::Duration;

use anyhow::Result;

use crate::process;
use crate::tool::Tool;
use crate::workspace::Workspace;

const TOOL: Tool = Tool { verb: "mutants", package: "cargo-mutants", version: "27.1.0" };
/// A thousand small builds.
const LIMIT: Duration = Duration::from_secs(12 * 60 * 60);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only mutants of files that match, e.g. `crates/core/src/fence.rs`
    #[arg(long, value_name = "GLOB")]
    file: Vec<String>,
    /// Only this share of them, e.g. `0/8`
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<bool> {
    let cargo = || -> Result<std::process::Command> {
        let mut cargo = workspace.cargo();
        Tool::reachable(workspace, &mut cargo)?;
        Ok(cargo)
    };
    TOOL.prepare(workspace, &mut cargo()?)?;
    let mut command = cargo()?;
    command.args(["mutants", "--package", "tenure-core", "--output"]).arg(workspace.target.join("mutants"));
    for file in &args.file {
        command.args(["--file", file]);
    }
    if let Some(shard) = &args.shard {
        command.args(["--shard", shard]);
    }
    // Fails if a mutant survives.
    process::run(&mut command, LIMIT)
}

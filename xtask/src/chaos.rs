//! Tasks that pass their flags on. `cargo xtask chaos|jobs|exec|leftovers|broken` builds what is needed and runs `tenure-chaos`.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use tenure_rig::process;

use crate::workspace::{BUILD_LIMIT, Workspace};

/// A run is as long as its flags say.
const LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the program takes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, verb: &str, args: &Args) -> Result<bool> {
    build(workspace, verb == "broken")?;
    play(workspace, verb, &args.args)
}

/// `cargo xtask bench`: optimised programs that print figures for people to compare.
pub(crate) fn bench(workspace: &Workspace, args: &Args) -> Result<bool> {
    let mut command = workspace.cargo();
    process::run(command.args(["bench", "--package", "tenure-bench"]).args(&args.args), LIMIT)
}

/// The programs under test and the judge; on request, the program that can be broken as well.
pub(crate) fn build(workspace: &Workspace, broken: bool) -> Result<()> {
    let mut builds = vec![workspace.build()];
    builds[0].args(["--package", "tenure-chaos"]);
    if broken {
        let mut mistaken = workspace.cargo();
        mistaken.args(["build", "--package", "tenure-cli", "--features", "teeth", "--bin", "tenure-broken"]);
        builds.push(mistaken);
    }
    for build in &mut builds {
        ensure!(process::run(build, BUILD_LIMIT)?, "the build failed");
    }
    Ok(())
}

/// Uses the programs that are already built.
pub(crate) fn play(workspace: &Workspace, verb: &str, args: &[impl AsRef<std::ffi::OsStr>]) -> Result<bool> {
    let mut command = Command::new(workspace.program("tenure-chaos"));
    process::run(&mut process::bound(command.arg(verb).args(args)), LIMIT)
}

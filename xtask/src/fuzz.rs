//! `cargo xtask fuzz`: the targets of `fuzz/`, one after the other, each for a while.
//!
//! What it needs (a nightly toolchain, cargo-fuzz) nobody else needs: where it cannot be had the task says so and passes.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

/// The version that is installed if none is there.
const CARGO_FUZZ: &str = "0.13.2";

/// In the order in which they run; each has a program in `fuzz/fuzz_targets` and seeds in `fuzz/seeds`.
const TARGETS: [&str; 7] = ["seat", "worker", "snapshot", "presence", "settings", "url", "id"];

/// Building comes before fuzzing, and the first time everything is built.
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);
const ASK_LIMIT: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long each target runs
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Only this target
    #[arg(long, value_name = "NAME", value_parser = TARGETS)]
    target: Option<String>,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<bool> {
    if let Err(missing) = prepare(workspace) {
        crate::interrupt::check()?;
        println!("fuzz: SKIPPED: {missing:#}");
        return Ok(true);
    }
    let chosen = |name: &&str| args.target.as_ref().is_none_or(|only| only == name);
    let mut failed = Vec::new();
    for name in TARGETS.into_iter().filter(chosen) {
        println!("fuzz {name}: {} s", args.seconds);
        if !fuzz(workspace, name, args.seconds)? {
            failed.push(name);
        }
    }
    match failed.as_slice() {
        [] => println!("fuzz: nothing found"),
        failed => println!("fuzz: FOUND something in {}; the input is in fuzz/artifacts", failed.join(", ")),
    }
    Ok(failed.is_empty())
}

/// Nightly cargo, with our tools in its path. What the cargo that runs us set for its own toolchain is taken back.
fn nightly(workspace: &Workspace) -> Result<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(workspace.tools().join("bin")).chain(std::env::split_paths(&path));
    let mut command = Command::new("cargo");
    command.arg("+nightly").current_dir(&workspace.root);
    command.env("PATH", std::env::join_paths(dirs).context("a directory of PATH cannot be written there")?);
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    Ok(command)
}

fn prepare(workspace: &Workspace) -> Result<()> {
    let asked = process::capture(nightly(workspace)?.arg("--version"), ASK_LIMIT);
    asked.and_then(|said| said.ok("cargo +nightly")).context("there is no nightly toolchain")?;
    if process::capture(nightly(workspace)?.args(["fuzz", "--version"]), ASK_LIMIT)?.success {
        return Ok(());
    }
    println!("fuzz: installing cargo-fuzz {CARGO_FUZZ}");
    let mut install = workspace.cargo();
    install.args(["install", "cargo-fuzz", "--locked", "--quiet", "--version", CARGO_FUZZ, "--root"]);
    if !process::run(install.arg(workspace.tools()), BUILD_LIMIT)? {
        bail!("cargo-fuzz is not there and cannot be installed");
    }
    Ok(())
}

/// `Ok(false)` when the target failed, by an input or because it cannot be built.
fn fuzz(workspace: &Workspace, name: &str, seconds: u64) -> Result<bool> {
    // New inputs are kept from run to run in the first directory; the seeds are only read.
    let corpus = workspace.fuzz().join("corpus").join(name);
    std::fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
    let mut command = nightly(workspace)?;
    // No sanitizer: the code is safe, what is looked for are panics, overflows and broken promises.
    command.args(["fuzz", "run", "--sanitizer=none", "--target-dir"]).arg(workspace.fuzz().join("build"));
    command.arg(name).arg(corpus).arg(workspace.root.join("fuzz/seeds").join(name));
    command.args(["--", "-max_len=8192", "-timeout=10", "-verbosity=1", "-print_final_stats=1"]);
    command.arg(format!("-max_total_time={seconds}"));
    process::run(&mut command, BUILD_LIMIT + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_target_has_a_program_and_seeds_and_the_other_way_round() {
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        let names = |folder: &str| {
            let entries = std::fs::read_dir(fuzz.join(folder)).expect("a folder");
            let mut names: Vec<String> = entries
                .map(|entry| {
                    entry.expect("an entry").path().file_stem().expect("a name").display().to_string()
                })
                .collect();
            names.sort();
            names
        };
        let mut targets = TARGETS.map(str::to_owned).to_vec();
        targets.sort();
        assert_eq!(names("fuzz_targets"), targets);
        assert_eq!(names("seeds"), targets);
    }
}

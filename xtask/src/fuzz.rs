//! `cargo xtask fuzz`: runs the targets of `fuzz/` one after another, each for a while.
//!
//! It needs a nightly toolchain and cargo-fuzz, which nothing else needs. Where they cannot be installed, the task says so and
//! passes.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::tools::FUZZ;
use crate::workspace::Workspace;
use tenure_rig::process;

/// In the order they run; each has a program in `fuzz/fuzz_targets` and seeds in `fuzz/seeds`.
const TARGETS: [&str; 18] = [
    "seat", "worker", "snapshot", "ledger", "inbox", "orders", "history", "output", "presence", "settings",
    "url", "id", "health", "terms", "schedule", "apply", "command", "words",
];

/// Each target is built before it is fuzzed, and the first time everything is built.
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
        tenure_rig::interrupt::check()?;
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

/// Nightly cargo with our tools in its path. Removes what the cargo that runs us set for its own toolchain.
fn nightly(workspace: &Workspace) -> Result<Command> {
    let mut command = Command::new("cargo");
    command.arg("+nightly").current_dir(&workspace.root);
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    FUZZ.reachable(&mut command)?;
    Ok(command)
}

fn prepare(workspace: &Workspace) -> Result<()> {
    let asked = process::capture(Command::new("cargo").args(["+nightly", "--version"]), ASK_LIMIT);
    asked.and_then(|said| said.ok("cargo +nightly")).context("there is no nightly toolchain")?;
    nightly(workspace).map(drop)
}

/// `Ok(false)` if the target failed, on an input or because it cannot be built.
fn fuzz(workspace: &Workspace, name: &str, seconds: u64) -> Result<bool> {
    // New inputs are kept from run to run in the first directory; the seeds are only read.
    let corpus = workspace.fuzz().join("corpus").join(name);
    std::fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
    let mut command = nightly(workspace)?;
    // No sanitizer: the code is safe, so we look for panics, overflows and broken promises.
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

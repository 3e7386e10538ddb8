//! `cargo xtask`: the commands for developers of this workspace.

#![allow(clippy::print_stdout, reason = "a developer's tool talks on its terminal")]

mod chaos;
mod dist;
mod docs;
mod fix;
mod fuzz;
mod mutants;
mod proof;
mod prove;
mod steps;
mod test;
mod tools;
mod verify;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tenure_rig::engine::developer;
use tenure_rig::{interrupt, process};
use workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Developer tasks of this workspace")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build, verify, and run all tests, with real S3 engines
    Test(test::Args),
    /// Formatting, clippy, docs and the workspace rules; never writes
    Verify,
    /// Format, apply clippy's suggestions, strip trailing whitespace
    Fix,
    /// The proof, schedules, every state, broken variants and chaos; writes the page of evidence
    Prove(prove::Args),
    /// Real nodes on a real store through faults, with a judge over what they recorded
    #[command(disable_help_flag = true)]
    Chaos(chaos::Args),
    /// Real nodes and agents with schedules and queues, while leaders and agents are killed
    #[command(disable_help_flag = true)]
    Jobs(chaos::Args),
    /// Real nodes that run a command while they lead, with faults at the one that does
    #[command(disable_help_flag = true)]
    Exec(chaos::Args),
    /// Short runs of `tenure lock` with commands that start daemons: is one alive afterwards?
    #[command(disable_help_flag = true)]
    Leftovers(chaos::Args),
    /// Programs that are broken on purpose; the judges must catch each
    #[command(disable_help_flag = true)]
    Broken(chaos::Args),
    /// Throw bytes at everything that is read from outside; needs a nightly toolchain
    Fuzz(fuzz::Args),
    /// Break every line of the core by machine; the tests must notice. Takes hours
    Mutants(mutants::Args),
    /// The first minutes of the README in a fresh clone, with a browser that looks on
    Newcomer,
    /// Run the benchmarks of `bench/`, with the arguments of `cargo bench`; nothing is asserted
    #[command(disable_help_flag = true)]
    Bench(chaos::Args),
    /// The static binary and its packages: archive, deb, wheel, npm, image
    Dist(dist::Args),
    /// The documentation as a site
    Docs,
    /// An S3 engine on loopback for a developer
    #[command(subcommand)]
    S3(developer::Command),
}

fn main() -> ExitCode {
    process::become_bound_if_asked();
    // As rustdoc of the tests of the documentation: see `verify::rustdoc`.
    if let Some(code) = verify::rustdoc::become_rustdoc_if_asked() {
        return code;
    }
    let task = Cli::parse().task;
    let outcome = Workspace::locate().and_then(|workspace| dispatch(&workspace, task));
    match outcome {
        _ if interrupt::pending() => {
            eprintln!("xtask: interrupted");
            ExitCode::from(130)
        }
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// `Ok(false)` means that the task ran, found something wrong and has already reported it.
fn dispatch(workspace: &Workspace, task: Task) -> anyhow::Result<bool> {
    interrupt::install()?;
    match task {
        Task::Test(args) => test::run(workspace, &args),
        Task::Verify => verify::run(workspace),
        Task::Fix => fix::run(workspace),
        Task::Prove(args) => prove::run(workspace, &args),
        Task::Chaos(args) => chaos::run(workspace, "run", &args),
        Task::Jobs(args) => chaos::run(workspace, "jobs", &args),
        Task::Exec(args) => chaos::run(workspace, "exec", &args),
        Task::Leftovers(args) => chaos::run(workspace, "leftovers", &args),
        Task::Broken(args) => chaos::run(workspace, "broken", &args),
        Task::Fuzz(args) => fuzz::run(workspace, &args),
        Task::Mutants(args) => mutants::run(workspace, &args),
        Task::Newcomer => test::newcomer(workspace),
        Task::Bench(args) => chaos::bench(workspace, &args),
        Task::Dist(args) => dist::run(workspace, &args),
        Task::Docs => docs::run(workspace),
        Task::S3(command) => developer::run(command).map(|()| true),
    }
}

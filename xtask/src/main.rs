//! `cargo xtask`: the commands for developers of this workspace.
//!
//! `test` runs all tests, with real S3 engines; `verify` checks everything that can be checked without running it, and never
//! writes; `chaos` disturbs a real cluster and judges it, `jobs` one with schedules and queues, `exec` one that runs a command;
//! `prove` does that and runs the simulator, and writes the page of evidence; `fuzz` throws bytes at everything that is read from
//! outside; `mutants` breaks the core by machine; `fix` writes; `bench` measures; `s3` gives a developer an engine.

#![allow(clippy::print_stdout, reason = "a developer's tool talks on its terminal")]

mod bench;
mod broken;
mod chaos;
mod debian;
mod dist;
mod docs;
mod engine;
mod exec;
mod fix;
mod fuzz;
mod interrupt;
mod jobs;
mod mutants;
mod newcomer;
mod npm;
mod process;
mod proof;
mod prove;
mod python;
mod s3;
mod schemathesis;
mod test;
mod tool;
mod verify;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Developer tasks of this workspace")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Real nodes on a real store through faults, with a judge over what they recorded
    Chaos(chaos::Args),
    /// Real nodes and agents with schedules and queues, while leaders and agents are killed over and over, with a judge over what
    /// was done
    Jobs(jobs::Args),
    /// Real nodes that run a command while they lead: the one that does is killed, stopped, cut off, over and over, with a
    /// judge over what the commands wrote
    Exec(exec::Args),
    /// The proof, schedules, every state, broken variants and chaos; writes the page of evidence
    Prove(prove::Args),
    /// Verify, build, test without and with S3 engines
    Test(test::Args),
    /// Formatting, clippy, docs and the workspace rules; never writes
    Verify,
    /// Throw bytes at everything that is read from outside; needs a nightly toolchain
    Fuzz(fuzz::Args),
    /// Break every line of the core by machine; the tests must notice. Takes hours
    Mutants(mutants::Args),
    /// The first minutes of the README in a fresh clone, with a browser that looks on
    Newcomer,
    /// The static binary and its packages: archive, deb, wheel, npm, image
    Dist(dist::Args),
    /// The documentation as a site, with every link checked
    Docs,
    /// Format, apply clippy's suggestions, strip trailing whitespace
    Fix,
    /// Run the benchmarks of `bench/`; nothing is asserted
    Bench(bench::Args),
    /// Random requests by the OpenAPI document against a real node: no 5xx, no answer that is not documented
    Schemathesis,
    /// An S3 engine on loopback for a developer
    #[command(subcommand)]
    S3(s3::Command),
    /// Become the given command, bound to die with the caller (internal)
    #[command(hide = true)]
    Bound {
        /// The process that must still be the parent
        #[arg(long)]
        parent: i32,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
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
    if let Task::Bound { parent, command } = task {
        return Err(process::become_bound(parent, &command));
    }
    interrupt::install()?;
    match task {
        Task::Chaos(args) => chaos::run(workspace, &args),
        Task::Jobs(args) => jobs::run(workspace, &args),
        Task::Exec(args) => exec::run(workspace, &args),
        Task::Prove(args) => prove::run(workspace, &args),
        Task::Test(args) => test::run(workspace, &args),
        Task::Verify => verify::run(workspace),
        Task::Fuzz(args) => fuzz::run(workspace, &args),
        Task::Mutants(args) => mutants::run(workspace, &args),
        Task::Newcomer => newcomer::run(workspace),
        Task::Dist(args) => dist::run(workspace, &args),
        Task::Docs => docs::run(workspace),
        Task::Fix => fix::run(workspace),
        Task::Bench(args) => bench::run(workspace, &args),
        Task::Schemathesis => schemathesis::run(workspace).map(|played| played != python::Played::Failed),
        Task::S3(command) => s3::run(workspace, command),
        Task::Bound { .. } => unreachable!("handled above, before any signal handler is in place"),
    }
}

//! The program behind `cargo xtask chaos`, which provides a store and restarts it on request.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a developer's tool talks on its terminal")]

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use rustix::process::Signal;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use tenure_chaos::checks::{Findings, judge};
use tenure_chaos::cluster::Launch;
use tenure_chaos::record::Record;
use tenure_chaos::runner::{self, Control, Plan};
use tenure_chaos::schedule::Kind;
use tenure_chaos::{exec, jobs, report};
use tokio::signal::unix::{SignalKind, signal};

/// Selects the mistake of a binary built to have one; other binaries ignore this variable.
const BROKEN: &str = "TENURE_BROKEN";

#[derive(Parser)]
#[command(name = "tenure-chaos", about = "Real nodes on a real store, through faults, with a judge")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run a schedule and judge it
    Run(Box<RunArgs>),
    /// Judge a record again
    Check {
        /// The record's directory
        record: PathBuf,
        /// Where the findings go as JSON
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Nodes and agents with schedules and queues, leaders and agents that are killed over and over, and a judge over what was done
    Jobs(Box<JobsArgs>),
    /// Three nodes that run a command while they lead, faults at whoever runs it, and a judge over what the commands wrote
    Exec(Box<ExecArgs>),
    /// Many short runs of `tenure lock` with commands that start daemons, and whether one of them is alive afterwards
    Leftovers(LeftoversArgs),
    /// Write down being alive, every few milliseconds (internal)
    #[command(hide = true)]
    Live {
        /// `daemon`: leave the session first
        word: Option<String>,
    },
    /// Become a command that dies with its parent (internal)
    #[command(hide = true)]
    Bound {
        parent: i32,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// On what, with what, and where it is written down.
#[derive(clap::Args)]
struct ScenarioArgs {
    /// The binary `tenure`
    #[arg(long)]
    tenure: PathBuf,
    /// The store's name, for the record
    #[arg(long)]
    engine: String,
    /// The store's URL
    #[arg(long)]
    store: String,
    /// An address of the store; several are shared out among the processes
    #[arg(long)]
    endpoint: Vec<String>,
    /// The nodes' settings
    #[arg(long, default_value = "fast")]
    preset: String,
    /// Where the record goes
    #[arg(long)]
    record: PathBuf,
    /// Keep the record of a good run too
    #[arg(long)]
    keep: bool,
    /// Where the findings go as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(clap::Args)]
struct RunArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// The store can be stopped and started: ask for it on stdout, hear on stdin
    #[arg(long)]
    can_restart: bool,
    /// How long, in seconds
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Decides the schedule
    #[arg(long)]
    seed: Option<u64>,
    /// How many nodes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=26))]
    nodes: u8,
    /// libfaketime
    #[arg(long)]
    faketime: Option<PathBuf>,
    /// Something that was left out, and why
    #[arg(long)]
    notice: Vec<String>,
    /// This fault and no other, always at whoever leads; may be repeated
    #[arg(long, value_name = "FAULT", value_parser = kind)]
    only: Vec<Kind>,
    /// The binary has this mistake on purpose (its feature `teeth`): play until it shows
    #[arg(long, value_name = "NAME")]
    broken: Option<String>,
}

#[derive(clap::Args)]
struct JobsArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// How long, in seconds
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// How many nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=26))]
    nodes: u8,
    /// How many agents
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(2..=50))]
    agents: u8,
    /// How many schedules, each due every second
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(4..=1000))]
    schedules: u16,
    /// How many jobs are submitted beside them
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    jobs: u32,
    /// libfaketime: the last agent's wall clock is ahead
    #[arg(long)]
    faketime: Option<PathBuf>,
    /// How many seconds lie between two kills of a leader, and between two of an agent
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(5..))]
    kill_every: u64,
}

#[derive(clap::Args)]
struct ExecArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// How many faults, of all kinds in turn
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rounds: u16,
    /// This fault and no other; may be repeated
    #[arg(long, value_name = "FAULT")]
    only: Vec<exec::Kind>,
    /// How many seconds those that are stopped stand still
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=3600))]
    pause: u16,
    /// The binary has this mistake on purpose (its feature `teeth`): play until it shows
    #[arg(long, value_name = "NAME")]
    broken: Option<String>,
}

#[derive(clap::Args)]
struct LeftoversArgs {
    /// The binary `tenure`
    #[arg(long)]
    tenure: PathBuf,
    /// Where the databases are made
    #[arg(long)]
    record: PathBuf,
    /// How many runs
    #[arg(long, default_value_t = 10_000)]
    runs: u32,
    /// How many at a time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    at_once: u32,
    /// Decides how many daemons there are, and how far they run
    #[arg(long)]
    seed: Option<u64>,
    /// Where the findings go as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// The binary has this mistake on purpose (its feature `teeth`)
    #[arg(long, value_name = "NAME")]
    broken: Option<String>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Run(args) => run(*args),
        Task::Check { record, json } => {
            check(&record, json.as_deref()).map(|findings| findings.violations.is_empty())
        }
        Task::Jobs(args) => run_jobs(*args),
        Task::Exec(args) => run_exec(*args),
        Task::Leftovers(args) => run_leftovers(args),
        Task::Live { word } => exec::signs_of_life::live(word.is_some()).map(|()| true),
        Task::Bound { parent, command } => Err(become_bound(parent, &command)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tenure-chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn kind(name: &str) -> Result<Kind, String> {
    Kind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)
        .ok_or_else(|| format!("there is no fault {name:?}"))
}

fn run(args: RunArgs) -> Result<bool> {
    let seed = args.seed.unwrap_or_else(rand::random);
    let name = args.broken.as_deref().unwrap_or(&args.scenario.engine);
    let dir = record_dir(&args.scenario.record, &format!("{name}-{seed}"))?;
    let (store, file) = store_of(&args.scenario.store, &dir);
    let broken = args.broken.clone().map(|name| (BROKEN.to_owned(), name));
    let launch = launch(&args.scenario.tenure, store, args.scenario.preset, args.faketime, broken)?;
    println!("seed {seed}, record in {}", dir.display());
    let plan = Plan {
        launch,
        engine: args.scenario.engine,
        endpoints: args.scenario.endpoint,
        file,
        control: args.can_restart.then(|| Box::new(Asking) as Box<dyn Control>),
        nodes: args.nodes.into(),
        seed,
        length: Duration::from_secs(args.seconds),
        dir: dir.clone(),
        notices: args.notice,
        only: args.only,
        until_caught: args.broken.is_some(),
    };
    let played = runner::run(plan, &mut |line| println!("{line}"));
    let findings = match check(&dir, args.scenario.json.as_deref()) {
        Ok(findings) => findings,
        // Nothing to judge; the earlier error says why.
        Err(error) => return played.and(Err(error)).map(|()| false),
    };
    let good = findings.violations.is_empty() && played.is_ok();
    if good && !args.scenario.keep {
        std::fs::remove_dir_all(&dir)?;
    } else {
        println!("record kept in {}; the same schedule again: --seed {seed}", dir.display());
    }
    played.map(|()| good)
}

/// Creates an empty directory of this name.
fn record_dir(records: &Path, name: &str) -> Result<PathBuf> {
    let dir = records.join(name);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir.canonicalize()?)
}

/// The store's URL, and its file if it is one.
fn store_of(store: &str, dir: &Path) -> (String, Option<PathBuf>) {
    match store.strip_prefix("sqlite:") {
        // A database of the run's own, next to its record.
        Some("") => (format!("sqlite:{}", dir.join("chaos.db").display()), Some(dir.join("chaos.db"))),
        Some(path) => (store.to_owned(), Some(PathBuf::from(path))),
        None => (store.to_owned(), None),
    }
}

fn launch(
    tenure: &Path,
    store: String,
    preset: String,
    faketime: Option<PathBuf>,
    more: Option<(String, String)>,
) -> Result<Launch> {
    // Only these: one of the caller's variables must not lead the nodes past their proxies.
    let names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"];
    let passed_on = names.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
    Ok(Launch {
        binary: tenure.canonicalize().with_context(|| format!("no binary {}", tenure.display()))?,
        store,
        preset,
        faketime,
        environment: passed_on.chain(more).collect(),
    })
}

fn run_jobs(args: JobsArgs) -> Result<bool> {
    let dir = record_dir(&args.scenario.record, &format!("jobs-{}", args.scenario.engine))?;
    let (store, _) = store_of(&args.scenario.store, &dir);
    let plan = jobs::Plan {
        launch: launch(&args.scenario.tenure, store, args.scenario.preset, args.faketime, None)?,
        engine: args.scenario.engine,
        endpoints: args.scenario.endpoint,
        nodes: args.nodes.into(),
        agents: args.agents.into(),
        schedules: args.schedules.into(),
        jobs: usize::try_from(args.jobs)?,
        length: Duration::from_secs(args.seconds),
        kill_every: Duration::from_secs(args.kill_every),
        dir: dir.clone(),
    };
    println!("record in {}", dir.display());
    let findings = jobs::run(plan, &mut |line| println!("{line}"))?;
    println!("{}", findings.text());
    conclude(
        &dir,
        args.scenario.keep,
        args.scenario.json.as_deref(),
        &findings,
        findings.violations.is_empty(),
    )
}

fn run_exec(args: ExecArgs) -> Result<bool> {
    let name = args.broken.as_deref().unwrap_or(&args.scenario.engine);
    let dir = record_dir(&args.scenario.record, &format!("exec-{name}"))?;
    let me = std::env::current_exe()?.display().to_string();
    let broken = args.broken.clone().map(|name| (BROKEN.to_owned(), name));
    let launch = launch(&args.scenario.tenure, args.scenario.store, args.scenario.preset, None, broken)?;
    let plan = exec::Plan {
        tenure: launch.binary,
        engine: args.scenario.engine,
        store: launch.store,
        endpoints: args.scenario.endpoint,
        preset: launch.preset,
        environment: launch.environment,
        marker: vec![me, "live".to_owned()],
        rounds: exec::Plan::rounds(args.rounds.into(), &args.only),
        pause: Duration::from_secs(args.pause.into()),
        until_caught: args.broken.is_some(),
        dir: dir.clone(),
    };
    end_with_us(plan.signs())?;
    println!("record in {}", dir.display());
    let findings = exec::run(plan, &mut |line| println!("{line}"))?;
    println!("{}", findings.text());
    conclude(
        &dir,
        args.scenario.keep,
        args.scenario.json.as_deref(),
        &findings,
        findings.violations.is_empty(),
    )
}

#[cfg(target_os = "linux")]
fn run_leftovers(args: LeftoversArgs) -> Result<bool> {
    let dir = record_dir(&args.record, "leftovers")?;
    let seed = args.seed.unwrap_or_else(rand::random);
    let tenure =
        args.tenure.canonicalize().with_context(|| format!("no binary {}", args.tenure.display()))?;
    println!("seed {seed}, {} runs, {} at a time", args.runs, args.at_once);
    let plan = exec::leftovers::Plan {
        tenure,
        runs: args.runs,
        at_once: args.at_once,
        seed,
        environment: args.broken.into_iter().map(|name| (BROKEN.to_owned(), name)).collect(),
        dir: dir.clone(),
    };
    let outcome = exec::leftovers::run(&plan, &mut |line| println!("{line}"))?;
    println!(
        "{} runs of `tenure lock`, {} of which lost the lock; processes alive after one: {}",
        outcome.runs, outcome.lost, outcome.left
    );
    conclude(&dir, false, args.json.as_deref(), &outcome.findings(), outcome.left == 0)
}

#[cfg(not(target_os = "linux"))]
fn run_leftovers(_: LeftoversArgs) -> Result<bool> {
    bail!("`tenure lock` runs on Linux only")
}

/// On Ctrl-C and SIGTERM, ends the nodes and everything they run, too: frozen processes cannot end by themselves.
fn end_with_us(signs: PathBuf) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listening = runtime.enter();
    let (mut asked, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    drop(listening);
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = asked.recv() => {}
                _ = interrupted.recv() => {}
            }
        });
        exec::nodes::end_all(exec::SIGNS_OF_LIFE, &signs);
        std::process::exit(130);
    });
    Ok(())
}

/// Writes the findings, and removes the record unless it is wanted.
fn conclude(
    dir: &Path,
    keep: bool,
    json: Option<&Path>,
    findings: &impl serde::Serialize,
    good: bool,
) -> Result<bool> {
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_vec_pretty(findings)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if good && !keep {
        std::fs::remove_dir_all(dir)?;
    } else {
        println!("record kept in {}", dir.display());
    }
    Ok(good)
}

fn check(dir: &Path, json: Option<&Path>) -> Result<Findings> {
    let findings = judge(&Record::load(dir)?);
    println!("{}", report::text(&findings));
    if let Some(path) = json {
        std::fs::write(path, serde_json::to_vec_pretty(&findings)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(findings)
}

/// Asks the program that started us, one line each way.
struct Asking;

impl Asking {
    fn ask(&self, what: &str) -> Result<()> {
        println!("@store {what}");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).context("no answer about the store")?;
        match answer.trim() {
            "ok" => Ok(()),
            other => bail!("the store did not {what}: {other}"),
        }
    }
}

impl Control for Asking {
    fn stop(&mut self) -> Result<()> {
        self.ask("stop")
    }

    fn start(&mut self) -> Result<()> {
        self.ask("start")
    }
}

/// A child must request the parent-death signal itself, and doing that between fork and exec needs unsafe code. So the child is
/// this very program first. Returns only if it could not become the command.
fn become_bound(parent: i32, command: &[String]) -> anyhow::Error {
    #[cfg(target_os = "linux")]
    {
        if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
            return anyhow::anyhow!("cannot ask for the parent-death signal: {error}");
        }
        // The parent may have died before we asked; then nobody would ever send the signal.
        if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
            return anyhow::anyhow!("the parent {parent} is gone");
        }
    }
    let Some((program, arguments)) = command.split_first() else {
        return anyhow::anyhow!("no command given");
    };
    let error = Command::new(program).args(arguments).exec();
    anyhow::anyhow!("cannot start {program}: {error}")
}

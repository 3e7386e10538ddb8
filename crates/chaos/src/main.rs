//! `cargo xtask chaos`, `jobs` and `exec`: real nodes under faults, on an engine that this program starts, and judges over what they
//! recorded.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a developer's tool talks on its terminal")]

mod args;

use anyhow::{Context, Result, bail, ensure};
use args::{BrokenArgs, Cli, ExecArgs, JobsArgs, LeftoversArgs, RunArgs, ScenarioArgs, StoreKind, Task};
use clap::Parser;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tenure_chaos::broken::{PROGRAM, Play, SOUND, VARIABLE, VARIANTS, Variant};
use tenure_chaos::checks::{Findings, judge};
use tenure_chaos::cluster::Launch;
use tenure_chaos::record::Record;
use tenure_chaos::runner::{self, Plan};
use tenure_chaos::{exec, jobs, report};
use tenure_rig::engine::{self, Engine, REGION, Site};
use tenure_rig::{install, process};
use tokio::signal::unix::{SignalKind, signal};

/// In a shorter run, a restart of the store would leave time for little else.
const RESTART_FROM_S: u64 = 120;
/// How long stopped processes stand still against programs that are broken on purpose.
const BROKEN_PAUSE_S: u16 = 3;

fn main() -> ExitCode {
    process::become_bound_if_asked();
    match play(Cli::parse().task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tenure-chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn play(task: Task) -> Result<bool> {
    let program = |scenario: &ScenarioArgs| scenario.tenure.clone().map_or_else(tenure_rig::tenure, Ok);
    match task {
        Task::Run(args) => {
            let mut ground = Ground::new(args.scenario.engine, program(&args.scenario)?)?;
            run(&args, &mut ground, None).map(|findings| findings.violations.is_empty())
        }
        Task::Jobs(args) => {
            run_jobs(&args, &mut Ground::new(args.scenario.engine, program(&args.scenario)?)?)
        }
        Task::Exec(args) => {
            let mut ground = Ground::new(args.scenario.engine, program(&args.scenario)?)?;
            run_exec(&args, &mut ground, None).map(|found| is_clean(&found))
        }
        Task::Leftovers(args) => {
            run_leftovers(&args, tenure_rig::tenure()?, None).map(|found| is_clean(&found))
        }
        Task::Broken(args) => run_broken(&args),
        Task::Check { record, json } => {
            check(&record, json.as_deref()).map(|findings| findings.violations.is_empty())
        }
        Task::Live { word } => exec::signs_of_life::live(word.is_some()).map(|()| true),
    }
}

fn is_clean(findings: &Value) -> bool {
    findings["violations"].as_array().is_some_and(Vec::is_empty)
}

/// What a run stands on: the program, and a started engine unless the store is a file.
struct Ground {
    tenure: PathBuf,
    kind: StoreKind,
    site: Option<Site>,
    /// How many runs there were, so that each has a place of its own.
    runs: u32,
}

impl Ground {
    fn new(kind: StoreKind, tenure: PathBuf) -> Result<Ground> {
        let engine = match kind {
            StoreKind::Seaweedfs => Some(Engine::Seaweedfs),
            StoreKind::Ceph => Some(Engine::Ceph),
            StoreKind::Ministack => Some(Engine::Ministack),
            StoreKind::Sqlite => None,
        };
        let tenure = tenure.canonicalize().with_context(|| format!("no program {}", tenure.display()))?;
        if let Some(engine) = engine {
            for leftover in engine::clean_leftovers() {
                println!("ended and removed {leftover}, left behind by a killed run");
            }
            println!("starting {}", engine.name());
        }
        Ok(Ground { tenure, kind, site: engine.map(Engine::start_bound).transpose()?, runs: 0 })
    }

    fn name(&self) -> String {
        self.site.as_ref().map_or("sqlite", |site| site.access().name.name()).to_owned()
    }

    fn endpoints(&self) -> Vec<String> {
        self.site.as_ref().map_or_else(Vec::new, |site| site.access().endpoints.clone())
    }

    /// What nodes are started with, on a store that nobody used before, and the store's file if it is one.
    fn launch(
        &mut self,
        preset: &str,
        dir: &Path,
        faketime: Option<PathBuf>,
        mistake: Option<&str>,
    ) -> (Launch, Option<PathBuf>) {
        self.runs += 1;
        let mut environment: Vec<(String, String)> = Vec::new();
        environment.extend(mistake.map(|name| (VARIABLE.to_owned(), name.to_owned())));
        let (store, file) = match &self.site {
            None => (format!("sqlite:{}", dir.join("chaos.db").display()), Some(dir.join("chaos.db"))),
            Some(site) => {
                let access = site.access();
                let keys = [
                    ("AWS_ACCESS_KEY_ID", access.access_key.as_str()),
                    ("AWS_SECRET_ACCESS_KEY", &access.secret_key),
                    ("AWS_REGION", REGION),
                ];
                environment.extend(keys.map(|(name, value)| (name.to_owned(), value.to_owned())));
                (format!("s3://{}/chaos-{}-{}/", access.bucket, std::process::id(), self.runs), None)
            }
        };
        let binary = self.tenure.clone();
        (Launch { binary, store, preset: preset.to_owned(), faketime, environment }, file)
    }
}

fn run(args: &RunArgs, ground: &mut Ground, broken: Option<&str>) -> Result<Findings> {
    let seed = args.seed.unwrap_or_else(rand::random);
    let (engine, mut notices) = (ground.name(), Vec::new());
    let dir = args.scenario.dir(&format!("{}-{seed}", broken.unwrap_or(&engine)))?;
    let faketime = install::faketime();
    if let Err(error) = &faketime {
        notices.push(format!("no shifted wall clocks: {error:#}"));
    }
    let survives = ground.site.as_ref().is_some_and(|site| site.access().name.can_restart());
    let restarts = survives && args.seconds >= RESTART_FROM_S;
    if ground.site.is_some() && !restarts {
        let why = if survives { "the run is too short" } else { "it would forget everything" };
        notices.push(format!("no restart of the store: {why}"));
    }
    let endpoints = ground.endpoints();
    let (launch, file) = ground.launch(&args.scenario.preset, &dir, faketime.ok(), broken);
    println!("seed {seed}, record in {}", dir.display());
    let plan = Plan {
        launch,
        engine,
        endpoints,
        file,
        restarts: ground.site.as_mut().filter(|_| restarts),
        nodes: args.nodes.into(),
        seed,
        length: Duration::from_secs(args.seconds),
        dir: dir.clone(),
        notices,
        only: args.only.clone(),
        until_caught: broken.is_some_and(|name| name != SOUND),
    };
    let played = runner::run(plan, &mut |line| println!("{line}"));
    let findings = match check(&dir, args.scenario.json.as_deref()) {
        Ok(findings) => findings,
        // Nothing to judge; the earlier error says why.
        Err(error) => return Err(played.err().unwrap_or(error)),
    };
    let is_good = findings.violations.is_empty() && played.is_ok();
    if !is_good {
        println!("the same schedule again: --seed {seed}");
    }
    args.scenario.conclude(&dir, None, is_good)?;
    played.map(|()| findings)
}

impl ScenarioArgs {
    /// With what is usual, for a run that is part of another.
    fn usual(engine: StoreKind) -> ScenarioArgs {
        ScenarioArgs {
            tenure: None,
            engine,
            preset: "fast".to_owned(),
            record: None,
            keep: false,
            json: None,
        }
    }

    /// Creates an empty directory of this name for the record.
    fn dir(&self, name: &str) -> Result<PathBuf> {
        let records = self
            .record
            .clone()
            .map_or_else(|| Ok(tenure_rig::target()?.join("chaos")), Ok::<_, anyhow::Error>)?;
        let dir = records.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
        }
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(dir.canonicalize()?)
    }

    /// Writes the findings, and removes the record unless it is wanted.
    fn conclude(&self, dir: &Path, findings: Option<&Value>, is_good: bool) -> Result<()> {
        if let Some((path, findings)) = self.json.as_ref().zip(findings) {
            write_json(path, findings)?;
        }
        match is_good && !self.keep {
            true => std::fs::remove_dir_all(dir)?,
            false => println!("record kept in {}", dir.display()),
        }
        Ok(())
    }
}

fn write_json(path: &Path, findings: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(findings)?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn run_jobs(args: &JobsArgs, ground: &mut Ground) -> Result<bool> {
    let (engine, endpoints) = (ground.name(), ground.endpoints());
    let dir = args.scenario.dir(&format!("jobs-{engine}"))?;
    let faketime = install::faketime();
    if let Err(error) = &faketime {
        println!("no agent with a wrong clock: {error:#}");
    }
    let plan = jobs::Plan {
        launch: ground.launch(&args.scenario.preset, &dir, faketime.ok(), None).0,
        engine,
        endpoints,
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
    let is_good = findings.violations.is_empty();
    args.scenario.conclude(&dir, Some(&serde_json::to_value(&findings)?), is_good)?;
    Ok(is_good)
}

fn run_exec(args: &ExecArgs, ground: &mut Ground, broken: Option<&str>) -> Result<Value> {
    let (engine, endpoints) = (ground.name(), ground.endpoints());
    let dir = args.scenario.dir(&format!("exec-{}", broken.unwrap_or(&engine)))?;
    let me = std::env::current_exe()?.display().to_string();
    let (launch, _) = ground.launch(&args.scenario.preset, &dir, None, broken);
    let plan = exec::Plan {
        tenure: launch.binary,
        engine,
        store: launch.store,
        endpoints,
        preset: launch.preset,
        environment: launch.environment,
        marker: vec![me, "live".to_owned()],
        rounds: exec::Plan::rounds(args.rounds.into(), &args.only),
        pause: Duration::from_secs(args.pause.into()),
        until_caught: broken.is_some_and(|name| name != SOUND),
        dir: dir.clone(),
    };
    end_with_us(plan.signs())?;
    println!("record in {}", dir.display());
    let findings = exec::run(plan, &mut |line| println!("{line}"))?;
    println!("{}", findings.text());
    let found = serde_json::to_value(&findings)?;
    args.scenario.conclude(&dir, Some(&found), findings.violations.is_empty())?;
    Ok(found)
}

#[cfg(target_os = "linux")]
fn run_leftovers(args: &LeftoversArgs, tenure: PathBuf, broken: Option<&str>) -> Result<Value> {
    let scenario = ScenarioArgs::usual(StoreKind::Sqlite);
    let dir = scenario.dir("leftovers")?;
    let seed = args.seed.unwrap_or_else(rand::random);
    println!("seed {seed}, {} runs, {} at a time", args.runs, args.at_once);
    let plan = exec::leftovers::Plan {
        tenure,
        runs: args.runs,
        at_once: args.at_once,
        seed,
        environment: broken.into_iter().map(|name| (VARIABLE.to_owned(), name.to_owned())).collect(),
        dir: dir.clone(),
    };
    let outcome = exec::leftovers::run(&plan, &mut |line| println!("{line}"))?;
    println!(
        "{} runs of `tenure lock`, {} of which lost the lock; processes alive after one: {}",
        outcome.runs, outcome.lost, outcome.left
    );
    scenario.conclude(&dir, None, outcome.left == 0)?;
    Ok(outcome.findings())
}

#[cfg(not(target_os = "linux"))]
fn run_leftovers(_: &LeftoversArgs, _: PathBuf, _: Option<&str>) -> Result<Value> {
    bail!("`tenure lock` runs on Linux only")
}

/// Plays the chosen variants; whether the judge was right about each.
fn run_broken(args: &BrokenArgs) -> Result<bool> {
    let is_chosen = |variant: &&Variant| {
        args.only.as_ref().is_none_or(|only| only == variant.name) && (!args.exec || variant.is_exec())
    };
    let chosen: Vec<&Variant> = VARIANTS.iter().filter(is_chosen).collect();
    if chosen.is_empty() {
        let names: BTreeSet<&str> = VARIANTS.iter().map(|variant| variant.name).collect();
        bail!("no such broken variant; there are {}", names.into_iter().collect::<Vec<_>>().join(", "));
    }
    let tenure = tenure_rig::tenure()?.with_file_name(PROGRAM);
    ensure!(tenure.is_file(), "{} is not there; `cargo xtask broken` makes it", tenure.display());
    let needs = |variant: &&Variant| match variant.play {
        Play::Chaos { network, .. } => network,
        Play::Exec { .. } => args.engine != StoreKind::Sqlite,
        Play::Leftovers { .. } => false,
    };
    let mut on_file = Ground::new(StoreKind::Sqlite, tenure.clone())?;
    let mut on_network = match chosen.iter().any(needs) {
        true => Some(Ground::new(args.engine, tenure.clone())?),
        false => None,
    };
    let mut rows = Vec::new();
    for variant in chosen {
        println!("==> {} ({})", variant.name, variant.what);
        let ground = on_network.as_mut().filter(|_| needs(&variant)).unwrap_or(&mut on_file);
        let mistake = (!variant.is_sound()).then_some(variant.name);
        let findings = match variant.play {
            Play::Chaos { faults, nodes, seconds, .. } => {
                let args = RunArgs {
                    scenario: ScenarioArgs::usual(ground.kind),
                    seconds,
                    seed: Some(args.seed),
                    nodes,
                    only: faults.to_vec(),
                };
                // It is meant to fail: what was judged counts.
                serde_json::to_value(run(&args, ground, mistake)?)?
            }
            Play::Exec { faults, rounds } => {
                let scenario = ScenarioArgs::usual(ground.kind);
                let args = ExecArgs { scenario, rounds, only: faults.to_vec(), pause: BROKEN_PAUSE_S };
                run_exec(&args, ground, mistake)?
            }
            Play::Leftovers { runs } => {
                let args = LeftoversArgs { runs, at_once: 8, seed: Some(args.seed) };
                run_leftovers(&args, tenure.clone(), mistake)?
            }
        };
        let found = variant.sentence(&findings);
        let (word, by) = match &found {
            Ok(by) => ("", by),
            Err(why) => ("NOT CAUGHT: ", why),
        };
        println!("==> {}: {word}{by}\n", variant.name);
        rows.push(json!({
            "variant": variant.name, "what": variant.what, "caught": found.is_ok(), "by": by,
            "seconds": findings["seconds"], "faults": findings["faults"], "kinds": variant.faults(), "seed": args.seed,
            "engine": ground.name(), "exec": variant.is_exec(),
        }));
    }
    for row in &rows {
        let word = if row["caught"] == true { "" } else { "NOT CAUGHT: " };
        println!(
            "{:<24} {word}{}",
            row["variant"].as_str().unwrap_or("?"),
            row["by"].as_str().unwrap_or("?")
        );
    }
    if let Some(path) = &args.json {
        write_json(path, &rows)?;
    }
    Ok(rows.iter().all(|row| row["caught"] == true))
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

fn check(dir: &Path, json: Option<&Path>) -> Result<Findings> {
    let findings = judge(&Record::load(dir)?);
    println!("{}", report::text(&findings));
    if let Some(path) = json {
        write_json(path, &findings)?;
    }
    Ok(findings)
}

//! `cargo xtask test`: every check, with its duration, and a last line that says what was not run.

mod lanes;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::chaos::{self, StoreKind};
use crate::debian::{self, Needed};
use crate::engine::{self, Engine, Lifetime, Site};
use crate::jobs;
use crate::npm;
use crate::proof;
use crate::python::{self, Played};
use crate::schemathesis;
use crate::workspace::Workspace;
use crate::{interrupt, process, verify};
use lanes::{Program, Task};

/// A hung test must not hang the run.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// The engines' addresses and credentials, for tests marked as ignored because they need them.
const ENGINES_VARIABLE: &str = "TENURE_TEST_S3_ENGINES";
/// Where the script of axe-core is, for the test of the dashboard that needs it.
const AXE_VARIABLE: &str = "TENURE_TEST_AXE";
/// Where node-cron is, for the test of the client that needs it.
const CRON_VARIABLE: &str = "NODE_CRON";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Without S3 engines
    #[arg(long, conflicts_with = "engine")]
    quick: bool,
    /// Without `cargo xtask verify`
    #[arg(long)]
    no_verify: bool,
    /// Which engines: naming ceph alone adds it to the usual three, naming any of those replaces them
    #[arg(long, value_enum)]
    engine: Vec<Engine>,
    /// Passed on to the test programs, e.g. part of a test's name
    #[arg(last = true)]
    filter: Vec<String>,
}

impl Args {
    fn engines(&self) -> Vec<Engine> {
        if self.quick {
            return Vec::new();
        }
        let mut chosen = self.engine.clone();
        if !chosen.iter().any(|engine| Engine::DEFAULT.contains(engine)) {
            chosen.extend(Engine::DEFAULT);
        }
        chosen.sort();
        chosen.dedup();
        chosen
    }
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<bool> {
    let mut report = Report::new();
    for leftover in engine::clean_leftovers(workspace) {
        println!("xtask: ended and removed {leftover}, left behind by a killed run");
    }
    if args.no_verify {
        report.skip("verify (--no-verify)");
    } else {
        report.step("verify", || verify::run(workspace));
    }
    if !report.step("build", || process::run(&mut workspace.build(), LIMIT)) {
        report.skip("all tests (the build failed)");
        return Ok(report.finish());
    }
    // As in the README: with a second binary, `cargo run` would need a name.
    report.step("cargo run", || process::run(workspace.cargo().args(["run", "--", "--version"]), LIMIT));
    let mut sites = Vec::new();
    for engine in args.engines() {
        report.step(&format!("start {}", engine.name()), || {
            sites.push(engine.start(workspace, &engine::run_dir(workspace, engine), Lifetime::Bound)?);
            Ok(true)
        });
    }
    let filtered = !args.filter.is_empty();
    let mut programs = Vec::new();
    report.step("build the tests", || {
        programs = Program::build(workspace, LIMIT)?;
        Ok(true)
    });
    // Needed by tests that are marked as ignored: their step, by the name of the program.
    let mut special = Vec::new();
    if args.quick {
        report.skip("engine tests (--quick)");
    } else if sites.is_empty() {
        report.skip("engine tests (no engine started)");
    } else {
        let names: Vec<&str> = sites.iter().map(|site| site.access().name.name()).collect();
        special.push(("engines", format!("engine tests ({})", names.join(", "))));
    }
    for (step, needed, program) in [
        ("dashboard", debian::BROWSER, "dashboard"),
        ("alerts and scrape", debian::PROMETHEUS, "scrape"),
        ("PostgreSQL", debian::POSTGRES, "postgres"),
    ] {
        if report.has(step, &needed, args.quick) {
            special.push((program, step.to_owned()));
        }
    }
    let mut waiting = waiting(&programs, &special, &args.filter, &sites)?;
    let mut computing = computing(workspace, &programs, &args.filter);
    if filtered {
        report.skip("clients and deploy (a filter was given)");
    } else {
        match python::programs(workspace)? {
            Some(programs) => {
                waiting.push(client_for_python(workspace, &programs));
                computing.extend(deploy(workspace, &programs));
            }
            None => report
                .skip("CLIENT FOR PYTHON, DEPLOY (Python's packages are not there and cannot be installed)"),
        }
        if report.has("client for js", &debian::NODE, false) {
            waiting.push(client_for_js(workspace)?);
        }
    }
    if special.iter().any(|(program, _)| *program == "dashboard") || !filtered {
        let modules = npm::modules(workspace)?;
        if modules.is_none() {
            report.skip("AXE-CORE, NODE-CRON (npm's packages are not there and cannot be installed)");
        }
        for task in &mut waiting {
            for (variable, file) in [(AXE_VARIABLE, "axe-core/axe.min.js"), (CRON_VARIABLE, "node-cron")] {
                task.command.env_remove(variable);
                task.command.envs(modules.iter().map(|modules| (variable, modules.join(file))));
            }
        }
    }
    report.lanes(waiting, computing, filtered);
    for example in examples(workspace)?.into_iter().filter(|_| !filtered) {
        // Already built with the tests.
        report.step(&format!("example {example}"), || {
            let mut command = Command::new(workspace.program("examples").join(&example));
            process::tee(&mut command, LIMIT, |_| {})
        });
    }
    if filtered {
        report.skip("proof, schemathesis, jobs and chaos (a filter was given)");
    } else {
        report.with_python("proof", || proof::play(workspace));
        report.with_python("schemathesis", || schemathesis::play(workspace));
        let site = sites.iter_mut().find(|site| site.access().name == Engine::Seaweedfs);
        let store = if site.is_some() { StoreKind::Seaweedfs } else { StoreKind::Sqlite };
        report.step(&format!("jobs through kills ({})", store.name()), || {
            jobs::play(workspace, &jobs::Args::short(store), site.as_deref())
        });
        report.step(&format!("chaos for a minute ({})", store.name()), || {
            chaos::play(workspace, &chaos::Args::short(store), site)
        });
    }
    if !sites.is_empty() {
        report.timed("stop engines", || {
            sites.drain(..).rev().for_each(Site::stop);
            Ok(true)
        });
    }
    for engine in clap::ValueEnum::value_variants() {
        if !args.quick && !args.engines().contains(engine) {
            report.skip(&format!("{0} (--engine {0})", engine.name()));
        }
    }
    if filtered {
        report.skip(&format!("tests that do not match `{}`", args.filter.join(" ")));
    }
    Ok(report.finish())
}

/// Tests that start processes, and then those that need an engine or a program of the system.
fn waiting(
    programs: &[Program],
    special: &[(&str, String)],
    filter: &[String],
    sites: &[Site],
) -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    for program in programs.iter().filter(|program| program.waits()) {
        tasks.push(Task {
            step: "tests".to_owned(),
            title: program.title(),
            command: program.command(filter),
        });
    }
    for (name, step) in special {
        for program in programs.iter().filter(|program| program.name == *name) {
            let mut args = vec!["--ignored".to_owned(), "--test-threads=2".to_owned()];
            args.extend_from_slice(filter);
            tasks.push(Task { step: step.clone(), title: program.title(), command: program.command(&args) });
        }
    }
    for task in &mut tasks {
        with_engines(&mut task.command, sites)?;
    }
    Ok(tasks)
}

/// The rest. What has to be built comes first, when nothing beside it needs an engine or a build.
fn computing(workspace: &Workspace, programs: &[Program], filter: &[String]) -> Vec<Task> {
    let cargo = |step: &str, args: &[&str]| {
        let mut command = workspace.cargo();
        command.args(["test", "--workspace", "--no-fail-fast"]).args(args).arg("--").args(filter);
        Task { step: step.to_owned(), title: step.to_owned(), command }
    };
    // Broken variants of the protocol are behind a feature, so that no product build contains them.
    let features = "tenure-core/teeth,tenure/teeth,tenure-sim/teeth";
    let mut tasks = vec![
        cargo("mutants", &["--features", features, "--test", "teeth"]),
        cargo("examples in the documentation", &["--doc"]),
    ];
    for program in programs.iter().filter(|program| !program.waits()) {
        tasks.push(Task {
            step: "tests".to_owned(),
            title: program.title(),
            command: program.command(filter),
        });
    }
    tasks
}

/// The client for Python, against the binary of this build; with the packages it works together with.
fn client_for_python(workspace: &Workspace, programs: &Path) -> Task {
    let mut command = Command::new(programs.join("python"));
    command.args(["-m", "unittest", "discover", "-t", ".", "-s", "tests"]);
    command.current_dir(workspace.root.join("clients/python")).env("TENURE_BIN", workspace.program("tenure"));
    Task { step: "client for python".to_owned(), title: "clients/python".to_owned(), command }
}

fn client_for_js(workspace: &Workspace) -> Result<Task> {
    let mut command = Command::new("node");
    command.arg("--test");
    // They wait most of the time; an older Node.js takes one file after another.
    let at_once = "--test-concurrency";
    if process::capture(Command::new("node").arg("--help"), LIMIT)?.ok("node")?.contains(at_once) {
        command.arg(format!("{at_once}=4"));
    }
    command.current_dir(workspace.root.join("clients/js")).env("TENURE_BIN", workspace.program("tenure"));
    Ok(Task { step: "client for js".to_owned(), title: "clients/js".to_owned(), command })
}

/// What `deploy/` describes is valid, and the check of that bites.
fn deploy(workspace: &Workspace, programs: &Path) -> [Task; 2] {
    ["check.py", "check_test.py"].map(|script| {
        let mut command = Command::new(programs.join("python"));
        command.arg(workspace.root.join("deploy").join(script));
        Task { step: "deploy".to_owned(), title: script.to_owned(), command }
    })
}

/// The library's examples, by name: each runs to its end and checks itself.
fn examples(workspace: &Workspace) -> Result<Vec<String>> {
    let files = workspace.files()?.into_iter().filter(|path| path.starts_with("crates/tenure/examples"));
    Ok(files.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect())
}

fn with_engines(command: &mut Command, sites: &[Site]) -> Result<()> {
    // Never the caller's own value: a test that finds addresses of engines that are not ours would be a mystery.
    command.env_remove(ENGINES_VARIABLE);
    if !sites.is_empty() {
        let access: Vec<_> = sites.iter().map(Site::access).collect();
        command.env(ENGINES_VARIABLE, serde_json::to_string(&access)?);
    }
    Ok(())
}

/// What ran, how long it took, and what did not run.
struct Report {
    began: Instant,
    passed: Vec<String>,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl Report {
    fn new() -> Self {
        Self { began: Instant::now(), passed: Vec::new(), failed: Vec::new(), skipped: Vec::new() }
    }

    fn skip(&mut self, what: &str) {
        self.skipped.push(what.to_owned());
    }

    /// Runs one step; a failure is remembered, not passed on, so that the other steps still run.
    fn step(&mut self, name: &str, action: impl FnOnce() -> Result<bool>) -> bool {
        self.may_start(name) && self.timed(name, action)
    }

    /// Runs tests in two lanes and counts them by step.
    fn lanes(&mut self, waiting: Vec<Task>, computing: Vec<Task>, filtered: bool) {
        if !self.may_start("tests") {
            return;
        }
        println!("\n==> tests, in two lanes");
        let mut steps: Vec<String> = Vec::new();
        for task in waiting.iter().chain(&computing) {
            if !steps.contains(&task.step) {
                steps.push(task.step.clone());
            }
        }
        let ran = lanes::run(waiting, computing, LIMIT);
        for step in steps {
            let of_step: Vec<_> = ran.iter().filter(|ran| ran.step == step).collect();
            let mut count = Count::default();
            of_step.iter().for_each(|ran| ran.output.lines().for_each(|line| count.add(line)));
            if of_step.is_empty() {
                self.skip(&format!("{step} (interrupted)"));
            } else {
                let passed = count.judge(of_step.iter().all(|ran| ran.passed), filtered);
                self.ended(&step, of_step.iter().map(|ran| ran.took).sum(), passed, &count.to_string());
            }
        }
    }

    /// Whether programs of the system are there; if not, the step is left out, loudly.
    fn has(&mut self, step: &str, needed: &Needed, quick: bool) -> bool {
        if quick {
            self.skip(&format!("{step} (--quick)"));
            return false;
        }
        match needed.provide() {
            Ok(Ok(())) => return true,
            Ok(Err(missing)) => {
                println!("\n!!! {step}: NOT TESTED: {missing}");
                self.skip(&format!("{step} ({missing})"));
            }
            Err(error) => drop(self.step(step, || Err(error))),
        }
        false
    }

    /// A check that needs Python; if that is missing, the check is left out, loudly.
    fn with_python(&mut self, name: &str, play: impl FnOnce() -> Result<Played>) {
        let mut missing = false;
        self.step(name, || {
            let played = play()?;
            missing = played == Played::Missing;
            Ok(played != Played::Failed)
        });
        if missing {
            self.skip(&format!(
                "{} (Python's packages are not there and cannot be installed)",
                name.to_uppercase()
            ));
        }
    }

    fn may_start(&mut self, name: &str) -> bool {
        let interrupted = interrupt::pending();
        if interrupted {
            self.skip(&format!("{name} (interrupted)"));
        }
        !interrupted
    }

    fn timed(&mut self, name: &str, action: impl FnOnce() -> Result<bool>) -> bool {
        println!("\n==> {name}");
        let began = Instant::now();
        let passed = action().unwrap_or_else(|error| {
            println!("{error:#}");
            false
        });
        self.ended(name, began.elapsed(), passed, "")
    }

    fn ended(&mut self, name: &str, took: Duration, passed: bool, count: &str) -> bool {
        let outcome = if passed { "ok" } else { "FAILED" };
        println!("==> {name}: {outcome} in {:.1} s", took.as_secs_f64());
        let entry = if count.is_empty() { name.to_owned() } else { format!("{name}: {count}") };
        if passed {
            self.passed.push(entry)
        } else {
            self.failed.push(entry)
        }
        passed
    }

    fn finish(self) -> bool {
        let line = self.line();
        println!("\n{line}");
        self.failed.is_empty()
    }

    fn line(&self) -> String {
        let outcome = if self.failed.is_empty() { "PASSED" } else { "FAILED" };
        let mut line = format!("{outcome} in {:.0} s", self.began.elapsed().as_secs_f64());
        for (title, entries) in [("FAILED", &self.failed), ("ran", &self.passed), ("SKIPPED", &self.skipped)]
        {
            if !entries.is_empty() {
                line.push_str(&format!(" | {title}: {}", entries.join(", ")));
            }
        }
        line
    }
}

/// Totals over the summaries of several test programs.
#[derive(Default)]
struct Count {
    passed: u32,
    failed: u32,
    ignored: u32,
}

impl Count {
    /// It is a failure if no test ran at all, unless a filter explains it.
    fn judge(&self, passed: bool, filtered: bool) -> bool {
        let idle = passed && self.passed == 0 && !filtered;
        if idle {
            println!("not one test ran");
        }
        passed && !idle
    }

    fn add(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // As Python's unittest, Node's runner and `deploy/` say it; that one failed is in their exit codes.
        if let ["Ran", number, "test" | "tests", "in", _]
        | ["#" | "ℹ", "pass", number]
        | [number, "of", _, "noticed"] = words[..]
        {
            self.passed += number.parse().unwrap_or(0);
        }
        let Some(summary) = line.trim().strip_prefix("test result: ") else { return };
        for part in summary.split([';', '.']) {
            let Some((number, kind)) = part.trim().split_once(' ') else { continue };
            let Ok(number) = number.parse::<u32>() else { continue };
            match kind {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} passed", self.passed)?;
        if self.failed > 0 {
            write!(formatter, " {} FAILED", self.failed)?;
        }
        if self.ignored > 0 {
            write!(formatter, " {} ignored here", self.ignored)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(engines: &[Engine]) -> Args {
        Args { quick: false, no_verify: false, engine: engines.to_vec(), filter: Vec::new() }
    }

    #[test]
    fn ceph_is_added_and_a_usual_engine_narrows() {
        assert_eq!(args(&[]).engines(), Engine::DEFAULT);
        assert_eq!(args(&[Engine::Ceph]).engines().len(), 4);
        assert_eq!(args(&[Engine::Ministack]).engines(), [Engine::Ministack]);
        assert_eq!(args(&[Engine::Ceph, Engine::Seaweedfs]).engines(), [Engine::Seaweedfs, Engine::Ceph]);
        assert_eq!(Args { quick: true, ..args(&[]) }.engines(), []);
    }

    #[test]
    fn totals_are_added_up_over_programs() {
        let mut count = Count::default();
        count.add(
            "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 4 filtered out; finished in 0.01s",
        );
        count.add("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.5s");
        count.add("test a::b ... ok");
        ["Ran 4 tests in 12.3s", "ℹ pass 5", "# pass 6", "7 of 7 noticed"]
            .iter()
            .for_each(|line| count.add(line));
        assert_eq!(count.to_string(), "35 passed 2 FAILED 3 ignored here");
    }

    #[test]
    fn a_run_without_a_single_test_fails_unless_filtered() {
        let silent = |step: &str| {
            let (step, command) = (step.to_owned(), Command::new("true"));
            vec![Task { title: step.clone(), step, command }]
        };
        let mut report = Report::new();
        report.lanes(silent("filtered"), Vec::new(), true);
        assert_eq!(report.failed, [""; 0]);
        report.lanes(Vec::new(), silent("empty"), false);
        assert_eq!(report.failed, ["empty: 0 passed"]);
    }

    #[test]
    fn a_failed_step_fails_the_run_and_is_named() {
        let mut report = Report::new();
        assert!(report.step("good", || Ok(true)));
        assert!(!report.step("bad", || anyhow::bail!("no")));
        report.skip("ceph");
        let line = report.line();
        assert!(
            line.starts_with("FAILED") && line.contains("FAILED: bad") && line.contains("SKIPPED: ceph"),
            "{line}"
        );
        assert!(!report.finish());
    }
}

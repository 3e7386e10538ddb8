//! `cargo xtask test`: two builds, every check, and a last line that says what was not run.
//!
//! The shipped program is built as users build it, the tests in one other build. What mostly waits runs beside the builds and the
//! tests; nextest orders the tests themselves (`.config/nextest.toml`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure_rig::engine::{self, Engine, Site};
use tenure_rig::process::{self, Captured};

use crate::steps::{Beside, Report};
use crate::workspace::{Workspace, fresh};
use crate::{proof, tools, verify};

/// A hung test must not hang the run.
const LIMIT: Duration = Duration::from_secs(40 * 60);
/// The engines' addresses and credentials, for tests marked as ignored because they need them.
const ENGINES_VARIABLE: &str = "TENURE_TEST_S3_ENGINES";
/// The folder `node_modules` for tests with a browser.
const NPM_VARIABLE: &str = "TENURE_TEST_NPM";
/// The folder with Python's programs.
const PYTHON_VARIABLE: &str = "TENURE_TEST_PYTHON";
/// Tests that are ignored because they need something: their module, and what.
const NEEDY: [(&str, &str); 5] = [
    ("engines", "engine tests"),
    ("dashboard", "dashboard"),
    ("scrape", "alerts and scrape"),
    ("postgres", "PostgreSQL"),
    ("schemathesis", "schemathesis"),
];
/// Tests that are ignored for another reason: measurements, what waits for another part of the product, what only `prove` plays,
/// and the newcomer's first minutes.
const NEVER: &str = "test(/(^|::)(measures_|later_|long::)/) | test(/^newcomer::/)";
/// Tests that mostly wait for processes and engines; the others compute.
const WAITING: &str = "package(tenure-cli-tests) | test(/^engines::/)";
/// How many programs run beside the builds and the tests.
const BESIDE: usize = 2;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Without engines, browser and databases, chaos, clients and the proof: for the inner loop
    #[arg(long, conflicts_with = "engine")]
    quick: bool,
    /// Which engines: naming ceph alone adds it to the usual three, naming any of those replaces them
    #[arg(long, value_enum)]
    engine: Vec<Engine>,
    /// Only tests whose name contains one of these
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
    let report = Report::new();
    for leftover in engine::clean_leftovers() {
        println!("ended and removed {leftover}, left behind by a killed run");
    }
    if report.step("build", || verify::shipped(workspace)) {
        run_on_build(workspace, args, &report);
    } else {
        report.skip("all tests (the build failed)");
    }
    Ok(report.finish())
}

fn run_on_build(workspace: &Workspace, args: &Args, report: &Report) {
    let is_whole = args.filter.is_empty();
    let beside = Beside::new(report);
    match (is_whole, args.quick) {
        (true, false) => {
            judges(workspace, &beside);
            clients(workspace, report, &beside);
            beside.add("verify", || verify::rules(workspace));
            after_build(workspace, &beside);
        }
        (true, true) => {
            beside.add("verify", || verify::rules(workspace));
            report.skip("documentation, examples, clients, deploy, proof, jobs and chaos (--quick)")
        }
        (false, _) => {
            report.skip("verify, clients, deploy, proof, examples, jobs and chaos (a filter was given)")
        }
    }
    thread::scope(|scope| {
        for _ in 0..BESIDE {
            scope.spawn(|| beside.work());
        }
        let built = scope.spawn(|| {
            let built = report.step("build the tests, and lint", || verify::clippy(workspace));
            beside.built(built);
            built
        });
        // On this thread, because an engine ends with the thread that started it.
        let needs = Needs::provide(workspace, report, args);
        if built.join().unwrap_or(false) {
            needs.test(workspace, report, &beside, args);
        } else {
            report.skip("all tests (their build failed)");
        }
    });
    for engine in clap::ValueEnum::value_variants() {
        if !args.quick && !args.engines().contains(engine) {
            report.skip(&format!("{0} (--engine {0})", engine.name()));
        }
    }
    if !is_whole {
        report.skip(&format!("tests that do not match `{}`", args.filter.join(" ")));
    }
}

/// What tests need that are marked as ignored, as far as it is there.
struct Needs {
    sites: Vec<Site>,
    npm: Option<PathBuf>,
    python: Option<PathBuf>,
    /// Modules of [`NEEDY`] that cannot run.
    missing: Vec<&'static str>,
}

impl Needs {
    fn provide(workspace: &Workspace, report: &Report, args: &Args) -> Needs {
        let mut needs = Needs { sites: Vec::new(), npm: None, python: None, missing: Vec::new() };
        if args.quick {
            needs.missing = NEEDY.map(|(module, _)| module).to_vec();
            report.skip(&format!("{} (--quick)", NEEDY.map(|(_, what)| what).join(", ")));
            return needs;
        }
        for engine in args.engines() {
            report.step(&format!("start {}", engine.name()), || {
                needs.sites.push(engine.start_bound()?);
                Ok(true)
            });
        }
        needs.npm = report.available("dashboard", tools::BROWSER.provide().and_then(|()| tools::npm()));
        let prometheus = report.available("alerts and scrape", tools::PROMETHEUS.provide());
        let postgres = report.available("PostgreSQL", tools::POSTGRES.provide());
        needs.python = report.available("schemathesis", tools::python(workspace));
        let is_there = [
            !needs.sites.is_empty(),
            needs.npm.is_some(),
            prometheus.is_some(),
            postgres.is_some(),
            needs.python.is_some(),
        ];
        let missing = NEEDY.iter().zip(is_there).filter(|(_, is_there)| !is_there);
        needs.missing = missing.map(|((module, _), _)| *module).collect();
        needs
    }

    /// Plays the tests: those that compute with a lower priority, beside those that wait and measure.
    fn test(&self, workspace: &Workspace, report: &Report, beside: &Beside<'_>, args: &Args) {
        let chosen = self
            .missing
            .iter()
            .fold(format!("not ({NEVER})"), |chosen, module| format!("{chosen} & not test(/^{module}::/)"));
        thread::scope(|scope| {
            scope.spawn(|| {
                let which = format!("{chosen} & not ({WAITING})");
                report.counted("tests that compute", || self.nextest(workspace, "compute", &which, args));
            });
            beside.early_ended();
            let which = format!("{chosen} & ({WAITING})");
            report.counted("tests that wait", || self.nextest(workspace, "default", &which, args));
        });
    }

    fn nextest(
        &self,
        workspace: &Workspace,
        profile: &str,
        which: &str,
        args: &Args,
    ) -> Result<(bool, String)> {
        let mut command = nextest(workspace, which)?;
        command.args(["--profile", profile]);
        if !args.filter.is_empty() {
            command.arg("--no-tests=pass").args(&args.filter);
        }
        // Never the caller's own values: a test that finds an engine that is not ours would be a mystery.
        for variable in [ENGINES_VARIABLE, NPM_VARIABLE, PYTHON_VARIABLE] {
            command.env_remove(variable);
        }
        let access: Vec<_> = self.sites.iter().map(Site::access).collect();
        if !access.is_empty() {
            command.env(ENGINES_VARIABLE, serde_json::to_string(&access)?);
        }
        command.envs(self.npm.iter().map(|modules| (NPM_VARIABLE, modules)));
        command.envs(self.python.iter().map(|programs| (PYTHON_VARIABLE, programs)));
        if profile == "compute" {
            command = process::yielding(&command);
        }
        let junit = workspace.root.join("target/nextest").join(profile).join("junit.xml");
        let _ = std::fs::remove_file(&junit);
        let passed = process::run(&mut command, LIMIT)?;
        let count = std::fs::read_to_string(&junit).map(|text| Count::of(&text)).unwrap_or_default();
        Ok((passed && count.failed == 0, count.to_string()))
    }
}

/// Clients and descriptions of deployments, against the shipped program.
fn clients<'r>(workspace: &'r Workspace, report: &Report, beside: &Beside<'r>) {
    let cron = report.available("node-cron", tools::npm());
    if cron.is_some() {
        beside.add("client for JavaScript", move || client_for_js(workspace, cron.as_deref()));
    }
    if let Some(programs) = report.available("client for Python, deploy, proof", tools::python(workspace)) {
        let python = programs.join("python");
        let client = python.clone();
        beside.add("client for Python", move || {
            let mut command = Command::new(client);
            command.args(["-m", "unittest", "discover", "-t", ".", "-s", "tests"]);
            command.current_dir(workspace.root.join("clients/python"));
            with_tests(process::capture(command.env("TENURE_BIN", workspace.program("tenure")), LIMIT)?)
        });
        for script in ["check.py", "check_test.py"] {
            let python = python.clone();
            beside.add(&format!("deploy/{script}"), move || {
                process::capture(Command::new(python).arg(workspace.root.join("deploy").join(script)), LIMIT)
            });
        }
        beside.add("proof", || process::capture(&mut proof::command(workspace)?, LIMIT));
    }
}

fn client_for_js(workspace: &Workspace, modules: Option<&Path>) -> Result<Captured> {
    let mut command = Command::new("node");
    command.arg("--test");
    // They wait most of the time; an older Node.js takes one file after another.
    let at_once = "--test-concurrency";
    if process::capture(Command::new("node").arg("--help"), LIMIT)?.ok("node")?.contains(at_once) {
        command.arg(format!("{at_once}=4"));
    }
    command.current_dir(workspace.root.join("clients/js")).env("TENURE_BIN", workspace.program("tenure"));
    command.envs(modules.map(|modules| ("NODE_CRON", modules.join("node-cron"))));
    with_tests(process::capture(&mut command, LIMIT)?)
}

/// A run without a single test is no success.
fn with_tests(said: Captured) -> Result<Captured> {
    ensure!(
        !said.success || crate::steps::counted(&(said.stdout.clone() + &said.stderr)) > 0,
        "not one test ran"
    );
    Ok(said)
}

/// What needs the tests' own build: the library's examples, and the tests of the documentation.
fn after_build<'r>(workspace: &'r Workspace, beside: &Beside<'r>) {
    beside.add_after_build("documentation", || verify::documentation(workspace));
    beside.add_after_build("examples", || examples(workspace));
}

/// Real processes under faults: beside a build, which leaves them all the time they want.
fn judges<'r>(workspace: &'r Workspace, beside: &Beside<'r>) {
    let judge = |verb: &'static str, flags: &'static [&'static str]| {
        move || {
            let mut command = Command::new(workspace.program("tenure-chaos"));
            process::capture(&mut process::bound(command.arg(verb).args(flags)), LIMIT)
        }
    };
    beside.add("chaos for a minute", judge("run", &["--seconds=60", "--nodes=3"]));
    // One kill of an agent, one of the leader.
    let jobs = &["--seconds=20", "--agents=2", "--schedules=8", "--jobs=300", "--kill-every=18"];
    beside.add("jobs through kills", judge("jobs", jobs));
}

/// Each of the library's examples runs to its end and checks itself.
fn examples(workspace: &Workspace) -> Result<Captured> {
    let files = workspace.files()?.into_iter().filter(|path| path.starts_with("crates/tenure/examples"));
    let mut all = Captured { success: true, stdout: String::new(), stderr: String::new() };
    for file in files {
        let name = file.file_stem().context("an example has a name")?;
        let said = process::capture(&mut Command::new(workspace.program("examples").join(name)), LIMIT)?;
        all.success &= said.success;
        all.stdout +=
            &format!("{}: {}\n{}", name.display(), if said.success { "ok" } else { "FAILED" }, said.stdout);
        all.stderr += &said.stderr;
    }
    Ok(all)
}

/// Runs chosen tests, ignored or not.
fn nextest(workspace: &Workspace, which: &str) -> Result<Command> {
    let mut command = workspace.cargo();
    tools::NEXTEST.reachable(&mut command)?;
    workspace.with_test_build(command.args(["nextest", "run"]));
    command.args(["--run-ignored", "all", "--filterset", which]);
    Ok(command)
}

/// The tests that take minutes each.
pub(crate) fn long(workspace: &Workspace) -> Result<bool> {
    process::run(&mut nextest(workspace, "test(/(^|::)long::/)")?, LIMIT)
}

/// The first minutes of the README, in a fresh clone, with a browser watching.
pub(crate) fn newcomer(workspace: &Workspace) -> Result<bool> {
    tools::BROWSER.provide()?;
    let npm = tools::npm()?;
    let clone = workspace.target.join("newcomer");
    fresh(&clone)?;
    let mut git = Command::new("git");
    ensure!(
        process::run(git.args(["clone", "--quiet"]).arg(&workspace.root).arg(&clone), LIMIT)?,
        "the workspace cannot be cloned"
    );
    println!("what is committed, in {}; the first build takes a few minutes", clone.display());
    let mut command = workspace.cargo();
    tools::NEXTEST.reachable(&mut command)?;
    workspace.with_test_build(command.args(["nextest", "run"]));
    command.args(["--run-ignored", "only", "--filterset", "test(/^newcomer::/)", "--no-capture"]);
    let passed = process::run(command.env("TENURE_NEWCOMER_CLONE", &clone).env(NPM_VARIABLE, npm), LIMIT)?;
    println!("pictures in {}", workspace.target.join("screenshots").display());
    Ok(passed)
}

/// What a JUnit file counts.
#[derive(Default, PartialEq, Eq, Debug)]
struct Count {
    passed: u32,
    failed: u32,
}

impl Count {
    fn of(junit: &str) -> Count {
        let Some(head) = junit.split_once("<testsuites").and_then(|(_, rest)| rest.split('>').next()) else {
            return Count::default();
        };
        let number = |name: &str| {
            let (_, rest) = head.split_once(&format!(" {name}=\""))?;
            rest.split('"').next()?.parse::<u32>().ok()
        };
        let failed = number("failures").unwrap_or(0) + number("errors").unwrap_or(0);
        let skipped = u32::try_from(junit.matches("<skipped").count()).unwrap_or(0);
        Count { passed: number("tests").unwrap_or(0).saturating_sub(failed + skipped), failed }
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} passed", self.passed)?;
        if self.failed > 0 {
            write!(formatter, " {} FAILED", self.failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceph_is_added_and_a_usual_engine_narrows() {
        let args = |engines: &[Engine]| Args { quick: false, engine: engines.to_vec(), filter: Vec::new() };
        assert_eq!(args(&[]).engines(), Engine::DEFAULT);
        assert_eq!(args(&[Engine::Ceph]).engines().len(), 4);
        assert_eq!(args(&[Engine::Ministack]).engines(), [Engine::Ministack]);
        assert_eq!(args(&[Engine::Ceph, Engine::Seaweedfs]).engines(), [Engine::Seaweedfs, Engine::Ceph]);
        assert_eq!(Args { quick: true, ..args(&[]) }.engines(), []);
    }

    #[test]
    fn a_junit_file_is_counted() {
        let junit = r#"<?xml version="1.0"?><testsuites name="nextest-run" tests="7" failures="1" errors="1" time="1.0">
            <testsuite><testcase name="a"/><testcase name="b"><skipped/></testcase></testsuite></testsuites>"#;
        assert_eq!(Count::of(junit), Count { passed: 4, failed: 2 });
        assert_eq!(Count::of(junit).to_string(), "4 passed 2 FAILED");
        assert_eq!(Count::of(""), Count::default());
    }

    #[test]
    fn a_run_without_a_single_test_is_no_success() {
        let said =
            |stdout: &str| Captured { success: true, stdout: stdout.to_owned(), stderr: String::new() };
        assert!(with_tests(said("ℹ pass 1")).is_ok());
        assert!(with_tests(said("nothing to do")).is_err());
    }
}

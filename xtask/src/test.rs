//! `cargo xtask test`: every check, with its duration, and a last line that says what was not run.

mod programs;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::chaos::{self, StoreKind};
use crate::debian::{self, Needed};
use crate::engine::{self, Engine, Lifetime, Site};
use crate::polls;
use crate::proof;
use crate::python::Played;
use crate::schemathesis;
use crate::workspace::Workspace;
use crate::{interrupt, process, verify};
use programs::Program;

/// A hung test must not hang the run.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// The engines' addresses and credentials, for tests marked as ignored because they need them.
const ENGINES_VARIABLE: &str = "TENURE_TEST_S3_ENGINES";

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
    if !report
        .step("build", || process::run(workspace.cargo().args(["build", "--workspace", "--bins"]), LIMIT))
    {
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
    let test = |more: &[&str]| {
        let mut command = workspace.cargo();
        command.args(["test", "--workspace", "--no-fail-fast"]).args(more).args(&args.filter);
        with_engines(&mut command, &sites).map(|()| command)
    };
    let filtered = !args.filter.is_empty();
    let mut programs = Vec::new();
    report.step("build the tests", || {
        programs = Program::build(workspace, LIMIT)?;
        Ok(true)
    });
    report.programs("tests", &programs, &args.filter, &sites, filtered);
    report.tests("examples in the documentation", test(&["--doc", "--"])?, true);
    // Broken variants of the protocol are behind a feature, so that no product build contains them.
    let mut mutants = workspace.cargo();
    let features = "tenure-core/teeth,tenure/teeth,tenure-sim/teeth";
    mutants.args(["test", "--workspace", "--features", features, "--test", "teeth", "--"]).args(&args.filter);
    report.tests("mutants", mutants, filtered);
    for example in examples(workspace)?.into_iter().filter(|_| !filtered) {
        // Already built with the tests.
        report.step(&format!("example {example}"), || {
            let mut command = Command::new(workspace.program("examples").join(&example));
            process::tee(&mut command, LIMIT, |_| {})
        });
    }
    if args.quick {
        report.skip("engine tests (--quick)");
    } else if sites.is_empty() {
        report.skip("engine tests (no engine started)");
    } else {
        let names: Vec<&str> = sites.iter().map(|site| site.access().name.name()).collect();
        // By name: other ignored tests need other things, or measure. One program at a time: together they would slow down the
        // engines, and the leases with them.
        let command = test(&["--test", "engines", "--", "--ignored"])?;
        report.tests(&format!("engine tests ({})", names.join(", ")), command, filtered);
    }
    for (name, needed, target) in
        [("dashboard", debian::BROWSER, "dashboard"), ("alerts and scrape", debian::PROMETHEUS, "scrape")]
    {
        report.with_programs(name, &needed, args.quick, || {
            Ok((test(&["--test", target, "--", "--ignored", "--test-threads", "2"])?, filtered))
        });
    }
    if filtered {
        report.skip("proof, schemathesis, polls and chaos (a filter was given)");
    } else {
        report.with_python("proof", || proof::play(workspace));
        report.with_python("schemathesis", || schemathesis::play(workspace));
        let site = sites.iter_mut().find(|site| site.access().name == Engine::Seaweedfs);
        let store = if site.is_some() { StoreKind::Seaweedfs } else { StoreKind::Sqlite };
        report.step(&format!("polls through a kill ({})", store.name()), || {
            polls::play(workspace, &polls::Args::short(store), site.as_deref())
        });
        report.step(&format!("chaos for a minute ({})", store.name()), || {
            chaos::play(workspace, &chaos::Args::short(store), site)
        });
    }
    if !sites.is_empty() {
        report.timed("stop engines", || {
            sites.drain(..).rev().for_each(Site::stop);
            Ok((true, String::new()))
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
        self.may_start(name) && self.timed(name, || action().map(|passed| (passed, String::new())))
    }

    /// Runs test programs and counts their tests.
    fn tests(&mut self, name: &str, mut command: Command, filtered: bool) {
        if !self.may_start(name) {
            return;
        }
        self.timed(name, || {
            let mut count = Count::default();
            let passed = process::tee(&mut command, LIMIT, |line| count.add(line))?;
            count.judge(passed, filtered)
        });
    }

    /// The same for programs that are already built, in two lanes.
    fn programs(
        &mut self,
        name: &str,
        programs: &[Program],
        args: &[String],
        sites: &[Site],
        filtered: bool,
    ) {
        if !self.may_start(name) {
            return;
        }
        self.timed(name, || {
            let mut count = Count::default();
            let prepare = |command: &mut Command| with_engines(command, sites);
            let passed = programs::run(programs, args, LIMIT, prepare, |line| count.add(line))?;
            count.judge(passed, filtered)
        });
    }

    /// Tests that need Debian programs; if those are missing, the tests are left out, loudly.
    fn with_programs(
        &mut self,
        name: &str,
        needed: &Needed,
        quick: bool,
        command: impl FnOnce() -> Result<(Command, bool)>,
    ) {
        if quick {
            return self.skip(&format!("{name} (--quick)"));
        }
        match needed.provide().and_then(|there| Ok((there, command()?))) {
            Ok((Ok(()), (command, filtered))) => self.tests(name, command, filtered),
            Ok((Err(missing), _)) => {
                println!("\n!!! {name}: NOT TESTED: {missing}");
                self.skip(&format!("{name} ({missing})"));
            }
            Err(error) => drop(self.step(name, || Err(error))),
        }
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

    fn timed(&mut self, name: &str, action: impl FnOnce() -> Result<(bool, String)>) -> bool {
        println!("\n==> {name}");
        let began = Instant::now();
        let (passed, count) = action().unwrap_or_else(|error| {
            println!("{error:#}");
            (false, String::new())
        });
        let outcome = if passed { "ok" } else { "FAILED" };
        println!("==> {name}: {outcome} in {:.1} s", began.elapsed().as_secs_f64());
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
    fn judge(&self, passed: bool, filtered: bool) -> Result<(bool, String)> {
        let idle = passed && self.passed == 0 && !filtered;
        if idle {
            println!("not one test ran");
        }
        Ok((passed && !idle, self.to_string()))
    }

    fn add(&mut self, line: &str) {
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
        assert_eq!(count.to_string(), "13 passed 2 FAILED 3 ignored here");
    }

    #[test]
    fn a_run_without_a_single_test_fails_unless_filtered() {
        let silent = || Command::new("true");
        let mut report = Report::new();
        report.tests("filtered", silent(), true);
        assert_eq!(report.failed, [""; 0]);
        report.tests("empty", silent(), false);
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

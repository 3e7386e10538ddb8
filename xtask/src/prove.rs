//! `cargo xtask prove`: all the evidence for the protocol, at a given budget, and the page with its figures.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tenure_rig::process;

use crate::workspace::{BUILD_LIMIT, Workspace};
use crate::{chaos, proof, test};

const SIMULATOR: &str = "release/tenure-sim";
const PAGE: &str = "docs/internals/evidence.md";
/// This command writes what is between these; people write the rest of the page.
const FIGURES_BETWEEN: (&str, &str) = ("<!-- figures: begin -->", "<!-- figures: end -->");
/// Follows the commit if the tree differs from it.
const CHANGED: &str = "-changed";
/// The explorer and the mutants take as long as they take.
const STEP_LIMIT: Duration = Duration::from_secs(30 * 60);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Budget for random schedules and chaos, half each; the explorer and the broken variants come on top
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=600))]
    minutes: u64,
    /// At most this many random schedules
    #[arg(long, value_name = "COUNT", default_value_t = u64::MAX, hide_default_value = true)]
    schedules: u64,
    /// Threads for the random schedules
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// How long chaos is played, if not half the budget
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=600))]
    chaos_minutes: Option<u64>,
    /// Without chaos: no S3 engine, no processes
    #[arg(long)]
    no_chaos: bool,
    /// The store for chaos
    #[arg(long, default_value = "seaweedfs")]
    engine: String,
    /// How much the explorer searches
    #[arg(long, default_value = "small", value_parser = ["small", "large"])]
    size: String,
    /// The first seed; another one tries other schedules
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Do again what an interrupted run of this commit has done already
    #[arg(long)]
    again: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<bool> {
    let commit = commit(workspace)?;
    // A tree with changes may be a different one each time.
    let parts = Parts::of(workspace, &commit, args.again || commit.ends_with(CHANGED))?;
    let half = (args.minutes / 2).max(1);
    let (minutes, from, seeds) = (half.to_string(), args.from.to_string(), args.schedules.to_string());
    let proof = parts.keep("proof", || {
        println!("==> the proof");
        proof::prove(workspace)
    })?;
    parts.keep("backends", || {
        println!("==> the library with each backend alone");
        for features in ["", "sqlite", "object"] {
            let mut check = workspace.cargo();
            check.args(["check", "--package", "tenure", "--no-default-features", "--features", features]);
            ensure!(process::run(&mut check, BUILD_LIMIT)?, "the library does not build with {features:?}");
        }
        Ok(Value::Bool(true))
    })?;
    build(workspace)?;
    let schedules = parts.keep(&format!("schedules-{from}-{seeds}-{minutes}m"), || {
        println!("==> random schedules, {half} minutes at most");
        let threads = args.threads.to_string();
        let bounds = ["--minutes", &minutes, "--from", &from, "--seeds", &seeds, "--threads", &threads];
        let mut found = sim(workspace, &[&["run", "--json"], &bounds[..]].concat())?;
        found["threads"] = args.threads.into();
        Ok(found)
    })?;
    let driver = parts.keep(&format!("driver-{from}"), || {
        println!("==> schedules with the production driver");
        sim(workspace, &["run", "--driver", "--seeds", "1000", "--from", &from, "--json"])
    })?;
    let mut explored: Vec<Value> = Vec::new();
    for nodes in ["2", "3"] {
        let found = parts.keep(&format!("explored-{nodes}-{}", args.size), || {
            println!("==> every state of {nodes} nodes ({})", args.size);
            sim(workspace, &["explore", "--nodes", nodes, "--size", &args.size, "--json"])
        })?;
        explored.extend(rows(found));
    }
    let mutants = parts.keep("mutants", || {
        println!("==> broken variants");
        sim(workspace, &["teeth", "--json"])
    })?;
    let long = parts.keep("long-tests", || {
        println!("==> tests that take minutes");
        Ok(Value::from(test::long(workspace)?))
    })?;
    let (mut chaos, mut broken) = (Value::Null, Value::Null);
    if !args.no_chaos {
        chaos::build(workspace, true)?;
        let seconds = format!("--seconds={}", args.chaos_minutes.unwrap_or(half) * 60);
        let engine = format!("--engine={}", args.engine);
        chaos = parts.keep(&format!("chaos-{}-{seconds}", args.engine), || {
            play(workspace, "run", &[&seconds, &engine])
        })?;
        broken = parts.keep("broken", || play(workspace, "broken", &[]))?;
    }
    let figures = json!({
        "proof": proof, "schedules": schedules, "driver": driver, "explored": explored, "mutants": mutants,
        "chaos": chaos, "broken": broken,
    });
    let file = parts.folder.join("figures.json");
    fs::write(&file, figures.to_string())?;
    let mut page = Command::new(workspace.target.join(SIMULATOR));
    page.arg("evidence").arg(&file).args(["--commit", &commit]);
    let said = process::capture(&mut page, STEP_LIMIT)?;
    eprint!("{}", said.stderr);
    write(workspace, &said.stdout)?;
    let clean = said.success && long == true;
    println!("{} written to {PAGE}", if clean { "no violation;" } else { "NOT CLEAN;" });
    Ok(clean)
}

fn rows(value: Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// The results of the parts of a long run, kept on disk so that an interrupted run continues where it stopped. Another commit or
/// another budget starts over: figures of two commits never appear on one page.
struct Parts {
    folder: PathBuf,
    again: bool,
}

impl Parts {
    fn of(workspace: &Workspace, commit: &str, again: bool) -> Result<Parts> {
        let folder = workspace.target.join("prove").join(commit);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Parts { folder, again })
    }

    fn keep(&self, name: &str, find: impl FnOnce() -> Result<Value>) -> Result<Value> {
        let path = self.folder.join(name).with_extension("json");
        if let Some(text) = fs::read_to_string(&path).ok().filter(|_| !self.again) {
            println!("==> {name}: found before");
            return serde_json::from_str(&text).with_context(|| format!("{} is broken", path.display()));
        }
        let found = find()?;
        fs::write(&path, found.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(found)
    }
}

/// Builds once, with the mistakes included: which of them is active, if any, is chosen at run time.
fn build(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["build", "--release", "--package", "tenure-sim", "--features", "teeth"]);
    if !process::run(&mut command, BUILD_LIMIT)? {
        bail!("the simulator does not build");
    }
    Ok(())
}

/// Runs the simulator; keeps its output even if it found something.
fn sim(workspace: &Workspace, arguments: &[&str]) -> Result<Value> {
    let program = workspace.target.join(SIMULATOR);
    let mut lines = String::new();
    let limit = STEP_LIMIT + Duration::from_secs(600 * 60);
    let clean = process::tee(Command::new(program).args(arguments), limit, |line| {
        lines.push_str(line);
        lines.push('\n');
    })?;
    let value = serde_json::from_str(&lines)
        .with_context(|| format!("tenure-sim {} printed no JSON", arguments.join(" ")))?;
    if !clean {
        println!("tenure-sim {} found something", arguments.join(" "));
    }
    Ok(value)
}

/// Plays with real processes; keeps what was judged even if it was found guilty.
fn play(workspace: &Workspace, verb: &str, args: &[&str]) -> Result<Value> {
    println!("==> {verb} {}", args.join(" "));
    let file = workspace.target.join("evidence.json");
    let _ = fs::remove_file(&file);
    let json = format!("--json={}", file.display());
    chaos::play(workspace, verb, &[args, &[&json]].concat())?;
    let text = fs::read_to_string(&file).with_context(|| format!("{verb} was not judged"))?;
    Ok(serde_json::from_str(&text)?)
}

fn commit(workspace: &Workspace) -> Result<String> {
    let mut git = Command::new("git");
    git.current_dir(&workspace.root).args(["rev-parse", "--short=12", "HEAD"]);
    let commit = process::capture(&mut git, Duration::from_secs(10))?.ok("git rev-parse")?;
    // The page belongs to this command; with any other change, the figures would belong to no commit.
    let mut git = Command::new("git");
    git.current_dir(&workspace.root).args(["status", "--porcelain", "--", ".", &format!(":!{PAGE}")]);
    let changed = process::capture(&mut git, Duration::from_secs(10))?.ok("git status")?;
    let mark = if changed.trim().is_empty() { "" } else { CHANGED };
    Ok(format!("{}{mark}", commit.trim()))
}

fn write(workspace: &Workspace, figures: &str) -> Result<()> {
    let path = workspace.root.join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("{PAGE} cannot be read"))?;
    fs::write(&path, replaced(&page, figures)?)?;
    Ok(())
}

/// The page with the figures between the two comments replaced.
fn replaced(page: &str, figures: &str) -> Result<String> {
    let (before, rest) =
        page.split_once(FIGURES_BETWEEN.0).with_context(|| format!("{PAGE} has no {}", FIGURES_BETWEEN.0))?;
    let (_, after) =
        rest.split_once(FIGURES_BETWEEN.1).with_context(|| format!("{PAGE} has no {}", FIGURES_BETWEEN.1))?;
    Ok(format!("{before}{}\n\n{}\n{}{after}", FIGURES_BETWEEN.0, figures.trim_end(), FIGURES_BETWEEN.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_between_the_comments_is_replaced() {
        let page = "# E\n\nfound\n\n<!-- figures: begin -->\nold\n<!-- figures: end -->\n\nmore\n";
        let page = replaced(page, "new\n").expect("marked");
        assert_eq!(page, "# E\n\nfound\n\n<!-- figures: begin -->\n\nnew\n<!-- figures: end -->\n\nmore\n");
        assert!(replaced("no comments", "new").is_err());
    }

    #[test]
    fn a_part_is_found_once_for_each_commit() {
        let folder = tempfile::tempdir().expect("a folder");
        let workspace = Workspace::at(folder.path());
        let parts = |commit, again| Parts::of(&workspace, commit, again).expect("a folder");
        let found = |parts: Parts, value: u64| parts.keep("mutants", || Ok(json!(value))).expect("kept");
        assert_eq!(found(parts("a", false), 1), 1);
        assert_eq!(found(parts("a", false), 2), 1, "the first is kept");
        assert_eq!(found(parts("b", false), 3), 3, "another commit begins anew");
        assert_eq!(found(parts("a", true), 4), 4, "unless it is to be done again");
        assert!(parts("c", false).keep("mutants", || bail!("no")).is_err());
        assert_eq!(found(parts("c", false), 5), 5, "a failure is not kept");
    }
}

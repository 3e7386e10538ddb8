//! `cargo xtask prove`: all the evidence for the protocol, at a given budget, and the page with its figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::chaos::{self, StoreKind};
use crate::workspace::Workspace;
use crate::{broken, process, proof};

const PAGE: &str = "docs/internals/evidence.md";
/// This command writes what is between these; people write the rest of the page.
const FIGURES_BETWEEN: (&str, &str) = ("<!-- figures: begin -->", "<!-- figures: end -->");
/// Follows the commit if the tree differs from it.
const CHANGED: &str = "-changed";
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);
/// Simulated seconds per second of one core. A slower simulator shows too little in its time. This depends on the machine, so
/// only a proof checks it, never a test.
const SPEED_LEAST: f64 = 10_000.0;
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
    #[arg(long, value_enum, default_value = "seaweedfs")]
    engine: StoreKind,
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

/// The results, as the programs printed them.
struct Figures {
    proof: Value,
    schedules: Value,
    driver: Value,
    explored: Vec<Value>,
    mutants: Vec<Value>,
    chaos: Option<Value>,
    /// What the judge found of binaries that are broken on purpose; empty if chaos was not played.
    broken: Vec<Value>,
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
    let mut explored = Vec::new();
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
    let (mut chaos, mut broken) = (None, Vec::new());
    if !args.no_chaos {
        let minutes = args.chaos_minutes.unwrap_or(half);
        let part = format!("chaos-{}-{minutes}m", args.engine.name());
        chaos = Some(parts.keep(&part, || play(workspace, args.engine, minutes))?);
        broken = rows(parts.keep("broken", || Ok(Value::Array(broken::prove(workspace, broken::SEED)?)))?);
    }
    let figures = Figures { proof, schedules, driver, explored, mutants: rows(mutants), chaos, broken };
    let clean = figures.is_clean();
    write(workspace, &figures, &commit)?;
    let speed = figures.speed();
    if speed < SPEED_LEAST {
        println!(
            "the simulator is too slow: {speed:.0} of {SPEED_LEAST:.0} simulated seconds a second of a thread"
        );
    }
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
    let program = workspace.target.join("release/tenure-sim");
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

fn play(workspace: &Workspace, engine: StoreKind, minutes: u64) -> Result<Value> {
    println!("==> chaos on {}, {minutes} minutes", engine.name());
    let file = workspace.target.join("chaos-evidence.json");
    let _ = fs::remove_file(&file);
    chaos::run(workspace, &chaos::Args::long(engine, minutes, file.clone()))?;
    let text = fs::read_to_string(&file).with_context(|| format!("{} is missing", file.display()))?;
    Ok(serde_json::from_str(&text)?)
}

impl Figures {
    fn is_clean(&self) -> bool {
        let none = |value: &Value| value.as_u64() == Some(0) || value.as_array().is_some_and(Vec::is_empty);
        // A variant that was not tried shows nothing.
        let caught =
            |variants: &[Value]| !variants.is_empty() && variants.iter().all(|one| one["caught"] == true);
        let searched = |found: &Value| found["violation"].is_null() && found["complete"] == true;
        // Every step of a coordinator must have been compared with the model, or the proof is about something else.
        let followed = |found: &Value| found["followed"]["steps"].as_u64().is_some_and(|steps| steps > 0);
        proof::holds(&self.proof)
            && none(&self.schedules["violations"])
            && followed(&self.schedules)
            && self.speed() >= SPEED_LEAST
            && none(&self.driver["violations"])
            && !self.explored.is_empty()
            && self.explored.iter().all(|found| searched(found) && followed(found))
            && caught(&self.mutants)
            && self.chaos.as_ref().is_none_or(|chaos| none(&chaos["violations"]) && caught(&self.broken))
    }

    /// Simulated seconds per second of one thread; 0 without a figure.
    fn speed(&self) -> f64 {
        let (all, threads) = (&self.schedules["simulatedPerWallSecond"], &self.schedules["threads"]);
        all.as_f64().zip(threads.as_f64()).map_or(0.0, |(all, threads)| all / threads)
    }

    fn text(&self, commit: &str) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "Commit `{commit}`.\n\n### The proof\n");
        self.proof_text(&mut out);
        out.push_str("\n### Random schedules\n\n");
        self.schedules_text(&mut out);
        out.push_str("\n### Every state\n\nFrom each of the states somebody leads within the time given, in ms of true time, once faults end.\n\n| nodes | epochs | faults | crashes | pauses | hand-overs | states | held against the model | a leader within | depth | complete | violation |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
        for found in &self.explored {
            let cells = [
                "nodes",
                "epochs",
                "faults",
                "crashes",
                "pauses",
                "handOvers",
                "states",
                "depth",
                "complete",
            ];
            let mut cells: Vec<String> = cells.iter().map(|cell| found[*cell].to_string()).collect();
            let model = [&found["followed"]["steps"], &found["longestMs"]].map(Value::to_string);
            cells.splice(7..7, model);
            let violation = found["violation"].as_str().unwrap_or("none");
            let _ = writeln!(out, "| {} | {violation} |", cells.join(" | "));
        }
        self.mutants_text(&mut out);
        self.chaos_text(&mut out);
        self.broken_text(&mut out);
        out
    }

    fn proof_text(&self, out: &mut String) {
        let _ = writeln!(out, "| solver | obligations | proved | seconds |\n|---|---|---|---|");
        for solver in ["z3", "cvc5"] {
            let part = &self.proof[solver];
            let seconds = part["seconds"].as_f64().unwrap_or(0.0);
            let _ =
                writeln!(out, "| {solver} | {} | {} | {seconds:.1} |", part["obligations"], part["proved"]);
        }
        let list = |part: &str, field: &str| self.proof[part][field].as_array().map_or(0, Vec::len);
        let _ = writeln!(
            out,
            "\n{} clauses and {} assumptions, none of which can be dropped; {} weaker models that are still safe; {} runs in which \
             every transition happens. Mutants of the model, by what they break, each with the obligations lost and the steps of the \
             shortest run that shows it:\n\n| breaks | mutants |\n|---|---|",
            list("needed", "clauses"),
            list("needed", "assumptions"),
            list("slack", "slack"),
            list("reachable", "runs"),
        );
        let mutants = self.proof["mutants"]["mutants"].as_array().into_iter().flatten().map(|mutant| {
            let runs: Vec<&Value> = mutant["runs"].as_array().into_iter().flatten().collect();
            let cells = |field: &str| {
                runs.iter().map(|run| run[field].to_string().replace('"', "")).collect::<Vec<_>>().join(", ")
            };
            let lost = mutant["not_proved"].as_array().map_or(0, Vec::len);
            let name = mutant["name"].as_str().unwrap_or("?");
            (cells("goal"), format!("`{name}` {lost} ({})", cells("steps")))
        });
        grouped(out, mutants);
    }

    fn schedules_text(&self, out: &mut String) {
        let (core, driver) = (&self.schedules, &self.driver);
        let _ = writeln!(out, "| | |\n|---|---|");
        for (what, field) in [
            ("first seed", "from"),
            ("schedules", "schedules"),
            ("simulated seconds", "simulatedSeconds"),
            ("simulated seconds per second, all threads", "simulatedPerWallSecond"),
            ("threads", "threads"),
            ("steps", "steps"),
            ("checks of the proof's clauses", "clauseChecks"),
            ("claims", "claims"),
            ("faults", "faultsTotal"),
            ("stale tasks fenced", "staleTasksFenced"),
            ("**violations**", "violations"),
        ] {
            let _ = writeln!(out, "| {what} | {} |", core[field]);
        }
        let _ = writeln!(
            out,
            "| **steps held against the model of the proof** | {} |",
            core["followed"]["steps"]
        );
        let work = &core["leadersWork"];
        let _ = writeln!(
            out,
            "| schedules with leaders' work: scheduled jobs, runs of jobs, late results, restarts of processes | {}: {}, {}, {}, {} |",
            work["schedules"], work["jobs"], work["runs"], work["lateResults"], work["processRestarts"]
        );
        for (what, field) in [("crash", "failoverCrash"), ("graceful", "failoverGraceful")] {
            let spread = &core[field];
            let _ = writeln!(
                out,
                "| failover after a {what} end, in thousandths of the bound (p50 / p90 / p99 / max) | {} / {} / {} / {} |",
                spread["p50"], spread["p90"], spread["p99"], spread["max"]
            );
        }
        let _ = writeln!(
            out,
            "| least margin of a takeover, in thousandths of a lease | {} |",
            core["leastMarginPermilleOfLease"]
        );
        let _ = writeln!(
            out,
            "| with the production driver on paused time: schedules, violations | {}, {} |",
            driver["schedules"],
            driver["violations"].as_array().map_or(0, Vec::len)
        );
        let mut kinds: Vec<String> = core["faults"]
            .as_object()
            .map(|faults| faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect())
            .unwrap_or_default();
        kinds.sort();
        let _ = writeln!(out, "\nFaults by kind: {}.", kinds.join(", "));
    }

    fn mutants_text(&self, out: &mut String) {
        let caught = self.mutants.iter().filter(|variant| variant["caught"] == true).count();
        let _ = writeln!(
            out,
            "\n### Broken variants\n\n{caught} of {} caught; those that only a test can show are caught by \
             `crates/core/tests/teeth.rs` and `crates/tenure/tests/teeth.rs`. By what caught them, each with the schedules it took; in \
             brackets the schedules for the model and the states for the explorer, of those that these must catch:\n\n| caught by | variants |\n|---|---|",
            self.mutants.len()
        );
        let variants = self.mutants.iter().map(|variant| {
            let text = |field: &str| variant[field].as_str().unwrap_or("NOT CAUGHT").to_owned();
            let number = |field: &str| variant[field].as_u64().map(|number| number.to_string());
            let others: Vec<String> = [("model", "modelSchedules"), ("explorer", "explorerStates")]
                .into_iter()
                .filter_map(|(who, field)| Some(format!("{who} {}", number(field)?)))
                .collect();
            let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
            let schedules = number("schedules").unwrap_or_default();
            (text("check"), format!("`{}` {schedules}{others}", text("variant")))
        });
        grouped(out, variants);
    }

    fn chaos_text(&self, out: &mut String) {
        let Some(chaos) = &self.chaos else {
            out.push_str("\n### Chaos\n\nNot played this time.\n");
            return;
        };
        let text = |field: &str| chaos[field].as_str().unwrap_or("?").to_owned();
        let spread = |spread: &Value| {
            format!(
                "{} / {} / {} / {} ms ({})",
                spread["p50Ms"], spread["p90Ms"], spread["p99Ms"], spread["maxMs"], spread["count"]
            )
        };
        let (margins, line) = (&chaos["margins"], &chaos["linearizability"]);
        let _ = writeln!(
            out,
            "\n### Chaos\n\nReal processes on {}, {} nodes, preset `{}`, {} s, seed {}.\n\n| | |\n|---|---|",
            text("engine"),
            chaos["nodes"],
            text("preset"),
            chaos["seconds"],
            chaos["seed"]
        );
        let rows = [
            ("faults", chaos["faults"].to_string()),
            ("leaderships", chaos["leaderships"].to_string()),
            ("crash failover (p50 / p90 / p99 / max)", spread(&chaos["crashFailover"])),
            ("promised, and with requests given up and ranks of the dead", chaos["crashBoundMs"].to_string()),
            ("hand-over (p50 / p90 / p99 / max)", spread(&chaos["handOver"])),
            ("promised", chaos["handOverBoundMs"].to_string()),
            (
                "leader's own requests answered 503: replaced",
                format!(
                    "{} of {}, {}",
                    chaos["leader503"]["replaced"],
                    chaos["leader503"]["count"],
                    spread(&chaos["leader503"]["failover"])
                ),
            ),
            (
                "least margin between leaders: after expiry, after vacating",
                format!("{} ms, {} ms", margins["expiredMinMs"], margins["vacatedMinMs"]),
            ),
            ("linearizable, operations", format!("{}, {}", line["holds"], line["operations"])),
            ("the machine stood still for", format!("{} ms", chaos["machine"]["stalledMs"])),
            ("**violations**", chaos["violations"].as_array().map_or(0, Vec::len).to_string()),
        ];
        for (what, value) in rows {
            let _ = writeln!(out, "| {what} | {value} |");
        }
        let kinds: Vec<String> = chaos["kinds"]
            .as_object()
            .map(|kinds| kinds.iter().map(|(kind, figures)| format!("{kind} {}", figures["count"])).collect())
            .unwrap_or_default();
        let _ = writeln!(out, "\nFaults by kind: {}.", kinds.join(", "));
    }
}

impl Figures {
    fn broken_text(&self, out: &mut String) {
        out.push_str("\n### Broken binaries under chaos\n\n");
        if self.broken.is_empty() {
            out.push_str("Not played this time.\n");
            return;
        }
        out.push_str("| variant | what is wrong | store | faults played | found by the judge | after |\n|---|---|---|---|---|---|\n");
        for variant in &self.broken {
            let text = |field: &str| variant[field].as_str().unwrap_or("?").replace('|', "/");
            let kinds: Vec<&str> =
                variant["kinds"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let by = if variant["caught"] == true { text("by") } else { "NOT CAUGHT".to_owned() };
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} | {by} | {} s, {} faults |",
                text("variant"),
                text("what"),
                text("engine"),
                kinds.join(", "),
                variant["seconds"],
                variant["faults"]
            );
        }
    }
}

/// A row for each group, in the order of their names.
fn grouped(out: &mut String, rows: impl Iterator<Item = (String, String)>) {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    rows.for_each(|(group, row)| groups.entry(group).or_default().push(row));
    for (group, rows) in groups {
        let _ = writeln!(out, "| {group} | {} |", rows.join(", "));
    }
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

fn write(workspace: &Workspace, figures: &Figures, commit: &str) -> Result<()> {
    let path = workspace.root.join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("{PAGE} cannot be read"))?;
    fs::write(&path, replaced(&page, &figures.text(commit))?)?;
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

    #[test]
    fn one_violation_anywhere_is_not_clean() {
        let ok = json!({"ok": true});
        let proof = json!({"z3": ok, "cvc5": ok, "mutants": ok, "needed": ok, "slack": ok, "reachable": ok});
        let schedules = |violations: u64, speed: f64, threads: u64, steps: u64| json!({"violations": violations, "simulatedPerWallSecond": speed, "threads": threads, "followed": {"steps": steps}});
        let clean = || Figures {
            proof: proof.clone(),
            schedules: schedules(0, 20_000.0, 2, 1),
            driver: json!({"violations": []}),
            explored: vec![json!({"violation": null, "complete": true, "followed": {"steps": 1}})],
            mutants: vec![json!({"caught": true})],
            chaos: Some(json!({"violations": []})),
            broken: vec![json!({"caught": true})],
        };
        assert!(clean().is_clean());
        assert!(!Figures { proof: json!({"z3": ok}), ..clean() }.is_clean());
        assert!(!Figures { schedules: schedules(1, 20_000.0, 1, 1), ..clean() }.is_clean());
        let slow = schedules(0, 19_999.9, 2, 1);
        assert!(!Figures { schedules: slow, ..clean() }.is_clean(), "nor a simulator that shows too little");
        let untied = schedules(0, 20_000.0, 2, 0);
        assert!(
            !Figures { schedules: untied, ..clean() }.is_clean(),
            "nor one that no step of was held against the model"
        );
        assert!(!Figures { driver: json!({"violations": ["x"]}), ..clean() }.is_clean());
        assert!(!Figures { explored: vec![json!({"violation": "x"})], ..clean() }.is_clean());
        assert!(!Figures { mutants: vec![json!({"caught": false})], ..clean() }.is_clean());
        assert!(!Figures { chaos: Some(json!({"violations": ["x"]})), ..clean() }.is_clean());
        assert!(!Figures { broken: vec![json!({"caught": false})], ..clean() }.is_clean());
        assert!(!Figures { schedules: json!({}), ..clean() }.is_clean(), "no figure is no proof");
        assert!(!Figures { explored: vec![], ..clean() }.is_clean(), "nor is a search that was not made");
        let cut = vec![json!({"violation": null, "complete": false, "followed": {"steps": 1}})];
        assert!(!Figures { explored: cut, ..clean() }.is_clean(), "nor one that was cut short");
        assert!(!Figures { mutants: vec![], ..clean() }.is_clean(), "nor are mutants that were not tried");
        assert!(!Figures { broken: vec![], ..clean() }.is_clean(), "nor are binaries that were not played");
        assert!(Figures { chaos: None, broken: vec![], ..clean() }.is_clean(), "unless chaos is left out");
    }
}

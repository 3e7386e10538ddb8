//! `cargo xtask mutants`: a second opinion on the tests. A machine breaks every line of the core, one at a time, and the tests of
//! the core must notice. `.cargo/mutants.toml` lists what nobody can notice, with the reason.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use regex_lite::Regex;
use serde_json::Value;

use crate::tools::MUTANTS;
use crate::workspace::Workspace;
use tenure_rig::process;

/// A thousand small builds.
const LIMIT: Duration = Duration::from_secs(24 * 60 * 60);
const LIST_LIMIT: Duration = Duration::from_secs(60);
const SETTINGS: &str = ".cargo/mutants.toml";
/// Broken on purpose, or built only for the explorer.
const NO_PRODUCT: [&str; 2] = ["crates/core/src/mutants.rs", "crates/core/src/election/explore.rs"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only mutants of files that match, e.g. `crates/core/src/fence.rs`
    #[arg(long, value_name = "GLOB")]
    file: Vec<String>,
    /// Only this share of them, e.g. `0/8`
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Only say how many there are and what is left out
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<bool> {
    let cargo = || -> Result<Command> {
        let mut cargo = workspace.cargo();
        MUTANTS.reachable(&mut cargo)?;
        Ok(cargo)
    };
    let mut list = cargo()?;
    list.args(["mutants", "--list", "--no-config", "--package", "tenure-core"]);
    let all = process::capture(&mut list, LIST_LIMIT)?.ok("listing mutants")?;
    let settings = std::fs::read_to_string(workspace.root.join(SETTINGS)).context(SETTINGS)?;
    let reasons = reasons(&settings)?;
    let fresh = tell(&all, &reasons);
    if !fresh || args.list {
        return Ok(fresh);
    }

    let output = workspace.target.join("mutants");
    let mut command = cargo()?;
    command.args(["mutants", "--package", "tenure-core", "--output"]).arg(&output);
    for file in &args.file {
        command.args(["--file", file]);
    }
    if let Some(shard) = &args.shard {
        command.args(["--shard", shard]);
    }
    let passed = process::run(&mut command, LIMIT)?;
    let outcomes =
        std::fs::read_to_string(output.join("mutants.out/outcomes.json")).context("the outcomes")?;
    let outcomes: Value = serde_json::from_str(&outcomes)?;
    let count = |what: &str| outcomes[what].as_u64().unwrap_or(0);
    let (caught, hang, broken) = (count("caught"), count("timeout"), count("unviable"));
    let (all, survive) = (count("total_mutants"), count("missed"));
    println!("{all} mutants: {caught} noticed, {hang} hang, {broken} do not compile, {survive} survive");
    // The program excludes by name whatever it replaces, but not the fields it deletes.
    let missed = std::fs::read_to_string(output.join("mutants.out/missed.txt")).context("the survivors")?;
    let excused = |name: &&str| reasons.iter().any(|reason| reason.covers(name));
    let (excused, survivors): (Vec<_>, Vec<_>) = missed.lines().partition(excused);
    println!("{} of the survivors have a reason in {SETTINGS}", excused.len());
    survivors.iter().for_each(|name| println!("SURVIVES {name}"));
    // A mutant that hangs the tests fails the command, but it was noticed; an excused survivor fails it too.
    Ok(survivors.is_empty() && (passed || hang + survive > 0))
}

/// Reports what is left out, and returns whether every pattern still leaves out something.
fn tell(all: &str, reasons: &[Reason]) -> bool {
    let product = |name: &&str| !NO_PRODUCT.iter().any(|file| name.starts_with(file));
    let held: Vec<&str> = all.lines().filter(product).collect();
    println!("{} mutants, of which are left out:", held.len());
    let mut fresh = true;
    let mut left_out = 0;
    for reason in reasons {
        let count = held.iter().filter(|name| reason.covers(name)).count();
        println!("{count:>6} {}", reason.text);
        left_out += count;
        for pattern in
            reason.patterns.iter().filter(|pattern| !held.iter().any(|name| pattern.is_match(name)))
        {
            println!("{SETTINGS}: {:?} leaves out nothing: it is stale", pattern.as_str());
            fresh = false;
        }
    }
    println!("{:>6} to be noticed", held.len() - left_out);
    fresh
}

/// Patterns in the settings, and the comment above them.
struct Reason {
    text: String,
    patterns: Vec<Regex>,
}

impl Reason {
    fn covers(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.is_match(name))
    }
}

/// What the settings leave out by name, each with its reason. One pattern per line, as written there.
fn reasons(settings: &str) -> Result<Vec<Reason>> {
    let (_, list) = settings.split_once("exclude_re = [").context("there is no `exclude_re`")?;
    let mut reasons: Vec<Reason> = Vec::new();
    let mut open = false;
    for line in list.lines().map(str::trim).take_while(|line| *line != "]") {
        if let Some(comment) = line.strip_prefix('#') {
            if !open {
                reasons.push(Reason { text: String::new(), patterns: Vec::new() });
            }
            open = true;
            let reason = reasons.last_mut().context("pushed above")?;
            reason.text = format!("{} {}", reason.text, comment.trim()).trim().to_owned();
        } else if line.starts_with('"') {
            open = false;
            let Some(reason) = reasons.last_mut() else { bail!("{line} has no reason above it") };
            let pattern: String =
                serde_json::from_str(line.trim_end_matches(',')).with_context(|| line.to_owned())?;
            reason.patterns.push(Regex::new(&pattern).with_context(|| pattern.clone())?);
        }
    }
    Ok(reasons)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_leaves_out_nothing_is_told() {
        let reasons = reasons("exclude_re = [\n    # Why.\n    \"b$\",\n]").expect("good");
        assert!(tell("crates/core/src/a.rs:1:1: replace a with b\n", &reasons));
        assert!(!tell("crates/core/src/a.rs:1:1: replace a with c\n", &reasons));
    }

    #[test]
    fn every_pattern_has_the_comment_above_it_as_its_reason() {
        let settings = "exclude_re = [\n    # One reason,\n    # in two lines.\n    \"a\\\\.b\",\n    \"c\",\n\n    # Another.\n    \"d\",\n]\n";
        let found = reasons(settings).expect("good");
        let told: Vec<_> = found.iter().map(|reason| (reason.text.as_str(), reason.patterns.len())).collect();
        assert_eq!(told, [("One reason, in two lines.", 2), ("Another.", 1)]);
        assert!(found[0].covers("a.b: replaced") && !found[0].covers("axb"));
        assert!(reasons("exclude_re = [\n    \"a\",\n]").is_err(), "nobody says why");
    }
}

//! `proof/seat.py`: the proof of the seat protocol for any number of nodes.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::process;
use crate::python::{self, Played};
use crate::workspace::Workspace;

const LIMIT: Duration = Duration::from_secs(20 * 60);

fn command(workspace: &Workspace) -> Result<Option<Command>> {
    let Some(programs) = python::programs(workspace)? else { return Ok(None) };
    let mut command = Command::new(programs.join("python"));
    command.arg(workspace.root.join("proof/seat.py"));
    Ok(Some(command))
}

/// Checks the proof with one solver: it takes seconds.
pub(crate) fn play(workspace: &Workspace) -> Result<Played> {
    let Some(mut command) = command(workspace)? else { return Ok(Played::Missing) };
    Ok(Played::of(process::run(&mut command, LIMIT)?))
}

/// Checks the proof with both solvers, and everything that shows that it bites. Prints the stories of the mutants.
pub(crate) fn prove(workspace: &Workspace) -> Result<Value> {
    let mut found = json!({});
    let parts: [(&str, &[&str]); 6] = [
        ("z3", &[]),
        ("cvc5", &["--solver", "cvc5"]),
        ("mutants", &["--mutants"]),
        ("needed", &["--needed"]),
        ("slack", &["--slack"]),
        ("reachable", &["--reachable"]),
    ];
    for (name, arguments) in parts {
        let Some(mut command) = command(workspace)? else {
            bail!("the proof needs python3 and its packages")
        };
        let said = process::capture(command.args(arguments).arg("--json"), LIMIT)?;
        let mut part: Value = serde_json::from_str(&said.stdout).with_context(|| {
            format!("proof/seat.py {} printed no JSON: {}", arguments.join(" "), said.stderr)
        })?;
        let key = if arguments.is_empty() || name == "cvc5" { "proof" } else { name };
        found[name] = part[key].take();
        found[name]["ok"] = part["ok"].take();
        println!(
            "proof, {name}: {}",
            if found[name]["ok"] == true { "as it should be" } else { "NOT AS IT SHOULD BE" }
        );
    }
    for mutant in found["mutants"]["mutants"].as_array().into_iter().flatten() {
        for run in mutant["runs"].as_array().into_iter().flatten() {
            println!(
                "\n{}: {}",
                mutant["name"].as_str().unwrap_or("?"),
                mutant["about"].as_str().unwrap_or("?")
            );
            for line in run["story"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                println!("    {line}");
            }
        }
    }
    Ok(found)
}

pub(crate) fn holds(found: &Value) -> bool {
    let parts = ["z3", "cvc5", "mutants", "needed", "slack", "reachable"];
    parts.iter().all(|part| found[*part]["ok"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_must_hold() {
        let all = json!({"z3": {"ok": true}, "cvc5": {"ok": true}, "mutants": {"ok": true}, "needed": {"ok": true},
            "slack": {"ok": true}, "reachable": {"ok": true}});
        assert!(holds(&all));
        for part in ["z3", "cvc5", "mutants", "needed", "slack", "reachable"] {
            let mut found = all.clone();
            found[part]["ok"] = false.into();
            assert!(!holds(&found), "{part}");
        }
        assert!(!holds(&json!({})), "what was not tried shows nothing");
    }
}

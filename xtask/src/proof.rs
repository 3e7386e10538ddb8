//! `proof/seat.py`: the proof of the seat protocol for any number of nodes.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::tools;
use crate::workspace::Workspace;
use tenure_rig::process;

const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Checks the proof with one solver: it takes seconds.
pub(crate) fn command(workspace: &Workspace) -> Result<Command> {
    let mut command = Command::new(tools::python(workspace)?.join("python"));
    command.arg(workspace.root.join("proof/seat.py"));
    Ok(command)
}

/// Checks the proof with both solvers, and everything that shows that it bites. `proof/seat.py --mutants` tells the stories.
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
        let said = process::capture(command(workspace)?.args(arguments).arg("--json"), LIMIT)?;
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
    Ok(found)
}

//! Python programs that checks need, in one virtual environment in the target directory.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process;
use crate::workspace::Workspace;

/// What is installed, with what `deploy/requirements.txt` lists: schemathesis generates requests, z3 and cvc5 are the solvers for
/// `proof/seat.py`, maturin makes a wheel, and the client for Python is tested with APScheduler and Celery.
const PACKAGES: [&str; 6] = [
    "schemathesis==4.32.5",
    "z3-solver==5.4.0.0",
    "cvc5==1.4.2",
    "maturin==1.16.0",
    "APScheduler==3.11.3",
    "celery==5.7.0",
];
const INSTALL_LIMIT: Duration = Duration::from_secs(300);

/// The result of a check that needs Python.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Played {
    Passed,
    Failed,
    /// What it needs is missing and cannot be installed.
    Missing,
}

impl Played {
    pub(crate) fn of(passed: bool) -> Played {
        if passed { Played::Passed } else { Played::Failed }
    }
}

/// Where the programs are, installed if necessary; `None` if they are missing and cannot be installed.
pub(crate) fn programs(workspace: &Workspace) -> Result<Option<PathBuf>> {
    let home = workspace.tools().join("python");
    let (programs, list) = (home.join("bin"), home.join("installed"));
    let deploy = std::fs::read_to_string(workspace.root.join("deploy/requirements.txt"))?;
    let listed = deploy.lines().filter(|line| !line.starts_with('#'));
    let packages: Vec<&str> = PACKAGES.into_iter().chain(listed).collect();
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&list).is_ok_and(|installed| installed == wanted) {
        return Ok(Some(programs));
    }
    println!("python: installing {}", packages.join(", "));
    let mut steps = [Command::new("python3"), Command::new(programs.join("pip"))];
    steps[0].args(["-m", "venv", "--clear"]).arg(&home);
    steps[1].args(["install", "--quiet", "--disable-pip-version-check"]).args(&packages);
    for step in &mut steps {
        if !process::run(step, INSTALL_LIMIT).unwrap_or(false) {
            crate::interrupt::check()?;
            println!("python: NOT INSTALLED. python3 with venv is needed, and its packages");
            return Ok(None);
        }
    }
    // Written last, so that an interrupted installation starts over.
    std::fs::write(&list, wanted).with_context(|| format!("cannot write {}", list.display()))?;
    Ok(Some(programs))
}

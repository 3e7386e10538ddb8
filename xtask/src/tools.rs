//! Programs that several tasks need, with their versions.

use std::path::PathBuf;

use anyhow::Result;
use tenure_rig::install::{self, CargoTool, Debian};

use crate::workspace::Workspace;

pub(crate) const NEXTEST: CargoTool =
    CargoTool { verb: "nextest", package: "cargo-nextest", version: "0.9.143" };
pub(crate) const DENY: CargoTool = CargoTool { verb: "deny", package: "cargo-deny", version: "0.20.2" };
pub(crate) const FUZZ: CargoTool = CargoTool { verb: "fuzz", package: "cargo-fuzz", version: "0.13.2" };
pub(crate) const MUTANTS: CargoTool =
    CargoTool { verb: "mutants", package: "cargo-mutants", version: "27.1.0" };

pub(crate) const BROWSER: Debian = Debian { programs: &["chromium"], packages: &["chromium"] };
pub(crate) const PROMETHEUS: Debian =
    Debian { programs: &["prometheus", "promtool"], packages: &["prometheus"] };
pub(crate) const NODE: Debian = Debian { programs: &["node", "npm"], packages: &["nodejs", "npm"] };
/// The server's own programs are in a folder for each version, which is not searched; this one comes with them.
pub(crate) const POSTGRES: Debian =
    Debian { programs: &["psql", "pg_ctlcluster"], packages: &["postgresql"] };

/// schemathesis generates requests, z3 and cvc5 are the solvers for `proof/seat.py`, maturin makes a wheel, and the client for
/// Python is tested with APScheduler and Celery.
const PYTHON: [&str; 6] = [
    "schemathesis==4.32.5",
    "z3-solver==5.4.0.0",
    "cvc5==1.4.2",
    "maturin==1.16.0",
    "APScheduler==3.11.3",
    "celery==5.7.0",
];

/// playwright-core drives the browser, axe-core finds what keeps people from using a page with a keyboard or a screen reader, and
/// node-cron is what the client for JavaScript coordinates.
const NPM: [&str; 3] = ["playwright-core@1.61.1", "axe-core@4.14.1", "node-cron@4.6.0"];

/// The folder with Python's programs, and those that `deploy/requirements.txt` lists.
pub(crate) fn python(workspace: &Workspace) -> Result<PathBuf> {
    let deploy = std::fs::read_to_string(workspace.root.join("deploy/requirements.txt"))?;
    let listed = deploy.lines().filter(|line| !line.starts_with('#'));
    install::python("python", &PYTHON.into_iter().chain(listed).collect::<Vec<_>>())
}

/// The folder `node_modules`.
pub(crate) fn npm() -> Result<PathBuf> {
    NODE.provide()?;
    install::npm(&NPM)
}

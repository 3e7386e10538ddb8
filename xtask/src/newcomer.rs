//! `cargo xtask newcomer`: the first minutes of the README, in a fresh clone, with a browser watching.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::debian;
use crate::process;
use crate::workspace::Workspace;

const LIMIT: Duration = Duration::from_secs(30 * 60);

pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    if let Err(missing) = debian::BROWSER.provide()? {
        bail!("{missing}");
    }
    let clone = workspace.target.join("newcomer");
    if clone.exists() {
        fs::remove_dir_all(&clone).with_context(|| format!("cannot remove {}", clone.display()))?;
    }
    let mut git = Command::new("git");
    git.args(["clone", "--quiet"]).arg(&workspace.root).arg(&clone);
    if !process::run(&mut git, LIMIT)? {
        bail!("the workspace cannot be cloned");
    }
    println!("what is committed, in {}; the first build takes a few minutes", clone.display());
    let mut test = workspace.cargo();
    test.args(["test", "--workspace", "--test", "newcomer", "--", "--ignored"]);
    let passed = process::tee(test.env("TENURE_NEWCOMER_CLONE", &clone), LIMIT, |_| {})?;
    println!("pictures in {}", workspace.target.join("screenshots").display());
    Ok(passed)
}

//! Cargo programs that a task needs and may install for itself, only into the target directory.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

const ASK_LIMIT: Duration = Duration::from_secs(60);
const INSTALL_LIMIT: Duration = Duration::from_secs(20 * 60);

/// A program, and the version to install if it is missing.
pub(crate) struct Tool {
    /// As typed after `cargo`; `None` for a program of its own.
    pub(crate) verb: Option<&'static str>,
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// Lets `command` find installed tools.
    pub(crate) fn reachable(workspace: &Workspace, command: &mut Command) -> Result<()> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::iter::once(workspace.tools().join("bin")).chain(std::env::split_paths(&path));
        let path = std::env::join_paths(dirs).context("a directory of PATH cannot be written there")?;
        command.env("PATH", path);
        Ok(())
    }

    /// Makes sure that the program, or `cargo` with this subcommand, runs when started like this.
    pub(crate) fn prepare(&self, workspace: &Workspace, start: &mut Command) -> Result<()> {
        let Tool { verb, package, version } = self;
        let version_of = start.args(*verb).arg("--version");
        if process::capture(version_of, ASK_LIMIT).is_ok_and(|said| said.success) {
            return Ok(());
        }
        println!("installing {package} {version}");
        let mut install = workspace.cargo();
        // Built in half the time, and they have little to do.
        install.args(["install", package, "--locked", "--quiet", "--debug", "--version", version, "--root"]);
        if !process::run(install.arg(workspace.tools()), INSTALL_LIMIT)? {
            bail!("{package} is not there and cannot be installed");
        }
        Ok(())
    }
}

//! Cargo programs that a task needs and may install for itself, only into the target directory.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

const ASK_LIMIT: Duration = Duration::from_secs(60);
const INSTALL_LIMIT: Duration = Duration::from_secs(20 * 60);

/// A cargo subcommand, and the version to install if it is missing.
pub(crate) struct Tool {
    /// As typed after `cargo`.
    pub(crate) verb: &'static str,
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

    /// Makes sure that `cargo`, as given, has this subcommand.
    pub(crate) fn prepare(&self, workspace: &Workspace, cargo: &mut Command) -> Result<()> {
        let Tool { verb, package, version } = self;
        if process::capture(cargo.args([verb, "--version"]), ASK_LIMIT)?.success {
            return Ok(());
        }
        println!("{verb}: installing {package} {version}");
        let mut install = workspace.cargo();
        install.args(["install", package, "--locked", "--quiet", "--version", version, "--root"]);
        if !process::run(install.arg(workspace.tools()), INSTALL_LIMIT)? {
            bail!("{package} is not there and cannot be installed");
        }
        Ok(())
    }
}

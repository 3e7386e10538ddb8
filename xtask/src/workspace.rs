//! The locations of things in the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

/// Builds take minutes where nothing is built yet.
pub(crate) const BUILD_LIMIT: Duration = Duration::from_secs(40 * 60);

/// An empty folder, whatever an earlier run left there.
pub(crate) fn fresh(folder: &Path) -> Result<()> {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

/// The checkout this xtask belongs to.
pub(crate) struct Workspace {
    /// The directory with the workspace's `Cargo.toml`.
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// Finds the workspace from the environment `cargo run` sets, or from where xtask was built.
    pub(crate) fn locate() -> Result<Self> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest.parent().context("xtask lies in the workspace root")?.to_path_buf();
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        Ok(Self { root, target })
    }

    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_path_buf(), target: root.join("target") }
    }

    /// A program of the workspace, where `cargo build` puts it.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }

    /// What the fuzzer builds and keeps.
    pub(crate) fn fuzz(&self) -> PathBuf {
        self.target.join("fuzz")
    }

    /// `cargo` in the workspace root: the same cargo that runs us.
    pub(crate) fn cargo(&self) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(&self.root);
        command
    }

    /// Builds the shipped program, exactly as `cargo build` does. Checks from outside start this one.
    pub(crate) fn build(&self) -> Command {
        let mut command = self.cargo();
        command.args(["build", "--package", "tenure-cli"]);
        command
    }

    /// Adds what the one build of all tests is built with: the broken variants, and clippy as its compiler, so that nothing is
    /// compiled once more to be linted.
    pub(crate) fn with_test_build<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.args(["--workspace", "--features", "tenure-core-tests/teeth,tenure/teeth,tenure-sim/teeth"]);
        command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
    }

    /// Every file git tracks or would add, relative to the root, sorted; ignored files do not count.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.root)
            .output()
            .context("git ls-files")?;
        anyhow::ensure!(
            output.status.success(),
            "git ls-files: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let listed = String::from_utf8(output.stdout).context("git ls-files: a path is not UTF-8")?;
        let mut files: Vec<PathBuf> =
            listed.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from).collect();
        files.retain(|path| self.root.join(path).is_file());
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// A file's text, or `None` if it is not text.
    pub(crate) fn text(&self, path: &Path) -> Option<String> {
        std::fs::read(self.root.join(path)).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    }
}

//! Debian programs that some tests need: a browser, a Prometheus, a PostgreSQL. Installed where that is possible.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::process;

const INSTALL_LIMIT: Duration = Duration::from_secs(10 * 60);

/// Programs, and the packages that contain them.
pub(crate) struct Needed {
    pub(crate) programs: &'static [&'static str],
    pub(crate) packages: &'static [&'static str],
}

pub(crate) const BROWSER: Needed =
    Needed { programs: &["chromium", "chromedriver"], packages: &["chromium", "chromium-driver"] };

pub(crate) const PROMETHEUS: Needed =
    Needed { programs: &["prometheus", "promtool"], packages: &["prometheus"] };

pub(crate) const NODE: Needed = Needed { programs: &["node", "npm"], packages: &["nodejs", "npm"] };

/// The server's own programs are in a folder for each version, which is not searched; this one comes with them.
pub(crate) const POSTGRES: Needed =
    Needed { programs: &["psql", "pg_ctlcluster"], packages: &["postgresql"] };

impl Needed {
    fn missing(&self) -> Vec<&'static str> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let there = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
        self.programs.iter().copied().filter(|program| !there(program)).collect()
    }

    /// Makes sure that the programs are there, installing them if necessary. If that is not possible, says what is missing.
    pub(crate) fn provide(&self) -> Result<Result<(), String>> {
        if self.missing().is_empty() {
            return Ok(Ok(()));
        }
        let words = || format!("{} missing; Debian: {}", self.missing().join(", "), self.packages.join(" "));
        if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/apt-get").exists() {
            return Ok(Err(words()));
        }
        println!("installing {}", self.packages.join(", "));
        let mut install = Command::new("apt-get");
        install.args(["install", "--yes", "--quiet=2", "--no-install-recommends"]).args(self.packages);
        install.env("DEBIAN_FRONTEND", "noninteractive");
        if !process::capture(&mut install, INSTALL_LIMIT)?.success {
            // The package lists may be older than the packages.
            let mut update = Command::new("apt-get");
            process::capture(update.args(["update", "--quiet=2"]), INSTALL_LIMIT)?;
            process::capture(&mut install, INSTALL_LIMIT)?;
        }
        Ok(if self.missing().is_empty() { Ok(()) } else { Err(words()) })
    }
}

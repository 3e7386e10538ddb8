//! Programs that checks need, at fixed versions: from Debian where we may, everything else into the cache folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::{cache, interrupt, process};

const LIMIT: Duration = Duration::from_secs(20 * 60);

/// Programs, and the Debian packages that contain them.
pub struct Debian {
    pub programs: &'static [&'static str],
    pub packages: &'static [&'static str],
}

impl Debian {
    fn missing(&self) -> Vec<&'static str> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_there = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
        self.programs.iter().copied().filter(|program| !is_there(program)).collect()
    }

    /// Makes sure that the programs are there. The error says what is missing, and how to install it.
    pub fn provide(&self) -> Result<()> {
        if self.missing().is_empty() {
            return Ok(());
        }
        apt(self.packages, &self.missing().join(", "))?;
        let missing = self.missing();
        ensure!(missing.is_empty(), "{} still missing after the installation", missing.join(", "));
        Ok(())
    }
}

fn apt(packages: &[&str], missing: &str) -> Result<()> {
    let line = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/apt-get").exists() {
        bail!("{missing} missing; on Debian, as root: {line}");
    }
    eprintln!("{line}");
    let run = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["--yes", "--quiet=2"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        process::capture(&mut command, LIMIT)
    };
    let install = [&["install", "--no-install-recommends"], packages].concat();
    if !run(&install)?.success {
        // The package lists may be older than the packages.
        run(&["update"])?;
        run(&install)?.ok(&line)?;
    }
    Ok(())
}

/// The library that shifts a process's wall clock.
pub fn faketime() -> Result<PathBuf> {
    let find = || {
        let places =
            std::fs::read_dir("/usr/lib").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        places.map(|place| place.join("faketime/libfaketime.so.1")).find(|library| library.is_file())
    };
    if find().is_none() {
        apt(&["libfaketime"], "libfaketime")?;
    }
    find().context("libfaketime still missing after the installation")
}

/// The folder with the programs of a virtual environment with these packages of Python's.
pub fn python(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let fill = |home: &Path| {
        let mut make = Command::new("python3");
        process::capture(make.args(["-m", "venv"]).arg(home), LIMIT)?.ok("python3 -m venv")?;
        let mut pip = Command::new(home.join("bin/python3"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
        process::capture(&mut pip, LIMIT)?.ok("pip install")?;
        Ok(())
    };
    Ok(cache::entry(name, &packages.join("\n"), fill)?.join("bin"))
}

/// The folder `node_modules` with these packages of npm's.
pub fn npm(packages: &[&str]) -> Result<PathBuf> {
    let fill = |home: &Path| {
        let mut install = Command::new("npm");
        install.args(["install", "--silent", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts"]);
        install.arg("--prefix").arg(home).args(packages);
        process::capture(&mut install, LIMIT)?.ok("npm install")?;
        Ok(())
    };
    Ok(cache::entry("npm", &packages.join("\n"), fill)?.join("node_modules"))
}

/// A program of cargo's, and the version to install if it is missing.
pub struct CargoTool {
    /// As typed after `cargo`.
    pub verb: &'static str,
    pub package: &'static str,
    pub version: &'static str,
}

impl CargoTool {
    /// Lets this cargo find the program. One of this version on the path is as good.
    pub fn reachable(&self, cargo: &mut Command) -> Result<()> {
        let mut ask = process::copy_of(cargo);
        let there = process::capture(ask.args([self.verb, "--version"]), LIMIT);
        if there.is_ok_and(|said| said.success && said.stdout.contains(self.version)) {
            return Ok(());
        }
        interrupt::check()?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::iter::once(self.installed(cargo)?).chain(std::env::split_paths(&path));
        cargo.env("PATH", std::env::join_paths(dirs).context("a directory of PATH cannot be written there")?);
        Ok(())
    }

    /// The same for one that is started by its own name, which is then the verb.
    pub fn program(&self, cargo: &Command) -> Result<Command> {
        Ok(Command::new(self.installed(cargo)?.join(self.verb)))
    }

    fn installed(&self, cargo: &Command) -> Result<PathBuf> {
        let CargoTool { package, version, .. } = self;
        let fill = |home: &Path| {
            let mut install = process::copy_of(cargo);
            // Built in half the time, and they have little to do.
            install.args([
                "install",
                package,
                "--locked",
                "--quiet",
                "--debug",
                "--version",
                version,
                "--root",
            ]);
            // Neither what it is built with nor where is the workspace's.
            install.arg(home).env("CARGO_TARGET_DIR", home.join("build")).current_dir(home);
            process::capture(&mut install, LIMIT)?.ok(&format!("cargo install {package}"))?;
            Ok(std::fs::remove_dir_all(home.join("build"))?)
        };
        Ok(cache::entry(package, &format!("{package} {version}"), fill)?.join("bin"))
    }
}

//! Engines install themselves: by name, at a fixed version, into the target directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

const LIMIT: Duration = Duration::from_secs(300);

/// The directory of an installed Python wheel; installs it first if it is missing.
pub(super) fn wheel(workspace: &Workspace, package: &str, version: &str) -> Result<PathBuf> {
    let home = workspace.engines().join("wheels");
    let installed = home.join(format!("{package}-{version}"));
    if installed.is_dir() {
        return Ok(installed);
    }
    // Complete or absent: parallel runs each install into a directory of their own and rename it.
    let staging = home.join(format!(".{package}-{version}.{}", std::process::id()));
    std::fs::create_dir_all(&staging).with_context(|| format!("cannot create {}", staging.display()))?;
    let requirement = format!("{package}=={version}");
    let outcome = install(&staging, &requirement);
    if outcome.is_ok() && !installed.is_dir() && std::fs::rename(staging.join("py"), &installed).is_err() {
        anyhow::ensure!(installed.is_dir(), "cannot move {requirement} to {}", installed.display());
    }
    // Only temporary files are left; what matters is whether `installed` exists.
    let _ = std::fs::remove_dir_all(&staging);
    outcome.map(|()| installed)
}

fn install(staging: &Path, requirement: &str) -> Result<()> {
    let direct = pip(Path::new("python3"), staging, requirement);
    let Err(refused) = direct else { return Ok(()) };
    crate::interrupt::check()?;
    // No pip, or one managed by the distribution: a virtual environment of our own has a pip that may install.
    let venv = staging.join("venv");
    let mut create = Command::new("python3");
    create.args(["-m", "venv"]).arg(&venv);
    process::capture(&mut create, LIMIT)?
        .ok("python3 -m venv")
        .with_context(|| format!("cannot install {requirement}: {refused:#}"))?;
    pip(&venv.join("bin/python3"), staging, requirement)
}

fn pip(python: &Path, staging: &Path, requirement: &str) -> Result<()> {
    let mut command = Command::new(python);
    command
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"])
        .arg("--target")
        .arg(staging.join("py"))
        .arg(requirement);
    process::capture(&mut command, LIMIT)?.ok(&format!("pip install {requirement}"))?;
    Ok(())
}

/// The library that shifts a process's wall clock; installs it from Debian if it is missing and we may.
pub(crate) fn faketime() -> Result<PathBuf> {
    let find = || {
        let places =
            std::fs::read_dir("/usr/lib").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        places.map(|place| place.join("faketime/libfaketime.so.1")).find(|library| library.is_file())
    };
    if let Some(library) = find() {
        return Ok(library);
    }
    let install = "apt-get install -y --no-install-recommends libfaketime";
    if !rustix::process::geteuid().is_root() || !missing(&["apt-get"]).is_empty() {
        bail!("libfaketime not found; on Debian, as root: {install}");
    }
    eprintln!("xtask: {install}");
    let _ = apt(&["update"])?;
    apt(&["install", "-y", "--no-install-recommends", "libfaketime"])?.ok(install)?;
    find().with_context(|| format!("libfaketime still not found after {install}"))
}

/// Makes sure `programs` can be run, installing Debian `packages` if we may.
pub(super) fn debian(programs: &[&str], packages: &[&str]) -> Result<()> {
    if missing(programs).is_empty() {
        return Ok(());
    }
    let install = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if !rustix::process::geteuid().is_root() || !missing(&["apt-get"]).is_empty() {
        bail!("{} not found; on Debian, as root: {install}", missing(programs).join(", "));
    }
    eprintln!("xtask: {install}");
    // Best effort: with package lists already there, the installation works without it.
    let _ = apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], packages].concat())?.ok(&install)?;
    let absent = missing(programs);
    anyhow::ensure!(absent.is_empty(), "{} still not found after {install}", absent.join(", "));
    Ok(())
}

fn apt(args: &[&str]) -> Result<process::Captured> {
    process::capture(Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive"), LIMIT)
}

fn missing<'a>(programs: &[&'a str]) -> Vec<&'a str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    programs.iter().copied().filter(|program| !dirs.iter().any(|dir| dir.join(program).is_file())).collect()
}

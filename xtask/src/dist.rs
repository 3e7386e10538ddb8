//! `cargo xtask dist`: one static binary, and everything it can be installed from, below `target/packages`.
//!
//! `--try` then installs each package as a stranger would, without Rust on the path, and runs the demo of what was installed.

mod packages;
mod third_party;
mod try_out;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::workspace::{Workspace, fresh};
use tenure_rig::process;

/// Link-time optimisation takes minutes.
const BUILD_LIMIT: Duration = Duration::from_secs(60 * 60);
const LIMIT: Duration = Duration::from_secs(10 * 60);

pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these
    #[arg(long, value_enum)]
    only: Vec<Package>,
    /// Install each package where there is no Rust, and run its demo
    #[arg(long = "try")]
    try_out: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
enum Package {
    /// The binary with completions, man pages and licences
    Tar,
    Deb,
    /// For pip
    Wheel,
    Npm,
    /// A container image
    Image,
}

/// What is packed, and where it goes.
struct Dist<'w> {
    workspace: &'w Workspace,
    version: String,
    /// Where the packages go.
    out: PathBuf,
    /// What every package contains: `tenure`, `completions`, `man`, `LICENSE`, `THIRD-PARTY.md`.
    files: PathBuf,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<bool> {
    let mut wanted = args.only.clone();
    if wanted.is_empty() {
        wanted = Package::value_variants().to_vec();
    }
    wanted.sort();
    wanted.dedup();
    let out = workspace.target.join("packages");
    // Packages of an older build must not look like this one's.
    fresh(&out)?;
    // Where `crates/cli/Cargo.toml` expects it.
    let files = workspace.root.join("target/dist-files");
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let dist = Dist { workspace, version, out, files };
    dist.collect()?;
    let mut skipped = Vec::new();
    for package in &wanted {
        println!("\n== {package:?}");
        if let Err(reason) = dist.pack(*package)? {
            println!("{package:?}: SKIPPED: {reason}");
            skipped.push(*package);
        }
    }
    dist.sum_up()?;
    let mut fine = true;
    if args.try_out {
        for package in wanted.iter().filter(|package| !skipped.contains(package)) {
            println!("\n== try {package:?}");
            fine &= dist.try_out(*package)?;
        }
    }
    Ok(fine)
}

impl Dist<'_> {
    /// Builds the binary and what belongs to it.
    fn collect(&self) -> Result<()> {
        let mut build = cargo_static(self.workspace);
        build.args(["build", "--package", "tenure-cli", "--bin", "tenure", "--locked"]);
        ensure!(
            process::run(build.args(["--profile", "dist", "--target", TARGET]), BUILD_LIMIT)?,
            "the build failed"
        );
        let binary = self.files.join("tenure");
        fresh(&self.files)?;
        fresh(&self.files.join("completions"))?;
        fs::copy(self.workspace.target.join(TARGET).join("dist/tenure"), &binary)?;
        let kind = text(Command::new("file").arg("--brief").arg(&binary))?;
        ensure!(kind.contains("static"), "{} is not static: {kind}", binary.display());
        for (shell, name) in [("bash", "tenure"), ("zsh", "_tenure"), ("fish", "tenure.fish")] {
            let script = text(Command::new(&binary).args(["completions", shell]))?;
            fs::write(self.files.join("completions").join(name), script)?;
        }
        let man = self.files.join("man");
        text(Command::new(&binary).arg("man").arg(&man))?;
        fs::copy(self.workspace.root.join("LICENSE"), self.files.join("LICENSE"))?;
        let parts = third_party::Parts::read(self.workspace)?;
        fs::write(self.files.join("THIRD-PARTY.md"), parts.licences()?)?;
        let sbom = self.out.join(format!("tenure-{}.cdx.json", self.version));
        fs::write(sbom, parts.sbom(&self.version)?)?;
        println!("tenure {}: {:.1} MiB, {} parts of others", self.version, mib(&binary)?, parts.count());
        Ok(())
    }

    /// Checksums of everything, and how large it is.
    fn sum_up(&self) -> Result<()> {
        let mut names: Vec<String> = Vec::new();
        for entry in fs::read_dir(&self.out)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        let sums = text(Command::new("sha256sum").args(&names).current_dir(&self.out))?;
        fs::write(self.out.join("SHA256SUMS"), sums)?;
        println!("\n{}", self.out.display());
        for name in &names {
            println!("{:>8.1} MiB  {name}", mib(&self.out.join(name))?);
        }
        Ok(())
    }
}

/// `cargo` that links the C library in. Packed relocations save half a megabyte.
fn cargo_static(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo();
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs");
    cargo
}

/// What a command prints; an error with what it complains about if it fails.
fn text(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    process::capture(command, LIMIT)?.ok(&name)
}

fn mib(path: &Path) -> Result<f64> {
    let size = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
    Ok(size as f64 / 1024.0 / 1024.0)
}

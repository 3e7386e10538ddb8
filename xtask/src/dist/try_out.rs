//! Each package, installed as a stranger would: in a place of its own, without Rust on the path. What was installed must run its
//! demo, which starts three nodes, kills a leader and shows who leads next.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::packages::STORAGE;
use super::{Dist, Package, text};
use crate::workspace::fresh;
use tenure_rig::install::Debian;

const DEBOOTSTRAP: Debian = Debian { programs: &["debootstrap"], packages: &["debootstrap"] };

/// From the first command to the failover seen.
const PATIENCE_S: f64 = 60.0;

/// A path without Rust.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Dist<'_> {
    pub(super) fn try_out(&self, package: Package) -> Result<bool> {
        let place = self.workspace.target.join("dist-try");
        fresh(&place)?;
        let began = Instant::now();
        let demo = match package {
            Package::Tar => self.unpacked(&place)?,
            Package::Deb => return self.try_deb(&place),
            Package::Wheel => self.with_pip(&place)?,
            Package::Npm => self.with_npm(&place)?,
            Package::Image => self.as_container()?,
        };
        self.judge(demo, began)
    }

    /// Runs the demo, which says that there was one leader per epoch if that is true.
    fn judge(&self, mut demo: Command, began: Instant) -> Result<bool> {
        let said = text(demo.arg("demo"))?;
        let took = began.elapsed().as_secs_f64();
        print!("{said}");
        println!("installed and seen a failover in {took:.1} s");
        ensure!(took < PATIENCE_S, "that is more than {PATIENCE_S} s");
        Ok(said.contains("One leader per epoch, never two at once"))
    }

    fn unpacked(&self, place: &Path) -> Result<Command> {
        let archive = self.found("linux.tar.gz")?;
        text(Command::new("tar").arg("--extract").arg("--file").arg(archive).current_dir(place))?;
        Ok(bare(&place.join(format!("tenure-{}-x86_64-linux/tenure", self.version)), place))
    }

    fn with_pip(&self, place: &Path) -> Result<Command> {
        text(bare(Path::new("python3"), place).args(["-m", "venv", "venv"]))?;
        let mut pip = bare(&place.join("venv/bin/pip"), place);
        pip.args(["install", "--quiet", "--no-index", "--disable-pip-version-check"]);
        text(pip.arg(self.found(".whl")?))?;
        Ok(bare(&place.join("venv/bin/tenure"), place))
    }

    fn with_npm(&self, place: &Path) -> Result<Command> {
        let package = self.found("npm.tgz")?;
        let mut install = bare(Path::new("npm"), place);
        install.args(["install", "--silent", "--offline", "--no-audit", "--no-fund", "--prefix"]);
        text(install.arg(place).arg(package))?;
        Ok(bare(&place.join("node_modules/.bin/tenure"), place))
    }

    fn as_container(&self) -> Result<Command> {
        let run = |args: &[&str]| {
            let mut podman = Command::new("podman");
            podman.args(STORAGE).args(["--runtime", "/usr/sbin/runc", "run", "--rm", "--network", "host"]);
            podman
                .args("--ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --tmpfs /tmp:mode=1777".split(' '));
            podman.args(args).arg(self.tag());
            podman
        };
        ensure!(text(run(&[]).arg("--version"))?.contains(&self.version), "another version");
        // As PID 1 it hears SIGTERM, hands over and ends with 0.
        let mut node = run(&["--name", "tenure-try", "--detach"]);
        text(node.args(["run", "--store", "sqlite:/tmp/t.db", "--preset", "fast", "--no-http"]))?;
        let stop = text(Command::new("podman").args(STORAGE).args(["stop", "--time", "10", "tenure-try"]));
        stop.map(|_| run(&[]))
    }

    /// Installed into a Debian of its own, checked, and removed.
    fn try_deb(&self, place: &Path) -> Result<bool> {
        if !rustix::process::geteuid().is_root() {
            println!("Deb: NOT TRIED: only root can install it");
            return Ok(true);
        }
        if let Err(missing) = DEBOOTSTRAP.provide() {
            println!("Deb: NOT TRIED: {missing:#}");
            return Ok(true);
        }
        let base = self.workspace.target.join("debian.tar");
        if !base.is_file() {
            println!("installing a Debian into {}", base.display());
            let mut debootstrap = Command::new("debootstrap");
            debootstrap.args(["--variant=minbase", "--include=adduser", "--make-tarball"]);
            let packages = self.workspace.target.join("debian.debs");
            text(debootstrap.arg(&packages).args(["bookworm"]).arg(place.join("scratch")))?;
            fs::rename(&packages, &base)?;
            fs::remove_dir_all(place.join("scratch")).unwrap_or_default();
        }
        let root = place.join("root");
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", "--include=adduser", "--unpack-tarball"]).arg(&base);
        text(debootstrap.arg("bookworm").arg(&root))?;
        let began = Instant::now();
        fs::copy(self.found(".deb")?, root.join("tenure.deb"))?;
        let inside = |line: &str| {
            let mut unshare = Command::new("unshare");
            unshare
                .args(["--mount", "--pid", "--fork", "--mount-proc"])
                .arg(format!("--root={}", root.display()));
            unshare.args(["/bin/sh", "-ec", line]).env_clear().env("PATH", PATH).env("HOME", "/root");
            unshare
        };
        text(&mut inside("dpkg --install /tenure.deb"))?;
        let said = text(&mut inside("tenure demo"))?;
        print!("{said}");
        let took = began.elapsed().as_secs_f64();
        println!("installed and seen a failover in {took:.1} s");
        let there = "id tenure; test -f /etc/tenure/tenure.toml; test -f /usr/share/bash-completion/completions/tenure; \
                     test -f /usr/share/man/man1/tenure.1.gz; tenure config check --config /etc/tenure/tenure.toml";
        text(&mut inside(there))?;
        text(&mut inside("dpkg --purge tenure; ! test -e /usr/bin/tenure; ! test -e /etc/tenure"))?;
        ensure!(took < PATIENCE_S, "that is more than {PATIENCE_S} s");
        Ok(said.contains("One leader per epoch, never two at once"))
    }
}

/// A program that sees nothing of our environment.
fn bare(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).env("HOME", home).current_dir(home);
    command
}

//! How each package is made.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{BUILD_LIMIT, Dist, LIMIT, Package, TARGET, cargo_static, text};
use crate::tools;
use crate::workspace::fresh;
use tenure_rig::install::{CargoTool, Debian};
use tenure_rig::process;

const CARGO_DEB: CargoTool = CargoTool { verb: "deb", package: "cargo-deb", version: "3.8.0" };

pub(super) const IMAGES: Debian =
    Debian { programs: &["buildah", "podman", "runc"], packages: &["buildah", "podman", "runc"] };

/// What works without a daemon and in a container; see `deploy/image`.
pub(super) const STORAGE: [&str; 2] = ["--storage-driver", "vfs"];

impl Dist<'_> {
    /// Makes one package; the inner error says why that is not possible on this machine.
    pub(super) fn pack(&self, package: Package) -> Result<Result<(), String>> {
        match package {
            Package::Tar => self.tar().map(Ok),
            Package::Deb => self.deb().map(Ok),
            Package::Wheel => self.wheel(),
            Package::Npm => self.npm(),
            Package::Image => self.image(),
        }
    }

    fn tar(&self) -> Result<()> {
        let name = format!("tenure-{}-x86_64-linux", self.version);
        let archive = self.out.join(format!("{name}.tar.gz"));
        let mut tar = Command::new("tar");
        tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--sort=name", "--file"]).arg(archive);
        tar.arg(format!("--transform=s,^\\.,{name},")).arg("--directory").arg(&self.files).arg(".");
        text(&mut tar).map(drop)
    }

    fn deb(&self) -> Result<()> {
        let mut deb = cargo_static(self.workspace);
        CARGO_DEB.reachable(&mut deb)?;
        // Built already; `--no-strip`: the profile did.
        deb.args("deb --quiet --package tenure-cli --no-build --no-strip --profile dist --target".split(' '))
            .arg(TARGET);
        deb.arg("--output").arg(self.out.join(format!("tenure_{}_amd64.deb", self.version)));
        ensure!(process::run(&mut deb, LIMIT)?, "cargo deb failed");
        Ok(())
    }

    fn wheel(&self) -> Result<Result<(), String>> {
        let programs = match tools::python(self.workspace) {
            Ok(programs) => programs,
            Err(missing) => return Ok(Err(format!("{missing:#}"))),
        };
        let cargo = cargo_static(self.workspace);
        let mut wheel = Command::new(programs.join("maturin"));
        // The same environment, so that what is built already is found.
        let environment = cargo.get_envs().filter_map(|(name, value)| Some((name, value?)));
        wheel.current_dir(&self.workspace.root).envs(environment);
        wheel
            .args("build --manifest-path crates/cli/Cargo.toml --profile dist --target".split(' '))
            .arg(TARGET);
        // A static binary runs wherever Linux does.
        wheel
            .args(["--locked", "--auditwheel", "skip", "--compatibility", "manylinux_2_17", "--out"])
            .arg(&self.out);
        ensure!(process::run(&mut wheel, BUILD_LIMIT)?, "maturin failed");
        Ok(Ok(()))
    }

    fn npm(&self) -> Result<Result<(), String>> {
        if text(Command::new("npm").arg("--version")).is_err() {
            return Ok(Err("npm is needed".to_owned()));
        }
        let folder = self.workspace.target.join("dist-npm");
        fresh(&folder)?;
        fresh(&folder.join("bin"))?;
        for name in ["LICENSE", "THIRD-PARTY.md"] {
            fs::copy(self.files.join(name), folder.join(name))?;
        }
        fs::copy(self.files.join("tenure"), folder.join("bin/tenure"))?;
        fs::copy(self.workspace.root.join("crates/cli/README.md"), folder.join("README.md"))?;
        let about = json!({
            "name": "tenure", "version": self.version, "license": "Apache-2.0",
            "description": "Coordination for clusters that own nothing but a bucket",
            "bin": {"tenure": "bin/tenure"}, "os": ["linux"], "cpu": ["x64"],
        });
        fs::write(folder.join("package.json"), serde_json::to_string_pretty(&about)?)?;
        text(
            Command::new("npm")
                .args(["pack", "--silent", "--pack-destination"])
                .arg(&self.out)
                .current_dir(&folder),
        )?;
        fs::rename(
            self.out.join(format!("tenure-{}.tgz", self.version)),
            self.out.join(format!("tenure-{}-npm.tgz", self.version)),
        )?;
        Ok(Ok(()))
    }

    fn image(&self) -> Result<Result<(), String>> {
        if let Err(missing) = IMAGES.provide() {
            return Ok(Err(format!("{missing:#}")));
        }
        let archive = self.out.join(format!("tenure-{}-image.tar", self.version));
        let file = self.workspace.root.join("deploy/image/Containerfile");
        let mut build = Command::new("buildah");
        // Docker's own format: the other knows no HEALTHCHECK. The root certificates are those of this machine.
        build
            .args(STORAGE)
            .args(["build", "--isolation", "chroot", "--format", "docker", "--tag"])
            .arg(self.tag());
        build.arg("--build-context=certs=/etc/ssl/certs");
        build.arg("--file").arg(&file).arg(&self.files);
        text(&mut build)?;
        let mut push = Command::new("buildah");
        push.args(STORAGE).arg("push").arg(self.tag()).arg(format!(
            "docker-archive:{}:{}",
            archive.display(),
            self.tag()
        ));
        text(&mut push).map(drop)?;
        Ok(Ok(()))
    }

    pub(super) fn tag(&self) -> String {
        format!("localhost/tenure:{}", self.version)
    }

    /// The only file of this kind.
    pub(super) fn found(&self, end: &str) -> Result<std::path::PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.out)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| Path::new(name).to_string_lossy().ends_with(end)) {
                found.push(path);
            }
        }
        ensure!(found.len() < 2, "several files end with {end}");
        found.pop().with_context(|| format!("no file ends with {end}"))
    }
}

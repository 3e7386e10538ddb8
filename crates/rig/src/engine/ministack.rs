//! ministack: answers like AWS, in one event loop.

use std::process::Command;

use anyhow::Result;

use super::site::Site;
use crate::install;

const VERSION: &str = "ministack==1.5.33";

pub(super) fn start(site: &mut Site) -> Result<()> {
    let programs = install::python("ministack", &[VERSION])?;
    let port = site.ports(1)?[0];
    let mut server = Command::new(programs.join("python3"));
    server
        .args(["-m", "ministack"])
        // By default it listens on every address of the machine.
        .env("BIND_HOST", "127.0.0.1")
        .env("GATEWAY_PORT", port.to_string())
        .env("TMPDIR", &site.dir)
        .env("SERVICES", "s3")
        // Disables its MQTT broker, which would listen on a fixed port of every address.
        .env("IOT_MTLS_ENABLED", "0")
        .env("SFTP_ENABLED", "0")
        .env("LOG_LEVEL", "WARNING");
    site.spawn("server", server)?;
    site.serve(port, None)
}

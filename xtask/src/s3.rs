//! `cargo xtask s3`: an engine that runs until it is stopped by command.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Subcommand;

use crate::engine::{Access, Engine, Lifetime, REGION, Site};
use crate::workspace::Workspace;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start an engine (or find it running) and print how to use it: eval "$(cargo xtask s3 up seaweedfs)"
    Up { engine: Engine },
    /// Stop an engine and remove its data
    Down { engine: Engine },
    /// Print the exports for a running engine
    Env { engine: Engine },
}

pub(crate) fn run(workspace: &Workspace, command: Command) -> Result<bool> {
    match command {
        Command::Up { engine } => up(workspace, engine)?,
        Command::Down { engine } => down(workspace, engine),
        Command::Env { engine } => match running(workspace, engine) {
            Some(site) => print!("{}", exports(site.access())),
            None => bail!("{0} is not running; start it: cargo xtask s3 up {0}", engine.name()),
        },
    }
    Ok(true)
}

fn up(workspace: &Workspace, engine: Engine) -> Result<()> {
    let site = match running(workspace, engine) {
        Some(site) => {
            eprintln!("xtask: {} is running already", engine.name());
            site
        }
        None => {
            // Part of it may be left: a gateway without its server.
            if let Some(wreck) = Site::open(&dir(workspace, engine)) {
                wreck.stop();
            }
            eprintln!("xtask: starting {}", engine.name());
            engine.start(workspace, &dir(workspace, engine), Lifetime::Detached)?
        }
    };
    print!("{}", exports(site.access()));
    println!("# The store's URL: s3://{}/", site.access().bucket);
    println!("# Logs: {}", site.dir.display());
    println!("# Stop: cargo xtask s3 down {}", engine.name());
    Ok(())
}

fn down(workspace: &Workspace, engine: Engine) {
    match Site::open(&dir(workspace, engine)) {
        Some(site) => {
            site.stop();
            eprintln!("xtask: {} stopped", engine.name());
        }
        None => eprintln!("xtask: {} was not running", engine.name()),
    }
}

fn dir(workspace: &Workspace, engine: Engine) -> PathBuf {
    workspace.engines().join("dev").join(engine.name())
}

fn running(workspace: &Workspace, engine: Engine) -> Option<Site> {
    Site::open(&dir(workspace, engine)).filter(Site::running)
}

/// Lines for a shell, understood both by this project's S3 store and by AWS's own tools.
fn exports(access: &Access) -> String {
    let mut text = String::new();
    let mut export = |name: &str, value: &str| text.push_str(&format!("export {name}={value}\n"));
    export("AWS_ACCESS_KEY_ID", &access.access_key);
    export("AWS_SECRET_ACCESS_KEY", &access.secret_key);
    export("AWS_REGION", REGION);
    export("AWS_ALLOW_HTTP", "true");
    if let Some(endpoint) = access.endpoints.first() {
        export("AWS_ENDPOINT_URL", endpoint);
    }
    for other in access.endpoints.iter().skip(1) {
        text.push_str(&format!("# a second gateway to the same bucket: AWS_ENDPOINT_URL={other}\n"));
    }
    if let (Some(key), Some(secret)) = (&access.reader_access_key, &access.reader_secret_key) {
        text.push_str(&format!("# may read only: AWS_ACCESS_KEY_ID={key} AWS_SECRET_ACCESS_KEY={secret}\n"));
    }
    text
}

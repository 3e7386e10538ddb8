//! An engine of a developer's own, which runs until it is stopped by command.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Subcommand;

use super::{Access, Engine, Lifetime, REGION, Site};

/// What to do with it.
#[derive(Subcommand)]
pub enum Command {
    /// Start an engine (or find it running) and print how to use it: eval "$(cargo xtask s3 up seaweedfs)"
    Up { engine: Engine },
    /// Stop an engine and remove its data
    Down { engine: Engine },
    /// Print the exports for a running engine
    Env { engine: Engine },
}

/// Carries it out.
pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Up { engine } => up(engine)?,
        Command::Down { engine } => down(engine)?,
        Command::Env { engine } => match running(engine)? {
            Some(site) => print!("{}", exports(site.access())),
            None => bail!("{0} is not running; start it: cargo xtask s3 up {0}", engine.name()),
        },
    }
    Ok(())
}

fn up(engine: Engine) -> Result<()> {
    let site = match running(engine)? {
        Some(site) => {
            eprintln!("xtask: {} is running already", engine.name());
            site
        }
        None => {
            // Part of it may be left: a gateway without its server.
            if let Some(wreck) = Site::open(&dir(engine)?) {
                wreck.stop();
            }
            eprintln!("xtask: starting {}", engine.name());
            engine.start(&dir(engine)?, Lifetime::Detached)?
        }
    };
    print!("{}", exports(site.access()));
    println!("# The store's URL: s3://{}/", site.access().bucket);
    println!("# Logs: {}", site.dir.display());
    println!("# Stop: cargo xtask s3 down {}", engine.name());
    Ok(())
}

fn down(engine: Engine) -> Result<()> {
    match Site::open(&dir(engine)?) {
        Some(site) => {
            site.stop();
            eprintln!("xtask: {} stopped", engine.name());
        }
        None => eprintln!("xtask: {} was not running", engine.name()),
    }
    Ok(())
}

fn dir(engine: Engine) -> Result<PathBuf> {
    Ok(crate::target()?.join("engines/dev").join(engine.name()))
}

fn running(engine: Engine) -> Result<Option<Site>> {
    Ok(Site::open(&dir(engine)?).filter(Site::running))
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

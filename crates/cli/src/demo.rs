//! `tenure demo`: three real nodes, three real misfortunes, one timeline.

mod cluster;
mod story;

use crate::args::DemoArgs;
use crate::exit::Failure;
use cluster::Cluster;
use std::os::unix::fs::DirBuilderExt;
use std::process::ExitCode;
use story::Story;

/// Runs the whole story; fails if anything happened that must not.
pub(crate) async fn demo(args: DemoArgs) -> Result<ExitCode, Failure> {
    let folder = Scratch::new()?;
    let store = args.store.unwrap_or_else(|| format!("sqlite:{}", folder.0.join("demo.db").display()));
    let mut cluster = Cluster::new(store);
    let outcome = Story::new(&mut cluster).tell().await;
    cluster.end().await;
    outcome?;
    Ok(ExitCode::SUCCESS)
}

/// A folder of the demo's own, gone afterwards.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Failure> {
        let path = std::env::temp_dir().join(format!("tenure-demo-{:016x}", rand::random::<u64>()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

//! `cargo xtask chaos`: builds what is needed, provides a store, and runs `tenure-chaos`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::engine::{self, Engine, Lifetime, REGION, Site};
use crate::workspace::Workspace;
use crate::{broken, process};

pub(crate) const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);
/// In a shorter run, a restart of the store would leave time for little else.
const RESTART_FROM: Duration = Duration::from_secs(120);
/// How much longer a run may take than it was given: the last round, the last requests, the judge.
const EXTRA: Duration = Duration::from_secs(5 * 60);

/// A store to play on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum StoreKind {
    /// A real store, with two gateways
    Seaweedfs,
    /// Ceph's gateway, from Debian packages
    Ceph,
    /// AWS-like status codes, single event loop; forgets everything when restarted, so it is not
    Ministack,
    /// A file, no network: processes and the file's lock only
    Sqlite,
}

impl StoreKind {
    pub(crate) fn name(self) -> &'static str {
        self.engine().map_or("sqlite", Engine::name)
    }

    pub(crate) fn engine(self) -> Option<Engine> {
        match self {
            Self::Seaweedfs => Some(Engine::Seaweedfs),
            Self::Ceph => Some(Engine::Ceph),
            Self::Ministack => Some(Engine::Ministack),
            Self::Sqlite => None,
        }
    }
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long, in minutes
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// How long, in seconds
    #[arg(long, conflicts_with = "minutes")]
    seconds: Option<u64>,
    /// Decides the schedule; drawn if not given
    #[arg(long)]
    seed: Option<u64>,
    /// How many nodes, 2 to 26
    #[arg(long, default_value_t = 5)]
    nodes: u8,
    /// The nodes' settings: default, thrifty, fast
    #[arg(long, default_value = "fast")]
    preset: String,
    /// The store
    #[arg(long, value_enum, default_value = "seaweedfs")]
    engine: StoreKind,
    /// Where the figures go
    #[arg(long)]
    json: Option<PathBuf>,
    /// Keep the record of a good run too; that of a bad one is always kept
    #[arg(long)]
    keep: bool,
    /// Play against a binary that is broken on purpose and must be caught: a variant, or `all`; on SQLite, faults and length
    /// are the variant's own
    #[arg(long, value_name = "NAME")]
    broken: Option<String>,
}

impl Args {
    /// The short form that is part of every test run.
    pub(crate) fn short(engine: StoreKind) -> Self {
        let (minutes, seconds, seed, nodes, preset) = (0, Some(60), None, 3, "fast".to_owned());
        Self { minutes, seconds, seed, nodes, preset, engine, json: None, keep: false, broken: None }
    }
}

impl Args {
    /// A long run whose figures go into a file.
    pub(crate) fn long(engine: StoreKind, minutes: u64, json: PathBuf) -> Self {
        let (seconds, seed, nodes, preset) = (None, None, 5, "fast".to_owned());
        Self { minutes, seconds, seed, nodes, preset, engine, json: Some(json), keep: false, broken: None }
    }
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<bool> {
    if let Some(name) = &args.broken {
        return broken::run(workspace, name, args.seed.unwrap_or(broken::SEED));
    }
    for leftover in engine::clean_leftovers(workspace) {
        println!("xtask: ended and removed {leftover}, left behind by a killed run");
    }
    if !process::run(&mut workspace.build(), BUILD_LIMIT)? {
        bail!("the build failed");
    }
    let mut site = args.engine.engine().map(|engine| start(workspace, engine)).transpose()?;
    play(workspace, args, site.as_mut())
}

pub(crate) fn start(workspace: &Workspace, engine: Engine) -> Result<Site> {
    println!("xtask: starting {}", engine.name());
    engine.start(workspace, &engine::run_dir(workspace, engine), Lifetime::Bound)
}

/// A new number per run, so that several runs of one process do not meet.
fn next_place() -> u64 {
    static PLACES: AtomicU64 = AtomicU64::new(0);
    PLACES.fetch_add(1, Ordering::Relaxed)
}

/// Plays on a store that is already running.
pub(crate) fn play(workspace: &Workspace, args: &Args, mut site: Option<&mut Site>) -> Result<bool> {
    let length = Duration::from_secs(args.seconds.unwrap_or(args.minutes * 60));
    let mut command = Command::new(workspace.program("tenure-chaos"));
    command.arg("run").arg("--tenure").arg(workspace.program("tenure"));
    command.arg("--record").arg(workspace.chaos()).arg(format!("--seconds={}", length.as_secs()));
    command.arg(format!("--nodes={}", args.nodes)).arg(format!("--preset={}", args.preset));
    command.args(args.seed.map(|seed| format!("--seed={seed}"))).args(args.keep.then_some("--keep"));
    if let Some(path) = &args.json {
        command.arg("--json").arg(std::path::absolute(path)?);
    }
    command.arg(match engine::faketime() {
        Ok(library) => format!("--faketime={}", library.display()),
        Err(error) => format!("--notice=no shifted wall clocks: {error:#}"),
    });
    on_store(&mut command, site.as_deref(), length);
    let mut command = process::bound(&command);
    process::converse(&mut command, length + EXTRA, |question| {
        let done = match (question, site.as_mut()) {
            ("store stop", Some(site)) => site.pause(),
            ("store start", Some(site)) => site.resume(),
            _ => Err(anyhow::anyhow!("nobody here can do `{question}`")),
        };
        done.map_or_else(|error| format!("{error:#}").replace('\n', " "), |()| "ok".to_owned())
    })
}

/// Tells `tenure-chaos` which store to use, and what it may do to that store in a run of this length.
pub(crate) fn on_store(command: &mut Command, site: Option<&Site>, length: Duration) {
    place(command, site);
    if let Some(site) = site {
        command.arg(match site.access().name.can_restart() {
            true if length >= RESTART_FROM => "--can-restart",
            true => "--notice=no restart of the store: the run is too short",
            false => "--notice=no restart of the store: it would forget everything",
        });
    }
}

/// Tells `tenure-chaos` which store to use.
pub(crate) fn place(command: &mut Command, site: Option<&Site>) {
    match site {
        Some(site) => {
            let access = site.access();
            // A prefix of its own in the bucket: the first seat of a run must be the first.
            let place = format!("s3://{}/chaos-{}-{}/", access.bucket, std::process::id(), next_place());
            command.arg(format!("--engine={}", access.name.name())).arg(format!("--store={place}"));
            command.args(access.endpoints.iter().map(|endpoint| format!("--endpoint={endpoint}")));
            command.env("AWS_ACCESS_KEY_ID", &access.access_key);
            command.env("AWS_SECRET_ACCESS_KEY", &access.secret_key);
            command.env("AWS_REGION", REGION);
        }
        None => {
            command.args(["--engine=sqlite", "--store=sqlite:"]);
        }
    }
}

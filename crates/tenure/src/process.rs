//! Processes: supervised leader-only work, on exactly one node.
//!
//! A [`Supervisor`] starts its processes when the node leads and stops them before the seat is given up. Each process gets a
//! [`ProcessContext`] with the guard of its term, and holds leadership's end back until it has really ended.
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Node, Settings};
//! use tenure::process::{ProcessContext, ProcessSpec, Restart, Supervisor};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::builder().store("memory:").node("pod-a").startup_jitter_max(Duration::ZERO).build()?;
//! let node = Node::start(settings).await?;
//! let poll = ProcessSpec::new("poll", |context: ProcessContext| async move {
//!     while !context.is_cancelled() {
//!         context.check()?; // right before each side effect
//!         // … one small piece of the leader's work, stamped with context.epoch() …
//!         tokio::select! {
//!             () = context.cancelled() => {}
//!             () = tokio::time::sleep(Duration::from_secs(1)) => {}
//!         }
//!     }
//!     Ok::<_, tenure::LeadershipEnded>(())
//! });
//! let processes = Supervisor::new([poll.restart(Restart::Permanent)]).run(&node)?;
//! processes.running("poll").await;
//! node.shutdown().await; // the process is stopped, then the seat vacated
//! # Ok(()) }
//! ```
//!
//! # What is not promised
//!
//! Nobody can end a process that blocks a thread and does not listen. It loses its guard, so nothing it tries to do as
//! leader is allowed any more. It is reported (`process_stuck`) and counted, and the seat is left to expire. This node does
//! not lead again until the process has ended, since a second instance would run beside it. In a program with one node, that
//! is an outage until the process ends or the program is restarted.

mod context;
mod runner;
mod source;
mod spec;

pub use context::ProcessContext;
pub use source::LeadershipSource;
pub use spec::ProcessSpec;
pub use tenure_core::{ProcessOutcome, ProcessState, Restart};

pub(crate) use spec::panic_message;

use crate::clock::millis;
use crate::error::{Error, ErrorKind};
use crate::event::EventKind;
use crate::shell::{Restarts, Shell, restarted};
use runner::{Life, Runner};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::ProcessName;
use tenure_core::{Supervision, SupervisionConfig};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a node whose supervisor died claims nothing.
const DEATHS: Restarts = Restarts {
    first: Duration::from_secs(5),
    most: Duration::from_secs(300),
    forgiven_after: Duration::from_secs(60),
};

/// Runs processes while a node leads, and only then.
///
/// Processes are started in the given order, each once the previous one is ready, and stopped in reverse. One that ends is
/// started again by its [`Restart`] strategy, after a pause that doubles with every consecutive failure. If
/// there are more restarts than the intensity allows, or one cannot start at all, all are stopped and leadership is given
/// up, so that another node can try; this one claims nothing for a time that grows.
#[derive(Debug)]
#[must_use = "nothing runs before `run`"]
pub struct Supervisor {
    specs: Vec<ProcessSpec>,
    intensity: u32,
    window: Duration,
    backoff: (Duration, Duration),
    stand_aside: (Duration, Duration),
}

impl Supervisor {
    /// Supervises these processes, started in this order.
    pub fn new(specs: impl IntoIterator<Item = ProcessSpec>) -> Supervisor {
        Supervisor {
            specs: specs.into_iter().collect(),
            intensity: 5,
            window: Duration::from_secs(60),
            backoff: (Duration::from_millis(100), Duration::from_secs(10)),
            stand_aside: (Duration::from_secs(5), Duration::from_secs(300)),
        }
    }

    /// At most this many restarts within this time, for all processes together: 5 in 60 s if not set. One more, and
    /// leadership is given up. After running for the whole window, a process starts over with the first pause.
    pub fn intensity(mut self, restarts: u32, window: Duration) -> Supervisor {
        (self.intensity, self.window) = (restarts, window);
        self
    }

    /// The first pause before a process is restarted, which doubles with every consecutive failure, and the longest pause:
    /// 100 ms and 10 s if not set.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Supervisor {
        self.backoff = (first, longest);
        self
    }

    /// How long this node claims nothing after giving up, which doubles every consecutive time, and the longest such time: 5
    /// s and 5 min if not set. The count starts over after a calm window. Never shorter than the pause after a step-down.
    pub fn stand_aside(mut self, first: Duration, longest: Duration) -> Supervisor {
        self.stand_aside = (first, longest);
        self
    }

    /// Starts supervising: whenever this node, or this plugin, leads, the processes run.
    ///
    /// This does not keep the node alive: a node that is dropped or shut down stops its processes first, and the supervisor
    /// ends with it. Must be called on a runtime.
    pub fn run(self, on: impl Into<LeadershipSource>) -> Result<Processes, Error> {
        let mut names: Vec<&str> = Vec::new();
        for spec in &self.specs {
            let name = spec.name();
            ProcessName::new(name)
                .map_err(|error| Error::new(ErrorKind::Invalid, format_args!("process name: {error}")))?;
            if names.contains(&name) {
                let sentence = format_args!("two processes are named {name:?}: names must be unique");
                return Err(Error::new(ErrorKind::Taken, sentence));
            }
            names.push(name);
        }
        if names.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a supervisor needs at least one process"));
        }
        let source = on.into();
        let status = watch::Sender::new(SupervisorStatus::of(&self.specs));
        let (watcher, stop) = (status.subscribe(), CancellationToken::new());
        let config = self.config(source.budget());
        let life = Life {
            config,
            alive: self.specs.iter().map(|_| Arc::new(())).collect(),
            specs: self.specs.into(),
            source,
            status,
            stop: stop.clone(),
        };
        let task = tokio::spawn(supervise(life));
        Ok(Processes { status: watcher, stop: stop.drop_guard(), task })
    }

    fn config(&self, budget: Duration) -> SupervisionConfig {
        SupervisionConfig {
            processes: self.specs.iter().map(ProcessSpec::plan).collect(),
            intensity: self.intensity,
            window_ms: millis(self.window),
            backoff_first_ms: millis(self.backoff.0),
            backoff_max_ms: millis(self.backoff.1),
            hold_first_ms: millis(self.stand_aside.0),
            hold_max_ms: millis(self.stand_aside.1),
            drain_ms: millis(budget),
        }
    }
}

/// Keeps a supervisor alive. Its processes end with each of its lives; the next life begins once nothing of the last one
/// runs.
async fn supervise(life: Life) {
    let live = || {
        let clock = Arc::clone(&life.source.reporter.clock);
        Shell::new(Supervision::new(life.config.clone()), Runner::new(life.clone()), clock).run()
    };
    let died = |_, hold| {
        let life = life.clone();
        async move {
            tokio::select! {
                biased;
                () = life.stop.cancelled() => ControlFlow::Break(()),
                () = stand_aside(&life, hold) => ControlFlow::Continue(()),
            }
        }
    };
    restarted(DEATHS, live, died).await;
}

/// The supervisor died, and its processes with it: better no seat than one nobody works from.
async fn stand_aside(life: &Life, hold: Duration) {
    let epoch = life.source.leadership.borrow().epoch;
    let cause = "supervisor died";
    let gave_up = EventKind::ProcessesGaveUp { process: None, cause, hold };
    life.source.reporter.emit(epoch, gave_up);
    loop {
        // Not leading is just as good.
        let _ = (life.source.stand_aside)(hold).await;
        if life.alive.iter().all(|alive| Arc::strong_count(alive) == 1) {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Processes under supervision. Dropping it stops them in order, in the background; [`stop`](Processes::stop) waits.
#[derive(Debug)]
#[must_use = "dropping it stops the processes"]
pub struct Processes {
    status: watch::Receiver<SupervisorStatus>,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl Processes {
    /// How the processes are doing, with every change.
    pub fn status(&self) -> watch::Receiver<SupervisorStatus> {
        self.status.clone()
    }

    /// Waits until this process runs and is ready; false if it never will, because supervision has ended.
    pub async fn running(&self, name: &str) -> bool {
        let runs = |status: &SupervisorStatus| {
            status.processes.iter().any(|process| {
                &*process.name == name && process.state == ProcessState::Running && status.epoch.is_some()
            })
        };
        self.status().wait_for(runs).await.is_ok()
    }

    /// Stops the processes in order, waits for that, and ends supervision. A leading node keeps leading, with nobody at
    /// work: have it step down or shut it down, too.
    pub async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }

    /// Completes when supervision has ended: with the node, or because it was stopped.
    pub async fn ended(&self) {
        let mut status = self.status();
        while status.changed().await.is_ok() {}
    }
}

/// How supervised processes are doing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SupervisorStatus {
    /// The epoch they run in; `None` while none may run.
    pub epoch: Option<u64>,
    /// How often leadership was given up because of them.
    pub gave_up: u64,
    /// In start order.
    pub processes: Vec<ProcessStatus>,
}

/// How one process is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ProcessStatus {
    /// The name from its [`ProcessSpec`].
    pub name: Arc<str>,
    /// What it is doing now.
    pub state: ProcessState,
    /// How often it was restarted, over all terms.
    pub restarts: u64,
    /// What it said when it last failed; `None` if it never did.
    pub last_failure: Option<Arc<str>>,
    /// The epoch of its newest instance; `None` before the first.
    pub epoch: Option<u64>,
}

impl SupervisorStatus {
    fn of(specs: &[ProcessSpec]) -> SupervisorStatus {
        let fresh = |spec: &ProcessSpec| ProcessStatus {
            name: spec.shared_name(),
            state: ProcessState::Idle,
            restarts: 0,
            last_failure: None,
            epoch: None,
        };
        SupervisorStatus { epoch: None, gave_up: 0, processes: specs.iter().map(fresh).collect() }
    }

    /// The process with this name; `None` if there is none.
    pub fn process(&self, name: &str) -> Option<&ProcessStatus> {
        self.processes.iter().find(|process| &*process.name == name)
    }
}

impl fmt::Display for SupervisorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, process) in self.processes.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{} {}", process.name, process.state.as_str())?;
        }
        Ok(())
    }
}

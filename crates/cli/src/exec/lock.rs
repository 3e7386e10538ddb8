//! `tenure lock`: a command that one process at a time runs.
//!
//! A lock is the seat of a plugin of its own, `lock-<name>`: everything an election promises holds for it.

use super::policy::{Policy, RestartWhen, Why};
use super::ward::{self, Plan};
use super::{ask_of, policy, ready, unsafe_or_asked};
use crate::args::LockArgs;
use crate::exit::Failure;
use crate::log;
use crate::out::complain;
use crate::run::{Signals, Startup};
use std::process::ExitCode;
use std::time::Duration;
use tenure::settings::{Resolved, Source};
use tenure::{LeaderGuard, Node, NodeId, Settings};
use tokio::sync::watch;

pub(crate) async fn lock(args: LockArgs) -> Result<ExitCode, Failure> {
    log::start(args.log);
    let plugin = NodeId::new(&format!("lock-{}", args.name))
        .map_err(|error| Failure::usage(format!("the lock's name {:?}: {error}", args.name)))?;
    let settings = ready(unique(args.kept.settings.load_instead(at_once)?)?)?;
    let mut plan = Plan::new(args.kept, &settings)?;
    plan.environment.push(("TENURE_LOCK", args.name.clone()));
    let mut signals = Signals::new()?;
    ward::adopt_orphans()?;
    let builder = Node::builder(settings).per_plugin(&plugin);
    let mut watched = Startup::new(builder.events());
    let node = builder.start().await?;
    let limit = async {
        match args.timeout {
            Some(limit_ms) => tokio::time::sleep(Duration::from_millis(limit_ms)).await,
            None => std::future::pending().await,
        }
    };
    let outcome = tokio::select! {
        biased;
        signal = signals.next() => Ok(signal),
        guard = node.lead() => match guard {
            Some(guard) => Ok(hold(&plan, guard, signals).await),
            None => unsafe_or_asked(node.ended().await),
        },
        detail = watched.denied() => Err(Failure::store(format!("the store refuses: {detail}"))),
        reason = node.ended() => unsafe_or_asked(reason),
        () = limit => Err(Failure::timed_out(format!("the lock {:?} was not had in time", args.name))),
    };
    node.shutdown().await;
    outcome.map(ExitCode::from)
}

/// Runs the command under the lock. The guard is dropped when nothing of the command is left.
async fn hold(plan: &Plan, guard: LeaderGuard, mut signals: Signals) -> u8 {
    let asked = watch::Sender::new(None);
    let heard = asked.clone();
    // Ends with this process; a second signal ends it at once.
    let listener = tokio::spawn(async move {
        let signal = signals.next().await;
        heard.send_replace(Some(ask_of(signal)));
        signals.second_ends();
    });
    let ended = ward::run(plan, &guard, asked.subscribe()).await;
    listener.abort();
    if ended.why == Why::Lost {
        complain!("tenure: the lock was lost; {} was stopped", plan.name());
    }
    if let Err(problem) = &ended.code {
        complain!("tenure: {}: {problem}", plan.name());
    }
    match (Policy { restart: RestartWhen::Never, once: true }).after(&ended) {
        policy::Next::Leave(code) => code,
        policy::Next::Again(_) => 1,
    }
}

/// Several processes of one pod may want the same lock: a name from the environment, which they share, gets the process id.
fn unique(mut resolved: Resolved) -> Result<Resolved, Failure> {
    if let Some(Source::Env(_) | Source::File(_)) = resolved.source("node") {
        let name = format!("{}-{}", resolved.settings.node, std::process::id());
        resolved.settings.node = NodeId::new(&name).map_err(Failure::usage)?;
    }
    Ok(resolved)
}

/// A lock is wanted now: no jitter, no settling of rankings, and quick looks while it is waited for.
fn at_once(usual: &Resolved) -> Vec<(&'static str, String)> {
    let settings: &Settings = &usual.settings;
    let look_ms = (settings.heartbeat_interval_ms / 4).max(50);
    vec![
        ("startupJitterMin", "0".to_owned()),
        ("startupJitterMax", "0".to_owned()),
        ("electionSettle", "0".to_owned()),
        ("electionInterval", look_ms.to_string()),
    ]
}

//! `tenure lock`: a command that one process at a time runs.
//!
//! A lock is the seat of a plugin of its own, `lock-<name>`: everything an election promises holds for it. Not a namespace of its
//! own: so it lies within the layout, below the namespace it belongs to, and cannot meet somebody's election.

mod ls;

use super::policy::{Policy, RestartWhen, Why};
use super::run::{self, Plan};
use super::{ask_of, policy, ready, unsafe_or_asked};
use crate::args::{LockAction, LockArgs, lock_seat};
use crate::exit::{Failure, LOST};
use crate::log;
use crate::out::complain;
use crate::run::{Signals, Startup};
use crate::secret;
use std::process::ExitCode;
use std::time::Duration;
use tenure::admin::{Election, SeatHolder};
use tenure::clock::millis;
use tenure::id::{Namespace, NodeId, PluginName};
use tenure::settings::{Resolved, Source};
use tenure::store::{Lanes, OpenOptions, StoreUrl};
use tenure::{LeaderGuard, Node, Settings};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// The locks whose commands a process runs under, one a line: store, namespace and name.
const HELD: &str = "TENURE_LOCKS_HELD";

/// A lock that nobody holds is not given up half way: taking it may last so many requests longer than `--timeout`.
const TRY_REQUESTS: u32 = 12;
/// How often it is looked at then.
const LOOK: Duration = Duration::from_millis(100);
/// So many requests must fail, each within `requestTimeout`, before the store counts as out of reach.
const TRIES: u32 = 3;

pub(crate) async fn lock(args: LockArgs) -> Result<ExitCode, Failure> {
    if let Some(LockAction::Ls(args)) = args.action {
        return ls::list(args).await;
    }
    log::start(args.log);
    secret::hide_memory();
    let seat = lock_seat(&args.name)?;
    let resolved = unique(args.kept.settings.load_instead(at_once)?)?;
    let mut plan = Plan::new(args.kept.command, &args.kept.grace, &resolved.settings)?;
    let held = not_inside(&args.name, &resolved.settings, &std::env::var(HELD).unwrap_or_default())?;
    plan.environment.extend([("TENURE_LOCK", args.name.clone()), (HELD, held)]);
    let settings = ready(resolved)?;
    let mut signals = Signals::new()?;
    run::adopt_orphans()?;
    let wanted = Wanted::open(&args.name, &seat, &settings).await?;
    let limit = args.timeout.map(Duration::from_millis);
    // A store that was never reached will hardly be; and what is held already is not ours.
    let held = wanted.holder(limit).await?;
    if let (Some(holder), Some(Duration::ZERO)) = (&held, limit) {
        return Err(wanted.is_held(holder, limit));
    }
    let builder = Node::builder(settings).lanes(wanted.lanes.clone()).per_plugin(&seat);
    let mut watched = Startup::new(builder.events());
    let node = builder.start().await?;
    let limited = async {
        match limit {
            Some(limit) => {
                sleep(limit).await;
                wanted.given_up(&node, held.map_or(0, |holder| holder.epoch), limit).await
            }
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
        failure = limited => Err(failure),
    };
    node.shutdown().await;
    outcome.map(ExitCode::from)
}

/// A lock that is wanted, looked at from outside.
pub(super) struct Wanted<'a> {
    name: &'a str,
    pub(super) lanes: Lanes,
    pub(super) election: Election,
    request_timeout: Duration,
}

impl Wanted<'_> {
    pub(super) async fn open<'a>(
        name: &'a str,
        seat: &PluginName,
        settings: &Settings,
    ) -> Result<Wanted<'a>, Failure> {
        let namespace = Namespace::new(&settings.namespace).map_err(Failure::usage)?;
        let request_timeout = settings.request_timeout;
        let options = OpenOptions::with_request_timeout(request_timeout);
        let lanes = tenure::store::open(&settings.store, &options).await?;
        let election = Election { namespace, plugin: Some(seat.clone()) };
        Ok(Wanted { name, lanes, election, request_timeout })
    }

    /// One request that failed proves nothing, unless there is no time for another.
    pub(super) async fn holder(&self, limit: Option<Duration>) -> Result<Option<SeatHolder>, Failure> {
        let began = Instant::now();
        for _ in 1..TRIES {
            match self.look().await {
                Err(_) if limit.is_none_or(|limit| began.elapsed() < limit) => sleep(LOOK).await,
                decided => return decided,
            }
        }
        self.look().await
    }

    async fn look(&self) -> Result<Option<SeatHolder>, Failure> {
        Ok(SeatHolder::read(&self.lanes, &self.election).await?)
    }

    /// The time is up: who holds the lock, or what keeps us from it. `theirs` is the newest epoch that was not ours when we
    /// began; the node learns of later ones. One that it does not know yet may be its own.
    async fn given_up(&self, node: &Node, theirs: u64, limit: Duration) -> Failure {
        let last = Instant::now() + self.request_timeout * TRY_REQUESTS;
        loop {
            let late = Instant::now() >= last;
            match self.holder(None).await {
                Err(failure) => return failure,
                Ok(Some(holder)) => {
                    let (epoch, is_ours) = {
                        let seen = node.leadership();
                        let seen = seen.borrow();
                        (seen.epoch, seen.is_leader() && seen.epoch == holder.epoch)
                    };
                    // If it is ours by now, whoever waits for it has it in a moment.
                    if !is_ours && (late || holder.epoch <= epoch.max(theirs)) {
                        return self.is_held(&holder, Some(limit));
                    }
                }
                Ok(None) if late => {
                    return Failure::timed_out(format!(
                        "timed out waiting for the lock {} (nobody holds it now, but it could not be taken in time)",
                        self.name
                    ));
                }
                Ok(None) => {}
            }
            sleep(LOOK).await;
        }
    }

    fn is_held(&self, holder: &SeatHolder, limit: Option<Duration>) -> Failure {
        let since =
            holder.since.as_deref().map(|since| format!(" since {}", clock_time(since))).unwrap_or_default();
        let by = format!("held by {}{since}, epoch {}", holder.node, holder.epoch);
        Failure::timed_out(match limit {
            Some(Duration::ZERO) => format!("the lock {} is {by}", self.name),
            Some(_) | None => format!("timed out waiting for the lock {} ({by})", self.name),
        })
    }
}

/// A moment for people, in this machine's zone: the time alone if it was today.
fn clock_time(stamp: &str) -> String {
    let Ok(stamp) = stamp.parse::<jiff::Timestamp>() else { return stamp.to_owned() };
    let zone = jiff::tz::TimeZone::system();
    let (then, now) = (stamp.to_zoned(zone.clone()), jiff::Timestamp::now().to_zoned(zone));
    let form = if then.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    then.strftime(form).to_string()
}

/// Refuses to wait for a lock from within a command that runs under it, which would never end; else what the command is to know.
fn not_inside(name: &str, settings: &Settings, held: &str) -> Result<String, Failure> {
    let mut store = settings.store.clone();
    // The same file from another directory.
    if let StoreUrl::Sqlite { path } = &mut store
        && let Ok(whole) = std::path::absolute(&*path)
    {
        *path = whole;
    }
    let this = format!("{store} {} {name}", settings.namespace);
    if held.lines().any(|line| line == this) {
        return Err(Failure::usage(format!(
            "the lock {name} is already held by the `tenure lock` that runs this command: waiting would never end"
        )));
    }
    Ok(if held.is_empty() { this } else { format!("{held}\n{this}") })
}

/// Runs the command under the lock. The guard is dropped when nothing of the command is left.
pub(super) async fn hold(plan: &Plan, guard: LeaderGuard, mut signals: Signals) -> u8 {
    let asked = watch::Sender::new(None);
    let heard = asked.clone();
    // Ends with this process; a second signal ends it at once.
    let listener = tokio::spawn(async move {
        let signal = signals.next().await;
        heard.send_replace(Some(ask_of(signal)));
        signals.second_ends();
    });
    let ended = run::run(plan, &guard, asked.subscribe()).await;
    listener.abort();
    if ended.why == Why::Lost {
        complain!("tenure: the lock was lost; {} was stopped", plan.name());
    }
    if let Err(problem) = &ended.code {
        complain!("tenure: {}: {problem}", plan.name());
    }
    match (Policy { restart: RestartWhen::Never, once: true }).after(&ended) {
        policy::Next::Leave(code) => code,
        // Only what was not started would be run again: the lock was lost before.
        policy::Next::Again(_) => LOST,
    }
}

/// Several processes of one pod may want the same lock: a name from the environment, which they share, gets the process id.
pub(super) fn unique(mut resolved: Resolved) -> Result<Resolved, Failure> {
    if let Some(Source::Env(_) | Source::File(_)) = resolved.source("node") {
        let name = format!("{}-{}", resolved.settings.node, std::process::id());
        resolved.settings.node = NodeId::new(&name).map_err(Failure::usage)?;
    }
    Ok(resolved)
}

/// Whoever types a lock waits for it, and there are few of them.
pub(super) fn at_once(usual: &Resolved) -> Vec<(&'static str, String)> {
    let settings = usual.settings.at_once();
    [
        ("startupJitterMin", settings.startup_jitter_min),
        ("startupJitterMax", settings.startup_jitter_max),
        ("electionSettle", settings.election_settle),
        ("electionInterval", settings.election_interval),
    ]
    .map(|(name, value)| (name, millis(value).to_string()))
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(store: &str) -> Settings {
        Settings::loader().flag("store", store).flag("node", "a").load().expect("valid").settings
    }

    #[test]
    fn a_lock_inside_the_same_lock_is_refused_and_another_is_not() {
        let here = settings("sqlite:/tmp/a.db");
        let outer = not_inside("nightly", &here, "").expect("nothing is held");
        let inner = not_inside("other", &here, &outer).expect("another lock");
        assert_eq!(inner.lines().count(), 2);
        for held in [&outer, &inner] {
            let refused = not_inside("nightly", &here, held).expect_err("the same lock");
            assert!(refused.code() == 2 && refused.to_string().contains("never end"), "{refused}");
        }
        assert!(not_inside("nightly", &settings("sqlite:/tmp/b.db"), &inner).is_ok(), "on another store");
    }

    #[test]
    fn a_moment_that_is_none_is_shown_as_it_is() {
        assert_eq!(clock_time("yesterday"), "yesterday");
        assert_eq!(clock_time("2020-01-02T12:00:00Z").len(), "2020-01-02 12:00:00".len());
    }
}

//! Does this store keep its promises? One suite for every backend, run by the tests and by `tenure doctor`.
//!
//! Everything happens below a throw-away prefix that is removed afterwards. An answer that leaves something open (a timeout,
//! a 5xx, a refused connection) is settled by reading back where possible, and never counts against the store. Only an
//! answer that contradicts another one does.

mod bench;
mod checks;
mod peer;
mod probe;
mod races;

pub use probe::{Probe, probe};

use crate::{EtagForm, Store};
use bench::{Bench, Stop};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How much work the suite does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Objects created for the list check. Above 2,000 the list has a second and a third page.
    pub list_keys: usize,
    /// Writers in one race to create an object.
    pub race_width: usize,
    /// Number of such races, each for a new object.
    pub race_rounds: usize,
    /// Writers that increment one counter together.
    pub counter_width: usize,
    /// Increments by each of them.
    pub counter_rounds: usize,
}

impl Default for Plan {
    /// The plan that the tests use.
    fn default() -> Plan {
        Plan { list_keys: 2_600, race_width: 32, race_rounds: 20, counter_width: 32, counter_rounds: 4 }
    }
}

impl Plan {
    /// A plan for people who wait: a few hundred requests.
    pub fn quick() -> Plan {
        Plan { list_keys: 50, race_width: 8, race_rounds: 5, counter_width: 4, counter_rounds: 5 }
    }

    /// This plan with races and counters of at most this width, for engines that serve contended writers slowly.
    pub fn with_width(self, width: usize) -> Plan {
        Plan { race_width: self.race_width.min(width), counter_width: self.counter_width.min(width), ..self }
    }
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The promise holds.
    Pass,
    /// The promise does not hold; the sentence says what was seen.
    Fail(String),
    /// The check was inconclusive; the sentence says why.
    Skipped(String),
}

/// One check and its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// Short and stable.
    pub name: &'static str,
    /// What a pass proves.
    pub proves: &'static str,
    /// Whether leadership would be unsafe if it failed.
    pub is_vital: bool,
    /// The result.
    pub verdict: Verdict,
    /// How long its requests took.
    pub latencies: Latencies,
}

/// How long requests took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Latencies {
    /// How many requests there were.
    pub requests: usize,
    /// Half of them took at most this long.
    pub median: Duration,
    /// 99 of 100 took at most this long.
    pub p99: Duration,
    /// The slowest request.
    pub max: Duration,
}

impl Latencies {
    fn of(mut all: Vec<Duration>) -> Latencies {
        all.sort_unstable();
        let at = |percent: usize| {
            all.get((all.len() * percent / 100).min(all.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        Latencies { requests: all.len(), median: at(50), p99: at(99), max: at(100) }
    }
}

/// The result of the whole suite.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The store, as it describes itself.
    pub store: String,
    /// How many endpoints of the store were used.
    pub endpoints: usize,
    /// The ETag spelling the suite learned; `None` if there is no choice or it is not known.
    pub etag_form: Option<EtagForm>,
    /// Conditional writes of small objects by one writer at a time, over all checks: comparable to a renewal of the seat.
    pub writes: Latencies,
    /// The checks, in the order they ran.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether conditions are honoured: every vital check passed, except those that need a second endpoint and had none.
    pub fn is_safe(&self) -> bool {
        let settled = |check: &&Check| match &check.verdict {
            Verdict::Pass => true,
            Verdict::Fail(_) => false,
            Verdict::Skipped(_) => check.name == TWO_ENDPOINTS && self.endpoints < 2,
        };
        self.checks.iter().filter(|check| check.is_vital).all(|check| settled(&check))
    }

    /// Whether conditions are not honoured: a vital check failed. If neither safe nor unsafe, the suite could not find out.
    pub fn is_unsafe(&self) -> bool {
        self.checks.iter().any(|check| check.is_vital && matches!(check.verdict, Verdict::Fail(_)))
    }

    /// Whether no check failed, vital or not.
    pub fn is_clean(&self) -> bool {
        !self.checks.iter().any(|check| matches!(check.verdict, Verdict::Fail(_)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.store)?;
        for check in &self.checks {
            match &check.verdict {
                Verdict::Pass => writeln!(f, "  pass  {} (median {:?})", check.name, check.latencies.median)?,
                Verdict::Fail(why) => writeln!(f, "  FAIL  {}: {why}", check.name)?,
                Verdict::Skipped(why) => writeln!(f, "  skip  {}: {why}", check.name)?,
            }
        }
        Ok(())
    }
}

/// Reports what the suite is doing.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A check begins.
    Started {
        /// The same as [`Check::name`].
        name: &'static str,
        /// Number of the check, from 1.
        number: usize,
        /// How many checks there are.
        of: usize,
    },
    /// A check ended.
    Finished(&'a Check),
}

pub(crate) const TWO_ENDPOINTS: &str = "two endpoints";

/// A check to run: its name, what it proves, and whether it is vital.
type Title = (&'static str, &'static str, bool);

const TITLES: [Title; 13] = [
    ("create once", "a second create of an object is refused and changes nothing", true),
    ("replace current", "a replace with the current version wins and gives a new version", true),
    ("replace stale", "a replace with an old version is refused and changes nothing", true),
    ("replace missing", "a replace of an object that does not exist is refused and makes nothing", true),
    ("read unchanged", "a read tells whether the object has changed", false),
    ("remove", "an object can be removed, and made again under a new version", false),
    ("large and empty bodies", "bodies of nothing and of the largest size come back as they were", false),
    ("list pages", "a list is complete over several pages, in order, with store times", false),
    ("list after write", "a list sees what was written or removed before it began", false),
    ("list versions", "a list names the versions that reads name", false),
    ("create race", "of many writers that create one object at once, exactly one wins", true),
    ("counter race", "of many writers that replace one object at once, no update is lost", true),
    (TWO_ENDPOINTS, "what is written through one endpoint holds at the other at once", true),
];

const TWO_MACHINES: Title =
    ("two machines", "what two machines write at once is decided the same way for both", true);

/// Runs the suite on one store, given as one or two endpoints of it, below `prefix` (which may be empty). `unique` keeps
/// runs apart; it must be a valid key segment.
pub async fn run(
    endpoints: &[Arc<dyn Store>],
    prefix: &str,
    unique: &str,
    plan: &Plan,
    progress: &mut (dyn FnMut(Progress<'_>) + Send),
) -> Report {
    let Some(first) = endpoints.first() else {
        return Report {
            store: "no endpoint".to_owned(),
            endpoints: 0,
            etag_form: None,
            writes: Latencies::default(),
            checks: Vec::new(),
        };
    };
    let bench = Bench::new(endpoints, prefix, unique);
    let mut checks = Vec::with_capacity(TITLES.len());
    for (index, title) in TITLES.into_iter().enumerate() {
        progress(Progress::Started { name: title.0, number: index + 1, of: TITLES.len() });
        let outcome = run_one(index, &bench, plan).await;
        let check = finish(title, outcome, bench.take_latencies());
        progress(Progress::Finished(&check));
        checks.push(check);
    }
    bench.clean_up().await;
    let (store, etag_form, writes) = (first.describe(), first.etag_form(), bench.take_writes());
    Report { store, endpoints: endpoints.len(), etag_form, writes, checks }
}

/// Races another machine that calls this with the same name, within `patience`, and gives the check for the report. `unique` tells
/// the two apart; both must be valid key segments.
pub async fn run_with_peer(
    store: &Arc<dyn Store>,
    prefix: &str,
    name: &str,
    unique: &str,
    patience: Duration,
) -> Check {
    let endpoints = std::slice::from_ref(store);
    let prefix = prefix.trim_matches('/');
    let slash = if prefix.is_empty() { "" } else { "/" };
    let bench = Bench::below(endpoints, format!("{prefix}{slash}peer-{name}/"), unique);
    let peers = peer::Peers { bench, me: unique, patience };
    let outcome = peers.race().await;
    finish(TWO_MACHINES, outcome, peers.bench.take_latencies())
}

/// Runs the check at this index of [`TITLES`].
async fn run_one(index: usize, bench: &Bench<'_>, plan: &Plan) -> Result<(), Stop> {
    match index {
        0 => checks::create_once(bench).await,
        1 => checks::replace_current(bench).await,
        2 => checks::replace_stale(bench).await,
        3 => checks::replace_missing(bench).await,
        4 => checks::read_unchanged(bench).await,
        5 => checks::remove(bench).await,
        6 => checks::bodies(bench).await,
        7 => checks::list_pages(bench, plan.list_keys).await,
        8 => checks::list_after_write(bench).await,
        9 => checks::list_versions(bench).await,
        10 => races::create(bench, plan.race_width, plan.race_rounds).await,
        11 => races::counter(bench, plan.counter_width, plan.counter_rounds).await,
        _ => checks::two_endpoints(bench).await,
    }
}

fn finish(title: Title, outcome: Result<(), Stop>, latencies: Latencies) -> Check {
    let verdict = match outcome {
        Ok(()) => Verdict::Pass,
        Err(Stop::Fail(sentence)) => Verdict::Fail(sentence),
        Err(Stop::Skip(sentence)) => Verdict::Skipped(sentence),
    };
    let (name, proves, is_vital) = title;
    Check { name, proves, is_vital, verdict, latencies }
}

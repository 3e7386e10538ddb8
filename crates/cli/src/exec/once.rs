//! `tenure once`: a command that runs on one of the hosts that want to run it.
//!
//! A key is the seat of a plugin of its own, `once-<key>`, with a record beside it that only the holder of the seat writes. The
//! holder records that the command runs before it does, so whoever comes next knows that it may have been begun.

use super::lock::{Wanted, at_once, hold, unique};
use super::run::{self, Plan};
use super::{ready, unsafe_or_asked};
use crate::args::{OnceArgs, once_seat};
use crate::exit::{Failure, LOST};
use crate::log;
use crate::out::complain;
use crate::run::{Signals, Startup};
use crate::secret;
use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;
use tenure::admin::Status;
use tenure::document::Documents;
use tenure::id::NodeId;
use tenure::once::{OnceEnd, OnceNext, OnceRecord, OnceState, OnceTerms, once, read_record};
use tenure::{LeaderGuard, Node};
use tokio::time::sleep;

/// How often the record is looked at while somebody waits for its end.
const LOOK: Duration = Duration::from_secs(1);
/// Longest wait for a sign of life of whoever holds the seat.
const WATCH_MAX: Duration = Duration::from_secs(60);

/// A key, and how it is wanted.
struct Key<'a> {
    args: &'a OnceArgs,
    terms: OnceTerms,
    documents: Documents,
    node: NodeId,
}

pub(crate) async fn run_once(args: OnceArgs) -> Result<ExitCode, Failure> {
    log::start(args.log);
    secret::hide_memory();
    let seat = once_seat(&args.key)?;
    let resolved = unique(args.kept.settings.load_instead(at_once)?)?;
    let mut plan = Plan::new(args.kept.command.clone(), &args.kept.grace, &resolved.settings)?;
    plan.environment.push(("TENURE_ONCE", args.key.clone()));
    let settings = ready(resolved)?;
    let mut signals = Signals::new()?;
    run::adopt_orphans()?;
    let wanted = Wanted::open(&args.key, &seat, &settings).await?;
    let documents =
        Documents::of_election(wanted.lanes.bulk.clone(), &wanted.election, settings.request_timeout);
    let terms = OnceTerms { keep: Duration::from_millis(args.keep), retry: args.retry };
    let key = Key { args: &args, terms, documents, node: settings.node.clone() };
    if let Some(code) = key.by_others(&wanted).await? {
        return Ok(ExitCode::from(code));
    }
    let builder = Node::builder(settings).lanes(wanted.lanes.clone()).per_plugin(&seat);
    let mut watched = Startup::new(builder.events());
    let node = builder.start().await?;
    let outcome = tokio::select! {
        biased;
        signal = signals.next() => Ok(signal),
        guard = node.lead() => match guard {
            Some(guard) => key.decide(&plan, guard, signals).await,
            None => unsafe_or_asked(node.ended().await),
        },
        detail = watched.denied() => Err(Failure::store(format!("the store refuses: {detail}"))),
        reason = node.ended() => unsafe_or_asked(reason),
        code = key.ended_elsewhere(&wanted) => code,
    };
    node.shutdown().await;
    outcome.map(ExitCode::from)
}

impl Key<'_> {
    fn next(&self, record: Option<&OnceRecord>) -> OnceNext {
        self.terms.next(jiff::Timestamp::now().as_millisecond(), record)
    }

    /// The exit code if there is nothing to do here, by one look or a short watch.
    async fn by_others(&self, wanted: &Wanted<'_>) -> Result<Option<u8>, Failure> {
        let holder = wanted.holder(None).await?;
        let record = read_record(&self.documents).await?;
        match (self.next(record.as_ref()), &record) {
            (OnceNext::Done(code), _) => return Ok(Some(self.code_of(code))),
            (OnceNext::Lost, Some(record)) if record.state == OnceState::Lost => {
                return Err(self.lost(&record.node));
            }
            // Whoever holds the seat may be at it.
            (OnceNext::Lost | OnceNext::Run, _) => {}
        }
        if holder.is_none() || self.args.wait {
            return Ok(None);
        }
        // It may have died: only a renewal proves that it has not.
        let status = Status::read_at(&wanted.lanes, &wanted.election, WATCH_MAX).await?;
        Ok(status.leader.is_some_and(|leader| leader.live).then_some(0))
    }

    /// Somebody else's exit code counts only for those who wait for it.
    fn code_of(&self, code: u8) -> u8 {
        if self.args.wait { code } else { 0 }
    }

    /// Whoever has the seat decides by the record, which nobody else can write now.
    async fn decide(&self, plan: &Plan, guard: LeaderGuard, signals: Signals) -> Result<u8, Failure> {
        let own = Cell::new(None);
        let work = async || {
            let code = hold(plan, guard.clone(), signals).await;
            own.set(Some(code));
            code
        };
        let end = once(&self.documents, &self.node, &guard, self.terms.clone(), work).await?;
        match (end, own.get()) {
            (OnceEnd::Done(code), None) => Ok(self.code_of(code)),
            (OnceEnd::Done(code), Some(_)) => Ok(code),
            (OnceEnd::Lost(node), _) => Err(self.lost(&node)),
            // What the next holder finds is true: it was begun, and nobody knows how it ended.
            (_, Some(LOST)) | (OnceEnd::Superseded, None) => Ok(LOST),
            (_, Some(code)) => {
                complain!(
                    "tenure: the command ended with {code}, but that could not be recorded: others will see the key {} as lost",
                    self.args.key
                );
                Ok(code)
            }
            (OnceEnd::Blocked, None) => {
                Err(Failure::store(format!("the record of the key {} cannot be read", self.args.key)))
            }
            (OnceEnd::Denied, None) => {
                Err(Failure::store("the store refuses the record of the key".to_owned()))
            }
        }
    }

    /// Waits until the record says that it is over. Without `--wait` nobody waits: another process that is at it is enough.
    async fn ended_elsewhere(&self, wanted: &Wanted<'_>) -> Result<u8, Failure> {
        loop {
            sleep(LOOK).await;
            // A look that failed tells nothing; the node notices a store that stays away.
            let Ok(record) = read_record(&self.documents).await else { continue };
            match (self.next(record.as_ref()), &record) {
                (OnceNext::Done(code), _) => return Ok(self.code_of(code)),
                (OnceNext::Lost, Some(record)) if record.state == OnceState::Lost => {
                    return Err(self.lost(&record.node));
                }
                _ if self.args.wait => {}
                _ => {
                    let status = Status::read_at(&wanted.lanes, &wanted.election, WATCH_MAX).await;
                    let leader = status.ok().and_then(|status| status.leader);
                    if leader.is_some_and(|leader| leader.live && leader.node != self.node.as_str()) {
                        return Ok(0);
                    }
                }
            }
        }
    }

    fn lost(&self, node: &NodeId) -> Failure {
        Failure::lost(format!(
            "the key {} is lost: {node} began the command and never finished it; use --retry to run it again",
            self.args.key
        ))
    }
}

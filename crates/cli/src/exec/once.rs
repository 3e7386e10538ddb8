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
use std::process::ExitCode;
use std::time::Duration;
use tenure::admin::Status;
use tenure::document::Documents;
use tenure::id::DocumentName;
use tenure::once::{OnceNext, OnceRecord as Record, OnceState, once_next};
use tenure::{FencedDocument, LeaderGuard, Node};
use tokio::time::sleep;

/// How often the record is looked at while somebody waits for its end.
const LOOK: Duration = Duration::from_secs(1);
/// Longest wait for a sign of life of whoever holds the seat.
const WATCH_MAX: Duration = Duration::from_secs(60);

/// A key, and how it is wanted.
struct Key<'a> {
    args: &'a OnceArgs,
    documents: Documents,
    name: DocumentName,
    node: String,
}

pub(crate) async fn once(args: OnceArgs) -> Result<ExitCode, Failure> {
    log::start(args.log);
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
    let name = DocumentName::new("record").map_err(Failure::usage)?;
    let key = Key { args: &args, documents, name, node: settings.node.to_string() };
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
    async fn record(&self) -> Result<Option<Record>, Failure> {
        Ok(self.documents.read::<Record>(&self.name).await?.map(|found| found.body))
    }

    /// The exit code if there is nothing to do here, by one look or a short watch.
    async fn by_others(&self, wanted: &Wanted<'_>) -> Result<Option<u8>, Failure> {
        let holder = wanted.holder(None).await?;
        let record = self.record().await?;
        let seen = record.as_ref().map(Record::read);
        match once_next(seen, self.args.keep, self.args.retry) {
            OnceNext::Done(code) => return Ok(Some(self.code_of(code))),
            OnceNext::Lost if matches!(seen, Some((OnceState::Lost, _))) => {
                return Err(self.lost(record.as_ref()));
            }
            // Whoever holds the seat may be at it.
            OnceNext::Lost | OnceNext::Run => {}
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
        let mut document = FencedDocument::<Record>::open(&self.documents, &self.name, &guard).await?;
        let seen = document.get().map(Record::read);
        match once_next(seen, self.args.keep, self.args.retry) {
            OnceNext::Done(code) => Ok(self.code_of(code)),
            OnceNext::Lost => {
                let before = document.get().cloned();
                let node = before.as_ref().map_or(self.node.as_str(), |record| record.node.as_str());
                document.put(&guard, Record::new(OnceState::Lost, node)).await?;
                Err(self.lost(before.as_ref()))
            }
            OnceNext::Run => {
                document.put(&guard, Record::new(OnceState::Running, &self.node)).await?;
                let code = hold(plan, guard.clone(), signals).await;
                if guard.check().is_err() {
                    // What the next holder finds is true: it was begun, and nobody knows how it ended.
                    return Ok(LOST);
                }
                let ended = Record::new(OnceState::Ended { code }, &self.node);
                if let Err(error) = document.put(&guard, ended).await {
                    complain!(
                        "tenure: the command ended with {code}, but that could not be recorded: others will see the key {} as lost: \
                         {error}",
                        self.args.key
                    );
                }
                Ok(code)
            }
        }
    }

    /// Waits until the record says that it is over. Without `--wait` nobody waits: another process that is at it is enough.
    async fn ended_elsewhere(&self, wanted: &Wanted<'_>) -> Result<u8, Failure> {
        loop {
            sleep(LOOK).await;
            // A look that failed tells nothing; the node notices a store that stays away.
            let Ok(record) = self.record().await else { continue };
            match record.as_ref().map(Record::read) {
                Some((OnceState::Ended { code }, age_ms)) if age_ms < self.args.keep => {
                    return Ok(self.code_of(code));
                }
                Some((OnceState::Lost, age_ms)) if age_ms < self.args.keep && !self.args.retry => {
                    return Err(self.lost(record.as_ref()));
                }
                Some(_) | None if self.args.wait => {}
                Some(_) | None => {
                    let status = Status::read_at(&wanted.lanes, &wanted.election, WATCH_MAX).await;
                    let leader = status.ok().and_then(|status| status.leader);
                    if leader.is_some_and(|leader| leader.live && leader.node != self.node) {
                        return Ok(0);
                    }
                }
            }
        }
    }

    fn lost(&self, record: Option<&Record>) -> Failure {
        let node = record.map_or("somebody", |record| record.node.as_str());
        Failure::lost(format!(
            "the key {} is lost: {node} began the command and never finished it; use --retry to run it again",
            self.args.key
        ))
    }
}

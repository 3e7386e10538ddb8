//! Submitting from anywhere: what is asked of the leader, through the document of orders. It decides nothing.

use super::codec::LedgerCodec;
use super::orders::OrdersCodec;
use super::spec::{ATTEMPTS_MAX, JobSpec};
use super::{Jobs, SHARDS, Submitted};
use crate::clock::millis;
use crate::documents::DocumentClient;
use crate::error::{Error, ErrorKind};
use crate::shell::{Commands, Happening, Host, Shell};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read};
use tenure_core::machine::Now;
use tenure_core::{
    Incarnation, JobId, JobRecord, Order, OrderAnswer, OrdersDoc, SeriesId, Submitter, SubmitterCommand,
    SubmitterOutput, job_shard,
};
use tokio::sync::{mpsc, oneshot};

/// Most jobs in one call.
pub const JOBS_PER_CALL_MAX: usize = 1000;

/// Up to so many named jobs in a call are looked up in the ledger, with one read each.
const LOOKED_UP_MAX: usize = 16;

/// Jobs without a name are kept together by so many: those of one group are written with one write. Small enough for groups to fill
/// the parts of the ledger evenly.
const GROUP: u32 = 25;

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// When to try again if there is no room.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A job that was submitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// Its id: the one it was given, or a new one.
    pub id: JobId,
    /// Whether it is new, as far as is known here.
    pub submitted: Submitted,
}

struct Call {
    orders: Vec<Order>,
    reply: oneshot::Sender<OrderAnswer>,
}

/// The one submitter of a process, started when it is first needed. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Submissions(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By the key of the document: a plugin in fallback has its own.
    calls: HashMap<String, mpsc::Sender<Call>>,
    /// The group of the last job without a name, and how many it has.
    group: Option<(String, u32)>,
    /// The part of the ledger that this group is in.
    part: Option<usize>,
}

impl Submissions {
    /// An id and a series for a job without a name.
    fn name(&self) -> (String, String) {
        let mut state = self.0.lock();
        let (group, count) = match state.group.take().filter(|(_, count)| *count < GROUP) {
            Some((group, count)) => (group, count + 1),
            None => {
                // In turn: left to chance, some parts would be full long before the others.
                let part =
                    state.part.map_or_else(|| rand::random_range(0..SHARDS), |part| (part + 1) % SHARDS);
                state.part = Some(part);
                (new_group(part), 1)
            }
        };
        state.group = Some((group.clone(), count));
        (format!("{group}.{count}"), group)
    }

    fn calls(&self, place: &Jobs) -> mpsc::Sender<Call> {
        let mut state = self.0.lock();
        let key = place.keys().orders();
        match state.calls.get(&key) {
            Some(calls) if !calls.is_closed() => calls.clone(),
            Some(_) | None => {
                let (calls, inbox) = mpsc::channel(256);
                let host = SubmitterHost {
                    calls: Commands::new(inbox),
                    client: place.documents().at(key.clone(), OrdersCodec),
                    replies: HashMap::new(),
                    tokens: 0,
                };
                let machine = Submitter::new(Incarnation(rand::random()), millis(PATIENCE));
                tokio::spawn(Shell::new(machine, host, Arc::clone(&place.reporter.clock)).run());
                state.calls.insert(key, calls.clone());
                calls
            }
        }
    }
}

/// A new name for a group in this part of the ledger.
fn new_group(part: usize) -> String {
    let now = jiff::Timestamp::now().as_millisecond();
    loop {
        let group = format!("j{now:011x}{:08x}", rand::random::<u32>());
        if SeriesId::new(group.as_str()).is_ok_and(|series| job_shard(&series, SHARDS) == part) {
            return group;
        }
    }
}

impl Jobs {
    /// Submits a job, from any process that reaches the store, whether anybody leads or not. Completes once the job is on the
    /// store: from then on nothing loses it, and the leader takes it up.
    pub async fn submit(&self, spec: JobSpec) -> Result<Receipt, Error> {
        let mut receipts = self.submit_all([spec]).await?;
        receipts.pop().ok_or_else(|| Error::new(ErrorKind::Ended, "no answer came"))
    }

    /// Submits several jobs at once, at most 1,000: all of them or none. Costs one read and one write, however many they are,
    /// and calls of one process that come together share them. Up to 16 named jobs cost one read more each: the answer tells
    /// whether the ledger knows them. In larger calls only those are told that the leader has not taken up yet; none is
    /// created twice either way.
    pub async fn submit_all(&self, specs: impl IntoIterator<Item = JobSpec>) -> Result<Vec<Receipt>, Error> {
        let mut records = Vec::new();
        for spec in specs {
            let given = spec.name().map(|name| (name.to_owned(), name.to_owned()));
            let named = given.is_some();
            let (id, series) = given.unwrap_or_else(|| self.submissions.name());
            records.push((spec.or_named(id, series).check()?, named));
        }
        if records.len() > JOBS_PER_CALL_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                format_args!("{} jobs in one call: it may have at most {JOBS_PER_CALL_MAX}", records.len()),
            ));
        }
        let named = || records.iter().filter(|(_, named)| *named).map(|(record, _)| record);
        let known = match named().count() {
            0 => Vec::new(),
            count if count > LOOKED_UP_MAX => Vec::new(),
            _ => self.known(named()).await?,
        };
        let new = records.iter().map(|(record, _)| record).filter(|record| !known.contains(&record.id));
        let orders: Vec<Order> = new.cloned().map(Order::Submit).collect();
        let waiting = if orders.is_empty() { Default::default() } else { self.order(orders).await? };
        let exists = |id: &JobId| known.contains(id) || waiting.contains(id);
        let receipt = |(record, _): (JobRecord, bool)| Receipt {
            submitted: if exists(&record.id) { Submitted::Exists } else { Submitted::Created },
            id: record.id,
        };
        Ok(records.into_iter().map(receipt).collect())
    }

    /// Asks the leader to cancel a job. One that nobody has claimed never runs; one that runs is asked to stop. Completes once
    /// the order is on the store.
    pub async fn cancel(&self, id: &JobId) -> Result<(), Error> {
        self.order(vec![Order::Cancel(id.clone())]).await.map(drop)
    }

    /// Asks the leader to try a job again that ended without success, as [`JobList::find`](super::JobList::find) found it: it gets so
    /// many attempts more. It does not matter whether the ledger or only the history still has it. Completes once the order is
    /// on the store.
    ///
    /// A job with a watermark, such as a schedule's, is not tried again; nor is one that is open, or done.
    pub async fn retry(&self, job: &JobRecord, attempts: u32) -> Result<(), Error> {
        let refused = |rule: &str| Error::new(ErrorKind::Invalid, format_args!("job {} {rule}", job.id));
        if !(1..=ATTEMPTS_MAX).contains(&attempts) {
            return Err(refused(&format!("gets {attempts} attempts more: it must be 1 to {ATTEMPTS_MAX}")));
        }
        if !job.state.is_undone() {
            let state = job.state.as_str();
            return Err(refused(&format!("is {state}: only one that ended without success is tried again")));
        }
        if !job.may_be_retried() {
            return Err(refused("is one of a series: the next one of the series does its work"));
        }
        let mut again = job.clone();
        again.limits.attempts_max = job.begun().saturating_add(attempts);
        again.retries = job.retries.saturating_add(1);
        self.order(vec![Order::Retry(again)]).await.map(drop)
    }

    /// Asks the leader to take a job that is over out of the ledger now. The history keeps it for a while. Completes once the
    /// order is on the store.
    pub async fn remove(&self, id: &JobId) -> Result<(), Error> {
        self.order(vec![Order::Remove(id.clone())]).await.map(drop)
    }

    /// The jobs that waited to be taken up already.
    async fn order(&self, orders: Vec<Order>) -> Result<std::collections::BTreeSet<JobId>, Error> {
        let (reply, answer) = oneshot::channel();
        let sent = self.submissions.calls(self).send(Call { orders, reply }).await;
        let answer = match sent {
            Ok(()) => answer.await.unwrap_or(OrderAnswer::GivenUp { in_doubt: true }),
            Err(_) => OrderAnswer::GivenUp { in_doubt: false },
        };
        match answer {
            OrderAnswer::Accepted { known } => Ok(known),
            OrderAnswer::Full => Err(Error::new(
                ErrorKind::Full,
                format_args!(
                    "too many jobs wait for the leader to take them up, or nobody leads; nothing was submitted; try again \
                     in {} s",
                    TRY_AGAIN.as_secs()
                ),
            )),
            OrderAnswer::Blocked => Err(Error::unreadable(&self.keys().orders(), "see the log".to_owned())),
            OrderAnswer::Denied => {
                Err(Error::new(ErrorKind::Denied, "the store refuses this process; nothing was submitted"))
            }
            OrderAnswer::GivenUp { in_doubt } => {
                let doubt = if in_doubt { "it may have been submitted" } else { "nothing was submitted" };
                let sentence = format_args!("the store does not answer; {doubt}");
                Err(Error::new(ErrorKind::Unavailable, sentence).perhaps_written(in_doubt))
            }
        }
    }

    /// Which of these jobs the ledger knows.
    async fn known(&self, records: impl Iterator<Item = &JobRecord>) -> Result<Vec<JobId>, Error> {
        let mut shards: BTreeMap<usize, Vec<JobId>> = BTreeMap::new();
        for record in records {
            shards.entry(job_shard(&record.series, SHARDS)).or_default().push(record.id.clone());
        }
        let (documents, keys) = (self.documents(), self.keys());
        let mut known = Vec::new();
        for (shard, ids) in shards {
            let client = documents.at(keys.ledger(shard), LedgerCodec);
            let read = client.carry(None, DocumentRequest::Read { unless: None }).await;
            let DocumentAnswer::Read(read) = read else { continue };
            match read {
                Read::Found { body, .. } => {
                    let is_asked = |record: &JobRecord| ids.contains(&record.id);
                    known.extend(body.jobs.into_iter().filter(is_asked).map(|record| record.id));
                }
                // What cannot be read is the leader's business: it creates no job twice.
                Read::Absent | Read::Unchanged | Read::Unreadable { .. } => {}
                Read::Unavailable => {
                    let trouble = client.last_trouble();
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        format_args!("{trouble}; nothing was submitted"),
                    ));
                }
                Read::Denied => return Err(Error::new(ErrorKind::Denied, client.last_trouble())),
            }
        }
        Ok(known)
    }
}

struct SubmitterHost {
    calls: Commands<Call>,
    client: DocumentClient<OrdersCodec>,
    replies: HashMap<u64, oneshot::Sender<OrderAnswer>>,
    tokens: u64,
}

impl Host<Submitter> for SubmitterHost {
    type End = ();

    fn carry(
        &self,
        request: DocumentRequest<OrdersDoc>,
    ) -> impl Future<Output = DocumentAnswer<OrdersDoc>> + Send + 'static {
        let client = self.client.clone();
        async move { client.carry(None, request).await }
    }

    fn output(&mut self, _: Now, _: &Submitter, output: SubmitterOutput) -> ControlFlow<()> {
        if let Some(reply) = self.replies.remove(&output.token) {
            // The caller may have given up.
            let _ = reply.send(output.answer);
        }
        ControlFlow::Continue(())
    }

    async fn next(&mut self) -> Happening<Submitter, ()> {
        let Some(Call { orders, reply }) = self.calls.next().await else { return Happening::End(()) };
        self.tokens += 1;
        self.replies.insert(self.tokens, reply);
        Happening::Command(SubmitterCommand::Order { token: self.tokens, orders })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part of the ledger holds some 190 jobs with small payloads.
    #[test]
    fn ten_thousand_jobs_without_a_name_are_spread_evenly() {
        let submissions = Submissions::default();
        let mut jobs = vec![0; SHARDS];
        for _ in 0..10_000 {
            let (_, series) = submissions.name();
            jobs[job_shard(&SeriesId::new(series.as_str()).expect("valid"), SHARDS)] += 1;
        }
        assert!(jobs.iter().all(|jobs| (150..=175).contains(jobs)), "{jobs:?}");
    }
}

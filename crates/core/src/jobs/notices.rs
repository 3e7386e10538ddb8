//! Notices: what somebody wants to be told about jobs, kept until it is delivered.
//!
//! One document has the notices that are not delivered yet. The order that loses none:
//! 1. The end of a job is in this document before the head of the history lets go of the job, so a new leader finds in the
//!    head what the document does not have yet.
//! 2. A notice is sent only once the document on the store has it, and leaves the document only once it was delivered, or is
//!    an hour old.
//!
//! So each is delivered at least once, unless it cannot be delivered for an hour. Not promised: that it is delivered only once.
//!
//! Notices of one series are sent one after the other, so a receiver that hangs holds up its own only.

use super::RETRY;
use super::dispatcher::{DispatchRequest, Sink, View};
use super::history::HistoryHead;
use super::model::{JobRecord, JobState, wire_names};
use crate::document::{BackOff, Document, DocumentAnswer, Rules, State, Unreadable, What, Writer};
use crate::id::{JobId, KindName, QueueName, SeriesId, WorkerId};
use crate::machine::RequestId;
use crate::mutants::Mutant;
use crate::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most notices that wait to be delivered. Further ones are dropped and counted.
pub const NOTICES_MAX: usize = 512;

/// Most notices other than of endings that are remembered once they are delivered.
pub const NOTICES_TOLD_MAX: usize = 256;

/// How long somebody tries to deliver a notice.
const NOTICE_TRIED_MS: i64 = 3_600_000;

/// Longest reason in a notice.
pub const NOTICE_REASON_MAX_BYTES: usize = 200;

/// Most notices that are being delivered at once.
const SENT_MAX: usize = 16;

/// Pauses after failed deliveries of a series.
const PAUSES: BackOff = BackOff { first_ms: 2000, max_ms: 300_000 };

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum NoticeKind {
    /// A job used up its attempts.
    Failed,
    /// A job was not claimed in time.
    Expired,
    /// Due times passed and become no jobs.
    Missed,
    /// A job began late.
    Late,
}

wire_names!(
    NoticeKind: Failed = "job_failed", Expired = "job_expired", Missed = "job_missed", Late = "job_late",
);

/// Something that somebody wants to be told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Notice {
    /// The same whenever and by whomever it is sent.
    pub id: Arc<str>,
    pub kind: NoticeKind,
    pub series: SeriesId,
    /// Of due times that were missed, the job of the last one, which does not exist.
    pub job: JobId,
    pub queue: QueueName,
    pub job_kind: KindName,
    /// When it was due, in ms since 1970; 0 for a job that nobody scheduled.
    pub due_ms: u64,
    /// When this happened, or else when it was taken in, by the leader's wall clock in ms.
    pub at_ms: i64,
    /// How many attempts were begun, and how many it may have.
    pub attempts: (u32, u32),
    pub worker: Option<WorkerId>,
    /// Why it ended so, at most [`NOTICE_REASON_MAX_BYTES`].
    pub reason: Arc<str>,
}

impl Notice {
    /// Of a job, under an id that says of which.
    pub fn of(kind: NoticeKind, id: &str, record: &JobRecord) -> Notice {
        // Where the leader has nothing to say, its worker has.
        let said = String::from_utf8_lossy(&record.result);
        let reason = if record.reason.is_empty() { &*said } else { &*record.reason };
        let ends = reason.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.take_while(|end| *end <= NOTICE_REASON_MAX_BYTES).last().unwrap_or(0);
        Notice {
            id: Arc::from(format!("{}-{id}", kind.as_str())),
            kind,
            series: record.series.clone(),
            job: record.id.clone(),
            queue: record.queue.clone(),
            job_kind: record.kind.clone(),
            due_ms: record.watermark,
            at_ms: record.ended_ms,
            attempts: (record.begun(), record.limits.attempts_max),
            worker: record.worker.clone(),
            reason: Arc::from(&reason[..end]),
        }
    }

    /// Of a job that ended without having been done. `number` is that of its end in the history.
    fn of_end(number: u64, record: &JobRecord) -> Notice {
        let kind = if record.state == JobState::Expired { NoticeKind::Expired } else { NoticeKind::Failed };
        Notice::of(kind, &number.to_string(), record)
    }
}

/// What is not delivered yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NoticesDoc {
    /// Every end up to this number of the history is taken in.
    pub upto: u64,
    /// In the order in which they were taken in, at most [`NOTICES_MAX`].
    pub waiting: Vec<Notice>,
    /// The ids of notices other than of endings that were taken in last, at most [`NOTICES_TOLD_MAX`]: another leader may find
    /// the same.
    pub told: Vec<Arc<str>>,
}

/// The notices of one series: one is sent at a time.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Lane {
    sent: Option<(RequestId, Arc<str>)>,
    failures: u32,
    retry_at: Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoticesNews {
    Nothing,
    Unreadable,
    Superseded,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Notices {
    /// Somebody wants to be told of every job, whether it says so or not.
    all: bool,
    document: Document,
    may_write: bool,
    doc: NoticesDoc,
    /// Not in the document yet, each with a token for whoever waits until it is.
    new: Vec<(u64, Notice)>,
    /// Tokens of those that are in the revision that is being written.
    unconfirmed: Vec<(u64, u64)>,
    lanes: BTreeMap<SeriesId, Lane>,
    delivered: u64,
    /// How many had to be dropped: there were too many, or nobody took them for an hour.
    dropped: u64,
}

impl Notices {
    pub(super) fn new(writer: Writer, all: bool) -> Notices {
        let rules = Rules { writer, adopt: true, unreadable: Unreadable::LeaveAlone, retry: RETRY };
        Notices {
            all,
            document: Document::new(rules),
            may_write: false,
            doc: NoticesDoc::default(),
            new: Vec::new(),
            unconfirmed: Vec::new(),
            lanes: BTreeMap::new(),
            delivered: 0,
            dropped: 0,
        }
    }

    /// How many wait to be delivered.
    pub(super) fn waiting(&self) -> usize {
        self.doc.waiting.len()
    }

    /// How many were delivered in this term, and how many had to be dropped.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.delivered, self.dropped)
    }

    /// Takes in one that is not of an end, for whoever waits with this token until it stands.
    pub(super) fn add(&mut self, token: u64, notice: Notice) {
        self.new.push((token, notice));
    }

    fn is_wanted(&self, record: &JobRecord) -> bool {
        (self.all || record.notify) && record.state.is_undone()
    }

    /// Whether the head may let go of jobs up to this number.
    pub(super) fn has_taken(&self, head: &HistoryHead, upto: u64) -> bool {
        let is_new = |number: u64| self.doc.upto < number && number <= upto;
        let lacks = head.jobs.iter().any(|(number, record)| is_new(*number) && self.is_wanted(record));
        if Mutant::NoticeForgotten.on() {
            return true;
        }
        match self.document.state() {
            // If nobody can read it, the history must not grow for ever.
            State::Blocked => true,
            State::Found => !lacks,
            State::Owned => !lacks && self.is_settled(),
            State::Unread | State::Superseded => false,
        }
    }

    pub(super) fn answered(
        &mut self,
        now: Time,
        id: RequestId,
        answer: DocumentAnswer<NoticesDoc>,
    ) -> NoticesNews {
        let (settled, body) = self.document.answered(now, id, answer);
        match settled.what {
            What::Loaded => self.doc = body.unwrap_or_default(),
            What::Superseded(_) | What::Overtaken(_) => return NoticesNews::Superseded,
            What::Blocked { news: true, .. } => return NoticesNews::Unreadable,
            What::Landed { .. }
            | What::Nothing
            | What::Same
            | What::Empty
            | What::Shared
            | What::Blocked { .. }
            | What::Failed { .. }
            | What::Removed => {}
        }
        NoticesNews::Nothing
    }

    /// Somebody took the notice that was sent with this id, or did not.
    pub(super) fn delivered(&mut self, now: Time, id: RequestId, done: bool) {
        let lane =
            self.lanes.iter_mut().find(|(_, lane)| matches!(&lane.sent, Some((sent, _)) if *sent == id));
        let Some((series, lane)) = lane else { return };
        let Some((_, notice)) = lane.sent.take() else { return };
        if !done && !Mutant::NoticeSentOnce.on() {
            lane.retry_at = now + PAUSES.pause_ms(lane.failures);
            lane.failures += 1;
            return;
        }
        let series = series.clone();
        self.lanes.remove(&series);
        self.delivered += 1;
        self.doc.waiting.retain(|waiting| waiting.id != notice);
        self.document.touch();
    }

    // ---- what it wants ----

    /// Takes in what there is and sends what is due. `head` is the head of the history, if it stands on the store. Returns the
    /// tokens of those that stand now.
    pub(super) fn send(
        &mut self,
        view: &View<'_>,
        head: Option<&HistoryHead>,
        sink: &mut Sink<'_>,
    ) -> Vec<u64> {
        let View { now, wall_ms, .. } = *view;
        let ends = self.ends(head);
        let owned = self.document.state() == State::Owned;
        // A document that nobody needs is read once a term and never written.
        self.may_write = owned || !ends.is_empty() || !self.new.is_empty() || !self.doc.waiting.is_empty();
        if owned && !self.document.is_busy() {
            self.take_in(wall_ms, ends);
        }
        if self.is_settled() {
            self.deliver(now, wall_ms, sink);
        }
        let (doc, document, may_write) = (&self.doc, &mut self.document, self.may_write);
        sink.send_for(
            |id| document.next(now, id, may_write),
            |op| DispatchRequest::Notices(op.with(|| doc.clone())),
        );
        self.standing()
    }

    fn is_settled(&self) -> bool {
        self.document.state() == State::Owned && self.document.is_confirmed(self.document.revision())
    }

    /// The ends that the document lacks.
    fn ends(&self, head: Option<&HistoryHead>) -> Vec<(u64, Notice)> {
        let known = matches!(self.document.state(), State::Found | State::Owned);
        let jobs = head.filter(|_| known).map_or(&[][..], |head| &head.jobs);
        let new = &jobs[jobs.partition_point(|(number, _)| *number <= self.doc.upto)..];
        let wanted = new.iter().filter(|(_, record)| self.is_wanted(record));
        wanted.map(|(number, record)| (*number, Notice::of_end(*number, record))).collect()
    }

    fn take_in(&mut self, wall_ms: i64, ends: Vec<(u64, Notice)>) {
        if ends.is_empty() && self.new.is_empty() {
            return;
        }
        for (number, notice) in ends {
            self.doc.upto = number;
            self.wait(notice);
        }
        let revision = self.document.touch();
        for (token, notice) in std::mem::take(&mut self.new) {
            if !self.doc.told.contains(&notice.id) {
                self.doc.told.push(Arc::clone(&notice.id));
                self.wait(Notice { at_ms: wall_ms, ..notice });
            }
            self.unconfirmed.push((revision, token));
        }
        let old = self.doc.told.len().saturating_sub(NOTICES_TOLD_MAX);
        self.doc.told.drain(..old);
    }

    fn wait(&mut self, notice: Notice) {
        match self.doc.waiting.len() < NOTICES_MAX {
            true => self.doc.waiting.push(notice),
            false => self.dropped += 1,
        }
    }

    /// Sends what is due, and gives up what is too old.
    fn deliver(&mut self, now: Time, wall_ms: i64, sink: &mut Sink<'_>) {
        let mut sent = self.lanes.values().filter(|lane| lane.sent.is_some()).count();
        let mut old: Vec<Arc<str>> = Vec::new();
        for notice in &self.doc.waiting {
            if sent >= SENT_MAX {
                break;
            }
            let lane = self.lanes.entry(notice.series.clone()).or_default();
            if lane.sent.is_some() || now < lane.retry_at {
                continue;
            }
            if wall_ms.saturating_sub(notice.at_ms) >= NOTICE_TRIED_MS {
                old.push(Arc::clone(&notice.id));
                continue;
            }
            let id = sink.send(DispatchRequest::Deliver(notice.clone()));
            lane.sent = Some((id, Arc::clone(&notice.id)));
            sent += 1;
        }
        if !old.is_empty() {
            self.dropped += old.len() as u64;
            self.doc.waiting.retain(|notice| !old.contains(&notice.id));
            self.lanes.retain(|_, lane| lane.sent.is_some() || lane.retry_at > now);
            self.document.touch();
        }
    }

    /// The tokens of those that stand now, or that nobody can keep.
    fn standing(&mut self) -> Vec<u64> {
        let document = &self.document;
        let stands = |revision: u64| document.is_confirmed(revision) || document.state() == State::Blocked;
        let (done, rest) = self.unconfirmed.iter().partition(|(revision, _)| stands(*revision));
        self.unconfirmed = rest;
        let done: Vec<(u64, u64)> = done;
        let mut tokens: Vec<u64> = done.into_iter().map(|(_, token)| token).collect();
        if document.state() == State::Blocked {
            tokens.extend(std::mem::take(&mut self.new).into_iter().map(|(token, _)| token));
        }
        tokens
    }

    /// The next time after now at which something is due by time alone.
    pub(super) fn due_at(&self, now: Time) -> Option<Time> {
        let retry = self.lanes.values().filter(|lane| lane.sent.is_none()).map(|lane| lane.retry_at);
        let retry = retry.min().filter(|_| !self.doc.waiting.is_empty());
        [retry, self.document.wake_at(self.may_write)].into_iter().flatten().filter(|at| *at > now).min()
    }
}

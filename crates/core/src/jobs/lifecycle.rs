//! What becomes of a job: pure judgement, from the job, what is known of its worker and inbox, and the time.
//!
//! Why a job waits: `dispatcher/assignment.rs` (its queue, the worker it names), [`assign`](super::assign) (which workers would take
//! it), here (how its last attempt ended), and where the dispatcher reads inboxes (a worker that was started again, an entry that
//! vanished). The guide of jobs has them all in one table.

use super::dispatcher::DispatcherConfig;
use super::inboxes::Inbox;
use super::model::{JobState, Outcome, OutcomeKind};
use super::table::{AttemptEnd, Job, Transition, Withdraw};
use crate::id::WorkerId;
use crate::mutants::Mutant;
use crate::time::Time;

/// Longest pause before another attempt.
const BACKOFF_MAX_MS: u64 = 600_000;

/// How long a job that was tried again on request stays once it has ended. Longer than anybody takes from seeing that it is dead
/// to asking.
const RETRIED_MS: u64 = 60_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Judgement {
    Stay,
    Change(Transition),
    /// Its entry is to be taken out of the inbox unclaimed; what follows is decided once it is out.
    Withdraw(Withdraw),
    /// Its result is not waited for any longer: one that still arrives is late.
    GiveUp(OutcomeKind, &'static str),
    /// Only another look at its inbox tells.
    Look,
}

/// What is known of the worker that a job is out at.
#[derive(Clone, Copy)]
pub(super) struct AtWorker<'a> {
    pub(super) gone_since: Option<Time>,
    pub(super) inbox: Option<&'a Inbox>,
}

pub(super) fn judge(job: &Job, at: AtWorker<'_>, now: Time, config: &DispatcherConfig) -> Judgement {
    let record = job.record();
    if record.state == JobState::Dispatched {
        return judge_unclaimed(job, at, now, config);
    }
    if record.state.is_out() {
        return judge_claimed(job, at, now, config);
    }
    if record.state != JobState::Queued || !is_expired(job, now) {
        return Judgement::Stay;
    }
    let reason = format!("nobody claimed it in time: {}", record.reason);
    Judgement::Change(Transition::End { state: JobState::Expired, attempt: AttemptEnd::None, reason })
}

fn judge_unclaimed(job: &Job, at: AtWorker<'_>, now: Time, config: &DispatcherConfig) -> Judgement {
    let overdue = now.since(job.times().state_since) >= config.claim_timeout_ms;
    if overdue && at.inbox.is_some_and(Inbox::is_unreadable) {
        // It is unknown whether it was claimed.
        return Judgement::GiveUp(OutcomeKind::Abandoned, "the worker's inbox cannot be read");
    }
    let why = if job.withdraw().is_some() {
        job.withdraw()
    } else if job.record().cancel {
        Some(Withdraw::Cancel)
    } else if is_expired(job, now) {
        Some(Withdraw::Expire)
    } else {
        let refuses = |inbox: &Inbox| inbox.refuses_jobs() || !inbox.takes(job.record());
        let no_hope = at.gone_since.is_some() || at.inbox.is_some_and(refuses);
        (overdue || no_hope).then_some(Withdraw::Requeue)
    };
    match why {
        None => Judgement::Stay,
        Some(why) if at.inbox.is_some_and(|inbox| is_withdrawn(job, inbox)) => {
            Judgement::Change(withdrawn(job, why))
        }
        Some(why) => Judgement::Withdraw(why),
    }
}

fn judge_claimed(job: &Job, at: AtWorker<'_>, now: Time, config: &DispatcherConfig) -> Judgement {
    let (running, limits) = (job.record().state == JobState::Running, &job.record().limits);
    let waited_ms = now.since(job.times().state_since);
    if is_late(job, now) {
        return Judgement::GiveUp(OutcomeKind::TimedOut, "its deadline has passed");
    }
    if running && waited_ms >= limits.timeout_ms + config.margin_ms {
        return Judgement::GiveUp(OutcomeKind::TimedOut, "the worker did not end it in time");
    }
    if Mutant::JobReassignedWhileRun.on() && limits.timeout_ms / 2 <= waited_ms {
        return Judgement::GiveUp(OutcomeKind::Abandoned, "it takes long");
    }
    let (Some(gone), Some(inbox)) = (at.gone_since, at.inbox) else { return Judgement::Stay };
    // The worker may have finished its work before it left: only a later look tells.
    if !inbox.was_read_since(gone) {
        return Judgement::Look;
    }
    Judgement::GiveUp(OutcomeKind::Abandoned, "its worker fell silent")
}

/// When the job next has to be judged, going by time alone.
pub(super) fn due_at(job: &Job, at: AtWorker<'_>, now: Time, config: &DispatcherConfig) -> Option<Time> {
    let (state, limits, times) = (job.record().state, &job.record().limits, job.times());
    let expiry = (limits.ttl_ms > 0).then(|| times.waits_since + limits.ttl_ms);
    let claim = times.state_since + config.claim_timeout_ms;
    let end = times.state_since + limits.timeout_ms + config.margin_ms;
    let deadline = (limits.deadline_ms > 0).then(|| times.known_since + limits.deadline_ms);
    let due = if state == JobState::Queued {
        [expiry, Some(times.not_before), deadline]
    } else if job.withdraw().is_some() {
        // It waits for nothing but its inbox, and not for ever if that cannot be read.
        [at.inbox.is_some_and(Inbox::is_unreadable).then_some(claim), None, None]
    } else if state == JobState::Dispatched {
        [Some(claim), expiry, deadline]
    } else if state.is_out() {
        [(state == JobState::Running).then_some(end), deadline, None]
    } else {
        [kept_until(job), None, None]
    };
    due.into_iter().flatten().filter(|at| *at > now).min()
}

/// Until when a job that is over stays in the ledger at least.
pub(super) fn kept_until(job: &Job) -> Option<Time> {
    (job.record().retries > 0).then(|| job.times().state_since + RETRIED_MS)
}

fn is_late(job: &Job, now: Time) -> bool {
    let deadline_ms = job.record().limits.deadline_ms;
    deadline_ms > 0 && now.since(job.times().known_since) >= deadline_ms
}

fn is_expired(job: &Job, now: Time) -> bool {
    let ttl_ms = job.record().limits.ttl_ms;
    is_late(job, now) || (ttl_ms > 0 && now.since(job.times().waits_since) >= ttl_ms)
}

/// Its entry is gone from an inbox that nobody else can have written: it never ran and never will.
fn is_withdrawn(job: &Job, inbox: &Inbox) -> bool {
    let out = inbox.entry(&job.record().id, job.record().dispatch).is_none() && inbox.is_firm();
    out || Mutant::JobWithdrawnUnwritten.on()
}

fn withdrawn(job: &Job, why: Withdraw) -> Transition {
    let worker = job.record().worker.as_ref().map_or("", WorkerId::as_str);
    let attempt = AttemptEnd::Withdrawn;
    match why {
        Withdraw::Requeue => {
            let reason = format!("worker {worker} did not claim it");
            Transition::Requeue { attempt, pause_ms: 0, reason }
        }
        Withdraw::Expire => {
            let reason = format!("worker {worker} did not claim it in time");
            Transition::End { state: JobState::Expired, attempt, reason }
        }
        Withdraw::Cancel => {
            let reason = "cancelled before it was claimed".to_owned();
            Transition::End { state: JobState::Cancelled, attempt, reason }
        }
    }
}

/// What follows when an attempt has ended, or was given up.
pub(super) fn conclude(job: &Job, outcome: &Outcome, given_up: bool, why: &str, now: Time) -> Transition {
    let (record, limits) = (job.record(), &job.record().limits);
    let state = match outcome.kind {
        OutcomeKind::Succeeded => JobState::Succeeded,
        OutcomeKind::Partial => JobState::Partial,
        OutcomeKind::Failed
        | OutcomeKind::TimedOut
        | OutcomeKind::Cancelled
        | OutcomeKind::Abandoned
        | OutcomeKind::Returned
            if record.cancel && !Mutant::JobCancelForgotten.on() =>
        {
            JobState::Cancelled
        }
        OutcomeKind::Failed => JobState::Failed,
        OutcomeKind::TimedOut => JobState::TimedOut,
        OutcomeKind::Cancelled | OutcomeKind::Abandoned => JobState::Lost,
        OutcomeKind::Returned => {
            let reason = "its worker gave it back".to_owned();
            return Transition::Requeue { attempt: AttemptEnd::Returned, pause_ms: 0, reason };
        }
    };
    let attempt = AttemptEnd::Ended { result: outcome.result.clone(), given_up };
    let begun = record.begun();
    let failed = matches!(state, JobState::Failed | JobState::TimedOut | JobState::Lost);
    let more = begun < limits.attempts_max || Mutant::JobAttemptsUnbounded.on();
    if !failed || !more || is_late(job, now) {
        return Transition::End { state, attempt, reason: why.to_owned() };
    }
    let pause_ms = limits.backoff_ms.saturating_mul(1 << begun.saturating_sub(1).min(20)).min(BACKOFF_MAX_MS);
    let words = if why.is_empty() { String::new() } else { format!(" ({why})") };
    let reason = format!("attempt {begun} ended as {}{words}", state.as_str());
    Transition::Requeue { attempt, pause_ms, reason }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{WRITER, at, config, name, record, table};
    use super::*;
    use crate::document::{DocumentAnswer, Read};
    use crate::election::Version;
    use crate::machine::RequestId;

    const NOWHERE: AtWorker<'_> = AtWorker { gone_since: None, inbox: None };

    fn dispatch() -> Transition {
        Transition::Dispatch(name("w1"))
    }

    fn ends(judgement: &Judgement, as_state: JobState) -> bool {
        matches!(judgement, Judgement::Change(Transition::End { state, .. }) if *state == as_state)
    }

    fn unreadable() -> Inbox {
        let mut inbox = Inbox::new(WRITER);
        inbox.document().next(Time(0), RequestId(1), false).expect("it was never read");
        let nonsense = Read::Unreadable { version: Version::new("1"), newer: false };
        inbox.document().answered(Time(0), RequestId(1), DocumentAnswer::<()>::Read(nonsense));
        inbox
    }

    #[test]
    fn a_queued_job_waits_until_its_time_is_over() {
        let (table, _, id) = table(record("t1"), Vec::new());
        let job = table.get(&id).expect("it is there");
        assert_eq!(judge(job, NOWHERE, Time(59_999), &config()), Judgement::Stay);
        assert!(ends(&judge(job, NOWHERE, Time(60_000), &config()), JobState::Expired));
        assert_eq!(due_at(job, NOWHERE, Time(10), &config()), Some(Time(60_000)));
    }

    #[test]
    fn an_unclaimed_entry_is_withdrawn_and_only_then_the_job_goes_on() {
        let (mut table, _, id) = table(record("t1"), vec![dispatch()]);
        let inbox = Inbox::absent(WRITER);
        let at = AtWorker { gone_since: None, inbox: Some(&inbox) };
        let job = table.get(&id).expect("it is there");
        assert_eq!(judge(job, at, Time(3999), &config()), Judgement::Stay);
        let withdraw = Judgement::Withdraw(Withdraw::Requeue);
        assert_eq!(judge(job, at, Time(4000), &config()), withdraw, "the inbox is not this leader's own");
        let gone = AtWorker { gone_since: Some(Time(1500)), inbox: Some(&inbox) };
        assert_eq!(judge(job, gone, Time(1500), &config()), withdraw, "nobody is there to claim it");
        table.withdraw_entry(&id, Withdraw::Expire);
        let job = table.get(&id).expect("it is there");
        assert_eq!(judge(job, at, Time(1500), &config()), Judgement::Withdraw(Withdraw::Expire));
        assert_eq!(due_at(job, at, Time(1500), &config()), None, "it waits for its inbox");
        let unreadable = AtWorker { gone_since: None, inbox: Some(&unreadable()) };
        assert_eq!(due_at(job, unreadable, Time(1500), &config()), Some(Time(4000)));
    }

    #[test]
    fn what_may_have_been_claimed_in_an_unreadable_inbox_is_given_up() {
        let (table, _, id) = table(record("t1"), vec![dispatch()]);
        let (job, inbox) = (table.get(&id).expect("it is there"), unreadable());
        let at = AtWorker { gone_since: None, inbox: Some(&inbox) };
        assert_eq!(judge(job, at, Time(3999), &config()), Judgement::Stay);
        let judgement = judge(job, at, Time(4000), &config());
        assert!(matches!(judgement, Judgement::GiveUp(OutcomeKind::Abandoned, _)), "{judgement:?}");
    }

    #[test]
    fn a_silent_worker_is_looked_at_once_more_before_its_work_is_given_up() {
        let (table, _, id) = table(record("t1"), vec![dispatch(), Transition::Claim(JobState::Running)]);
        let (job, inbox) = (table.get(&id).expect("it is there"), Inbox::absent(WRITER));
        let at = AtWorker { gone_since: Some(Time(2500)), inbox: Some(&inbox) };
        assert_eq!(judge(job, at, Time(3000), &config()), Judgement::Look);
        let judgement = judge(job, at, Time(4500), &config());
        assert!(matches!(judgement, Judgement::GiveUp(OutcomeKind::TimedOut, _)), "2000 and a margin");
    }

    #[test]
    fn failures_are_tried_again_after_a_longer_pause_each_and_not_for_ever() {
        let failed = Outcome::bare(OutcomeKind::Failed);
        let run = [dispatch(), Transition::Claim(JobState::Running)];
        let (mut table, mut ledger, id) = table(record("t1"), run.to_vec());
        let first = conclude(table.get(&id).expect("it is there"), &failed, false, "", Time(2500));
        assert!(matches!(first, Transition::Requeue { pause_ms: 100, .. }), "{first:?}");
        for transition in [first].into_iter().chain(run) {
            table.change(&mut ledger, at(3000), &id, transition);
        }
        let job = table.get(&id).expect("it is there");
        let second = conclude(job, &failed, false, "", Time(3500));
        assert!(matches!(second, Transition::End { state: JobState::Failed, .. }), "{second:?}");
        let returned = conclude(job, &Outcome::bare(OutcomeKind::Returned), false, "", Time(3500));
        assert!(matches!(returned, Transition::Requeue { attempt: AttemptEnd::Returned, .. }));
    }
}

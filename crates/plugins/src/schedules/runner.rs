//! The runner's handle: its process, what it shows, and what callers can ask of it.

use super::figures::ScheduleFigures;
use super::problem::Problems;
use super::read::Rules;
use super::stored::Schedules;
use super::term;
use super::view::clean;
use super::webhook::{Webhook, Webhooks};
use crate::checks::health::{CheckHealth, Transition};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure::Node;
use tenure::error::ErrorKind;
use tenure::event::PluginEvent;
use tenure::id::IdError;
use tenure::id::{CheckName, JobId, Namespace, ScheduleId, WorkerId};
use tenure::job::{JobCounts, JobState, Jobs, NoticeKind, NoticeSender, Submitted};
use tenure::plugin::NodeHandle;
use tenure::process::{ProcessContext, ProcessSpec};
use tenure::schedules::{PlanCounts, SeriesView};
use tenure::store::Store;
use tokio::sync::{Mutex, broadcast, mpsc, oneshot, watch};

/// Events kept for a slow reader; one that falls further behind is told how many it missed.
const EVENTS_KEPT: usize = 1024;

/// The name of the leader-only process.
pub const SCHEDULES_PROCESS: &str = "poll-orchestrator";

/// The events emitted along with the node's own if it was made [for a node](ScheduleRunner::for_node); `{prefix}` stands for
/// the telemetry prefix.
pub const SCHEDULE_EVENT_NAMES: &[&str] = &[
    "{prefix}.coordinator.check_failing",
    "{prefix}.coordinator.check_recovered",
    "{prefix}.coordinator.job_expired",
    "{prefix}.coordinator.job_failed",
    "{prefix}.coordinator.job_late",
    "{prefix}.coordinator.job_missed",
    "{prefix}.coordinator.schedule_refused",
];

/// Settings of a runner.
#[derive(Clone)]
pub struct ScheduleOptions {
    /// How often to look at the schedules without being told, with one list. Default: 60 s. Whoever changes a schedule tells
    /// the leader; this is for changes by other means, and for those who could not tell it.
    pub look_interval: Duration,
    /// The time limit of one request. Default: 5 s.
    pub request_timeout: Duration,
    /// The custom kinds of checks that are allowed.
    pub rules: Rules,
    /// The wall clock, in ms since 1970. Every leader's should be about right; the guide says what happens when one is not.
    pub wall_clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Who is told of every job that failed, expired, was missed or began late, unless its schedule has a webhook of its own.
    pub webhook: Option<Webhook>,
}

impl Default for ScheduleOptions {
    fn default() -> ScheduleOptions {
        ScheduleOptions {
            look_interval: Duration::from_secs(60),
            request_timeout: Duration::from_secs(5),
            rules: Rules::default(),
            wall_clock: Arc::new(|| u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)),
            webhook: None,
        }
    }
}

impl std::fmt::Debug for ScheduleOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScheduleOptions(looks every {:?})", self.look_interval)
    }
}

/// What happened. The leader announces each event once per cluster; [`Health`](crate::checks::Health) says where that ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScheduleEvent {
    /// A check failed as many times in a row as its schedule allows, and was not failing before.
    CheckFailing(Transition),
    /// A failing check has recovered.
    CheckRecovered(Transition),
    /// A schedule on the store is wrong and is ignored. Each leader that reads it announces it.
    ScheduleRefused {
        /// The schedule that is ignored.
        schedule: ScheduleId,
        /// Everything that is wrong with it.
        problems: Problems,
    },
    /// A job failed, expired, was missed or began late.
    Job(JobTrouble),
}

/// What went wrong with a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobTrouble {
    /// What happened.
    pub kind: NoticeKind,
    /// The schedule that made it, if one did.
    pub schedule: Option<ScheduleId>,
    /// The job. Of due times that were missed, the one that the last of them would have become.
    pub job: JobId,
    /// When it was due, in ms since 1970; `None` for a job that no due time made.
    pub due_ms: Option<u64>,
    /// How many attempts were begun.
    pub attempt: u32,
    /// The worker of its last attempt.
    pub worker: Option<WorkerId>,
    /// Why, as a sentence without subject: `exit code 2`, `3 due times were missed`.
    pub reason: String,
}

impl JobTrouble {
    fn sentence(&self) -> String {
        let JobTrouble { kind, schedule, job, attempt, reason, .. } = self;
        match (kind, schedule) {
            (NoticeKind::Failed, _) => {
                let plural = if *attempt == 1 { "" } else { "s" };
                format!("job {job} failed after {attempt} attempt{plural}: {reason}")
            }
            (NoticeKind::Expired, _) => format!("job {job} expired: {reason}"),
            (NoticeKind::Missed, Some(schedule)) => format!("schedule {schedule}: {reason}"),
            (NoticeKind::Missed, None) => format!("{job}: {reason}"),
            (NoticeKind::Late, _) => format!("job {job} began late: {reason}"),
        }
    }
}

impl ScheduleEvent {
    /// The name: `check_failing`, `check_recovered`, `schedule_refused`, `job_failed`, `job_expired`, `job_missed`, `job_late`.
    pub fn name(&self) -> &'static str {
        match self {
            ScheduleEvent::CheckFailing(_) => "check_failing",
            ScheduleEvent::CheckRecovered(_) => "check_recovered",
            ScheduleEvent::ScheduleRefused { .. } => "schedule_refused",
            ScheduleEvent::Job(trouble) => trouble.kind.as_str(),
        }
    }

    /// The event as the node emits it.
    pub(super) fn plugin_event(&self) -> PluginEvent {
        let (alarming, sentence) = match self {
            ScheduleEvent::CheckFailing(told) => {
                let Transition { schedule, check, in_a_row, detail, .. } = told;
                (true, format!("check {check} of {schedule} failed {in_a_row} times in a row: {detail}"))
            }
            ScheduleEvent::CheckRecovered(told) => {
                (false, format!("check {} of {} is well again", told.check, told.schedule))
            }
            ScheduleEvent::ScheduleRefused { schedule, problems } => {
                let problems: Vec<String> = problems.all().iter().map(ToString::to_string).collect();
                (true, format!("schedule {schedule} is invalid and does not run: {}", problems.join("; ")))
            }
            ScheduleEvent::Job(trouble) => (true, trouble.sentence()),
        };
        PluginEvent { name: self.name(), sentence: clean(&sentence), alarming, fields: self.fields() }
    }

    /// The event's fields without its name.
    fn fields(&self) -> Value {
        match self {
            ScheduleEvent::CheckFailing(told) | ScheduleEvent::CheckRecovered(told) => json!({
                "schedule": told.schedule.as_str(), "check": told.check.as_str(),
                "due": told.due_ms, "inARow": told.in_a_row, "detail": told.detail,
            }),
            ScheduleEvent::ScheduleRefused { schedule, problems } => json!({
                "schedule": schedule.as_str(),
                "problems": problems.all().iter().map(ToString::to_string).collect::<Vec<String>>(),
            }),
            ScheduleEvent::Job(trouble) => json!({
                "schedule": trouble.schedule.as_ref().map(ToString::to_string), "job": trouble.job.as_str(),
                "due": trouble.due_ms, "attempt": trouble.attempt,
                "worker": trouble.worker.as_ref().map(ToString::to_string), "reason": trouble.reason,
            }),
        }
    }
}

/// The counts of this term.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunnerCounts {
    /// The planner's counts.
    pub plan: PlanCounts,
    /// The dispatcher's counts.
    pub jobs: JobCounts,
    /// The number of open jobs.
    pub open: u64,
    /// Jobs that ended without a report: nobody ran them, or not to the end. They say nothing about the checks.
    pub unreported: u64,
    /// Jobs that used up their attempts, of schedules or not.
    pub failed: u64,
    /// Jobs that nobody took in time, of schedules or not.
    pub expired: u64,
    /// Jobs of schedules that began late.
    pub late: u64,
}

/// An open job as the leader sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobView {
    /// The job id.
    pub id: JobId,
    /// The schedule it belongs to.
    pub schedule: ScheduleId,
    /// Where the job stands.
    pub state: JobState,
    /// How many attempts were begun.
    pub attempt: u32,
    /// The worker that has it.
    pub worker: Option<WorkerId>,
    /// Why it waits, as a sentence.
    pub reason: Arc<str>,
}

/// The state of a schedule and its checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleView {
    /// Its due times.
    pub series: SeriesView,
    /// The checks about which anything is known.
    pub checks: BTreeMap<CheckName, CheckHealth>,
}

/// What the runner shows. Empty on nodes that do not lead.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunnerView {
    /// The epoch it works in; 0 if it does not lead.
    pub epoch: u64,
    /// The schedules that are acted on.
    pub schedules: BTreeMap<ScheduleId, ScheduleView>,
    /// Ignored schedules, with what is wrong with them.
    pub refused: BTreeMap<ScheduleId, String>,
    /// The schedules whose last run failed or expired, with the reason.
    pub failing: BTreeMap<ScheduleId, String>,
    /// The schedules with a job that no worker may take, with the reason.
    pub waiting: BTreeMap<ScheduleId, String>,
    /// The open jobs.
    pub jobs: Vec<JobView>,
    /// How many active workers take jobs, of whatever kind.
    pub workers: usize,
    /// The counts of this term.
    pub counts: RunnerCounts,
    /// What is failing right now, for people; it is being retried.
    pub trouble: Option<String>,
}

/// Why a schedule was not run, written or removed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScheduleError {
    /// This node does not lead. Ask the leader.
    #[error("this node does not lead: only the leader runs schedules")]
    NotLeading,
    /// The schedule does not exist, or is wrong.
    #[error("there is no valid schedule {0:?}")]
    Unknown(String),
    /// The schedule has as many open jobs as it may.
    #[error("schedule_full: {0:?} already has as many open jobs as it may have")]
    Full(String),
    /// The job's name is not valid.
    #[error("name = {0:?}: must be 1 to 12 letters and digits")]
    Name(String),
    /// A schedule with this id already exists.
    #[error("a schedule {0:?} already exists")]
    Exists(String),
    /// The schedule on the store cannot be understood, and is left alone.
    #[error("the schedule {schedule:?} on the store is invalid and was left alone: {problems}")]
    Refused {
        /// The schedule's id.
        schedule: String,
        /// Everything that is wrong with it.
        problems: Problems,
    },
    /// Others changed the schedule during every attempt. Nothing was written.
    #[error("schedule {0:?}: somebody else changed it during every attempt; nothing was written")]
    Raced(String),
    /// Too many requested jobs do not exist yet.
    #[error(
        "schedule {0:?}: 8 requested jobs do not exist yet; nobody leads, or it has as many open jobs as it may have"
    )]
    Asked(String),
    /// The store failed.
    #[error("{0}")]
    Store(String),
    /// The ledger refused the job.
    #[error(transparent)]
    Submit(#[from] tenure::Error),
}

impl ScheduleError {
    /// What kind of error it is. A type of its own, because a schedule that is wrong carries all its problems.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ScheduleError::NotLeading => ErrorKind::NotLeading,
            ScheduleError::Unknown(_) => ErrorKind::NotFound,
            ScheduleError::Full(_) | ScheduleError::Asked(_) => ErrorKind::Full,
            ScheduleError::Name(_) => ErrorKind::Invalid,
            ScheduleError::Exists(_) => ErrorKind::Taken,
            ScheduleError::Refused { .. } => ErrorKind::Unreadable,
            ScheduleError::Raced(_) => ErrorKind::Raced,
            ScheduleError::Store(_) => ErrorKind::Unavailable,
            ScheduleError::Submit(error) => error.kind(),
        }
    }
}

/// A request to run a job now.
pub(super) struct RunNow {
    pub(super) schedule: ScheduleId,
    pub(super) name: String,
    pub(super) reply: Reply,
}

pub(super) type Reply = oneshot::Sender<Result<Submitted, ScheduleError>>;

pub(super) struct Inner {
    pub(super) place: Jobs,
    pub(super) schedules: Schedules,
    pub(super) options: ScheduleOptions,
    pub(super) view: watch::Sender<RunnerView>,
    pub(super) events: broadcast::Sender<ScheduleEvent>,
    pub(super) asked: Mutex<mpsc::Receiver<RunNow>>,
    ask: mpsc::Sender<RunNow>,
    /// Where events are emitted in addition to its own channel.
    pub(super) node: Option<NodeHandle>,
    pub(super) figures: Arc<ScheduleFigures>,
    pub(super) webhooks: Arc<Webhooks>,
}

/// Runs schedules while this node leads. Clones share one runner.
///
/// It shares the program's [`Dispatcher`](tenure::job::Dispatcher) with whoever else has started one in this epoch.
#[derive(Clone)]
pub struct ScheduleRunner(Arc<Inner>);

impl std::fmt::Debug for ScheduleRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScheduleRunner({})", self.0.schedules.prefix())
    }
}

impl ScheduleRunner {
    /// Creates one from `node.jobs()`, the node's store and its namespace.
    pub fn new(
        place: Jobs,
        store: Arc<dyn Store>,
        namespace: &Namespace,
        options: ScheduleOptions,
    ) -> ScheduleRunner {
        let schedules = Schedules::new(store, namespace)
            .rules(options.rules.clone())
            .request_timeout(options.request_timeout);
        let (view, _) = watch::channel(RunnerView::default());
        let (events, _) = broadcast::channel(EVENTS_KEPT);
        let (ask, asked) = mpsc::channel(16);
        let asked = Mutex::new(asked);
        let figures = Arc::new(ScheduleFigures::default());
        let read = Arc::clone(&figures);
        place.plugin_figures().publish(SCHEDULES_PROCESS, move || read.read());
        let webhooks = Arc::new(Webhooks::new(namespace, options.webhook.clone()));
        place.notify_by(Arc::clone(&webhooks) as Arc<dyn NoticeSender>);
        let inner =
            Inner { place, schedules, options, view, events, asked, ask, node: None, figures, webhooks };
        ScheduleRunner(Arc::new(inner))
    }

    /// Creates one for this node. It uses the node's own connection to the store, so its requests count as the node's, and its
    /// events are emitted along with the node's.
    pub fn for_node(node: &Node, options: ScheduleOptions) -> Result<ScheduleRunner, IdError> {
        let handle = node.handle();
        let (namespace, store) = (handle.namespace(), Arc::clone(&handle.lanes().bulk));
        let mut runner = ScheduleRunner::new(node.jobs(), store, &namespace, options);
        if let Some(inner) = Arc::get_mut(&mut runner.0) {
            inner.node = Some(handle);
        }
        Ok(runner)
    }

    /// The leader-only process, for a [`Supervisor`](tenure::process::Supervisor). It is ready once it has taken over what its predecessor
    /// left; nothing is scheduled before.
    pub fn process(&self) -> ProcessSpec {
        let inner = Arc::clone(&self.0);
        ProcessSpec::new(SCHEDULES_PROCESS, move |context: ProcessContext| {
            let inner = Arc::clone(&inner);
            async move { term::run(&inner, context).await }
        })
        .ready_signal()
    }

    /// The current state as the leader knows it; empty on other nodes.
    pub fn view(&self) -> watch::Receiver<RunnerView> {
        self.0.view.subscribe()
    }

    /// The events from now on.
    pub fn events(&self) -> broadcast::Receiver<ScheduleEvent> {
        self.0.events.subscribe()
    }

    /// Creates a job of a schedule now, whatever its timing, if the schedule may have one more. The caller chooses the name, at
    /// most 12 letters and digits: asking again with the same name gives the existing job, as long as the ledger remembers it.
    pub async fn run_now(&self, schedule: &ScheduleId, name: &str) -> Result<Submitted, ScheduleError> {
        if self.0.view.borrow().epoch == 0 {
            return Err(ScheduleError::NotLeading);
        }
        let (reply, answer) = oneshot::channel();
        let run = RunNow { schedule: schedule.clone(), name: name.to_owned(), reply };
        self.0.ask.send(run).await.map_err(|_| ScheduleError::NotLeading)?;
        answer.await.unwrap_or(Err(ScheduleError::NotLeading))
    }

    /// The schedules on the store. Any process may change them; the leader notices at its next look.
    pub fn schedules(&self) -> Schedules {
        self.0.schedules.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_one_line_whatever_an_agent_said() {
        let detail = "refused\n12:00 INFO all is well\u{1b}[2J".to_owned();
        let told = Transition {
            schedule: ScheduleId::new("web").expect("valid"),
            check: CheckName::new("home").expect("valid"),
            failing: true,
            due_ms: 5,
            in_a_row: 3,
            detail: detail.clone(),
        };
        let failing = ScheduleEvent::CheckFailing(told.clone()).plugin_event();
        assert_eq!(
            failing.sentence,
            "check home of web failed 3 times in a row: refused12:00 INFO all is well[2J"
        );
        assert_eq!((failing.alarming, &failing.fields["detail"]), (true, &json!(detail)));
        let recovered = ScheduleEvent::CheckRecovered(told).plugin_event();
        assert_eq!((recovered.alarming, &*recovered.sentence), (false, "check home of web is well again"));
    }
}

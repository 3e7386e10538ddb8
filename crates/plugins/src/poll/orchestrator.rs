//! The orchestrator's handle: the process it is, what it shows, and what it can be asked.

use super::choice::AgentFacts;
use super::figures::PollFigures;
use super::health::{CheckHealth, Transition};
use super::lead;
use super::planner::{PlanCounts, SeriesView};
use super::problem::Problems;
use super::read::Rules;
use super::schedules::Schedules;
use super::shelf::Shelf;
use super::shown::clean;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure::Node;
use tenure::document::{Annex, Keys, News};
use tenure::id::IdError;
use tenure::id::{CheckName, JobId, Namespace, ScheduleId, WorkerId};
use tenure::process::{ProcessContext, ProcessSpec};
use tenure::store::Store;
use tenure::tasks::{Submitted, TaskCounts, TaskPlace, TaskState};
use tenure::worker::Workers;
use tokio::sync::{Mutex, broadcast, mpsc, oneshot, watch};

/// Events kept for a reader that is behind; one further behind is told how many it missed.
const EVENTS_KEPT: usize = 1024;

/// The name of the process.
pub const POLL_PROCESS: &str = "poll-orchestrator";

/// The events it tells with the node's if it was made [for a node](PollOrchestrator::for_node), with `{prefix}` for the
/// telemetry prefix.
pub const POLL_EVENT_NAMES: &[&str] = &[
    "{prefix}.coordinator.check_failing",
    "{prefix}.coordinator.check_recovered",
    "{prefix}.coordinator.schedule_refused",
];

/// How an orchestrator is to work.
#[derive(Clone)]
pub struct PollOptions {
    /// How often the schedules are looked at: one list. Default: 5 s. More often: changes act sooner. More seldom: fewer requests.
    pub look_interval: Duration,
    /// How often an agent's facts are read anew. Default: 60 s.
    pub agent_interval: Duration,
    /// How long one request may take. Default: 5 s.
    pub request_timeout: Duration,
    /// The kinds of checks there are.
    pub rules: Rules,
    /// The wall clock, in ms since 1970. Every leader's should be about right; what happens when one is not is in the guide.
    pub wall_clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Default for PollOptions {
    fn default() -> PollOptions {
        PollOptions {
            look_interval: Duration::from_secs(5),
            agent_interval: Duration::from_secs(60),
            request_timeout: Duration::from_secs(5),
            rules: Rules::default(),
            wall_clock: Arc::new(|| u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)),
        }
    }
}

impl std::fmt::Debug for PollOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PollOptions(looks every {:?})", self.look_interval)
    }
}

/// What happened. Each is told once in a cluster, by its leader; see [`Health`](super::Health) for what is not promised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PollEvent {
    /// A check failed as often in a row as its schedule allows, and was not failing before.
    CheckFailing(Transition),
    /// A failing check is well again.
    CheckRecovered(Transition),
    /// A schedule on the store is wrong, and is not acted on. Told by each leader that reads it.
    ScheduleRefused {
        /// Which.
        schedule: ScheduleId,
        /// All that is wrong with it.
        problems: Problems,
    },
}

impl PollEvent {
    /// Its name: `check_failing`, `check_recovered`, `schedule_refused`.
    pub fn name(&self) -> &'static str {
        match self {
            PollEvent::CheckFailing(_) => "check_failing",
            PollEvent::CheckRecovered(_) => "check_recovered",
            PollEvent::ScheduleRefused { .. } => "schedule_refused",
        }
    }

    /// The event as JSON.
    pub fn to_json(&self) -> Value {
        let mut value = self.fields();
        value["event"] = json!(self.name());
        value
    }

    /// The event as a node tells it.
    pub(super) fn news(&self) -> News {
        let (alarming, sentence) = match self {
            PollEvent::CheckFailing(told) => {
                let Transition { schedule, check, in_a_row, detail, .. } = told;
                (true, format!("check {check} of {schedule} fails, {in_a_row} times in a row: {detail}"))
            }
            PollEvent::CheckRecovered(told) => {
                (false, format!("check {} of {} is well again", told.check, told.schedule))
            }
            PollEvent::ScheduleRefused { schedule, problems } => {
                let problems: Vec<String> = problems.all().iter().map(ToString::to_string).collect();
                (true, format!("schedule {schedule} is not acted on: {}", problems.join("; ")))
            }
        };
        News { name: self.name(), sentence: clean(&sentence), alarming, fields: self.fields() }
    }

    /// What it says beside its name.
    fn fields(&self) -> Value {
        match self {
            PollEvent::CheckFailing(told) | PollEvent::CheckRecovered(told) => json!({
                "schedule": told.schedule.as_str(), "check": told.check.as_str(),
                "due": told.due_ms, "inARow": told.in_a_row, "detail": told.detail,
            }),
            PollEvent::ScheduleRefused { schedule, problems } => json!({
                "schedule": schedule.as_str(),
                "problems": problems.all().iter().map(ToString::to_string).collect::<Vec<String>>(),
            }),
        }
    }
}

/// What was counted in this term.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PollCounts {
    /// Of the planner.
    pub plan: PlanCounts,
    /// Of the dispatcher.
    pub tasks: TaskCounts,
    /// Jobs that are open.
    pub open: u64,
    /// How late the last job was created, and the latest of all.
    pub due_lag_ms: u64,
    /// The same, the most.
    pub due_lag_max_ms: u64,
    /// Jobs that ended without a report: nobody did them, or not to the end. They say nothing about the checks.
    pub unreported: u64,
}

/// An open job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// Its schedule.
    pub schedule: ScheduleId,
    /// Where it stands.
    pub state: TaskState,
    /// How often it was given out.
    pub attempt: u32,
    /// Who has it.
    pub worker: Option<WorkerId>,
    /// Why it waits, by name: see [`NoWorker`](super::NoWorker).
    pub reason: Arc<str>,
}

/// How a schedule and its checks stand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleView {
    /// Its due times.
    pub series: SeriesView,
    /// Its checks, as far as anything is known of them.
    pub checks: BTreeMap<CheckName, CheckHealth>,
}

/// What the orchestrator shows. Empty on nodes that do not lead.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PollView {
    /// The epoch it works in; 0: it does not.
    pub epoch: u64,
    /// The schedules that are acted on.
    pub schedules: BTreeMap<ScheduleId, ScheduleView>,
    /// Those that are not, and what is wrong with them.
    pub refused: BTreeMap<ScheduleId, String>,
    /// Open jobs.
    pub jobs: Vec<JobView>,
    /// The active agents.
    pub agents: Arc<BTreeMap<WorkerId, AgentFacts>>,
    /// What was counted.
    pub counts: PollCounts,
    /// What is in the way, for people; it is tried again.
    pub trouble: Option<String>,
}

/// Why a schedule was not run, written or removed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PollError {
    /// This node does not lead. Ask the one that does.
    #[error("this node does not lead: only the leader runs schedules")]
    NotLeading,
    /// There is no such schedule, or it is wrong.
    #[error("there is no schedule {0:?} that is acted on")]
    Unknown(String),
    /// As many of its jobs are open as may be.
    #[error("schedule_full: as many jobs of {0:?} are open as may be")]
    Full(String),
    /// The name of the job is none.
    #[error("name = {0:?}: must be 1 to 12 letters and digits")]
    Name(String),
    /// There is one of this id already.
    #[error("there is a schedule {0:?} already")]
    Exists(String),
    /// What stands there cannot be understood, and is left alone.
    #[error("the schedule {schedule:?} on the store cannot be understood and is left alone: {problems}")]
    Refused {
        /// Which.
        schedule: String,
        /// All that is wrong with it.
        problems: Problems,
    },
    /// Others changed it each time it was tried. Nothing was changed.
    #[error("schedule {0:?}: others changed it each time it was tried")]
    Raced(String),
    /// As many jobs were asked for, and do not exist yet, as may be.
    #[error(
        "schedule {0:?}: 8 jobs were asked for and do not exist yet; nobody leads, or none may be open beside those that are"
    )]
    Asked(String),
    /// The store did not do it.
    #[error("{0}")]
    Store(String),
    /// The ledger did not take it.
    #[error(transparent)]
    Submit(#[from] tenure::tasks::SubmitError),
}

/// Somebody asks for a job now.
pub(super) struct RunNow {
    pub(super) schedule: ScheduleId,
    pub(super) name: String,
    pub(super) reply: oneshot::Sender<Result<Submitted, PollError>>,
}

pub(super) struct Inner {
    pub(super) place: TaskPlace,
    pub(super) workers: watch::Receiver<Workers>,
    pub(super) shelf: Shelf,
    pub(super) options: PollOptions,
    pub(super) view: watch::Sender<PollView>,
    pub(super) events: broadcast::Sender<PollEvent>,
    pub(super) asked: Mutex<mpsc::Receiver<RunNow>>,
    ask: mpsc::Sender<RunNow>,
    /// Where events are told beside its own channel.
    pub(super) annex: Option<Annex>,
    pub(super) figures: Arc<PollFigures>,
}

/// Runs schedules while this node leads. Clones are the same.
///
/// It has the namespace's [`Dispatcher`](tenure::tasks::Dispatcher): there must be no other in the same process and epoch.
#[derive(Clone)]
pub struct PollOrchestrator(Arc<Inner>);

impl std::fmt::Debug for PollOrchestrator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PollOrchestrator({})", self.0.shelf.keys.root())
    }
}

impl PollOrchestrator {
    /// For a node: `node.tasks()`, `node.workers()`, the store it works on and its namespace.
    pub fn new(
        place: TaskPlace,
        workers: watch::Receiver<Workers>,
        store: Arc<dyn Store>,
        namespace: &Namespace,
        options: PollOptions,
    ) -> PollOrchestrator {
        let shelf = Shelf {
            store,
            keys: Keys::global(namespace),
            timeout: options.request_timeout,
            rules: options.rules.clone(),
        };
        let (view, _) = watch::channel(PollView::default());
        let (events, _) = broadcast::channel(EVENTS_KEPT);
        let (ask, asked) = mpsc::channel(16);
        let asked = Mutex::new(asked);
        let figures = Arc::new(PollFigures::default());
        let read = Arc::clone(&figures);
        place.plugin_figures().publish(POLL_PROCESS, move || read.read());
        let inner = Inner { place, workers, shelf, options, view, events, asked, ask, annex: None, figures };
        PollOrchestrator(Arc::new(inner))
    }

    /// For this node, on its own way to the store, so that its requests count as the node's. Its events are told with the
    /// node's.
    pub fn for_node(node: &Node, options: PollOptions) -> Result<PollOrchestrator, IdError> {
        let annex = node.annex();
        let (namespace, store) = (Namespace::new(annex.namespace())?, Arc::clone(&annex.lanes().bulk));
        let mut polls = PollOrchestrator::new(node.tasks(), node.workers(), store, &namespace, options);
        if let Some(inner) = Arc::get_mut(&mut polls.0) {
            inner.annex = Some(annex);
        }
        Ok(polls)
    }

    /// The leader-only process, for a [`Supervisor`](tenure::process::Supervisor). It is ready once it has taken over what its
    /// forerunner left; nothing is scheduled before.
    pub fn process(&self) -> ProcessSpec {
        let inner = Arc::clone(&self.0);
        ProcessSpec::new(POLL_PROCESS, move |context: ProcessContext| {
            let inner = Arc::clone(&inner);
            async move { lead::run(&inner, context).await }
        })
        .ready_signal()
    }

    /// How things stand, as the leader knows them; empty elsewhere.
    pub fn view(&self) -> watch::Receiver<PollView> {
        self.0.view.subscribe()
    }

    /// What happens from now on.
    pub fn events(&self) -> broadcast::Receiver<PollEvent> {
        self.0.events.subscribe()
    }

    /// Creates a job of a schedule now, whatever its timing, as long as it may have one more. The name is the caller's, at most
    /// 12 letters and digits: asking for the same again gives the job that exists, as long as the ledger remembers it.
    pub async fn run_now(&self, schedule: &ScheduleId, name: &str) -> Result<Submitted, PollError> {
        if self.0.view.borrow().epoch == 0 {
            return Err(PollError::NotLeading);
        }
        let (reply, answer) = oneshot::channel();
        let run = RunNow { schedule: schedule.clone(), name: name.to_owned(), reply };
        self.0.ask.send(run).await.map_err(|_| PollError::NotLeading)?;
        answer.await.unwrap_or(Err(PollError::NotLeading))
    }

    /// The schedules on the store. Any process may change them; the leader sees it with its next look.
    pub fn schedules(&self) -> Schedules {
        Schedules::on(self.0.shelf.clone())
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
        let failing = PollEvent::CheckFailing(told.clone()).news();
        assert_eq!(
            failing.sentence,
            "check home of web fails, 3 times in a row: refused12:00 INFO all is well[2J"
        );
        assert_eq!((failing.alarming, &failing.fields["detail"]), (true, &json!(detail)));
        let recovered = PollEvent::CheckRecovered(told).news();
        assert_eq!((recovered.alarming, &*recovered.sentence), (false, "check home of web is well again"));
    }
}

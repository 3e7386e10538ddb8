//! The dispatcher of a leader: it runs in the first process, and knows the workers from the sweep of its node.

use crate::machines::scheduler::{Scheduling, Submission};
use crate::node::Node;
use crate::queue::Run;
use crate::shell::{Part, PartName, Played, Who};
use crate::store::{Folder, Key, Listed, Object, Op, Said, Value};
use crate::trace::Noted;
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_core::machine::{Input, Request};
use tenure_core::{
    Candidates, DispatchAnswer, DispatchCommand, DispatchOutput, DispatchRequest, Dispatcher,
    DispatcherConfig, Epoch, Expect, InboxListed, Incarnation, JobId, JobLimits, JobRecord, Kept, KindName,
    ObservedJob, ProcessOutcome, RequestId, SchedulerCommand, SeriesId, SnapshotId, SubmitAnswer, WorkerId,
    WriteAnswer,
};

pub(crate) type Dispatching = Dispatcher<Candidates>;

/// One incarnation of the process that gives out jobs.
pub(crate) struct JobDispatch {
    pub(crate) part: Part<Dispatching>,
    pub(crate) scheduler: Part<Scheduling>,
    /// The instance of the process.
    pub(crate) instance: u64,
    epoch: Epoch,
    pub(crate) ready: bool,
    /// The workers as last told.
    known: Option<SnapshotId>,
    /// Whether its own node has listed the workers, and whether that list is complete.
    listed: Option<bool>,
    /// The scheduler's submission under way.
    pub(crate) round: Option<Submission>,
    by_hand: BTreeMap<u64, JobId>,
    pub(crate) tokens: u64,
}

impl Played for Dispatching {
    const NAME: PartName = PartName::Dispatcher;

    fn part(world: &mut World, who: Who) -> Option<&mut Part<Dispatching>> {
        Some(&mut world.dispatch_mut(who)?.part)
    }

    fn before(world: &mut World, who: Who) -> bool {
        world.still_dispatches(who) && world.tell_workers(who)
    }

    fn op(_: &mut World, _: Who, _: RequestId, request: &DispatchRequest) -> Option<Op> {
        Some(match request {
            DispatchRequest::Ledger(part, request) => {
                Op::document(Key::Ledger(*part), request, |stamp, body| Value::Ledger(stamp, body.clone()))
            }
            DispatchRequest::Inbox(worker, request) => {
                let key = Key::Inbox(worker.clone());
                Op::document(key, request, |stamp, body| Value::Inbox(stamp, body.clone()))
            }
            DispatchRequest::ListInboxes => Op::List(Folder::Inboxes),
            DispatchRequest::Orders(request) => {
                Op::document(Key::Orders, request, |stamp, body| Value::Orders(stamp, body.clone()))
            }
            DispatchRequest::HistoryHead(request) => {
                Op::document(Key::HistoryHead, request, |stamp, body| Value::HistoryHead(stamp, body.clone()))
            }
            DispatchRequest::HistoryPart(part, request) => {
                let key = Key::HistoryPart(*part);
                Op::document(key, request, |stamp, body| Value::HistoryPart(stamp, body.clone()))
            }
            DispatchRequest::Keep(name, kept) => {
                let (key, value) = (Key::Kept(Arc::clone(name)), Arc::new(Value::Kept(kept.clone())));
                Op::Put(key, value, Some(Expect::Absent))
            }
            DispatchRequest::Recall(name) => Op::Get(Key::Kept(Arc::clone(name)), None),
            DispatchRequest::Notices(request) => {
                Op::document(Key::Notices, request, |stamp, body| Value::Notices(stamp, body.clone()))
            }
            // Who takes notices is as far away as the store, and what befalls a request befalls this one, too.
            DispatchRequest::Deliver(notice) => {
                Op::Put(Key::Told(Arc::clone(&notice.id)), Arc::new(Value::Told(notice.clone())), None)
            }
        })
    }

    fn answer(_: &mut World, _: Who, request: DispatchRequest, said: Said) -> DispatchAnswer {
        match (request, said) {
            (DispatchRequest::Ledger(part, _), said) => {
                let answer = said.document(|value| value.ledger().map(|(stamp, doc)| (stamp, doc.clone())));
                DispatchAnswer::Ledger(part, answer)
            }
            (DispatchRequest::Inbox(worker, _), said) => {
                let answer = said.document(|value| value.inbox().map(|(stamp, doc)| (stamp, doc.clone())));
                DispatchAnswer::Inbox(worker, answer)
            }
            (DispatchRequest::Orders(_), said) => {
                let answer = said.document(|value| value.orders().map(|(stamp, doc)| (stamp, doc.clone())));
                DispatchAnswer::Orders(answer)
            }
            (DispatchRequest::ListInboxes, Said::Listed(Some(list))) => {
                let entry = |Listed { key, object }| {
                    let Key::Inbox(worker) = key else { return None };
                    Some(InboxListed { worker, version: Some(object.version), stamp: (object.write, 1) })
                };
                DispatchAnswer::Listed(Some(list.into_iter().filter_map(entry).collect()))
            }
            (DispatchRequest::HistoryHead(_), said) => {
                let body = |value: &Value| value.history_head().map(|(stamp, doc)| (stamp, doc.clone()));
                DispatchAnswer::HistoryHead(said.document(body))
            }
            (DispatchRequest::HistoryPart(part, _), said) => {
                let body = |value: &Value| value.history_part().map(|(stamp, doc)| (stamp, doc.clone()));
                DispatchAnswer::HistoryPart(part, said.document(body))
            }
            (DispatchRequest::Keep(..), Said::Written(WriteAnswer::Won(_))) => DispatchAnswer::Kept(true),
            (DispatchRequest::Deliver(_), Said::Written(WriteAnswer::Won(_))) => {
                DispatchAnswer::Delivered(true)
            }
            (DispatchRequest::Notices(_), said) => {
                let body = |value: &Value| value.notices().map(|(stamp, doc)| (stamp, doc.clone()));
                DispatchAnswer::Notices(said.document(body))
            }
            (DispatchRequest::Recall(_), Said::Found(Object { value, .. })) => {
                let rows =
                    if let Value::Kept(Kept::Rows(rows)) = &*value { Some(rows.clone()) } else { None };
                DispatchAnswer::Recalled(rows)
            }
            (request, _) => request.unanswered(),
        }
    }

    fn output(world: &mut World, who: Who, output: DispatchOutput) {
        let now = world.now;
        match output {
            DispatchOutput::Answered(token, answer) => {
                let Some(dispatch) = world.dispatch_mut(who) else { return };
                match dispatch.by_hand.remove(&token) {
                    Some(id) if matches!(answer, SubmitAnswer::Created | SubmitAnswer::Exists) => {
                        world.job_checks.promised.insert(id);
                    }
                    Some(_) => {}
                    None => world.job_answered(who, token, answer),
                }
            }
            DispatchOutput::Update(update) => {
                world.tell(who, || {
                    let late = update.late.map_or(String::new(), |kind| format!(", late {kind:?}"));
                    let (id, attempt, state) = (&update.id, update.attempt, update.state);
                    Noted::Work(format!("{id} attempt {attempt} is {state:?}{late}; {}", update.reason))
                });
                world.work_done.late += u64::from(update.late.is_some());
                world.job_checks.update(&update);
                world.report_jobs();
                let (schedule, open) = (update.series.schedule(), !update.state.is_final());
                let note = SchedulerCommand::Note { schedule, job: update.id, open };
                world.command::<Scheduling>(who, note);
            }
            DispatchOutput::Claimed { .. } | DispatchOutput::Changed | DispatchOutput::Noted(_) => {}
            DispatchOutput::Ended(_) => {
                let Who::Node(node) = who else { return };
                if let Some(dispatch) = world.nodes[node].dispatch.take() {
                    let (process, instance, outcome) = (0, dispatch.instance, ProcessOutcome::Failed);
                    world.run_later(now, who, Run::ProcessEnded { process, instance, outcome });
                }
            }
        }
    }

    /// Once it has read what a former leader left, its process is ready, and its scheduler may plan.
    fn after(world: &mut World, who: Who) {
        let now = world.now;
        let Some(dispatch) = world.dispatch_mut(who) else { return };
        let ready = dispatch.part.machine.is_ready();
        let was_ready = std::mem::replace(&mut dispatch.ready, ready);
        if ready && !was_ready {
            let (process, instance) = (0, dispatch.instance);
            let jobs = dispatch.part.machine.jobs().map(|job| ObservedJob {
                series: job.series.clone(),
                id: job.id.clone(),
                watermark: job.watermark,
                open: !job.state.is_final(),
            });
            let observe = SchedulerCommand::Observe(jobs.collect());
            world.run_later(now, who, Run::ProcessReady { process, instance });
            world.command::<Scheduling>(who, observe);
        }
    }
}

impl World {
    pub(crate) fn dispatch_mut(&mut self, who: Who) -> Option<&mut JobDispatch> {
        match who {
            Who::Node(node) => self.nodes[node].dispatch.as_mut(),
            Who::Worker(_) => None,
        }
    }

    pub(crate) fn begin_dispatch(&mut self, node: usize, epoch: Epoch, instance: u64) {
        let (who, incarnation) = (Who::Node(node), self.new_life());
        let config = DispatcherConfig {
            incarnation: Incarnation(incarnation),
            epoch,
            ..self.workload.dispatcher.clone()
        };
        self.nodes[node].dispatch = Some(JobDispatch {
            part: Part::new(Dispatcher::new(config, Candidates::default()), incarnation),
            scheduler: Part::new(Scheduling::default(), incarnation),
            instance,
            epoch,
            ready: false,
            known: None,
            listed: None,
            round: None,
            by_hand: BTreeMap::new(),
            tokens: 0,
        });
        self.put_rounds(node);
        self.feed::<Dispatching>(who, Input::Wake);
    }

    /// Whether the dispatcher's guard is live. Once leadership has ended it gives out nothing more, whatever it is told.
    pub(crate) fn still_dispatches(&mut self, who: Who) -> bool {
        let Who::Node(node) = who else { return false };
        let leads = self.nodes[node].led_epoch(self.now);
        self.nodes[node].dispatch.take_if(|dispatch| leads != Some(dispatch.epoch));
        self.nodes[node].dispatch.is_some()
    }

    /// Tells the dispatcher the workers, if its node knows more of them than before.
    fn tell_workers(&mut self, who: Who) -> bool {
        let Who::Node(node) = who else { return false };
        let Node { sweep, dispatch, .. } = &mut self.nodes[node];
        let (Some(sweep), Some(dispatch)) = (sweep, dispatch) else { return true };
        let Some(applied) = sweep.machine().known().applied() else { return true };
        let leads = sweep.term.as_ref().is_some_and(|term| term.epoch == dispatch.epoch);
        let liveness = sweep.machine().liveness().filter(|_| leads);
        let listed = liveness.and_then(|liveness| liveness.has_told()).or(dispatch.listed);
        if dispatch.listed == listed && dispatch.known == Some(applied) {
            return true;
        }
        (dispatch.listed, dispatch.known) = (listed, Some(applied));
        let workers = sweep.machine().known().workers();
        let list: BTreeMap<WorkerId, bool> = workers.map(|(id, entry)| (id.clone(), entry.active)).collect();
        // Only a leader that has listed the workers itself knows that one of them is gone.
        let by = Incarnation(dispatch.part.number);
        let gone = self.workers.iter().map(|worker| &worker.id);
        let gone = gone.filter(|id| listed.is_some() && list.get(*id) != Some(&true));
        self.job_checks.absent.extend(gone.map(|id| (by, id.clone())));
        let (whole, listed) = (listed == Some(true), listed.is_some());
        self.step::<Dispatching>(who, Input::Command(DispatchCommand::Workers { list, listed, whole }));
        self.is_up(who)
    }

    /// Asks the leader on this node to run a job.
    pub(crate) fn submit_by_hand(&mut self, node: usize, record: JobRecord) {
        let Some(dispatch) = &mut self.nodes[node].dispatch else { return };
        dispatch.tokens += 1;
        let token = dispatch.tokens;
        dispatch.by_hand.insert(token, record.id.clone());
        self.command::<Dispatching>(Who::Node(node), DispatchCommand::Submit(vec![(token, record)]));
    }
}

/// A job as submitted.
pub(crate) fn job(id: &str, series: &SeriesId, watermark: u64, limits: JobLimits) -> JobRecord {
    let (id, kind) = (JobId::new(id).expect("a valid id"), KindName::new("job").expect("a valid id"));
    JobRecord {
        watermark,
        payload: Arc::from(*b"x"),
        notify: true,
        ..JobRecord::new(id, series.clone(), kind, limits)
    }
}

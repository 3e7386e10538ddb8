//! A worker's claimer, and the runs it has started.

use crate::caller_mistakes::CallerMistake;
use crate::fault::FaultKind;
use crate::node::FenceState;
use crate::queue::Run;
use crate::shell::{Part, PartName, Played, Who};
use crate::store::{Key, Op, Said, Value};
use crate::trace::Noted;
use crate::world::World;
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::machine::Input;
use tenure_core::{
    Claimer, ClaimerAnswer, ClaimerCommand, ClaimerConfig, ClaimerOutput, ClaimerRequest, EntryState, Epoch,
    InboxDoc, Incarnation, JobId, Outcome, OutcomeKind, QueueName, Registration, RegistrationCommand,
    RequestId, Serves,
};

type Job = (JobId, u32);

/// A worker's claimer, as long as the worker has its id.
pub(crate) struct JobRuns {
    part: Part<Claimer>,
    /// What is running, the number that identifies the end of each run, and since when.
    running: BTreeMap<Job, (u64, u64)>,
    serves: Arc<Serves>,
    /// On a computer of its own: what it knows about leaders.
    fence: FenceState,
}

impl Played for Claimer {
    const NAME: PartName = PartName::Claimer;

    fn part(world: &mut World, who: Who) -> Option<&mut Part<Claimer>> {
        Some(&mut world.jobs_mut(who)?.part)
    }

    fn op(world: &mut World, who: Who, _: RequestId, request: &ClaimerRequest) -> Option<Op> {
        let Who::Worker(index) = who else { return None };
        let worker = world.workers[index].id.clone();
        Some(match request {
            ClaimerRequest::Inbox(request, _) => {
                let op = Op::document(Key::Inbox(worker), request, |stamp, body| {
                    Value::Inbox(stamp, body.clone())
                });
                let careless = world.mistake == Some(CallerMistake::ClaimUnconditional);
                if careless { op.unconditional() } else { op }
            }
            ClaimerRequest::Confirm => Op::Get(Key::Worker(worker), None),
        })
    }

    fn answer(world: &mut World, who: Who, request: ClaimerRequest, said: Said) -> ClaimerAnswer {
        let ClaimerRequest::Inbox(..) = request else {
            let life = world.life(who);
            let mine = |value: &Value| value.worker().is_some_and(|(stamp, _)| stamp.owner.0 == life);
            return ClaimerAnswer::Confirmed(matches!(said, Said::Found(object) if mine(&object.value)));
        };
        let mut fenced = BTreeSet::new();
        let answer = said.document(|value| {
            let (stamp, doc) = value.inbox()?;
            fenced = world.fence_entries(who, doc);
            Some((stamp, doc.clone()))
        });
        ClaimerAnswer::Inbox(answer, fenced)
    }

    fn output(world: &mut World, who: Who, output: ClaimerOutput) {
        let now = world.now;
        match output {
            ClaimerOutput::Run { id, dispatch, epoch, queue, .. } => {
                world.tell(who, || Noted::Worker(format!("runs {id}/{dispatch} of {epoch:?}")));
                world.work_done.runs += 1;
                let life = Incarnation(world.life(who));
                let served = world.jobs_mut(who).is_some_and(|jobs| jobs.serves.takes_queue(&queue));
                world.job_checks.ran(&id, dispatch, life, served);
                world.begin_run(who, (id, dispatch));
                world.check_queues();
                world.report_jobs();
            }
            ClaimerOutput::Cancel { id, dispatch, dropped } => {
                let Some(jobs) = world.jobs_mut(who) else { return };
                let job = (id, dispatch);
                if dropped {
                    jobs.running.remove(&job);
                } else if let Some((token, _)) = jobs.running.get(&job).copied() {
                    // It stops a moment after it is asked to.
                    let ended = Run::JobEnded { job, token, kind: OutcomeKind::Cancelled };
                    world.run_later(now + 20, who, ended);
                }
            }
            ClaimerOutput::Drained => {
                if let Who::Worker(index) = who {
                    world.workers[index].jobs = None;
                }
                world.command::<Registration>(who, RegistrationCommand::Stop);
            }
        }
    }
}

impl World {
    fn jobs_mut(&mut self, who: Who) -> Option<&mut JobRuns> {
        match who {
            Who::Worker(index) => self.workers[index].jobs.as_mut(),
            Who::Node(_) => None,
        }
    }

    /// The worker has its id: it begins to look for jobs.
    pub(crate) fn begin_jobs(&mut self, who: Who) {
        let Who::Worker(index) = who else { return };
        if !self.has_jobs {
            return;
        }
        let incarnation = Incarnation(self.workers[index].life);
        let mut serves = (*self.workload.claimer.serves).clone();
        // The limited queue only now and then.
        serves.queues.extend(self.rng.random_bool(0.3).then(QueueName::default));
        let serves = Arc::new(serves);
        let config =
            ClaimerConfig { incarnation, serves: Arc::clone(&serves), ..self.workload.claimer.clone() };
        let part = Part::new(Claimer::new(config), self.new_life());
        let before = self.workers[index].jobs.take();
        let fence = before.map_or_else(FenceState::default, |before| before.fence);
        self.workers[index].jobs = Some(JobRuns { part, running: BTreeMap::new(), serves, fence });
        self.feed::<Claimer>(who, Input::Wake);
    }

    fn check_queues(&mut self) {
        let World { workers, job_checks, now, .. } = self;
        let runs = workers.iter().filter_map(|worker| Some((&worker.id, worker.jobs.as_ref()?)));
        let runs = runs.flat_map(|(id, jobs)| {
            jobs.running.iter().map(|(job, (_, since))| (id.clone(), job.clone(), *since))
        });
        job_checks.running(*now, runs);
    }

    fn begin_run(&mut self, who: Who, job: Job) {
        let token = self.new_life();
        let fails = self.mix.has(FaultKind::JobFails);
        let (kind, longest) = match self.rng.random_range(0..20) {
            _ if self.mended => (OutcomeKind::Succeeded, 200),
            0..3 if fails => (OutcomeKind::Failed, 1500),
            3 if fails => (OutcomeKind::Partial, 1500),
            // Longer than its time limit.
            4 if fails => (OutcomeKind::Succeeded, 12_000),
            _ => (OutcomeKind::Succeeded, 3000),
        };
        let at = self.now + self.rng.random_range(5..longest);
        if kind != OutcomeKind::Succeeded || longest > 3000 {
            self.strike(FaultKind::JobFails, who);
        }
        let now = self.now;
        if let Some(jobs) = self.jobs_mut(who) {
            jobs.running.insert(job.clone(), (token, now));
            self.run_later(at, who, Run::JobEnded { job, token, kind });
        }
    }

    pub(crate) fn job_ended(&mut self, who: Who, job: Job, token: u64, kind: OutcomeKind) {
        let Some(jobs) = self.jobs_mut(who) else { return };
        if jobs.running.get(&job).is_some_and(|(current, _)| *current == token) {
            jobs.running.remove(&job);
            let (id, dispatch) = job;
            let result = Arc::from(format!("{id}/{dispatch}").as_bytes());
            let outcome = Outcome { kind, result };
            self.command::<Claimer>(who, ClaimerCommand::Ended { id, dispatch, outcome });
        }
    }

    /// The fence judges entries that nobody has claimed yet; returns those that it refuses.
    fn fence_entries(&mut self, who: Who, doc: &InboxDoc) -> BTreeSet<(JobId, u32, Epoch)> {
        let (rule, now) = (self.fence, self.time(who));
        let node = match who {
            Who::Worker(index) => self.workers[index].node,
            Who::Node(_) => None,
        };
        let fence = match node {
            Some(node) => &mut self.nodes[node].fence,
            None => match self.jobs_mut(who) {
                Some(jobs) => &mut jobs.fence,
                None => return BTreeSet::new(),
            },
        };
        let mut fenced = BTreeSet::new();
        for entry in doc.entries.iter().filter(|entry| entry.state == EntryState::Dispatched) {
            let age_ms = u64::try_from(now.wall_ms - entry.dispatched_at).ok();
            if !fence.judge(rule, now.at, entry.epoch, age_ms).is_accepted() {
                fenced.insert((entry.id.clone(), entry.dispatch, entry.epoch));
            }
        }
        self.fenced += fenced.len() as u64;
        fenced
    }
}

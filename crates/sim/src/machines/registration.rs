//! A worker and its registration, in the process of a node or on a computer of its own.

use crate::checks::name;
use crate::computer::Computer;
use crate::kind::Kind;
use crate::machines::claimer::JobRuns;
use crate::shell::{Part, PartName, Played, Who};
use crate::store::{Key, Op, Said, Value, WorkerObject};
use crate::trace::Noted;
use crate::world::World;
use rand::RngExt;
use tenure_core::document::{DocumentAnswer, DocumentRequest};
use tenure_core::{
    Claimer, ClaimerCommand, Incarnation, NodeId, PluginName, RegisteredBy, Registration,
    RegistrationCommand, RegistrationConfig, RegistrationEnd, RegistrationEvent, RegistrationOutput,
    RequestId, WorkerDetails, WorkerId,
};

/// One worker process.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) details: WorkerDetails,
    pub(crate) heartbeat_ms: u64,
    /// The node whose process it shares.
    pub(crate) node: Option<usize>,
    /// Unless it shares that of a node.
    pub(crate) computer: Computer,
    pub(crate) registration: Part<Registration>,
    /// While it has its id, if leaders give out jobs.
    pub(crate) jobs: Option<JobRuns>,
    pub(crate) life: u64,
    pub(crate) alive: bool,
    /// It thinks it has the id.
    pub(crate) registered: bool,
    pub(crate) ended: bool,
    /// Another process that the answer handled last showed in its place.
    rival: Option<Incarnation>,
    pub(crate) sent: [u64; Kind::COUNT],
}

impl Worker {
    pub(crate) fn is_working(&self) -> bool {
        self.alive && !self.ended
    }

    /// Its requests for jobs.
    pub(crate) fn job_requests(&self) -> u64 {
        self.sent[Kind::Look as usize] + self.sent[Kind::JobWrite as usize]
    }

    fn new_registration(&self, life: u64) -> Part<Registration> {
        let (heartbeat_ms, pod) = (self.heartbeat_ms, self.details.pod.clone());
        let config = RegistrationConfig { heartbeat_ms, incarnation: Incarnation(life), pod };
        Part::new(Registration::new(config), life)
    }
}

impl Played for Registration {
    const NAME: PartName = PartName::Registration;

    fn part(world: &mut World, who: Who) -> Option<&mut Part<Registration>> {
        let Who::Worker(index) = who else { return None };
        let worker = &mut world.workers[index];
        worker.is_working().then_some(&mut worker.registration)
    }

    fn op(world: &mut World, who: Who, _: RequestId, request: &DocumentRequest<RegisteredBy>) -> Option<Op> {
        let worker = world.worker(who);
        Some(Op::document(Key::Worker(worker.id.clone()), request, |stamp, _| {
            let (heartbeat_ms, details) = (worker.heartbeat_ms, worker.details.clone());
            Value::Worker(stamp, WorkerObject { heartbeat_ms, details })
        }))
    }

    fn answer(
        world: &mut World,
        who: Who,
        _: DocumentRequest<RegisteredBy>,
        said: Said,
    ) -> DocumentAnswer<RegisteredBy> {
        let worker = world.worker(who);
        let (life, rival) = (worker.life, &mut worker.rival);
        said.document(|value| {
            let (stamp, WorkerObject { heartbeat_ms, details }) = value.worker()?;
            *rival = Some(stamp.owner).filter(|owner| owner.0 != life);
            Some((stamp, RegisteredBy { pod: details.pod.clone(), heartbeat_ms: *heartbeat_ms, beats: 0 }))
        })
    }

    fn output(world: &mut World, who: Who, output: RegistrationOutput) {
        match output {
            RegistrationOutput::Event(event) => {
                world.tell(who, || Noted::Worker(format!("{event:?}")));
                if event == RegistrationEvent::Registered {
                    world.worker(who).registered = true;
                    world.begin_jobs(who);
                }
            }
            RegistrationOutput::Ended(end) => {
                world.tell(who, || Noted::Worker(format!("ends: {end:?}")));
                let worker = world.worker(who);
                (worker.registered, worker.ended, worker.jobs) = (false, true, None);
                let (id, own) = (worker.id.clone(), worker.life);
                let by = match &end {
                    RegistrationEnd::Superseded { incarnation, .. }
                    | RegistrationEnd::Refused { incarnation, .. } => *incarnation,
                    RegistrationEnd::Deregistered | RegistrationEnd::Unreadable => return,
                };
                if by.0 == own || !world.worker_checks.wrote(&id, by.0) {
                    world.violated(name::ID_LOST_TO_ANOTHER, || {
                        format!("{id} of life {own} ends with {end:?}, and nobody else has the id")
                    });
                }
            }
        }
    }

    fn after(world: &mut World, who: Who) {
        let worker = world.worker(who);
        let (id, own) = (worker.id.clone(), worker.life);
        if let Some(rival) = worker.rival.take().filter(|_| worker.registered) {
            world.violated(name::ID_GIVEN_UP, || {
                format!("{id} of life {own} has seen life {} in its place, and goes on", rival.0)
            });
        }
    }
}

impl World {
    fn worker(&mut self, who: Who) -> &mut Worker {
        match who {
            Who::Worker(index) => &mut self.workers[index],
            Who::Node(_) => unreachable!("a node is no worker"),
        }
    }

    /// Adds a worker process that starts now.
    pub(crate) fn add_worker(&mut self, id: &WorkerId, node: Option<usize>, terms: (u64, u64), rate: u64) {
        let index = self.workers.len();
        let (heartbeat_ms, timeout_ms) = terms;
        let pod = NodeId::new(&format!("pod-{index}")).expect("a valid id");
        let plugin_type = PluginName::new("queue").expect("a valid id");
        let config = RegistrationConfig { heartbeat_ms, incarnation: Incarnation(0), pod: pod.clone() };
        self.workers.push(Worker {
            id: id.clone(),
            details: WorkerDetails { plugin_type, pod, timeout_ms },
            heartbeat_ms,
            node,
            computer: Computer::new(self.now, rate),
            registration: Part::new(Registration::new(config), 0),
            jobs: None,
            life: 0,
            alive: false,
            registered: false,
            ended: true,
            rival: None,
            sent: [0; Kind::COUNT],
        });
        self.begin_worker(index);
    }

    /// Starts a new life of a worker that is dead or has ended.
    pub(crate) fn begin_worker(&mut self, index: usize) {
        let life = self.new_life();
        let worker = &mut self.workers[index];
        worker.registration = worker.new_registration(life);
        (worker.life, worker.alive, worker.computer.paused) = (life, true, false);
        (worker.registered, worker.ended, worker.rival, worker.jobs) = (false, false, None, None);
        self.command::<Registration>(Who::Worker(index), RegistrationCommand::Start);
    }

    pub(crate) fn crash_worker(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        (worker.alive, worker.registered, worker.computer.paused) = (false, false, false);
        worker.jobs = None;
        self.tell(Who::Worker(index), || Noted::Crashed);
    }

    /// The workers on a node share its fate.
    pub(crate) fn workers_on(&self, node: usize) -> impl Iterator<Item = usize> {
        (0..self.workers.len()).filter(move |index| self.workers[*index].node == Some(node))
    }

    pub(crate) fn stop_worker(&mut self, index: usize) {
        let who = Who::Worker(index);
        self.tell(who, || Noted::Worker("leaves".to_owned()));
        // A worker in a hurry does not finish what it has.
        if self.workers[index].jobs.is_some() && self.rng.random_bool(0.6) {
            self.command::<Claimer>(who, ClaimerCommand::Drain);
        } else {
            self.command::<Registration>(who, RegistrationCommand::Stop);
        }
    }
}

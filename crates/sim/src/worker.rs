//! A simulated worker: the production registration, on a node or on a machine of its own.

use crate::check::name;
use crate::clock::Clock;
use crate::fault::FaultKind;
use crate::node::Fate;
use crate::queue::Happening;
use crate::wire::{Ask, Party};
use crate::world::World;
use std::collections::VecDeque;
use tenure_core::document::{DocumentAnswer, Read};
use tenure_core::machine::{Answer, Effect, In, Input, Machine, Now, Out};
use tenure_core::{
    Incarnation, Registration, RegistrationCommand, RegistrationConfig, RegistrationEnd, RegistrationEvent,
    RegistrationOutput, RequestId, WorkerDetails,
};
use tenure_core::{NodeId, PluginName, WorkerId};

/// One worker process.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) details: WorkerDetails,
    pub(crate) heartbeat_ms: u64,
    /// The node whose process it shares.
    pub(crate) host: Option<usize>,
    pub(crate) machine: Registration,
    pub(crate) life: u64,
    pub(crate) alive: bool,
    /// If it has a machine of its own: that machine's clock and link.
    pub(crate) clock: Clock,
    pub(crate) paused: bool,
    pub(crate) cut_out: bool,
    pub(crate) cut_in: bool,
    pub(crate) burst: u32,
    pub(crate) faults: VecDeque<Fate>,
    held: Vec<In<Registration>>,
    flight: Option<RequestId>,
    token: u64,
    /// It thinks it has the id.
    pub(crate) registered: bool,
    pub(crate) ended: bool,
    /// Writes and other requests.
    pub(crate) sent: (u64, u64),
}

impl World {
    /// Adds a worker process that starts now.
    pub(crate) fn add_worker(
        &mut self,
        id: &WorkerId,
        host: Option<usize>,
        terms: (u64, u64),
        rate: u64,
    ) -> usize {
        let index = self.workers.len();
        let (heartbeat_ms, timeout_ms) = terms;
        let pod = NodeId::new(&format!("pod-{index}")).expect("a valid id");
        let plugin_type = PluginName::new("queue").expect("a valid id");
        let config = RegistrationConfig { heartbeat_ms, incarnation: Incarnation(0), pod: pod.clone() };
        let details = WorkerDetails { plugin_type, pod, timeout_ms };
        self.workers.push(Worker {
            id: id.clone(),
            details,
            heartbeat_ms,
            host,
            machine: Registration::new(config),
            life: 0,
            alive: false,
            clock: Clock::new(self.now, rate),
            paused: false,
            cut_out: false,
            cut_in: false,
            burst: 0,
            faults: VecDeque::new(),
            held: Vec::new(),
            flight: None,
            token: 0,
            registered: false,
            ended: true,
            sent: (0, 0),
        });
        self.begin_worker(index);
        index
    }

    /// Starts a new life of a worker that is dead or has ended.
    pub(crate) fn begin_worker(&mut self, index: usize) {
        let life = self.new_life();
        let worker = &mut self.workers[index];
        let config = RegistrationConfig {
            heartbeat_ms: worker.heartbeat_ms,
            incarnation: Incarnation(life),
            pod: worker.details.pod.clone(),
        };
        worker.machine = Registration::new(config);
        (worker.life, worker.alive, worker.paused) = (life, true, false);
        (worker.registered, worker.ended, worker.flight) = (false, false, None);
        worker.held.clear();
        self.feed_worker(index, Input::Command(RegistrationCommand::Start));
    }

    pub(crate) fn crash_worker(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        (worker.alive, worker.registered, worker.paused) = (false, false, false);
        self.end_hand(index);
        self.say_worker(index, || "dead".to_owned());
    }

    /// The workers on a node share its fate.
    pub(crate) fn workers_on(&self, node: usize) -> Vec<usize> {
        if self.workers.is_empty() {
            return Vec::new();
        }
        (0..self.workers.len()).filter(|index| self.workers[*index].host == Some(node)).collect()
    }

    pub(crate) fn worker_clock(&self, index: usize) -> &Clock {
        let worker = &self.workers[index];
        worker.host.map_or(&worker.clock, |host| &self.nodes[host].clock)
    }

    pub(crate) fn worker_stands(&self, index: usize) -> bool {
        let worker = &self.workers[index];
        worker.host.map_or(worker.paused, |host| self.nodes[host].paused)
    }

    pub(crate) fn worker_cut_in(&self, index: usize) -> bool {
        let worker = &self.workers[index];
        worker.host.map_or(worker.cut_in, |host| self.nodes[host].cut_in)
    }

    pub(crate) fn pause_worker(&mut self, index: usize, ms: u64) {
        self.workers[index].paused = true;
        let (at, life) = (self.now + ms, self.workers[index].life);
        self.say_worker(index, || format!("stands still for {ms} ms"));
        self.schedule(at, index, life, Happening::WorkerResume);
    }

    pub(crate) fn resume_worker(&mut self, index: usize) {
        self.workers[index].paused = false;
        for input in std::mem::take(&mut self.workers[index].held) {
            self.feed_worker(index, input);
        }
        self.rearm_worker(index);
        self.resume_hand(index);
    }

    pub(crate) fn stop_worker(&mut self, index: usize) {
        self.say_worker(index, || "leaves".to_owned());
        // A worker in a hurry does not finish what it has.
        let orderly = self.staffed && rand::RngExt::random_bool(&mut self.rng, 0.6);
        if !orderly || !self.drain_hand(index) {
            self.feed_worker(index, Input::Command(RegistrationCommand::Stop));
        }
    }

    pub(crate) fn rearm_worker(&mut self, index: usize) {
        self.rearm_hand(index);
        let Some(at) = self.workers[index].machine.wake_at() else { return };
        let Some(when) = self.worker_clock(index).when(at) else { return };
        let worker = &mut self.workers[index];
        worker.token += 1;
        let (life, token) = (worker.life, worker.token);
        self.schedule(when, index, life, Happening::WorkerWake { token });
    }

    pub(crate) fn wake_worker(&mut self, index: usize, token: u64) {
        if self.workers[index].token == token {
            self.feed_worker(index, Input::Wake);
        }
    }

    pub(crate) fn answer_worker(&mut self, index: usize, id: RequestId, answer: Answer<Registration>) {
        let worker = &mut self.workers[index];
        if worker.flight == Some(id) {
            worker.flight = None;
            self.feed_worker(index, Input::Answer(id, answer));
        }
    }

    pub(crate) fn feed_worker(&mut self, index: usize, input: In<Registration>) {
        if !self.workers[index].alive || self.workers[index].ended {
            return;
        }
        if self.worker_stands(index) {
            self.workers[index].held.push(input);
            return;
        }
        self.steps += 1;
        let local = self.worker_clock(index).local(self.now);
        let own = self.workers[index].life;
        let rival = match &input {
            Input::Answer(_, DocumentAnswer::Read(Read::Found { stamp, .. })) => {
                Some(stamp.owner).filter(|incarnation| incarnation.0 != own)
            }
            Input::Answer(..) | Input::Wake | Input::Command(_) => None,
        };
        let mut effects = Vec::new();
        self.workers[index].machine.handle(Now { at: local, wall_ms: 0 }, input, &mut effects);
        for effect in effects {
            self.trace.worker(self.now, index, &effect);
            self.carry_worker(index, effect);
        }
        let (now, worker) = (self.now, &self.workers[index]);
        if let Some(rival) = rival.filter(|_| worker.registered) {
            let id = worker.id.clone();
            self.judge.violated(now, name::ID_GIVEN_UP, || {
                format!("{id} of life {own} has seen life {} in its place, and goes on", rival.0)
            });
        }
        self.rearm_worker(index);
    }

    fn carry_worker(&mut self, index: usize, effect: Out<Registration>) {
        let now = self.now;
        match effect {
            Effect::Request(id, request) => {
                let worker = &mut self.workers[index];
                worker.flight = Some(id);
                self.ask(Party::Worker(index), id.0, Ask::Own(request));
            }
            Effect::Output(RegistrationOutput::Event(event)) => {
                self.say_worker(index, || format!("{event:?}"));
                if event == RegistrationEvent::Registered {
                    self.workers[index].registered = true;
                    self.begin_hand(index);
                }
            }
            Effect::Output(RegistrationOutput::Ended(end)) => {
                self.say_worker(index, || format!("ends: {end:?}"));
                let worker = &mut self.workers[index];
                (worker.registered, worker.ended) = (false, true);
                self.hands.remove(&index);
                let (id, own) = (worker.id.clone(), worker.life);
                let by = match &end {
                    RegistrationEnd::Superseded { incarnation, .. }
                    | RegistrationEnd::Refused { incarnation, .. } => *incarnation,
                    RegistrationEnd::Deregistered | RegistrationEnd::Unreadable => return,
                };
                if by.0 == own || !self.watch.wrote(&id, by.0) {
                    self.judge.violated(now, name::ID_LOST_TO_ANOTHER, || {
                        format!("{id} of life {own} ends with {end:?}, and nobody else has the id")
                    });
                }
            }
        }
    }

    /// A worker's write is about to land.
    pub(crate) fn check_worker_landing(&mut self, index: usize, life: u64, sent: u64) {
        let now = self.now;
        let id = self.workers[index].id.clone();
        let Some(object) = self.registry.objects.get(&id) else { return };
        let Some(there) = object.written.as_ref().filter(|there| there.stamp.owner.0 != life) else { return };
        let clock = self.worker_clock(index);
        if clock.has_changed() {
            return;
        }
        let waited = sent.saturating_sub(object.landed) * clock.rate() / 1000 + 2;
        let due = there.heartbeat_ms * 5 / 2;
        if waited < due {
            let other = there.stamp.owner.0;
            self.judge.violated(now, name::ID_WATCHED, || {
                format!("{id}: life {life} takes over from life {other} after {waited} of {due} ms")
            });
        }
    }

    pub(crate) fn say_worker(&mut self, index: usize, what: impl FnOnce() -> String) {
        let (now, worker) = (self.now, &self.workers[index]);
        self.trace.say(now, || format!("{} of life {}: {}", worker.id, worker.life, what()));
    }

    pub(crate) fn strike_worker(&mut self, kind: FaultKind, index: usize) {
        self.struck.add(kind);
        self.say_worker(index, || format!("!! {kind}"));
    }
}

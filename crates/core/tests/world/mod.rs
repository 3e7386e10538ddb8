//! A small world for the core: nodes, one simulated store, virtual time, and faults. Everything is deterministic.
//!
//! For transcripts and edges told by hand. Random schedules of the election live in `crates/sim`: one random world has everything
//! together. SeatChoice, workers, processes and jobs also have small random worlds beside this one, which know no other crate and
//! run with the core's own tests.
#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a world of tests may end by panicking, and talks on stdout"
)]

pub mod script;
mod store;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
pub use store::SimStore;
use tenure_core::*;

/// What most stories are told with: a renewal a second, and a hold as long as the unit of the lease.
pub fn round_numbers() -> Config {
    Config { heartbeat_ms: 1000, hold_factor_permille: 1000, ..Config::default() }
}

/// The numbers of a preset, for stories that show what users are promised. Answers with its request timeout.
pub fn preset(name: &str, config: &mut Config) -> u64 {
    let (heartbeat_ms, lease_ms, election_interval_ms, takeover_delay_ms) = match name {
        "default" => (1500, 2500, 1000, 1000),
        "thrifty" => (9000, 15_000, 5000, 1000),
        "fast" => (300, 500, 250, 100),
        other => panic!("no preset {other:?}"),
    };
    let terms = Config { heartbeat_ms, lease_ms, election_interval_ms, takeover_delay_ms, ..config.clone() };
    *config = Config { hold_factor_permille: 2000, expiry_factor_permille: 3000, ..terms };
    config.hold_ms() * 3 / 10
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The request never arrives.
    LoseRequest,
    /// The request takes effect; its answer never arrives.
    LoseAnswer,
    /// The request takes effect this much later, long after its sender gave up.
    Late(u64),
    /// The request takes effect; its answer is the refusal of the client's own retry.
    Echo,
    /// Answered at once: not reached.
    Unavailable,
    /// Answered at once: refused.
    Denied,
    /// Request and answer together take this long.
    Slow(u64),
    /// The request takes effect at once; its answer takes this long.
    SlowAnswer(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Claim,
    Renew,
    Vacate,
    Read,
    Presence,
    List,
    Probe,
    Leave,
    Any,
}

pub fn kind_of(request: &Request) -> Kind {
    match request {
        Request::Probe => Kind::Probe,
        Request::ReadSeat { .. } => Kind::Read,
        Request::WriteSeat { seat, .. } if seat.state == SeatState::Vacant => Kind::Vacate,
        Request::WriteSeat { seat, .. } if seat.renewals == 0 => Kind::Claim,
        Request::WriteSeat { .. } => Kind::Renew,
        Request::WritePresence { .. } => Kind::Presence,
        Request::RemovePresence => Kind::Leave,
        Request::ListNodes => Kind::List,
    }
}

pub struct Node {
    pub core: Coordinator,
    pub alive: bool,
    pub paused: bool,
    pub cut: bool,
    /// Processes ignore the request to stop.
    pub stuck: bool,
    /// Processes take all the time they are given to stop.
    pub dawdles: bool,
    pub faults: VecDeque<(Kind, Fault)>,
    /// Local clock: thousandths of the world's speed.
    pub rate: u64,
    config: Config,
    life: u64,
    held_up: Vec<Input>,
    /// Processes that run, or were told to stop and have not: until when they may act.
    acting: Option<(Epoch, Time)>,
    outstanding: BTreeSet<RequestId>,
    pub sent: BTreeMap<&'static str, u64>,
}

enum Happening {
    Wake {
        token: WakeToken,
    },
    Land {
        id: RequestId,
        request: Request,
        answer_in: Option<u64>,
        echo: bool,
    },
    Answer {
        id: RequestId,
        answer: Answer,
    },
    ProcessesStopped {
        epoch: Epoch,
    },
    /// The mark of somebody outside arrives at the store.
    Mark {
        seat: Seat,
        expect: Expect,
    },
}

#[derive(Clone, Debug)]
pub enum Note {
    Event(Event),
    Request(Request),
    Started(Epoch),
    Stopping(Epoch),
    Stopped(StopCause),
    /// Somebody outside asks the leader of this epoch to step down; whether the mark is on the seat.
    Marked(Epoch, bool),
}

pub struct World {
    pub now: u64,
    pub nodes: BTreeMap<String, Node>,
    pub store: SimStore,
    pub latency_ms: u64,
    /// How long a node waits for an answer before it calls the outcome unknown.
    pub timeout_ms: u64,
    pub notes: Vec<(u64, String, Note)>,
    pub violations: Vec<String>,
    queue: BTreeMap<(u64, u64), (String, u64, Happening)>,
    sequence: u64,
    lives: u64,
    leaders: BTreeMap<Epoch, (String, u64)>,
}

impl World {
    pub fn new() -> World {
        World {
            now: 0,
            nodes: BTreeMap::new(),
            store: SimStore::default(),
            latency_ms: 20,
            timeout_ms: 750,
            notes: Vec::new(),
            violations: Vec::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            lives: 0,
            leaders: BTreeMap::new(),
        }
    }

    /// A new life of a node, at rest.
    pub fn add(&mut self, name: &str, config: Config) {
        self.lives += 1;
        let me = Holder { node: NodeId::new(id_of(name)).unwrap(), incarnation: Incarnation(self.lives) };
        let old = self.nodes.get(name);
        let (cut, rate, dawdles) = old.map_or((false, 1000, false), |old| (old.cut, old.rate, old.dawdles));
        let node = Node {
            core: Coordinator::new(config.clone(), me),
            alive: true,
            paused: false,
            cut,
            stuck: false,
            dawdles,
            faults: VecDeque::new(),
            rate,
            config,
            life: self.lives,
            held_up: Vec::new(),
            acting: None,
            outstanding: BTreeSet::new(),
            sent: BTreeMap::new(),
        };
        self.nodes.insert(name.to_owned(), node);
    }

    pub fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.get_mut(name).unwrap_or_else(|| panic!("no node {name}"))
    }

    pub fn crash(&mut self, name: &str) {
        self.node(name).alive = false;
    }

    pub fn restart(&mut self, name: &str, random: u64) {
        let config = self.node(name).config.clone();
        self.add(name, config);
        self.input(name, Input::Start { random });
    }

    pub fn resume(&mut self, name: &str) {
        let node = self.node(name);
        node.paused = false;
        for input in std::mem::take(&mut node.held_up) {
            self.input(name, input);
        }
    }

    pub fn unstuck(&mut self, name: &str) {
        self.node(name).stuck = false;
        if let Some((epoch, _)) = self.nodes[name].acting {
            self.input(name, Input::ProcessesStopped { epoch });
        }
    }

    /// Somebody outside reads the seat now and marks it, if it is held; the write arrives this much later, on the
    /// condition that the seat is still the one that was read. Says whether there was anybody to ask.
    pub fn mark(&mut self, delay_ms: u64) -> bool {
        let Some(object) = &self.store.seat else { return false };
        let store::Stored::Seat(seat) = &object.stored else { return false };
        if seat.state == SeatState::Vacant {
            return false;
        }
        self.lives += 1;
        let nonce = Nonce { incarnation: Incarnation(self.lives), sequence: 1 };
        let seat = Seat { nonce, step_down: true, ..seat.clone() };
        let expect = Expect::Version(object.version.clone());
        self.schedule(self.now + delay_ms, "operator".to_owned(), 0, Happening::Mark { seat, expect });
        true
    }

    /// Runs until the given time, everything due included.
    pub fn run_until(&mut self, end: u64) {
        while let Some((&(at, sequence), _)) = self.queue.first_key_value() {
            if at > end {
                break;
            }
            let (name, life, happening) = self.queue.remove(&(at, sequence)).unwrap();
            self.now = at;
            self.happen(name, life, happening);
        }
        self.now = end;
    }

    fn happen(&mut self, name: String, life: u64, happening: Happening) {
        match happening {
            Happening::Land { id, request, answer_in, echo } => {
                // A request on the wire lands even if its sender is dead by now.
                let answer = self.store.apply(self.now, id_of(&name), &request, &mut self.violations);
                let answer = if echo { Answer::SeatWritten(WriteAnswer::Lost) } else { answer };
                if let Some(delay) = answer_in {
                    self.schedule(self.now + delay, name, life, Happening::Answer { id, answer });
                }
            }
            Happening::Mark { seat, expect } => {
                let epoch = seat.epoch;
                let request = Request::WriteSeat { seat, expect };
                let answer = self.store.apply(self.now, &name, &request, &mut self.violations);
                let landed = matches!(answer, Answer::SeatWritten(WriteAnswer::Won(_)));
                self.note(&name, Note::Marked(epoch, landed));
            }
            Happening::Wake { token } => {
                if self.nodes[&name].life == life {
                    self.input(&name, Input::Wake(token));
                }
            }
            Happening::ProcessesStopped { epoch } => {
                if self.nodes[&name].life == life {
                    self.input(&name, Input::ProcessesStopped { epoch });
                }
            }
            Happening::Answer { id, answer } => {
                let node = self.node(&name);
                if node.life == life && node.outstanding.remove(&id) {
                    self.input(&name, Input::Answer { id, answer });
                }
            }
        }
    }

    pub fn input(&mut self, name: &str, input: Input) {
        let now = self.now;
        let node = self.node(name);
        if !node.alive {
            return;
        }
        if node.paused {
            node.held_up.push(input);
            return;
        }
        if let Input::ProcessesStopped { epoch } = &input {
            node.acting.take_if(|(acting, _)| acting == epoch);
        }
        let mut effects = Vec::new();
        node.core.step(Time(now * node.rate / 1000), input, &mut effects);
        for effect in effects {
            self.carry_out(name, effect);
        }
        self.check_beliefs();
    }

    fn carry_out(&mut self, name: &str, effect: Effect) {
        let (life, rate, stuck) = (self.nodes[name].life, self.nodes[name].rate, self.nodes[name].stuck);
        let global = |local: Time| (local.0 * 1000).div_ceil(rate);
        match effect {
            Effect::Request(id, request) => self.send(name, id, request),
            Effect::Wake { token, at } => {
                self.schedule(global(at), name.to_owned(), life, Happening::Wake { token });
            }
            Effect::StartProcesses { epoch, deadline } => {
                self.note(name, Note::Started(epoch));
                self.node(name).acting = Some((epoch, deadline));
                let leader = (name.to_owned(), life);
                if let Some(other) = self.leaders.insert(epoch, leader.clone())
                    && other != leader
                {
                    self.violations.push(format!("{epoch:?} led by {other:?} and by {leader:?}"));
                }
            }
            Effect::StopProcesses { epoch, by } => {
                self.note(name, Note::Stopping(epoch));
                if self.nodes[name].dawdles && !stuck {
                    let last_moment = global(by).saturating_sub(2);
                    self.schedule(last_moment, name.to_owned(), life, Happening::ProcessesStopped { epoch });
                } else if !stuck {
                    self.input(name, Input::ProcessesStopped { epoch });
                }
            }
            Effect::ExtendLease { epoch, deadline } => {
                self.node(name).acting =
                    Some((epoch, deadline)).filter(|_| self.nodes[name].acting.is_some());
            }
            Effect::Emit(event) => self.note(name, Note::Event(event)),
            Effect::Stopped(cause) => self.note(name, Note::Stopped(cause)),
        }
    }

    fn send(&mut self, name: &str, id: RequestId, request: Request) {
        let (now, latency, timeout) = (self.now, self.latency_ms, self.timeout_ms);
        self.note(name, Note::Request(request.clone()));
        let kind = kind_of(&request);
        let node = self.node(name);
        node.outstanding.insert(id);
        *node.sent.entry(kind_name(kind)).or_default() += 1;
        let life = node.life;
        let due = node.faults.iter().position(|(wanted, _)| *wanted == kind || *wanted == Kind::Any);
        let fault = due.and_then(|index| node.faults.remove(index)).map(|(_, fault)| fault);
        let fault = if node.cut { Some(Fault::LoseRequest) } else { fault };
        let no_answer = request.unanswered();
        let name = name.to_owned();
        let land = |world: &mut World, delay, answer_in| {
            let echo = fault == Some(Fault::Echo);
            let landing = Happening::Land { id, request: request.clone(), answer_in, echo };
            world.schedule(now + delay, name.clone(), life, landing);
        };
        let mut give_up = true;
        match fault {
            None | Some(Fault::Echo) => {
                land(self, latency / 2, Some(latency - latency / 2));
                give_up = latency >= timeout;
            }
            Some(Fault::Slow(ms)) => land(self, ms / 2, Some(ms - ms / 2)),
            Some(Fault::SlowAnswer(ms)) => land(self, latency / 2, Some(ms)),
            Some(Fault::LoseRequest) => {}
            Some(Fault::LoseAnswer) => land(self, latency / 2, None),
            Some(Fault::Late(ms)) => land(self, ms, None),
            Some(Fault::Unavailable) | Some(Fault::Denied) => {
                let answer = store::refusal(&request, fault == Some(Fault::Denied));
                self.schedule(now + latency, name.clone(), life, Happening::Answer { id, answer });
                give_up = false;
            }
        }
        if give_up {
            self.schedule(now + timeout, name, life, Happening::Answer { id, answer: no_answer });
        }
    }

    fn schedule(&mut self, at: u64, name: String, life: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), (name, life, happening));
    }

    fn note(&mut self, name: &str, note: Note) {
        self.notes.push((self.now, name.to_owned(), note));
    }

    /// Nodes that act, or believe they may. A running node believes it until it says otherwise; processes go on until
    /// they were seen to stop, but no longer than their deadline, which they check by themselves.
    pub fn believers(&self) -> Vec<String> {
        let believes = |node: &Node| {
            let local = Time(self.now * node.rate / 1000);
            let leads = !node.paused && node.core.lease().is_some();
            node.alive && (leads || node.acting.is_some_and(|(_, deadline)| local < deadline))
        };
        self.nodes.iter().filter(|(_, node)| believes(node)).map(|(name, _)| name.clone()).collect()
    }

    fn check_beliefs(&mut self) {
        let believers = self.believers();
        if believers.len() > 1 {
            self.violations.push(format!("t={}: {believers:?} all believe to lead", self.now));
        }
    }
}

/// The node id of a process: `pod-a@2` is a second process that runs under the id `pod-a`.
fn id_of(name: &str) -> &str {
    name.split_once('@').map_or(name, |(id, _)| id)
}

pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Claim => "claim",
        Kind::Renew => "renew",
        Kind::Vacate => "vacate",
        Kind::Read => "read",
        Kind::Presence => "presence",
        Kind::List => "list",
        Kind::Probe => "probe",
        Kind::Leave => "leave",
        Kind::Any => "any",
    }
}

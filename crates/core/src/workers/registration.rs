//! The registration: a worker's own side. It keeps one object fresh, and knows whether that object is still its own.
//!
//! Not promised: that nobody else ever works under the same id. Two processes are told apart as long as they see each other
//! on the store; a process that was paused learns of the other only with its next heartbeat.

mod io;

pub use io::{
    RegistrationAnswer, RegistrationEffect, RegistrationEnd, RegistrationEvent, RegistrationInput,
    RegistrationRequest, RemoveAnswer, WorkerFound, WorkerRead,
};

use crate::election::{Expect, RequestId, Version, WriteAnswer};
use crate::id::Incarnation;
use crate::mutants::Mutant;
use crate::time::Time;

/// How long another incarnation is watched before it counts as dead, in halves of its heartbeat. Registering is not refused
/// at once: after a crash the object is still there, and only a change tells the living from the dead.
const WATCH_HALVES: u64 = 5;

/// Longest heartbeat believed of another worker: an object with a wrong interval must not block an id for days.
const WATCHED_HEARTBEAT_MAX_MS: u64 = 600_000;

/// Most requests made to leave; after that the leader's retention has to clean up.
const LEAVE_REQUESTS_MAX: u32 = 4;

/// The parameters of a registration.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RegistrationConfig {
    /// How often the worker refreshes its object.
    pub heartbeat_ms: u64,
    /// This life of the worker; new every time it starts.
    pub incarnation: Incarnation,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    New,
    /// Wants the id and does not know what is there.
    Looking,
    /// Another incarnation has the id; is it alive?
    Watching {
        other: WorkerFound,
        until: Time,
    },
    /// Wants to write under this condition.
    Claiming {
        expect: Expect,
    },
    /// Has the id. Without a version, it must read the object first.
    Holding {
        version: Option<Version>,
    },
    /// Wants to leave; `mine` keeps what was last known.
    Leaving {
        check: bool,
        requests: u32,
    },
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Health {
    Fine,
    Unavailable,
    Denied,
}

/// Keeps one worker registered.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Registration {
    config: RegistrationConfig,
    phase: Phase,
    /// When the next step is due.
    due: Time,
    /// The cadence of the heartbeats, which a slow heartbeat does not shift.
    beat: Time,
    flight: Option<(RequestId, Time)>,
    requests: u64,
    sequence: u64,
    failures: u32,
    health: Health,
    /// Set while the object on the store belongs to this incarnation, as far as is known: when the confirming request was
    /// *sent*.
    mine: Option<Time>,
    registered: bool,
    unreadable_told: bool,
    stopping: bool,
}

impl Registration {
    /// A registration that has not begun.
    pub fn new(config: RegistrationConfig) -> Registration {
        Registration {
            config,
            phase: Phase::New,
            due: Time(0),
            beat: Time(0),
            flight: None,
            requests: 0,
            sequence: 0,
            failures: 0,
            health: Health::Fine,
            mine: None,
            registered: false,
            unreadable_told: false,
            stopping: false,
        }
    }

    /// When to send [`RegistrationInput::Wake`]; `None` while it waits for an answer, and at rest.
    pub fn wake_at(&self) -> Option<Time> {
        match self.phase {
            Phase::New | Phase::Ended => None,
            Phase::Looking
            | Phase::Watching { .. }
            | Phase::Claiming { .. }
            | Phase::Holding { .. }
            | Phase::Leaving { .. } => self.flight.is_none().then_some(self.due),
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Time, input: RegistrationInput, out: &mut Vec<RegistrationEffect>) {
        match input {
            RegistrationInput::Start => {
                if self.phase == Phase::New {
                    (self.phase, self.due, self.beat) = (Phase::Looking, now, now);
                }
            }
            RegistrationInput::Wake => {}
            RegistrationInput::Stop => self.stopping = true,
            RegistrationInput::Answer { id, answer } => {
                let Some((_, sent)) = self.flight.filter(|(flight, _)| *flight == id) else { return };
                self.flight = None;
                match answer {
                    RegistrationAnswer::Read(read) => self.on_read(now, sent, read, out),
                    RegistrationAnswer::Written(written) => self.on_written(now, sent, written, out),
                    RegistrationAnswer::Removed(removed) => self.on_removed(now, removed, out),
                }
            }
        }
        self.begin_leaving(now, out);
        self.advance(now, out);
    }

    fn end(&mut self, end: RegistrationEnd, out: &mut Vec<RegistrationEffect>) {
        self.phase = Phase::Ended;
        out.push(RegistrationEffect::Ended(end));
    }

    /// A stop takes effect between two requests: a request in flight may still create the object.
    fn begin_leaving(&mut self, now: Time, out: &mut Vec<RegistrationEffect>) {
        let under_way = match self.phase {
            Phase::Leaving { .. } | Phase::Ended => return,
            // A write whose answer was lost may have created the object.
            Phase::New
            | Phase::Looking
            | Phase::Watching { .. }
            | Phase::Claiming { .. }
            | Phase::Holding { .. } => self.sequence > 0,
        };
        if !self.stopping || self.flight.is_some() {
            return;
        }
        if !under_way {
            return self.end(RegistrationEnd::Deregistered, out);
        }
        // A removal has no condition: look first, unless the last write is recent and known to be there.
        let known = matches!(self.phase, Phase::Holding { version: Some(_) });
        let blind = Mutant::WorkerRemovesBlindly.on();
        let check = !(known && self.is_certain(now) || blind);
        (self.phase, self.due) = (Phase::Leaving { check, requests: 0 }, now);
    }

    /// Nobody can take the id within a heartbeat; after a longer pause of this process, the old knowledge no longer counts.
    fn is_certain(&self, now: Time) -> bool {
        self.mine.is_some_and(|at| now.since(at) <= self.config.heartbeat_ms)
    }

    fn advance(&mut self, now: Time, out: &mut Vec<RegistrationEffect>) {
        if self.flight.is_some() || now < self.due {
            return;
        }
        let request = match &mut self.phase {
            Phase::New | Phase::Ended => return,
            Phase::Looking => RegistrationRequest::Read { unless: None },
            Phase::Watching { other, .. } => {
                RegistrationRequest::Read { unless: Some(other.version.clone()) }
            }
            Phase::Claiming { expect } => {
                self.sequence += 1;
                RegistrationRequest::Write { sequence: self.sequence, expect: expect.clone() }
            }
            Phase::Holding { version: None } => RegistrationRequest::Read { unless: None },
            Phase::Holding { version: Some(version) } => {
                self.sequence += 1;
                let expect = Expect::Version(version.clone());
                RegistrationRequest::Write { sequence: self.sequence, expect }
            }
            Phase::Leaving { requests, .. } if *requests >= LEAVE_REQUESTS_MAX => {
                return self.end(RegistrationEnd::Deregistered, out);
            }
            Phase::Leaving { check, requests } => {
                *requests += 1;
                match check {
                    true => RegistrationRequest::Read { unless: None },
                    false => RegistrationRequest::Remove,
                }
            }
        };
        self.requests += 1;
        let id = RequestId(self.requests);
        self.flight = Some((id, now));
        out.push(RegistrationEffect::Request(id, request));
    }

    fn on_read(&mut self, now: Time, sent: Time, read: WorkerRead, out: &mut Vec<RegistrationEffect>) {
        match &read {
            WorkerRead::Unavailable => return self.trouble(now, Health::Unavailable, out),
            WorkerRead::Denied => return self.trouble(now, Health::Denied, out),
            WorkerRead::Found(_) | WorkerRead::Unchanged | WorkerRead::Absent | WorkerRead::Unreadable => {}
        }
        // Only a successful write clears a refusal. Otherwise credentials that may read but not write would make the health
        // flap.
        if self.health == Health::Unavailable {
            self.mended(out);
        }
        self.failures = 0;
        match (self.phase.clone(), read) {
            (Phase::Leaving { requests, .. }, WorkerRead::Found(found)) => {
                if found.incarnation != self.config.incarnation {
                    return self.end(RegistrationEnd::Deregistered, out);
                }
                self.mine = Some(sent);
                (self.phase, self.due) = (Phase::Leaving { check: !self.is_certain(now), requests }, now);
            }
            (Phase::Leaving { .. }, _) => self.end(RegistrationEnd::Deregistered, out),
            (_, WorkerRead::Absent) => {
                // Nobody has the id. The retention or an operator may have removed the object.
                (self.phase, self.due, self.mine) = (Phase::Claiming { expect: Expect::Absent }, now, None);
                self.unreadable_told = false;
            }
            (_, WorkerRead::Found(found)) if found.incarnation == self.config.incarnation => {
                self.adopt(now, sent, found, out);
            }
            (Phase::Watching { other, .. }, WorkerRead::Found(found)) => {
                // It changed while it was watched: somebody is alive, the watched process or one that was quicker.
                debug_assert_ne!(other.version, found.version);
                let WorkerFound { pod, incarnation, .. } = found;
                self.end(RegistrationEnd::Refused { pod, incarnation }, out);
            }
            (_, WorkerRead::Found(found)) if self.claims_anyway() => {
                let expect = Expect::Version(found.version);
                (self.phase, self.due) = (Phase::Claiming { expect }, now);
            }
            (phase, WorkerRead::Found(found)) => {
                if self.registered {
                    let WorkerFound { pod, incarnation, .. } = found;
                    return self.end(RegistrationEnd::Superseded { pod, incarnation }, out);
                }
                debug_assert!(matches!(
                    phase,
                    Phase::Looking | Phase::Claiming { .. } | Phase::Holding { .. }
                ));
                self.watch(now, found, out);
            }
            (Phase::Watching { other, until }, WorkerRead::Unchanged) => {
                if sent >= until {
                    let expect = Expect::Version(other.version);
                    (self.phase, self.due) = (Phase::Claiming { expect }, now);
                } else {
                    self.due = until.min(now + self.config.heartbeat_ms);
                }
            }
            (_, WorkerRead::Unreadable) => {
                if !self.registered {
                    return self.end(RegistrationEnd::Unreadable, out);
                }
                // Somebody overwrote it. It is left alone; looking again one heartbeat later is soon enough.
                if !self.unreadable_told {
                    self.unreadable_told = true;
                    out.push(RegistrationEffect::Emit(RegistrationEvent::Unreadable));
                }
                (self.phase, self.due) = (Phase::Holding { version: None }, self.next_beat(now));
            }
            (_, WorkerRead::Unchanged) => self.due = now + self.config.heartbeat_ms,
            (_, WorkerRead::Unavailable | WorkerRead::Denied) => {}
        }
    }

    /// The mistakes of two mutants.
    fn claims_anyway(&self) -> bool {
        match self.registered {
            true => Mutant::WorkerRivalOverwritten.on(),
            false => Mutant::WorkerRivalNotWatched.on(),
        }
    }

    fn watch(&mut self, now: Time, other: WorkerFound, out: &mut Vec<RegistrationEffect>) {
        let heartbeat_ms = match other.heartbeat_ms {
            0 => self.config.heartbeat_ms,
            said => said.min(WATCHED_HEARTBEAT_MAX_MS),
        };
        let wait_ms = heartbeat_ms.saturating_mul(WATCH_HALVES) / 2;
        let (pod, incarnation) = (other.pod.clone(), other.incarnation);
        out.push(RegistrationEffect::Emit(RegistrationEvent::Watching { pod, incarnation, wait_ms }));
        self.due = now + heartbeat_ms.min(wait_ms).min(self.config.heartbeat_ms);
        self.phase = Phase::Watching { other, until: now + wait_ms };
    }

    /// The object belongs to this incarnation.
    fn adopt(&mut self, now: Time, sent: Time, found: WorkerFound, out: &mut Vec<RegistrationEffect>) {
        let landed = found.sequence == self.sequence;
        self.mine = Some(sent);
        self.phase = Phase::Holding { version: Some(found.version) };
        self.unreadable_told = false;
        if landed {
            self.mended(out);
            self.now_registered(out);
            self.due = self.next_beat(now);
        } else {
            // The newest write has not landed, or not yet. The next write has the same condition, so at most one of them can
            // land.
            self.due = now;
        }
    }

    fn now_registered(&mut self, out: &mut Vec<RegistrationEffect>) {
        if !self.registered {
            self.registered = true;
            out.push(RegistrationEffect::Emit(RegistrationEvent::Registered));
        }
    }

    fn on_written(&mut self, now: Time, sent: Time, written: WriteAnswer, out: &mut Vec<RegistrationEffect>) {
        match written {
            WriteAnswer::Won(version) => {
                self.failures = 0;
                self.mended(out);
                if !self.registered {
                    self.beat = now; // the cadence begins with the registration
                }
                self.mine = Some(sent);
                self.phase = Phase::Holding { version: Some(version) };
                self.now_registered(out);
                self.due = self.next_beat(now);
            }
            WriteAnswer::Lost => {
                let rash = self.registered && Mutant::WorkerRefusalTakenForSuperseded.on();
                if let Some(pod) = crate::id::NodeId::new("somebody").ok().filter(|_| rash) {
                    let incarnation = self.config.incarnation;
                    return self.end(RegistrationEnd::Superseded { pod, incarnation }, out);
                }
                self.read_back(now);
            }
            WriteAnswer::Unknown => {
                self.read_back(now);
                self.trouble(now, Health::Unavailable, out);
            }
            WriteAnswer::Unavailable => self.trouble(now, Health::Unavailable, out),
            WriteAnswer::Denied => self.trouble(now, Health::Denied, out),
        }
    }

    /// A refused write may be the echo of this worker's own, and a lost answer is not a lost race. Reading the object tells.
    fn read_back(&mut self, now: Time) {
        self.due = now;
        self.phase = match self.phase {
            Phase::Holding { .. } => Phase::Holding { version: None },
            Phase::New | Phase::Looking | Phase::Watching { .. } | Phase::Claiming { .. } => {
                if self.registered { Phase::Holding { version: None } } else { Phase::Looking }
            }
            Phase::Leaving { requests, .. } => Phase::Leaving { check: true, requests },
            Phase::Ended => Phase::Ended,
        };
    }

    fn on_removed(&mut self, now: Time, removed: RemoveAnswer, out: &mut Vec<RegistrationEffect>) {
        match removed {
            RemoveAnswer::Done => self.end(RegistrationEnd::Deregistered, out),
            // Try again while requests are left; a second removal does not harm an object that is still ours.
            RemoveAnswer::Failed => {
                let certain = self.is_certain(now) || Mutant::WorkerRemovesBlindly.on();
                if let Phase::Leaving { check, .. } = &mut self.phase {
                    *check = !certain;
                }
            }
        }
    }

    fn trouble(&mut self, now: Time, health: Health, out: &mut Vec<RegistrationEffect>) {
        if self.health != health && self.health != Health::Denied {
            self.health = health;
            out.push(RegistrationEffect::Emit(match health {
                Health::Fine | Health::Unavailable => RegistrationEvent::Unavailable,
                Health::Denied => RegistrationEvent::Denied,
            }));
        }
        let first_ms = (self.config.heartbeat_ms / 8).max(10);
        let wait_ms = first_ms.saturating_mul(1 << self.failures.min(3)).min(self.config.heartbeat_ms);
        self.failures = self.failures.saturating_add(1);
        self.due = now + wait_ms;
    }

    fn mended(&mut self, out: &mut Vec<RegistrationEffect>) {
        if self.health != Health::Fine {
            self.health = Health::Fine;
            out.push(RegistrationEffect::Emit(RegistrationEvent::Mended));
        }
    }

    /// The next beat of the cadence; missed beats are not made up for.
    fn next_beat(&mut self, now: Time) -> Time {
        let every_ms = self.config.heartbeat_ms.max(1);
        let missed = now.since(self.beat) / every_ms;
        self.beat = self.beat + (missed + 1) * every_ms;
        self.beat
    }
}

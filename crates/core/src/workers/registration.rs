//! The registration: a worker's own side. It keeps one object fresh, and knows whether that object is still its own.
//!
//! Not promised: that nobody else ever works under the same id. Two processes are told apart as long as they see each other
//! on the store; one that was paused learns of the other with its next heartbeat, not before.

mod io;

pub use io::{
    RegistrationAnswer, RegistrationEffect, RegistrationEnd, RegistrationEvent, RegistrationInput,
    RegistrationRequest, RemoveAnswer, WorkerFound, WorkerRead,
};

use crate::id::Incarnation;
use crate::io::{RequestId, WriteAnswer};
use crate::mutant::{Mistake, Mutant};
use crate::seat::{Expect, Version};
use crate::time::Time;

/// Another incarnation is watched for this many of its heartbeats, in halves, before it counts as dead. Registering is not
/// refused at once: after a crash the object is still there, and only a change tells the living from the dead.
const WATCH_HALVES: u64 = 5;

/// No other's heartbeat is believed to be slower: an object with a mistaken interval must not block an id for days.
const WATCHED_HEARTBEAT_MAX_MS: u64 = 600_000;

/// Requests made at most to leave; then the leader's retention has to see to it.
const LEAVE_REQUESTS_MAX: u32 = 4;

/// By what a worker registers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RegistrationConfig {
    /// How often it refreshes its object.
    pub heartbeat_ms: u64,
    /// Which life of the worker this is.
    pub incarnation: Incarnation,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    New,
    /// Wants the id; what stands there is not known.
    Looking,
    /// Another has it; is it alive?
    Watching {
        other: WorkerFound,
        until: Time,
    },
    /// Wants to write on these terms.
    Claiming {
        expect: Expect,
    },
    /// Has the id. Without a version what stands there has to be read first.
    Holding {
        version: Option<Version>,
    },
    /// Wants to leave; what was known last stands in `mine`.
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

/// A worker's registration.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Registration {
    config: RegistrationConfig,
    phase: Phase,
    /// The next thing is due then.
    due: Time,
    /// The cadence of the heartbeats, which a slow one does not shift.
    beat: Time,
    flight: Option<(RequestId, Time)>,
    requests: u64,
    sequence: u64,
    failures: u32,
    health: Health,
    /// The object on the store is this incarnation's, as far as is known; it was when what confirmed it was *sent*.
    mine: Option<Time>,
    registered: bool,
    unreadable_told: bool,
    stopping: bool,
    mistake: Mistake,
}

impl Registration {
    /// The same with a deliberate mistake, for tests that must catch it.
    #[cfg(feature = "teeth")]
    #[must_use]
    pub fn broken(self, mutant: Option<Mutant>) -> Registration {
        Registration { mistake: Mistake::of(mutant), ..self }
    }

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
            mistake: Mistake::default(),
        }
    }

    /// When the machine wants to be woken; `None` while it waits for an answer, and at rest.
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

    /// A stop takes effect between two requests: what is under way may still put the object there.
    fn begin_leaving(&mut self, now: Time, out: &mut Vec<RegistrationEffect>) {
        let under_way = match self.phase {
            Phase::Leaving { .. } | Phase::Ended => return,
            // A write whose answer was lost may have put the object there.
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
        // Removal knows no condition: look first, unless the last write is fresh and known to stand.
        let known = matches!(self.phase, Phase::Holding { version: Some(_) });
        let blind = self.mistake.is(Mutant::WorkerRemovesBlindly);
        let check = !(known && self.is_certain(now) || blind);
        (self.phase, self.due) = (Phase::Leaving { check, requests: 0 }, now);
    }

    /// What was so before this process stood still need not be so any more: nobody takes an id within a heartbeat.
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
        // A key that may read and not write would flap otherwise: only a write mends a refusal.
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
                // Nobody's. The retention may have taken it, or an operator.
                (self.phase, self.due, self.mine) = (Phase::Claiming { expect: Expect::Absent }, now, None);
                self.unreadable_told = false;
            }
            (_, WorkerRead::Found(found)) if found.incarnation == self.config.incarnation => {
                self.adopt(now, sent, found, out);
            }
            (Phase::Watching { other, .. }, WorkerRead::Found(found)) => {
                // It changed while it was watched: somebody lives, the one watched or one that was quicker.
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
                // Somebody overwrote it. It is left alone; a heartbeat later is early enough to look again.
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

    /// Two mistakes of broken variants.
    fn claims_anyway(&self) -> bool {
        match self.registered {
            true => self.mistake.is(Mutant::WorkerRivalOverwritten),
            false => self.mistake.is(Mutant::WorkerRivalNotWatched),
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

    /// The object is this incarnation's.
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
            // The newest write has not landed, or not yet: the next has the same condition, so at most one of them can.
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
                let rash = self.registered && self.mistake.is(Mutant::WorkerRefusalTakenForSuperseded);
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

    /// A refused write may be the echo of one's own; a lost answer is no lost race. What stands there tells.
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
            // Once more, as often as requests are left; removing twice does no harm to what is still ours.
            RemoveAnswer::Failed => {
                let certain = self.is_certain(now) || self.mistake.is(Mutant::WorkerRemovesBlindly);
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

    /// The next beat of the cadence that lies ahead; beats that were missed are not made up for.
    fn next_beat(&mut self, now: Time) -> Time {
        let every_ms = self.config.heartbeat_ms.max(1);
        let missed = now.since(self.beat) / every_ms;
        self.beat = self.beat + (missed + 1) * every_ms;
        self.beat
    }
}

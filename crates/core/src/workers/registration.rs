//! The registration: a worker's own side. It keeps one object fresh, and knows whether that object is still its own.
//!
//! Not promised: that nobody else ever works under the same id. Two processes are told apart as long as they see each other
//! on the store; a process that was paused learns of the other only with its next heartbeat.

use crate::document::{
    BackOff, Document, DocumentAnswer, DocumentRequest, Rules, Settled, State, Unreadable, What, Writer,
};
use crate::election::{Epoch, WriteAnswer};
use crate::id::{Incarnation, NodeId};
use crate::machine::{Effect, In, Input, Machine, Now, Out, RequestId};
use crate::mutants::Mutant;
use crate::time::Time;

/// How long another incarnation is watched before it counts as dead, in halves of its heartbeat. Registering is not refused
/// at once: after a crash the object is still there, and only a change tells the living from the dead.
const WATCH_HALVES: u64 = 5;

/// Longest heartbeat believed of another worker: an object with a wrong interval must not block an id for days.
const WATCHED_HEARTBEAT_MAX_MS: u64 = 600_000;

/// Most requests made to leave; after that the leader's retention has to clean up.
const LEAVE_REQUESTS_MAX: u32 = 4;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RegistrationConfig {
    /// How often the worker refreshes its object.
    pub heartbeat_ms: u64,
    /// This life of the worker; new every time it starts.
    pub incarnation: Incarnation,
    pub pod: NodeId,
}

/// What a worker's object says about the process that wrote it, as far as another process under the same id needs it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RegisteredBy {
    pub pod: NodeId,
    /// How often it says it writes; 0 if it does not say.
    pub heartbeat_ms: u64,
    /// Which of its heartbeats this is.
    pub beats: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationCommand {
    /// Register. Ignored unless the registration is new.
    Start,
    /// Deregister and end.
    Stop,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationOutput {
    Event(RegistrationEvent),
    Ended(RegistrationEnd),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationEvent {
    /// The object is there and belongs to this worker.
    Registered,
    /// Another process, with this pod and incarnation, has the id; this one watches whether it is alive.
    Watching { pod: NodeId, incarnation: Incarnation, wait_ms: u64 },
    /// The object is not a worker's; it is left alone. Reported once, until it is gone.
    Unreadable,
    /// The store does not answer. Reported once, until it does.
    Unavailable,
    /// The store refuses. Reported once, until it no longer does.
    Denied,
    /// The store answers again.
    Mended,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RegistrationEnd {
    /// [`RegistrationCommand::Stop`] asked for it.
    Deregistered,
    /// Another live process, with this pod and incarnation, has the id; this one never had it.
    Refused { pod: NodeId, incarnation: Incarnation },
    /// Another process, with this pod and incarnation, took over the id while this one was silent.
    Superseded { pod: NodeId, incarnation: Incarnation },
    /// The object under the id is not a worker's, and was there first.
    Unreadable,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    New,
    Registering,
    Leaving { requests: u32 },
    Ended,
}

/// Another incarnation has the id. Only a look *sent* after `until` that finds it unchanged says that it is dead.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Watch {
    until: Time,
    look_at: Time,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Registration {
    config: RegistrationConfig,
    phase: Phase,
    document: Document,
    requests: u64,
    /// Set with the first write that is sent: from then on the object may be this worker's.
    wrote: bool,
    watch: Option<Watch>,
    /// The cadence of the heartbeats, which a slow heartbeat does not shift.
    beat: Time,
    /// Set while the object on the store belongs to this incarnation, as far as is known: when the confirming request was
    /// *sent*.
    mine: Option<Time>,
    registered: bool,
}

impl Registration {
    pub fn new(config: RegistrationConfig) -> Registration {
        let document = Document::new(Rules {
            writer: Writer::Owner { epoch: Epoch(0), me: config.incarnation },
            adopt: false,
            unreadable: Unreadable::LeaveAlone,
            retry: BackOff { first_ms: (config.heartbeat_ms / 8).max(10), max_ms: config.heartbeat_ms },
        });
        Registration {
            config,
            phase: Phase::New,
            document,
            requests: 0,
            wrote: false,
            watch: None,
            beat: Time(0),
            mine: None,
            registered: false,
        }
    }

    fn end(&mut self, end: RegistrationEnd, out: &mut Vec<Out<Registration>>) {
        self.phase = Phase::Ended;
        out.push(Effect::Output(RegistrationOutput::Ended(end)));
    }

    fn on_answer(
        &mut self,
        now: Time,
        id: RequestId,
        answer: DocumentAnswer<RegisteredBy>,
        out: &mut Vec<Out<Registration>>,
    ) {
        let refused = answer == DocumentAnswer::Written(WriteAnswer::Lost);
        if refused && self.registered && Mutant::WorkerRefusalTakenForSuperseded.on() {
            let RegistrationConfig { pod, incarnation, .. } = self.config.clone();
            return self.end(RegistrationEnd::Superseded { pod, incarnation }, out);
        }
        let (Settled { sent, mended, what }, found) = self.document.answered(now, id, answer);
        let mut tell = |event| out.push(Effect::Output(RegistrationOutput::Event(event)));
        if mended {
            tell(RegistrationEvent::Mended);
        }
        match what {
            What::Nothing => {}
            What::Failed { denied, news } => match (news, denied) {
                (true, true) => tell(RegistrationEvent::Denied),
                (true, false) => tell(RegistrationEvent::Unavailable),
                (false, _) => {}
            },
            What::Same => self.on_unchanged(now, sent),
            // Nobody has the id. The retention or an operator may have removed the object.
            What::Empty => (self.watch, self.mine) = (None, None),
            What::Shared => (self.watch, self.mine) = (None, Some(sent)),
            What::Landed { .. } => {
                (self.watch, self.mine) = (None, Some(sent));
                if !self.registered {
                    // The cadence begins with the registration.
                    (self.registered, self.beat) = (true, now);
                    tell(RegistrationEvent::Registered);
                }
                self.beat = self.next_beat(now);
            }
            What::Loaded | What::Overtaken(_) | What::Superseded(_) => {
                self.mine = None;
                if let (Some(found), Some(stamp)) = (found, self.document.stamp()) {
                    self.on_another(now, found, stamp.owner, out);
                }
            }
            What::Blocked { news, .. } => {
                self.mine = None;
                if !self.registered {
                    return self.end(RegistrationEnd::Unreadable, out);
                }
                if news {
                    tell(RegistrationEvent::Unreadable);
                }
            }
            What::Removed => self.end(RegistrationEnd::Deregistered, out),
        }
    }

    fn on_unchanged(&mut self, now: Time, sent: Time) {
        match &mut self.watch {
            Some(watch) if sent < watch.until => {
                watch.look_at = watch.until.min(now + self.config.heartbeat_ms);
            }
            Some(_) => self.watch = None,
            None => self.mine = self.mine.map(|_| sent),
        }
    }

    fn on_another(
        &mut self,
        now: Time,
        other: RegisteredBy,
        incarnation: Incarnation,
        out: &mut Vec<Out<Registration>>,
    ) {
        let RegisteredBy { pod, heartbeat_ms, .. } = other;
        if matches!(self.phase, Phase::Leaving { .. }) {
            return;
        }
        if self.registered {
            if !Mutant::WorkerRivalOverwritten.on() {
                self.end(RegistrationEnd::Superseded { pod, incarnation }, out);
            }
            return;
        }
        if self.watch.is_some() {
            // It changed while it was watched: somebody is alive, the watched process or one that was quicker.
            return self.end(RegistrationEnd::Refused { pod, incarnation }, out);
        }
        if Mutant::WorkerRivalNotWatched.on() {
            return;
        }
        let heartbeat_ms = match heartbeat_ms {
            0 => self.config.heartbeat_ms,
            said => said.min(WATCHED_HEARTBEAT_MAX_MS),
        };
        let wait_ms = heartbeat_ms.saturating_mul(WATCH_HALVES) / 2;
        let look_ms = heartbeat_ms.min(wait_ms).min(self.config.heartbeat_ms);
        self.watch = Some(Watch { until: now + wait_ms, look_at: now + look_ms });
        let event = RegistrationEvent::Watching { pod, incarnation, wait_ms };
        out.push(Effect::Output(RegistrationOutput::Event(event)));
    }

    /// The next beat of the cadence; missed beats are not made up for.
    fn next_beat(&self, now: Time) -> Time {
        let every_ms = self.config.heartbeat_ms.max(1);
        let missed = now.since(self.beat) / every_ms;
        self.beat + (missed + 1) * every_ms
    }

    /// Sends what is due. A request under way may still create the object, so everything else waits for its answer.
    fn advance(&mut self, now: Time, out: &mut Vec<Out<Registration>>) {
        if self.document.is_busy() {
            return;
        }
        let id = RequestId(self.requests + 1);
        let op = match self.phase {
            Phase::New | Phase::Ended => return,
            Phase::Registering => {
                match self.watch {
                    Some(watch) if now >= watch.look_at => self.document.refresh(),
                    None if self.is_beat_due(now) => drop(self.document.touch()),
                    Some(_) | None => {}
                }
                self.document.next(now, id, self.watch.is_none())
            }
            Phase::Leaving { requests } => {
                if self.has_nothing_to_remove() || requests >= LEAVE_REQUESTS_MAX {
                    return self.end(RegistrationEnd::Deregistered, out);
                }
                // A removal has no condition. Look first, unless the object is known to be this worker's.
                if !self.is_fresh(now) && !Mutant::WorkerRemovesBlindly.on() {
                    self.document.refresh();
                }
                // A write that may still land has to be settled first, by another one.
                let op = self.document.remove(now, id).or_else(|| self.document.next(now, id, true));
                self.phase = Phase::Leaving { requests: requests + u32::from(op.is_some()) };
                op
            }
        };
        let Some(op) = op else { return };
        let RegistrationConfig { heartbeat_ms, pod, .. } = self.config.clone();
        let request = op.with(|| RegisteredBy { pod, heartbeat_ms, beats: self.document.revision() });
        self.wrote |= matches!(request, DocumentRequest::Write { .. });
        self.requests = id.0;
        out.push(Effect::Request(id, request));
    }

    fn is_beat_due(&self, now: Time) -> bool {
        match self.document.state() {
            State::Unread | State::Blocked | State::Superseded => false,
            State::Found | State::Owned if self.document.revision() == 0 => true,
            State::Found | State::Owned => {
                now >= self.beat && self.document.is_confirmed(self.document.revision())
            }
        }
    }

    fn has_nothing_to_remove(&self) -> bool {
        let own = self
            .document
            .stamp()
            .is_some_and(|stamp| stamp.owner == self.config.incarnation || Mutant::WorkerRemovesBlindly.on());
        !self.wrote || !self.document.must_read() && !own || self.document.state() == State::Blocked
    }

    /// Nobody can take the id within a heartbeat; after a longer pause of this process, the old knowledge no longer counts.
    fn is_fresh(&self, now: Time) -> bool {
        self.mine.is_some_and(|at| now.since(at) <= self.config.heartbeat_ms)
    }
}

impl Machine for Registration {
    type Command = RegistrationCommand;
    type Request = DocumentRequest<RegisteredBy>;
    type Output = RegistrationOutput;

    fn handle(&mut self, now: Now, input: In<Registration>, out: &mut Vec<Out<Registration>>) {
        match (input, self.phase) {
            (Input::Command(RegistrationCommand::Start), Phase::New) => self.phase = Phase::Registering,
            (Input::Command(RegistrationCommand::Stop), Phase::New | Phase::Registering) => {
                (self.phase, self.watch) = (Phase::Leaving { requests: 0 }, None);
            }
            (Input::Answer(id, answer), Phase::Registering | Phase::Leaving { .. }) => {
                self.on_answer(now.at, id, answer, out);
            }
            (Input::Command(_) | Input::Answer(..) | Input::Wake, _) => {}
        }
        self.advance(now.at, out);
    }

    fn wake_at(&self) -> Option<Time> {
        if matches!(self.phase, Phase::New | Phase::Ended) || self.document.is_busy() {
            return None;
        }
        let wanted = self.document.wake_at(self.watch.is_none());
        wanted.or(match (self.phase, self.watch, self.document.state()) {
            (Phase::Leaving { .. }, ..) => None,
            (_, Some(watch), _) => Some(watch.look_at),
            (_, None, _) => Some(self.beat),
        })
    }
}

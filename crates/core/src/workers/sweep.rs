//! How a node keeps track of the workers. While it leads, it lists them, judges who is alive and publishes what it found;
//! otherwise it reads what the leader published, whenever the seat names something new.
//!
//! What everybody is told comes from published snapshots alone, the leader's own included.

use super::{KnownWorkers, Listed, Liveness, LivenessConfig, ReadOutcome, Skipped, Snapshot};
use super::{SnapshotId, WorkerEvent};
use crate::document::{
    BackOff, Document, DocumentAnswer, DocumentRequest, Rules, Settled, State, Unreadable, What, Writer,
};
use crate::election::{Epoch, Version};
use crate::id::{Incarnation, WorkerId};
use crate::machine::{Effect, In, Input, Machine, Now, Out, Request, RequestId};
use crate::time::Time;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Most objects read or removed at the same time.
const AT_ONCE_MAX: usize = 16;

/// Without workers, the leader looks only once in this many intervals.
const IDLE_INTERVALS: u64 = 4;

/// Pauses of a node that cannot read what the leader published.
const FOLLOW_RETRY: BackOff = BackOff { first_ms: 1000, max_ms: 32_000 };

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SweepConfig {
    /// How often the leader lists the workers.
    pub sweep_ms: u64,
    /// How long the object of an inactive worker is kept.
    pub retention_ms: u64,
    /// How long the presence of a dead node is kept.
    pub node_retention_ms: u64,
    /// The largest snapshot, by [`Snapshot::weight`].
    pub snapshot_weight_max: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SweepCommand {
    /// This node leads. `me` is new every time it begins to.
    Lead { epoch: Epoch, me: Incarnation },
    /// It no longer leads.
    Lost,
    /// The seat was read, and names this snapshot.
    Seat(Option<SnapshotId>),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SweepRequest {
    List,
    Read(WorkerId),
    /// Remove the object of a worker that is long dead. If the worker comes back at this very moment, it writes it again.
    Remove(WorkerId),
    Snapshot(DocumentRequest<Arc<Snapshot>>),
    /// Remove the presences of nodes that are long dead.
    ForgetNodes,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SweepAnswer {
    /// `None` if there was no list.
    Listed(Option<ListedWorkers>),
    Read(ReadOutcome),
    /// The next list shows whether it worked.
    Removed,
    Snapshot(DocumentAnswer<Arc<Snapshot>>),
    NodesForgotten,
}

/// The objects in `workers/`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ListedWorkers {
    /// Those that can be workers.
    pub workers: Vec<Listed>,
    /// How many cannot.
    pub junk: u64,
    /// The list was cut off.
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SweepOutput {
    /// This snapshot was published, and is known here from now on: [`Sweep::known`]. The events in it follow.
    Applied(SnapshotId),
    /// What happened to a worker, by the snapshot just applied.
    Event(WorkerEvent),
    /// The seat of this epoch should name this snapshot.
    Point { epoch: Epoch, id: SnapshotId, version: Version },
    /// The leader has listed the workers itself, and what is published is its own word. If `whole`, no registered worker is
    /// missing.
    Told { epoch: Epoch, whole: bool },
    /// A sweep has ended, and skipped these objects.
    Swept(Skipped),
}

impl Request for SweepRequest {
    type Answer = SweepAnswer;

    fn unanswered(&self) -> SweepAnswer {
        match self {
            SweepRequest::List => SweepAnswer::Listed(None),
            SweepRequest::Read(_) => SweepAnswer::Read(ReadOutcome::Nothing),
            SweepRequest::Remove(_) => SweepAnswer::Removed,
            SweepRequest::Snapshot(request) => SweepAnswer::Snapshot(request.unanswered()),
            SweepRequest::ForgetNodes => SweepAnswer::NodesForgotten,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sweep {
    config: SweepConfig,
    known: KnownWorkers,
    requests: u64,
    /// What the seat said last, if it was seen.
    seat: Option<Option<SnapshotId>>,
    role: Role,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Role {
    Follows(Box<Following>),
    Leads(Box<Leading>),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Following {
    document: Document,
    /// What the seat named when the snapshot was asked for last.
    asked: Option<SnapshotId>,
    /// … and when it was read last: it is not read again until the seat names another one.
    read: Option<SnapshotId>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Leading {
    epoch: Epoch,
    liveness: Liveness,
    document: Document,
    /// The snapshot that was sent last.
    sent: Option<Arc<Snapshot>>,
    step: Step,
    due: Time,
    forget_at: Time,
    told: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Step {
    /// Between two sweeps. What was found is published, except before the first sweep: it may change everything.
    Waiting {
        publish: bool,
    },
    Listing {
        id: RequestId,
        sent: Time,
    },
    /// Reads and removes single objects: these, and those under way.
    Visiting {
        left: VecDeque<SweepRequest>,
        open: BTreeMap<RequestId, WorkerId>,
    },
}

impl Following {
    fn new() -> Following {
        let document = Document::new(Rules {
            writer: Writer::Guest { me: Incarnation(0) },
            adopt: false,
            unreadable: Unreadable::Replace,
            retry: FOLLOW_RETRY,
        });
        Following { document, asked: None, read: None }
    }

    /// What the seat names, if it is worth reading.
    fn behind(&self, known: &KnownWorkers, seat: Option<Option<SnapshotId>>) -> Option<SnapshotId> {
        let named = seat.flatten()?;
        (known.applied() < Some(named) && self.read != Some(named)).then_some(named)
    }
}

impl Leading {
    fn new(config: &SweepConfig, now: Time, epoch: Epoch, me: Incarnation) -> Leading {
        let document = Document::new(Rules {
            writer: Writer::Owner { epoch, me },
            adopt: true,
            // The snapshot is derived from the workers' own objects. Left alone, a spoiled one would silence the registry.
            unreadable: Unreadable::Replace,
            retry: BackOff { first_ms: (config.sweep_ms / 8).max(10), max_ms: config.sweep_ms },
        });
        Leading {
            epoch,
            liveness: Liveness::new(LivenessConfig { retention_ms: config.retention_ms }, epoch),
            document,
            sent: None,
            step: Step::Waiting { publish: false },
            due: now,
            forget_at: now + (config.node_retention_ms / 2).max(1),
            told: None,
        }
    }

    /// Judging without knowing what was already reported would report it twice.
    fn may_sweep(&self) -> bool {
        let known = matches!(self.document.state(), State::Found | State::Owned);
        known && !self.document.must_read() && !self.document.is_busy()
    }

    fn may_write(&self) -> bool {
        self.step == (Step::Waiting { publish: true }) && self.liveness.is_changed()
    }

    fn on_list(&mut self, sent: Time, now: Time, list: &ListedWorkers) {
        let found = self.liveness.sweep(sent, now, &list.workers, list.junk, list.more);
        let reads = found.read.into_iter().map(SweepRequest::Read);
        let left = reads.chain(found.remove.into_iter().map(SweepRequest::Remove)).collect();
        self.step = Step::Visiting { left, open: BTreeMap::new() };
    }

    fn advance(&mut self, config: &SweepConfig, now: Time, requests: &mut u64, out: &mut Vec<Out<Sweep>>) {
        let mut send = |request| {
            *requests += 1;
            out.push(Effect::Request(RequestId(*requests), request));
            RequestId(*requests)
        };
        if now >= self.forget_at {
            // There is no hurry: the presence of a dead node costs one entry in a list.
            self.forget_at = now + (config.node_retention_ms / 2).max(1);
            send(SweepRequest::ForgetNodes);
        }
        if let Step::Visiting { left, open } = &mut self.step {
            while open.len() < AT_ONCE_MAX
                && let Some(request) = left.pop_front()
            {
                let (SweepRequest::Read(worker) | SweepRequest::Remove(worker)) = &request else { continue };
                let worker = worker.clone();
                open.insert(send(request), worker);
            }
            if open.is_empty() {
                out.push(Effect::Output(SweepOutput::Swept(self.liveness.skipped())));
                self.end_sweep(config, now);
            }
        }
        if matches!(self.step, Step::Waiting { .. }) {
            if self.may_sweep() && now >= self.due {
                *requests += 1;
                let id = RequestId(*requests);
                out.push(Effect::Request(id, SweepRequest::List));
                self.step = Step::Listing { id, sent: now };
            } else {
                self.publish(config, now, requests, out);
            }
        }
    }

    fn publish(&mut self, config: &SweepConfig, now: Time, requests: &mut u64, out: &mut Vec<Out<Sweep>>) {
        let may_write = self.may_write();
        if may_write && self.document.is_confirmed(self.document.revision()) {
            self.document.touch();
        }
        let id = RequestId(*requests + 1);
        if let Some(op) = self.document.next(now, id, may_write) {
            *requests += 1;
            let request = op.with(|| {
                let snapshot = Arc::new(self.liveness.snapshot().fitting(config.snapshot_weight_max));
                self.sent = Some(Arc::clone(&snapshot));
                snapshot
            });
            out.push(Effect::Request(id, SweepRequest::Snapshot(request)));
        }
        let told = self.liveness.has_told();
        if let Some(whole) = told.filter(|_| self.told != told) {
            self.told = told;
            out.push(Effect::Output(SweepOutput::Told { epoch: self.epoch, whole }));
        }
    }

    fn end_sweep(&mut self, config: &SweepConfig, now: Time) {
        let intervals = if self.liveness.known() == 0 { IDLE_INTERVALS } else { 1 };
        self.due = (self.due + config.sweep_ms * intervals).max(now);
        self.step = Step::Waiting { publish: true };
    }
}

impl Sweep {
    /// A node that knows this much of the workers: nothing at first, and what it knew before if it had to begin again.
    pub fn new(config: SweepConfig, known: KnownWorkers) -> Sweep {
        Sweep { config, known, requests: 0, seat: None, role: Role::Follows(Box::new(Following::new())) }
    }

    pub fn known(&self) -> &KnownWorkers {
        &self.known
    }

    /// How it judges them, while it leads.
    pub fn liveness(&self) -> Option<&Liveness> {
        match &self.role {
            Role::Leads(leading) => Some(&leading.liveness),
            Role::Follows(_) => None,
        }
    }

    fn on_command(&mut self, now: Time, command: SweepCommand) {
        match (command, &self.role) {
            (SweepCommand::Lead { epoch, .. }, Role::Leads(leading)) if leading.epoch == epoch => {}
            (SweepCommand::Lead { epoch, me }, _) => {
                let mut leading = Leading::new(&self.config, now, epoch, me);
                // Work that was stopped may continue in the same epoch.
                if let Some(applied) = self.known.applied() {
                    leading.liveness.above(applied);
                }
                self.role = Role::Leads(Box::new(leading));
            }
            (SweepCommand::Lost, Role::Leads(_)) => self.role = Role::Follows(Box::new(Following::new())),
            (SweepCommand::Lost, Role::Follows(_)) => {}
            (SweepCommand::Seat(named), _) => self.seat = Some(named),
        }
    }

    fn on_answer(&mut self, now: Time, id: RequestId, answer: SweepAnswer, out: &mut Vec<Out<Sweep>>) {
        match (&mut self.role, answer) {
            (Role::Follows(following), SweepAnswer::Snapshot(answer)) => {
                let (settled, body) = following.document.answered(now, id, answer);
                if !matches!(settled.what, What::Nothing | What::Failed { .. }) {
                    following.read = following.asked;
                }
                if let Some(snapshot) = body {
                    self.apply(&snapshot, out);
                }
            }
            (Role::Leads(_), SweepAnswer::Snapshot(answer)) => self.on_snapshot(now, id, answer, out),
            (Role::Leads(leading), answer) => match (&mut leading.step, answer) {
                (Step::Listing { id: asked, sent }, SweepAnswer::Listed(list)) if *asked == id => {
                    let sent = *sent;
                    match list {
                        Some(list) => leading.on_list(sent, now, &list),
                        None => leading.end_sweep(&self.config, now),
                    }
                }
                (Step::Visiting { open, .. }, answer) => {
                    if let (Some(worker), SweepAnswer::Read(outcome)) = (open.remove(&id), answer) {
                        leading.liveness.read(now, &worker, outcome);
                    }
                }
                (Step::Listing { .. } | Step::Waiting { .. }, _) => {}
            },
            (Role::Follows(_), _) => {}
        }
    }

    fn on_snapshot(
        &mut self,
        now: Time,
        id: RequestId,
        answer: DocumentAnswer<Arc<Snapshot>>,
        out: &mut Vec<Out<Sweep>>,
    ) {
        let Role::Leads(leading) = &mut self.role else { return };
        let (Settled { what, .. }, read) = leading.document.answered(now, id, answer);
        let snapshot = match what {
            What::Loaded | What::Overtaken(_) => {
                let Some(snapshot) = read else { return };
                leading.liveness.inherit(&snapshot);
                snapshot
            }
            What::Shared | What::Landed { .. } => {
                let Some(snapshot) = read.or_else(|| leading.sent.take()) else { return };
                leading.liveness.published(snapshot.id);
                snapshot
            }
            What::Superseded(_) => {
                if let Some(snapshot) = read {
                    self.apply(&snapshot, out);
                }
                return;
            }
            What::Empty => {
                // Nothing was ever published that anybody could still read.
                self.known.begin_empty();
                match leading.document.version() {
                    Some(_) => leading.liveness.found_spoiled(),
                    None => leading.liveness.found_nothing(),
                }
                return;
            }
            What::Nothing | What::Same | What::Blocked { .. } | What::Failed { .. } | What::Removed => return,
        };
        if let Some(version) = leading.document.version().cloned() {
            let (epoch, id) = (leading.epoch, snapshot.id);
            out.push(Effect::Output(SweepOutput::Point { epoch, id, version }));
        }
        self.apply(&snapshot, out);
    }

    fn apply(&mut self, snapshot: &Snapshot, out: &mut Vec<Out<Sweep>>) {
        let before = self.known.applied();
        let events = self.known.apply(snapshot);
        if self.known.applied() != before {
            out.push(Effect::Output(SweepOutput::Applied(snapshot.id)));
            out.extend(events.into_iter().map(|event| Effect::Output(SweepOutput::Event(event))));
        }
    }

    fn follow(&mut self, now: Time, out: &mut Vec<Out<Sweep>>) {
        if self.seat == Some(None) {
            self.known.begin_empty();
        }
        let Role::Follows(following) = &mut self.role else { return };
        let Some(named) = following.behind(&self.known, self.seat) else { return };
        following.document.refresh();
        let id = RequestId(self.requests + 1);
        if let Some(op) = following.document.next(now, id, false) {
            following.asked = Some(named);
            self.requests += 1;
            let request = op.with(|| -> Arc<Snapshot> { Arc::default() });
            out.push(Effect::Request(id, SweepRequest::Snapshot(request)));
        }
    }
}

impl Machine for Sweep {
    type Command = SweepCommand;
    type Request = SweepRequest;
    type Output = SweepOutput;

    fn handle(&mut self, now: Now, input: In<Sweep>, out: &mut Vec<Out<Sweep>>) {
        match input {
            Input::Wake => {}
            Input::Command(command) => self.on_command(now.at, command),
            Input::Answer(id, answer) => self.on_answer(now.at, id, answer, out),
        }
        match &mut self.role {
            Role::Follows(_) => self.follow(now.at, out),
            Role::Leads(leading) => leading.advance(&self.config, now.at, &mut self.requests, out),
        }
    }

    fn wake_at(&self) -> Option<Time> {
        let leading = match &self.role {
            Role::Follows(following) => {
                let behind = following.behind(&self.known, self.seat).is_some();
                return following.document.wake_at(false).filter(|_| behind);
            }
            Role::Leads(leading) => leading,
        };
        let document = leading.document.wake_at(leading.may_write());
        let sweep = leading.may_sweep().then_some(leading.due);
        let waiting = matches!(leading.step, Step::Waiting { .. });
        let next = document.into_iter().chain(sweep).min().filter(|_| waiting);
        Some(next.map_or(leading.forget_at, |next| next.min(leading.forget_at)))
    }
}

//! A node's sweep over the workers: the production machine, and the truth about what it did.

use crate::check::name;
use crate::neglect::Neglect;
use crate::queue::Happening;
use crate::wire::{Ask, Party};
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Stamp};
use tenure_core::machine::{Effect, In, Input, Machine, Now};
use tenure_core::{
    Epoch, Expect, Incarnation, KnownWorkers, Liveness, ReadOutcome, RequestId, Snapshot, SnapshotId, Sweep,
    SweepAnswer, SweepCommand, SweepConfig, SweepOutput, SweepRequest, Time, WorkerId, WriteAnswer,
};

/// Longer than any schedule: presences are not part of this.
const NODE_RETENTION_MS: u64 = 1 << 40;

/// The truth about a leader's sweeps in one epoch.
pub(crate) struct Term {
    pub(crate) epoch: Epoch,
    /// The list under way: when it was sent.
    listing: Option<(RequestId, Time)>,
    /// When its first list was answered.
    pub(crate) first: Option<Time>,
    /// Every change of a worker's object, in true time and on the leader's clock.
    pub(crate) changes: BTreeMap<WorkerId, Vec<(u64, Time)>>,
    pub(crate) judged: BTreeSet<(WorkerId, SnapshotId)>,
    /// Objects that were read and are not workers, and when.
    junk: BTreeMap<WorkerId, Time>,
    reading: BTreeMap<RequestId, WorkerId>,
    /// The snapshot written last.
    sent: Option<Arc<Snapshot>>,
}

/// One node's sweep.
pub(crate) struct NodeSweep {
    pub(crate) life: u64,
    machine: Sweep,
    pub(crate) term: Option<Term>,
    /// What the seat said: nothing yet, or the snapshot it names.
    seat: Option<Option<SnapshotId>>,
    held: Vec<(In<Sweep>, Option<ListTruth>)>,
    token: u64,
    /// What the seat of this epoch should name.
    pub(crate) wanted: Option<(Epoch, SnapshotId)>,
}

impl NodeSweep {
    pub(crate) fn known(&self) -> &KnownWorkers {
        self.machine.known()
    }

    pub(crate) fn liveness(&self) -> Option<&Liveness> {
        self.machine.liveness()
    }

    /// Answers to a former process reach nobody.
    fn ask_id(&self, id: RequestId) -> u64 {
        self.life << 32 | id.0
    }
}

/// What is true of a list: when it landed on the leader's clock, and until when it was true in true time.
pub(crate) type ListTruth = (Time, u64);

impl World {
    /// A new process of a node knows nothing.
    pub(crate) fn new_sweep(&mut self, node: usize) {
        if !self.manned {
            return;
        }
        let life = self.new_life();
        let config = SweepConfig {
            sweep_ms: self.sweep_ms,
            retention_ms: self.retention_ms,
            node_retention_ms: NODE_RETENTION_MS,
            snapshot_weight_max: u64::MAX,
        };
        let sweep = NodeSweep {
            life,
            machine: Sweep::new(config, KnownWorkers::default()),
            term: None,
            seat: None,
            held: Vec::new(),
            token: 0,
            wanted: None,
        };
        match node < self.sweeps.len() {
            true => self.sweeps[node] = sweep,
            false => self.sweeps.push(sweep),
        }
    }

    /// The epoch in which the node leads, by its own clock.
    fn led_epoch(&self, node: usize) -> Option<Epoch> {
        let target = &self.nodes[node];
        let local = target.clock.local(self.now);
        let acting = target.acting.filter(|acting| !acting.told && local < acting.deadline)?;
        target.alive.then_some(acting.epoch)
    }

    /// The node began to lead, or no longer does.
    pub(crate) fn lead_sweep(&mut self, node: usize) {
        self.feed_sweep(node, Input::Wake, None);
    }

    /// The node read or wrote the seat.
    pub(crate) fn saw_seat(&mut self, node: usize) {
        if self.manned && self.store.seat.is_some() {
            let named = self.store.seat.as_ref().and_then(|object| object.pointer);
            // Only if the seat names a different snapshot than before.
            if self.sweeps[node].seat.replace(named) != Some(named) {
                self.feed_sweep(node, Input::Command(SweepCommand::Seat(named)), None);
            }
        }
    }

    pub(crate) fn resume_sweep(&mut self, node: usize) {
        if self.manned {
            for (input, list) in std::mem::take(&mut self.sweeps[node].held) {
                self.feed_sweep(node, input, list);
            }
        }
    }

    pub(crate) fn wake_sweep(&mut self, node: usize, token: u64) {
        if self.sweeps[node].token == token {
            self.feed_sweep(node, Input::Wake, None);
        }
    }

    pub(crate) fn answer_sweep(
        &mut self,
        node: usize,
        id: u64,
        answer: SweepAnswer,
        list: Option<ListTruth>,
    ) {
        if self.sweeps[node].life == id >> 32 {
            self.feed_sweep(node, Input::Answer(RequestId(id & 0xffff_ffff), answer), list);
        }
    }

    fn feed_sweep(&mut self, node: usize, input: In<Sweep>, list: Option<ListTruth>) {
        if !self.manned || !self.nodes[node].alive {
            return;
        }
        if self.nodes[node].paused {
            self.sweeps[node].held.push((input, list));
            return;
        }
        let (epoch, told) = (self.led_epoch(node), self.sweeps[node].term.as_ref().map(|term| term.epoch));
        if epoch != told {
            let command = match epoch {
                Some(epoch) => SweepCommand::Lead { epoch, me: Incarnation(self.new_life()) },
                None => SweepCommand::Lost,
            };
            self.sweeps[node].term = epoch.map(Term::new);
            self.step_sweep(node, Input::Command(command), None);
        }
        self.step_sweep(node, input, list);
        self.rearm_sweep(node);
    }

    fn step_sweep(&mut self, node: usize, input: In<Sweep>, list: Option<ListTruth>) {
        self.steps += 1;
        let local = self.nodes[node].clock.local(self.now);
        let found = self.note_answer(node, local, &input);
        let listed = match (&input, &mut self.sweeps[node].term) {
            (Input::Answer(id, SweepAnswer::Listed(Some(list))), Some(term)) => {
                let sent = term.listing.take_if(|(asked, _)| asked == id);
                // An object that was missing from one list is a different object.
                term.junk.retain(|worker, _| list.workers.iter().any(|entry| entry.worker == *worker));
                sent.map(|(_, sent)| sent)
            }
            _ => None,
        };
        let mut effects = Vec::new();
        self.sweeps[node].machine.handle(Now { at: local, wall_ms: 0 }, input, &mut effects);
        if let (Some(sent), Some((landed, until)), Some(term)) = (listed, list, &mut self.sweeps[node].term) {
            term.first.get_or_insert(local);
            self.check_judgement(node, sent, landed, until);
        }
        for effect in effects {
            match effect {
                Effect::Request(id, request) => {
                    self.note_request(node, local, id, &request);
                    let id = self.sweeps[node].ask_id(id);
                    self.ask(Party::Node(node), id, Ask::Sweep(request));
                }
                Effect::Output(output) => self.sweep_says(node, found.as_deref(), output),
            }
        }
    }

    /// Remembers what the answer tells, and returns the snapshot that stands there by it.
    fn note_answer(&mut self, node: usize, local: Time, input: &In<Sweep>) -> Option<Arc<Snapshot>> {
        let Input::Answer(id, answer) = input else { return None };
        let term = self.sweeps[node].term.as_mut();
        match answer {
            SweepAnswer::Snapshot(DocumentAnswer::Read(Read::Found { body, .. })) => {
                // Silences of this epoch too, if this node led in it before.
                let silences = body.workers.iter().filter_map(|e| Some((e.worker.clone(), e.silence?)));
                if let Some(term) = term {
                    term.judged.extend(silences);
                }
                Some(Arc::clone(body))
            }
            SweepAnswer::Snapshot(DocumentAnswer::Written(WriteAnswer::Won(_))) => term?.sent.clone(),
            SweepAnswer::Read(outcome) => {
                self.had_unread |= *outcome == ReadOutcome::Nothing;
                let term = term?;
                let worker = term.reading.remove(id)?;
                if *outcome == ReadOutcome::Corrupt {
                    term.junk.insert(worker, local);
                }
                None
            }
            SweepAnswer::Snapshot(_)
            | SweepAnswer::Listed(_)
            | SweepAnswer::Removed
            | SweepAnswer::NodesForgotten => None,
        }
    }

    fn note_request(&mut self, node: usize, local: Time, id: RequestId, request: &SweepRequest) {
        let now = self.now;
        let Some(term) = &mut self.sweeps[node].term else { return };
        match request {
            SweepRequest::List => term.listing = Some((id, local)),
            SweepRequest::Read(worker) => {
                term.reading.insert(id, worker.clone());
                // An object that is not a worker is not read again for a minute.
                let known = term.junk.get(worker).copied();
                if known.is_some_and(|at| local.since(at) < crate::silence::READ_AGAIN_MS) {
                    self.judge
                        .violated(now, name::REGISTRY_BUDGET, || format!("{node} reads {worker} once more"));
                }
            }
            SweepRequest::Snapshot(DocumentRequest::Write { body, .. }) => {
                term.sent = Some(Arc::clone(body));
            }
            SweepRequest::Snapshot(_) | SweepRequest::Remove(_) | SweepRequest::ForgetNodes => {}
        }
    }

    fn sweep_says(&mut self, node: usize, snapshot: Option<&Snapshot>, output: SweepOutput) {
        match output {
            SweepOutput::Event(event) => {
                self.trace.worker(self.now, node, &event);
                let (now, id) = (self.now, &self.nodes[node].id);
                self.trace.say(now, || format!("{id} tells {} {:?}", event.worker, event.change));
                if let Some(snapshot) = snapshot {
                    self.check_told(node, snapshot, &event);
                }
            }
            SweepOutput::Point { epoch, id, .. } => self.sweeps[node].wanted = Some((epoch, id)),
            SweepOutput::Applied(_) | SweepOutput::Told { .. } if self.staffed => self.tell_bureau(node),
            SweepOutput::Applied(_) | SweepOutput::Told { .. } | SweepOutput::Swept(_) => {}
        }
    }

    /// Also when the clock changed: the next sweep comes at a different time then.
    pub(crate) fn rearm_sweep(&mut self, node: usize) {
        let Some(sweep) = self.sweeps.get_mut(node) else { return };
        let local = self.nodes[node].clock.local(self.now);
        let Some(at) = sweep.machine.wake_at().filter(|at| at.since(local) < NODE_RETENTION_MS / 4) else {
            return;
        };
        sweep.token += 1;
        let (token, life) = (sweep.token, self.nodes[node].life);
        if let Some(when) = self.nodes[node].clock.when(at) {
            self.schedule(when, node, life, Happening::SweepWake { token });
        }
    }

    /// A snapshot lands.
    pub(crate) fn land_snapshot(
        &mut self,
        stamp: Stamp,
        snapshot: &Arc<Snapshot>,
        expect: &Expect,
    ) -> WriteAnswer {
        let before = self.registry.snapshot.as_ref().and_then(|there| there.content.clone());
        let careless = self.neglect == Some(Neglect::SnapshotUnconditional);
        let expect = if careless { None } else { Some(expect) };
        match self.registry.publish(expect, Some((Arc::clone(snapshot), stamp))) {
            None => WriteAnswer::Lost,
            Some(version) => {
                self.trace.say(self.now, || {
                    format!("== snapshot {:?} is published in {:?}", snapshot.id, stamp.epoch)
                });
                self.check_published(before.as_ref(), snapshot, stamp);
                WriteAnswer::Won(version)
            }
        }
    }
}

impl Term {
    fn new(epoch: Epoch) -> Term {
        Term {
            epoch,
            listing: None,
            first: None,
            changes: BTreeMap::new(),
            judged: BTreeSet::new(),
            junk: BTreeMap::new(),
            reading: BTreeMap::new(),
            sent: None,
        }
    }
}

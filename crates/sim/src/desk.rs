//! A node's desk for workers: the leader lists, judges and publishes; all other nodes read what was published when the seat names
//! it. Does what the library's sweeper does, with the production roll and bulletin.

use crate::queue::Happening;
use crate::store::Pointer;
use crate::wire::{Ask, Party, Put, SnapshotRead, Told};
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::WorkerId;
use tenure_core::{
    Epoch, KnownWorkers, Listed, Liveness, LivenessConfig, ReadOutcome, Snapshot, SnapshotId, Time,
};

/// How many intervals apart the leader looks while there are no workers.
const IDLE_INTERVALS: u64 = 4;
/// Most requests to get one snapshot published; after that the next sweep continues.
const PUBLISH_TRIES: u32 = 3;

#[derive(Clone, Debug)]
pub(crate) enum DeskInput {
    Told(u64, Told),
    /// A sweep is due, unless the desk has done something else since.
    Due(u64),
    /// The seat may name another snapshot, or leadership changed.
    Look,
}

#[derive(Debug)]
enum Step {
    Waiting,
    Settling { id: u64, publishing: bool },
    Listing { id: u64, sent: Time },
    Reading { left: BTreeMap<u64, WorkerId>, remove: Vec<WorkerId> },
    Removing { left: BTreeSet<u64> },
    Putting { id: u64, snapshot: Box<Snapshot> },
}

/// What a leader knows in one epoch, and the truth about it.
pub(crate) struct Tenure {
    pub(crate) epoch: Epoch,
    pub(crate) roll: Liveness,
    writer: u64,
    /// The last known version of the snapshot.
    version: Option<u64>,
    unsettled: bool,
    due: Time,
    step: Step,
    tries: u32,
    /// When its first list was answered.
    pub(crate) first: Option<Time>,
    /// Every change of a worker's object, in true time and on the leader's clock.
    pub(crate) changes: BTreeMap<WorkerId, Vec<(u64, Time)>>,
    pub(crate) judged: BTreeSet<(WorkerId, SnapshotId)>,
    /// Objects that were read and are not workers, and when.
    junk: BTreeMap<WorkerId, Time>,
}

/// One node's desk.
pub(crate) struct Desk {
    pub(crate) life: u64,
    pub(crate) bulletin: KnownWorkers,
    pub(crate) tenure: Option<Tenure>,
    /// What the seat said: nothing yet, or the snapshot it names.
    pub(crate) sight: Option<Option<Pointer>>,
    pub(crate) reading: Option<u64>,
    /// The seat has named another snapshot since the current read was sent.
    pub(crate) look_again: bool,
    pub(crate) failures: u32,
    asks: u64,
    pub(crate) ticket: u64,
    held: Vec<DeskInput>,
    /// What the seat of this epoch should name.
    pub(crate) wanted: Option<(Epoch, Pointer)>,
}

impl Desk {
    pub(crate) fn new(life: u64, bulletin: KnownWorkers) -> Desk {
        Desk {
            life,
            bulletin,
            tenure: None,
            sight: None,
            reading: None,
            look_again: false,
            failures: 0,
            asks: 0,
            ticket: 0,
            held: Vec::new(),
            wanted: None,
        }
    }
}

impl World {
    /// A new process of a node has a new desk.
    pub(crate) fn new_desk(&mut self, node: usize) {
        if !self.manned {
            return;
        }
        let life = self.new_life();
        let asks = self.desks.get(node).map_or(0, |desk| desk.asks);
        let mut desk = Desk::new(life, KnownWorkers::default());
        // Answers to the former process reach nobody.
        desk.asks = asks;
        match node < self.desks.len() {
            true => self.desks[node] = desk,
            false => self.desks.push(desk),
        }
    }

    fn leads(&self, node: usize, epoch: Epoch) -> bool {
        let target = &self.nodes[node];
        let local = target.clock.local(self.now);
        target.alive
            && target
                .acting
                .is_some_and(|acting| acting.epoch == epoch && !acting.told && local < acting.deadline)
    }

    pub(crate) fn lead_desk(&mut self, node: usize, epoch: Epoch) {
        if !self.manned {
            return;
        }
        let due = self.nodes[node].clock.local(self.now);
        let writer = self.new_life();
        let mut roll = Liveness::new(LivenessConfig { retention_ms: self.retention_ms }, epoch);
        if let Some(applied) = self.desks[node].bulletin.applied() {
            roll.above(applied);
        }
        let desk = &mut self.desks[node];
        (desk.reading, desk.look_again, desk.ticket) = (None, false, desk.ticket + 1);
        desk.tenure = Some(Tenure {
            epoch,
            roll,
            writer,
            version: None,
            unsettled: true,
            due,
            step: Step::Waiting,
            tries: 0,
            first: None,
            changes: BTreeMap::new(),
            judged: BTreeSet::new(),
            junk: BTreeMap::new(),
        });
        self.cycle(node);
    }

    /// The node read or wrote the seat.
    pub(crate) fn saw_seat(&mut self, node: usize) {
        if self.manned && self.store.seat.is_some() {
            let sight = Some(self.store.seat.as_ref().and_then(|object| object.pointer));
            // Look only if the seat names a different object than before.
            if std::mem::replace(&mut self.desks[node].sight, sight) == sight {
                return;
            }
            self.feed_desk(node, DeskInput::Look);
        }
    }

    pub(crate) fn resume_desk(&mut self, node: usize) {
        if self.manned {
            for input in std::mem::take(&mut self.desks[node].held) {
                self.feed_desk(node, input);
            }
        }
    }

    pub(crate) fn feed_desk(&mut self, node: usize, input: DeskInput) {
        if !self.manned || !self.nodes[node].alive {
            return;
        }
        if self.nodes[node].paused {
            self.desks[node].held.push(input);
            return;
        }
        self.steps += 1;
        let epoch = self.desks[node].tenure.as_ref().map(|tenure| tenure.epoch);
        if epoch.is_some_and(|epoch| !self.leads(node, epoch)) {
            let desk = &mut self.desks[node];
            (desk.tenure, desk.ticket) = (None, desk.ticket + 1);
            // What the seat named in the meantime was no reason to look then, but is now.
            self.look(node);
        }
        let desk = &mut self.desks[node];
        match input {
            DeskInput::Due(ticket) if ticket == desk.ticket => match desk.tenure {
                Some(_) => self.cycle(node),
                None => self.look(node),
            },
            DeskInput::Due(_) => {}
            DeskInput::Look => self.look(node),
            DeskInput::Told(id, told) => match desk.tenure {
                Some(_) => self.told_leader(node, id, told),
                None if desk.reading == Some(id) => {
                    desk.reading = None;
                    let again = std::mem::take(&mut desk.look_again);
                    if let Told::Snapshot(read) = told {
                        self.caught_up(node, read);
                    }
                    if again {
                        self.look(node);
                    }
                }
                None => self.look(node),
            },
        }
    }

    pub(crate) fn desk_ask(&mut self, node: usize, ask: Ask) -> u64 {
        self.desks[node].asks += 1;
        let id = self.desks[node].asks;
        self.ask(Party::Node(node), id, ask);
        id
    }

    pub(crate) fn desk_due(&mut self, node: usize, at: Time, ticket: u64) {
        let life = self.nodes[node].life;
        if let Some(when) = self.nodes[node].clock.when(at) {
            self.schedule(when, node, life, Happening::Desk { ticket });
        }
    }

    /// The clock changed, so the next sweep comes at a different time.
    pub(crate) fn rearm_desk(&mut self, node: usize) {
        if let Some(desk) = self.desks.get(node)
            && let Some(tenure) = &desk.tenure
            && matches!(tenure.step, Step::Waiting)
        {
            self.desk_due(node, tenure.due, desk.ticket);
        }
    }

    fn cycle(&mut self, node: usize) {
        let Some(tenure) = &self.desks[node].tenure else { return };
        let local = self.nodes[node].clock.local(self.now);
        if !matches!(tenure.step, Step::Waiting) {
            return;
        }
        if local < tenure.due {
            return self.rearm_desk(node);
        }
        // Judging without knowing what was already reported would report it twice.
        match tenure.unsettled {
            true => self.settle_desk(node, false),
            false => self.list(node),
        }
    }

    fn turn(&mut self, node: usize, step: Step) {
        if let Some(tenure) = &mut self.desks[node].tenure {
            tenure.step = step;
        }
    }

    fn settle_desk(&mut self, node: usize, publishing: bool) {
        let id = self.desk_ask(node, Ask::Snapshot);
        self.turn(node, Step::Settling { id, publishing });
    }

    fn list(&mut self, node: usize) {
        let sent = self.nodes[node].clock.local(self.now);
        let id = self.desk_ask(node, Ask::List);
        self.turn(node, Step::Listing { id, sent });
    }

    fn rest(&mut self, node: usize) {
        let local = self.nodes[node].clock.local(self.now);
        let sweep_ms = self.sweep_ms;
        let desk = &mut self.desks[node];
        desk.ticket += 1;
        let ticket = desk.ticket;
        let Some(tenure) = &mut desk.tenure else { return };
        let idle = tenure.roll.known() == 0 && !tenure.unsettled;
        tenure.due = (tenure.due + sweep_ms * if idle { IDLE_INTERVALS } else { 1 }).max(local);
        tenure.step = Step::Waiting;
        let due = tenure.due;
        self.desk_due(node, due, ticket);
    }

    fn told_leader(&mut self, node: usize, id: u64, told: Told) {
        let Some(tenure) = &mut self.desks[node].tenure else { return };
        match (&mut tenure.step, told) {
            (Step::Settling { id: asked, publishing }, Told::Snapshot(read)) if *asked == id => {
                let publishing = *publishing;
                self.settled(node, read);
                let unsettled = self.desks[node].tenure.as_ref().is_some_and(|tenure| tenure.unsettled);
                match (unsettled, publishing) {
                    (true, _) => self.rest(node),
                    (false, true) => self.publish(node),
                    (false, false) => self.list(node),
                }
            }
            (Step::Listing { id: asked, sent }, Told::List(list)) if *asked == id => {
                let sent = *sent;
                match list {
                    None => self.begin_publishing(node),
                    Some((landed, until, entries)) => self.swept(node, sent, landed, until, &entries),
                }
            }
            (Step::Reading { left, .. }, Told::Object(outcome)) => {
                if let Some(worker) = left.remove(&id) {
                    self.read(node, &worker, outcome);
                }
                self.after_reads(node);
            }
            (Step::Removing { left }, Told::Removed) => {
                if left.remove(&id) && left.is_empty() {
                    self.begin_publishing(node);
                }
            }
            (Step::Putting { id: asked, .. }, Told::Published(put)) if *asked == id => {
                self.on_put(node, put);
            }
            (
                Step::Waiting
                | Step::Settling { .. }
                | Step::Listing { .. }
                | Step::Reading { .. }
                | Step::Removing { .. }
                | Step::Putting { .. },
                _,
            ) => {}
        }
    }

    /// Takes over what the snapshot holds.
    fn settled(&mut self, node: usize, read: SnapshotRead) {
        let desk = &mut self.desks[node];
        let Some(tenure) = &mut desk.tenure else { return };
        match read {
            SnapshotRead::Found(version, Some((snapshot, writer))) => {
                if writer == tenure.writer {
                    tenure.roll.published(snapshot.id);
                } else if snapshot.id.epoch > tenure.epoch {
                    return; // A newer leader has published.
                } else {
                    tenure.roll.inherit(&snapshot);
                    // Including silences of this epoch, if this node led in it before.
                    let silences = snapshot
                        .workers
                        .iter()
                        .filter_map(|entry| Some((entry.worker.clone(), entry.silence?)));
                    tenure.judged.extend(silences);
                }
                desk.wanted = Some((tenure.epoch, (snapshot.id, version)));
                (tenure.version, tenure.unsettled) = (Some(version), false);
                self.apply(node, &snapshot);
            }
            // Derived from the workers' own objects, and nobody else may write it: make it again.
            SnapshotRead::Found(version, None) => {
                desk.bulletin.begin_empty();
                tenure.roll.found_spoiled();
                (tenure.version, tenure.unsettled) = (Some(version), false);
            }
            SnapshotRead::Absent => {
                desk.bulletin.begin_empty();
                (tenure.version, tenure.unsettled) = (None, false);
            }
            SnapshotRead::Unavailable => {}
        }
    }

    fn swept(&mut self, node: usize, sent: Time, landed: Time, until: u64, entries: &[Listed]) {
        let local = self.nodes[node].clock.local(self.now);
        let Some(tenure) = &mut self.desks[node].tenure else { return };
        let out = tenure.roll.sweep(sent, local, entries, 0, false);
        tenure.first.get_or_insert(local);
        // An object that was missing from one list is a different object.
        tenure.junk.retain(|worker, _| entries.iter().any(|entry| entry.worker == *worker));
        self.check_judgement(node, sent, landed, until);
        self.check_reads(node, &out.read, entries.len());
        let mut left = BTreeMap::new();
        for worker in out.read {
            let id = self.desk_ask(node, Ask::Object(worker.clone()));
            left.insert(id, worker);
        }
        self.turn(node, Step::Reading { left, remove: out.remove });
        self.after_reads(node);
    }

    fn read(&mut self, node: usize, worker: &WorkerId, outcome: ReadOutcome) {
        let local = self.nodes[node].clock.local(self.now);
        let Some(tenure) = &mut self.desks[node].tenure else { return };
        match outcome {
            ReadOutcome::Corrupt => drop(tenure.junk.insert(worker.clone(), local)),
            ReadOutcome::Nothing => self.had_unread = true,
            ReadOutcome::Found(_) => {}
        }
        tenure.roll.read(local, worker, outcome);
    }

    /// An object that is not a worker is not read again for a minute.
    fn check_reads(&mut self, node: usize, reads: &[WorkerId], listed: usize) {
        let local = self.nodes[node].clock.local(self.now);
        let Some(tenure) = &self.desks[node].tenure else { return };
        let known = |worker: &&WorkerId| {
            tenure.junk.get(*worker).is_some_and(|at| local.since(*at) < crate::silence::READ_AGAIN_MS)
        };
        let again = reads.iter().find(known).cloned();
        if reads.len() > listed || again.is_some() {
            let now = self.now;
            self.judge.violated(now, crate::check::name::REGISTRY_BUDGET, || {
                format!("{node} reads {} of {listed} objects, {again:?} once more", reads.len())
            });
        }
    }

    fn after_reads(&mut self, node: usize) {
        let Some(tenure) = &mut self.desks[node].tenure else { return };
        let Step::Reading { left, remove } = &mut tenure.step else { return };
        if !left.is_empty() {
            return;
        }
        let remove = std::mem::take(remove);
        if remove.is_empty() {
            return self.begin_publishing(node);
        }
        let mut left = BTreeSet::new();
        for worker in remove {
            left.insert(self.desk_ask(node, Ask::Remove(worker)));
        }
        self.turn(node, Step::Removing { left });
    }

    fn begin_publishing(&mut self, node: usize) {
        if let Some(tenure) = &mut self.desks[node].tenure {
            tenure.tries = PUBLISH_TRIES;
            self.publish(node);
        }
    }

    fn publish(&mut self, node: usize) {
        let Some(tenure) = &mut self.desks[node].tenure else { return };
        if tenure.tries == 0 {
            return self.rest(node);
        }
        if tenure.unsettled {
            return self.settle_desk(node, true);
        }
        if !tenure.roll.is_changed() {
            return self.rest(node);
        }
        tenure.tries -= 1;
        let snapshot = Box::new(tenure.roll.snapshot());
        let (writer, version) = (tenure.writer, tenure.version);
        let id = self.desk_ask(node, Ask::Publish(snapshot.clone(), writer, version));
        self.turn(node, Step::Putting { id, snapshot });
    }

    fn on_put(&mut self, node: usize, put: Put) {
        let desk = &mut self.desks[node];
        let Some(tenure) = &mut desk.tenure else { return };
        let step = std::mem::replace(&mut tenure.step, Step::Waiting);
        let Step::Putting { snapshot, .. } = step else { return };
        match put {
            Put::Won(version) => {
                tenure.roll.published(snapshot.id);
                tenure.version = Some(version);
                desk.wanted = Some((tenure.epoch, (snapshot.id, version)));
                self.apply(node, &snapshot);
                self.rest(node);
            }
            // A refusal may be the echo of this node's own write, and a lost answer is not a lost race: the read-back decides.
            Put::Lost | Put::Unknown => {
                tenure.unsettled = true;
                self.publish(node);
            }
            Put::Refused => self.rest(node),
        }
    }
}

//! A node's sweep over the workers, and the truth about what it did while its node led.

use crate::caller_mistakes::CallerMistake;
use crate::checks::name;
use crate::checks::workers::READ_AGAIN_MS;
use crate::machines::dispatcher::Dispatching;
use crate::shell::{Part, PartName, Played, Who};
use crate::store::{Folder, Key, Op, Said, Value};
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read};
use tenure_core::machine::{In, Input, Machine, Now, Out};
use tenure_core::{
    Epoch, Incarnation, KnownWorkers, Listed, ListedWorkers, ReadOutcome, RequestId, Snapshot, SnapshotId,
    Sweep, SweepAnswer, SweepCommand, SweepConfig, SweepOutput, SweepRequest, Time, WorkerId, WriteAnswer,
};

/// Longer than any schedule: presences are not part of this.
const NODE_RETENTION_MS: u64 = 1 << 40;
/// The size of a worker's document; junk has a different size.
const WORKER_BYTES: u64 = 240;

/// A list under way.
pub(crate) struct Listing {
    pub(crate) id: RequestId,
    pub(crate) sent: Time,
    /// When it landed on the leader's clock, and until when it was true in true time.
    pub(crate) truth: Option<(Time, u64)>,
}

/// The truth about a leader's sweeps in one epoch.
pub(crate) struct Term {
    pub(crate) epoch: Epoch,
    pub(crate) listing: Option<Listing>,
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
    pub(crate) part: Part<Sweep>,
    pub(crate) term: Option<Term>,
    /// The snapshot that the seat named when it was read, if it was.
    seat: Option<Option<SnapshotId>>,
    /// What the seat of this epoch should name.
    wanted: Option<(Epoch, SnapshotId)>,
    /// The snapshot that is there, by the answer handled last.
    found: Option<Arc<Snapshot>>,
}

impl NodeSweep {
    pub(crate) fn machine(&self) -> &Sweep {
        &self.part.machine
    }

    /// The snapshot that a record of this epoch names.
    pub(crate) fn seat_names(&self, epoch: Epoch) -> Option<SnapshotId> {
        let wanted = self.wanted.filter(|(of, _)| *of == epoch).map(|(_, snapshot)| snapshot);
        wanted.or(self.seat.flatten())
    }
}

impl Played for Sweep {
    const NAME: PartName = PartName::Sweep;

    fn part(world: &mut World, who: Who) -> Option<&mut Part<Sweep>> {
        Some(&mut world.sweep_mut(who)?.part)
    }

    /// The node may have begun to lead, or no longer does.
    fn before(world: &mut World, who: Who) -> bool {
        let Who::Node(node) = who else { return false };
        let epoch = world.nodes[node].led_epoch(world.now);
        let Some(sweep) = world.sweep_mut(who) else { return false };
        if sweep.term.as_ref().map(|term| term.epoch) != epoch {
            sweep.term = epoch.map(Term::new);
            let me = Incarnation(world.new_life());
            let command = epoch.map_or(SweepCommand::Lost, |epoch| SweepCommand::Lead { epoch, me });
            world.step::<Sweep>(who, Input::Command(command));
        }
        world.is_up(who)
    }

    fn react(world: &mut World, who: Who, now: Now, input: In<Sweep>, out: &mut Vec<Out<Sweep>>) {
        let found = world.note_answer(who, now.at, &input);
        let Some(sweep) = world.sweep_mut(who) else { return };
        let listing = match (&input, &mut sweep.term) {
            (Input::Answer(id, SweepAnswer::Listed(Some(list))), Some(term)) => {
                // An object that was missing from one list is a different object.
                term.junk.retain(|worker, _| list.workers.iter().any(|entry| entry.worker == *worker));
                term.listing.take_if(|listing| listing.id == *id)
            }
            _ => None,
        };
        sweep.found = found;
        sweep.part.machine.handle(now, input, out);
        if let (Some(Listing { sent, truth: Some((landed, until)), .. }), Some(term)) =
            (listing, &mut sweep.term)
        {
            term.first.get_or_insert(now.at);
            world.check_judgement(who, sent, landed, until);
        }
    }

    fn op(world: &mut World, who: Who, id: RequestId, request: &SweepRequest) -> Option<Op> {
        world.note_request(who, id, request);
        Some(match request {
            SweepRequest::List => Op::List(Folder::Workers),
            SweepRequest::Read(worker) => Op::Get(Key::Worker(worker.clone()), None),
            SweepRequest::Remove(worker) => Op::Remove(Key::Worker(worker.clone())),
            SweepRequest::Snapshot(request) => {
                let op = Op::document(Key::Snapshot, request, |stamp, body| {
                    Value::Snapshot(stamp, Arc::clone(body))
                });
                let careless = world.mistake == Some(CallerMistake::SnapshotUnconditional);
                if careless { op.unconditional() } else { op }
            }
            SweepRequest::ForgetNodes => Op::Probe,
        })
    }

    fn answer(_: &mut World, _: Who, request: SweepRequest, said: Said) -> SweepAnswer {
        match (request, said) {
            (SweepRequest::List, Said::Listed(Some(list))) => {
                let workers = list.into_iter().filter_map(listed).collect();
                SweepAnswer::Listed(Some(ListedWorkers { workers, ..ListedWorkers::default() }))
            }
            (SweepRequest::List, _) => SweepAnswer::Listed(None),
            (SweepRequest::Read(_), Said::Found(object)) => {
                let worker = object.value.worker().map(|(_, worker)| worker.details.clone());
                SweepAnswer::Read(worker.map_or(ReadOutcome::Corrupt, ReadOutcome::Found))
            }
            (SweepRequest::Read(_), _) => SweepAnswer::Read(ReadOutcome::Nothing),
            (SweepRequest::Remove(_), _) => SweepAnswer::Removed,
            (SweepRequest::Snapshot(_), said) => SweepAnswer::Snapshot(
                said.document(|value| value.snapshot().map(|(stamp, body)| (stamp, Arc::clone(body)))),
            ),
            (SweepRequest::ForgetNodes, _) => SweepAnswer::NodesForgotten,
        }
    }

    fn output(world: &mut World, who: Who, output: SweepOutput) {
        let Who::Node(node) = who else { return };
        match output {
            SweepOutput::Event(event) => {
                let (now, id) = (world.now, &world.nodes[node].id);
                world.trace.say(now, || format!("{id} tells {} {:?}", event.worker, event.change));
                let found = world.sweep_mut(who).and_then(|sweep| sweep.found.clone());
                if let Some(snapshot) = found {
                    world.check_told(node, &snapshot, &event);
                }
            }
            SweepOutput::Point { epoch, id, .. } => {
                if let Some(sweep) = world.sweep_mut(who) {
                    sweep.wanted = Some((epoch, id));
                }
            }
            SweepOutput::Applied(_) | SweepOutput::Told { .. } => world.nudge::<Dispatching>(who),
            SweepOutput::Swept(_) => {}
        }
    }
}

fn listed(listed: crate::store::Listed) -> Option<Listed> {
    let Key::Worker(worker) = listed.key else { return None };
    let bytes = if listed.object.value.worker().is_some() { WORKER_BYTES } else { WORKER_BYTES / 2 };
    // Two writes with the same time are not modelled: the next heartbeat would tell them apart.
    let modified_ms = listed.object.modified_ms << 20 | listed.object.write & 0xf_ffff;
    Some(Listed { worker, modified_ms, bytes })
}

impl World {
    /// A new process of a node knows nothing.
    pub(crate) fn new_sweep(&mut self, node: usize) {
        if !self.has_workers {
            return;
        }
        let config = SweepConfig {
            sweep_ms: self.sweep_ms,
            retention_ms: self.retention_ms,
            node_retention_ms: NODE_RETENTION_MS,
            snapshot_weight_max: u64::MAX,
        };
        let part = Part::new(Sweep::new(config, KnownWorkers::default()), self.new_life());
        self.nodes[node].sweep = Some(NodeSweep { part, term: None, seat: None, wanted: None, found: None });
    }

    fn sweep_mut(&mut self, who: Who) -> Option<&mut NodeSweep> {
        match who {
            Who::Node(node) => self.nodes[node].sweep.as_mut(),
            Who::Worker(_) => None,
        }
    }

    /// A node read the seat.
    pub(crate) fn saw_seat(&mut self, node: usize, names: Option<SnapshotId>) {
        let Some(sweep) = &mut self.nodes[node].sweep else { return };
        // Only if the seat names a different snapshot than before.
        if sweep.seat.replace(names) != Some(names) {
            self.command::<Sweep>(Who::Node(node), SweepCommand::Seat(names));
        }
    }

    /// Remembers what the answer tells, and returns the snapshot that is there by it.
    fn note_answer(&mut self, who: Who, local: Time, input: &In<Sweep>) -> Option<Arc<Snapshot>> {
        let Input::Answer(id, answer) = input else { return None };
        if let SweepAnswer::Read(ReadOutcome::Nothing) = answer {
            self.worker_checks.had_unread = true;
        }
        let term = self.sweep_mut(who)?.term.as_mut();
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

    fn note_request(&mut self, who: Who, id: RequestId, request: &SweepRequest) {
        let local = self.time(who).at;
        let Some(term) = self.sweep_mut(who).and_then(|sweep| sweep.term.as_mut()) else { return };
        match request {
            SweepRequest::List => term.listing = Some(Listing { id, sent: local, truth: None }),
            SweepRequest::Read(worker) => {
                term.reading.insert(id, worker.clone());
                // An object that is not a worker is not read again for a minute.
                let known = term.junk.get(worker).copied();
                if known.is_some_and(|at| local.since(at) < READ_AGAIN_MS) {
                    self.violated(name::REGISTRY_BUDGET, || format!("{who:?} reads {worker} once more"));
                }
            }
            SweepRequest::Snapshot(DocumentRequest::Write { body, .. }) => {
                term.sent = Some(Arc::clone(body));
            }
            SweepRequest::Snapshot(_) | SweepRequest::Remove(_) | SweepRequest::ForgetNodes => {}
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

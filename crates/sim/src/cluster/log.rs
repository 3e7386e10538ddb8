//! What real nodes and their work did, and what must hold of it.

use crate::check::{self, Violation};
use crate::model::{self, Step, Terms};
use crate::overheard::Record;
use crate::trace::Digest;
use crate::transition::Followed;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure::{Clock, CoreStep, Event, EventKind, Leadership};
use tenure_core::{Effect, Epoch, Request, SeatState, Version};
use tokio::sync::{broadcast, watch};

/// What is checked, by name.
pub(super) mod name {
    pub(in crate::cluster) const ORDER: &str = "nobody acts in an older epoch";
    pub(in crate::cluster) const HOLDER: &str = "one holder per epoch";
    pub(in crate::cluster) const ONE: &str = "one acts at a time";
    pub(in crate::cluster) const DEADLINE: &str = "nobody acts past its own deadline";
    pub(in crate::cluster) const STOPPED: &str = "nobody acts while another's work winds down";
    pub(in crate::cluster) const SEAT: &str = "epochs on the seat rise";
    pub(in crate::cluster) const DIES: &str = "no candidate dies";
    pub(in crate::cluster) const LEADER: &str = "one leader after all was mended";
    pub(in crate::cluster) const KNOWN: &str = "everybody knows the leader after all was mended";
    pub(in crate::cluster) const RUNTIME: &str = "the schedule runs";
}

/// A clock with a rate of its own. It leaps when its machine was asleep; timers of the runtime know nothing of that.
#[derive(Debug)]
pub(super) struct DriftingClock {
    pub(super) origin: tokio::time::Instant,
    pub(super) rate: u64,
    pub(super) slept_ms: AtomicU64,
}

impl Clock for DriftingClock {
    fn now_ms(&self) -> u64 {
        let elapsed_ms = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX / 2000);
        1000 + elapsed_ms * self.rate / 1000 + self.slept_ms.load(Ordering::Relaxed)
    }
}

/// Everything that was done in anybody's name.
#[derive(Default)]
pub(super) struct Log {
    pub(super) origin: Option<tokio::time::Instant>,
    pub(super) watched: BTreeMap<u64, Watched>,
    pub(super) led: BTreeMap<u64, u64>,
    last: u64,
    /// The record on the seat, and what every life's clock showed when it landed.
    seat: Option<(Record, BTreeMap<u64, u64>)>,
    pub(super) acts: u64,
    pub(super) followed: Followed,
    /// The version that a list showed a life to be long dead.
    aged: BTreeMap<u64, Version>,
    pub(super) digest: Digest,
    pub(super) violations: Vec<Violation>,
}

/// One life of a node, from outside.
pub(super) struct Watched {
    pub(super) node: String,
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) events: broadcast::Receiver<Event>,
    pub(super) clock: Arc<DriftingClock>,
    /// Until when it may act in which epoch, by its own word.
    pub(super) deadlines: BTreeMap<u64, u64>,
    /// Its work of this epoch runs.
    pub(super) works: Option<u64>,
    /// And was told to stop.
    pub(super) winding_down: bool,
    /// The highest epoch it has sent a vacate for.
    pub(super) vacated: Option<Epoch>,
}

impl Watched {
    fn is_past_its_deadline(&self, epoch: u64) -> bool {
        self.deadlines.get(&epoch).is_none_or(|deadline_ms| self.clock.now_ms() >= *deadline_ms)
    }

    fn may_not_have_stopped(&self) -> bool {
        self.winding_down && self.works.is_some_and(|epoch| !self.is_past_its_deadline(epoch))
    }
}

pub(super) type Shared = Arc<Mutex<Log>>;

pub(super) fn open(log: &Shared) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    pub(super) fn now_ms(&self) -> u64 {
        self.origin.map_or(0, |origin| u64::try_from(origin.elapsed().as_millis()).unwrap_or(0))
    }

    pub(super) fn violated(&mut self, check: &'static str, what: String) {
        let at = self.now_ms();
        self.violations.push(Violation { at, check, what });
    }

    /// What everybody has said until now.
    pub(super) fn listen(&mut self) {
        let mut died = None;
        for (life, watched) in &mut self.watched {
            while let Ok(event) = watched.events.try_recv() {
                if let EventKind::BecameLeader { deadline_boot_ms }
                | EventKind::LeaseRenewed { deadline_boot_ms, .. } = event.kind
                {
                    watched.deadlines.insert(event.epoch, deadline_boot_ms);
                } else if let EventKind::CandidateRestarted { .. } = event.kind {
                    died = Some(*life);
                }
            }
        }
        if let Some(life) = died {
            self.violated(name::DIES, format!("life {life}"));
        }
    }

    /// A record lands on the seat.
    pub(super) fn lands(&mut self, record: Option<Record>) {
        let before = self.seat.as_ref().map(|(seat, clocks)| (seat.clone(), clocks.clone()));
        let from = before.as_ref().map_or(0, |(seat, _)| seat.epoch);
        let Some(record) = record.filter(|record| record.epoch >= from) else {
            return self.violated(name::SEAT, format!("from epoch {from} to less, or to no record"));
        };
        // A holder that never acted has nothing to stop.
        if let Some((seat, clocks)) = before.filter(|(seat, _)| seat.held && record.epoch > seat.epoch)
            && let Some((life, watched)) =
                self.led.get(&seat.epoch).and_then(|life| Some((life, self.watched.get(life)?)))
            && let Some(landed) = clocks.get(life)
            && watched.clock.now_ms() < landed + seat.hold_ms
        {
            let (shows, hold_ms) = (watched.clock.now_ms(), seat.hold_ms);
            let what =
                format!("{record:?} over one of {landed}, at {shows} of its holder's clock, hold {hold_ms}");
            self.violated(check::name::M3, what);
        }
        let clocks = self.watched.iter().map(|(life, watched)| (*life, watched.clock.now_ms())).collect();
        self.seat = Some((record, clocks));
    }

    pub(super) fn works(&mut self, life: u64, works: Option<u64>, winding_down: bool) {
        if let Some(watched) = self.watched.get_mut(&life) {
            (watched.works, watched.winding_down) = (works, winding_down);
        }
    }

    /// A coordinator made a step: it must be one of the model's, the coordinator must know of work that runs (K5), and who vacates
    /// an epoch must be done with it (L1).
    pub(super) fn follows(&mut self, life: u64, step: &CoreStep<'_>) {
        let (me, config) = (step.core.me(), step.core.config());
        if let Some(version) = model::aged(&step.before, me, config, step.input) {
            self.aged.insert(life, version);
        }
        let terms = Terms { me, config, aged: self.aged.get(&life) };
        let made = Step { now: step.now, input: step.input, effects: step.effects };
        let after = step.core.view();
        if let Err(what) = model::follow(&terms, &step.before, &made, &after, &mut self.followed) {
            self.violated(check::name::MODEL, format!("life {life}: {what}"));
        }
        let Some(watched) = self.watched.get_mut(&life) else { return };
        let vacates = step.effects.iter().filter_map(|effect| {
            let Effect::Request(_, Request::WriteSeat { seat, .. }) = effect else { return None };
            (seat.state == SeatState::Vacant).then_some(seat.epoch)
        });
        watched.vacated = vacates.chain(watched.vacated).max();
        let works = watched.works.map(Epoch);
        let unknown = works.filter(|epoch| !model::is_known(&after, *epoch));
        let acts = works.filter(|epoch| !watched.is_past_its_deadline(epoch.0));
        let again = watched.vacated.filter(|epoch| !model::is_over(&after, acts, *epoch));
        if let Some(epoch) = unknown {
            self.violated(check::name::K5, format!("life {life}: work of {epoch:?} runs: {after:?}"));
        }
        if let Some(epoch) = again {
            self.violated(check::name::L1, format!("life {life}: {epoch:?} was vacated: {after:?}"));
        }
    }

    /// One piece of work, done under a guard that was valid a moment ago.
    pub(super) fn act(&mut self, life: u64, epoch: u64) {
        self.acts += 1;
        self.listen();
        let now = self.now_ms();
        if epoch < self.last {
            self.violated(name::ORDER, format!("life {life} acts in {epoch} after {}", self.last));
        }
        self.last = self.last.max(epoch);
        let name = self.watched.get(&life).map(|watched| watched.node.clone());
        let holds = |(seat, _): &(Record, BTreeMap<u64, u64>)| {
            seat.held && seat.epoch == epoch && Some(&seat.node) == name.as_ref()
        };
        if !self.seat.as_ref().is_some_and(holds) {
            let seat = self.seat.as_ref().map(|(seat, _)| seat.clone());
            self.violated(check::name::HOLDS_THE_SEAT, format!("life {life} acts in {epoch}: {seat:?}"));
        }
        match self.led.insert(epoch, life) {
            Some(other) if other != life => {
                self.violated(name::HOLDER, format!("epoch {epoch} led by life {other} and by life {life}"));
            }
            Some(_) => {}
            None => (now, life, epoch).hash(&mut self.digest),
        }
        if self.watched.get(&life).is_some_and(|watched| watched.is_past_its_deadline(epoch)) {
            self.violated(name::DEADLINE, format!("life {life} in {epoch}"));
        }
        let mut others = self.watched.iter().filter(|(other, _)| **other != life);
        let beside = others.clone().find(|(_, watched)| watched.leadership.borrow().is_leader());
        let beside = beside.map(|(other, _)| *other);
        let unfinished = others.find(|(_, watched)| watched.may_not_have_stopped());
        let unfinished = unfinished.map(|(other, _)| *other);
        if let Some(other) = beside {
            self.violated(name::ONE, format!("life {life} acts while life {other} may"));
        }
        if let Some(other) = unfinished {
            self.violated(name::STOPPED, format!("life {life} acts, life {other} has not stopped"));
        }
    }
}

//! What real nodes and their work did, and what must hold for it.

use crate::checks::{self, Violation};
use crate::model::{self, Step, Terms};
use crate::observed_store::Record;
use crate::trace::Digest;
use crate::transition::Followed;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tenure::clock::Clock;
use tenure::event::EventKind;
use tenure::{CoreStep, Event, Leadership};
use tenure_core::{
    Effect, Epoch, Incarnation, LeadView, Nonce, Request, SeatState, SeenView, Time, Version, View,
};
use tokio::sync::{broadcast, watch};

/// The names of the checks.
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

/// A clock with its own rate. It jumps after its machine slept; the runtime's timers do not notice.
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

/// Everything the nodes and their work did.
#[derive(Default)]
pub(super) struct Log {
    pub(super) origin: Option<tokio::time::Instant>,
    pub(super) watched: BTreeMap<u64, Watched>,
    pub(super) led: BTreeMap<u64, u64>,
    last: u64,
    /// Every record that was on the seat.
    landed: BTreeMap<Nonce, Landed>,
    /// The one on it now.
    seat: Option<Nonce>,
    /// When each write was sent, on its sender's clock.
    sent: BTreeMap<Nonce, Time>,
    pub(super) acts: u64,
    pub(super) followed: Followed,
    /// The version that a list showed to an incarnation as long dead.
    aged: BTreeMap<u64, Version>,
    pub(super) digest: Digest,
    pub(super) violations: Vec<Violation>,
}

/// What the clauses need to know about a coordinator.
pub(super) struct Core {
    me: Incarnation,
    hold_ms: u64,
    view: View,
}

struct Landed {
    record: Record,
    /// What the clock of every incarnation showed.
    clocks: BTreeMap<u64, u64>,
}

/// One incarnation of a node, seen from outside.
pub(super) struct Watched {
    pub(super) leadership: watch::Receiver<Leadership>,
    pub(super) events: broadcast::Receiver<Event>,
    pub(super) clock: Arc<DriftingClock>,
    /// For each epoch, until when it may act, by its own account.
    pub(super) deadlines: BTreeMap<u64, u64>,
    /// The epoch of its running work.
    pub(super) works: Option<u64>,
    /// That work was told to stop.
    pub(super) winding_down: bool,
    /// The highest epoch it has sent a vacate for.
    pub(super) vacated: Option<Epoch>,
    /// The newest of its claims and renewals that landed.
    pub(super) newest: Option<Nonce>,
    /// Its coordinator, as of its last step.
    pub(super) core: Option<Core>,
}

impl Watched {
    fn is_past_its_deadline(&self, epoch: u64) -> bool {
        self.deadlines.get(&epoch).is_none_or(|deadline_ms| self.clock.now_ms() >= *deadline_ms)
    }

    fn is(&self, incarnation: Incarnation) -> bool {
        self.core.as_ref().is_some_and(|core| core.me == incarnation)
    }

    fn may_not_have_stopped(&self) -> bool {
        self.winding_down && self.works.is_some_and(|epoch| !self.is_past_its_deadline(epoch))
    }
}

pub(super) type Shared = Arc<Mutex<Log>>;

impl Log {
    pub(super) fn now_ms(&self) -> u64 {
        self.origin.map_or(0, |origin| u64::try_from(origin.elapsed().as_millis()).unwrap_or(0))
    }

    pub(super) fn violated(&mut self, check: &'static str, what: String) {
        let at = self.now_ms();
        self.violations.push(Violation { at, check, what });
    }

    /// Takes in all events so far.
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

    fn on_the_seat(&self) -> Option<&Landed> {
        self.landed.get(self.seat.as_ref()?)
    }

    /// A record lands on the seat.
    pub(super) fn lands(&mut self, record: Option<Record>) {
        let from = self.on_the_seat().map_or(0, |seat| seat.record.epoch);
        let Some(record) = record.filter(|record| record.epoch >= from) else {
            return self.violated(name::SEAT, format!("from epoch {from} to less, or to no record"));
        };
        if let Some(what) = self.lands_early(&record) {
            self.violated(checks::name::M3, what);
        }
        let clocks = self.watched.iter().map(|(life, watched)| (*life, watched.clock.now_ms())).collect();
        let nonce = record.nonce;
        let holder = self.watched.values_mut().find(|watched| watched.is(record.incarnation));
        if let Some(holder) = holder.filter(|_| record.held) {
            holder.newest = Some(nonce);
        }
        self.landed.insert(nonce, Landed { record, clocks });
        self.seat = Some(nonce);
        let lives: Vec<u64> = self.watched.keys().copied().collect();
        lives.into_iter().for_each(|life| self.watch(life));
    }

    /// M3, checked where a claim lands instead of where it is sent.
    fn lands_early(&self, record: &Record) -> Option<String> {
        let Landed { record: held, clocks } =
            self.on_the_seat().filter(|seat| seat.record.held && record.epoch > seat.record.epoch)?;
        let (life, holder) = self.watched.iter().find(|(_, watched)| watched.is(held.incarnation))?;
        let (landed, shows) = (clocks.get(life)?, holder.clock.now_ms());
        (shows < landed + held.hold_ms)
            .then(|| format!("{record:?} over {held:?} of {landed}, at {shows} of its holder's clock"))
    }

    pub(super) fn works(&mut self, life: u64, works: Option<u64>, winding_down: bool) {
        if let Some(watched) = self.watched.get_mut(&life) {
            (watched.works, watched.winding_down) = (works, winding_down);
        }
    }

    /// A coordinator made a step: it must be one of the model's, and keep every clause.
    pub(super) fn follows(&mut self, life: u64, step: &CoreStep<'_>) {
        let (me, config) = (step.core.me(), step.core.config());
        if let Some(version) = model::aged(&step.before, me, config, step.input) {
            self.aged.insert(life, version);
        }
        let terms = Terms { me, config, aged: self.aged.get(&life) };
        let made = Step { now: step.now, input: step.input, effects: step.effects };
        let after = step.core.view();
        if let Err(what) = model::follow(&terms, &step.before, &made, &after, &mut self.followed) {
            self.violated(checks::name::MODEL, format!("life {life}: {what}"));
        }
        let writes = step.effects.iter().filter_map(|effect| {
            let Effect::Request(_, Request::WriteSeat { seat, .. }) = effect else { return None };
            Some(seat)
        });
        self.sent.extend(writes.clone().map(|seat| (seat.nonce, step.now)));
        let Some(watched) = self.watched.get_mut(&life) else { return };
        let vacates = writes.filter(|seat| seat.state == SeatState::Vacant).map(|seat| seat.epoch);
        watched.vacated = vacates.chain(watched.vacated).max();
        watched.core = Some(Core { me: me.incarnation, hold_ms: config.hold_ms(), view: after });
        self.watch(life);
    }

    /// Checks every clause about this incarnation now.
    fn watch(&mut self, life: u64) {
        if let Some((check, what)) = self.breaks(life) {
            self.violated(check, format!("life {life}: {what}"));
        }
    }

    fn breaks(&self, life: u64) -> Option<(&'static str, String)> {
        let watched = self.watched.get(&life)?;
        let Core { me, hold_ms, view } = watched.core.as_ref()?;
        if let SeenView::Record { seat, since, .. } = &view.seen {
            let landed = self.landed.get(&seat.nonce).map(|landed| landed.clocks.get(&life));
            // Incarnations that began later are not in the list: they did not exist when it landed.
            if landed.is_none_or(|shown| shown.is_some_and(|shown| *shown > since.0)) {
                return Some((checks::name::K1, format!("saw {seat:?} since {since:?}, landed {landed:?}")));
            }
        }
        let by = |lead: &LeadView| {
            self.landed.iter().any(|(nonce, landed)| {
                nonce.incarnation == *me
                    && landed.record.epoch == lead.epoch.0
                    && self.sent.get(nonce) == Some(&lead.renewed)
            })
        };
        if let Some(lead) = view.lead.filter(|lead| !by(lead)) {
            return Some((checks::name::K3, format!("{lead:?} rests on no write that landed")));
        }
        let works = watched.works.map(Epoch);
        if let Some(epoch) = works.filter(|epoch| !model::is_known(view, *epoch)) {
            return Some((checks::name::K5, format!("work of {epoch:?} runs: {view:?}")));
        }
        let acts = works.filter(|epoch| !watched.is_past_its_deadline(epoch.0));
        let over = |epoch: Epoch| model::is_over(view, acts, epoch);
        if let Some(epoch) = watched.vacated.filter(|epoch| !over(*epoch)) {
            return Some((checks::name::L1, format!("{epoch:?} was vacated: {view:?}")));
        }
        let newest = watched.newest?;
        let epoch = self.landed.get(&newest)?.record.epoch;
        let stands = self.on_the_seat().is_some_and(|seat| seat.record.held && seat.record.epoch == epoch);
        let past = self.sent.get(&newest).is_none_or(|sent| watched.clock.now_ms() >= sent.0 + hold_ms);
        let gone = !stands && !past && !over(Epoch(epoch));
        gone.then(|| (checks::name::L2, format!("its record of {epoch} is gone: {view:?}")))
    }

    /// One work item, done under a guard that was valid a moment ago.
    pub(super) fn act(&mut self, life: u64, epoch: u64) {
        self.acts += 1;
        self.listen();
        let now = self.now_ms();
        if epoch < self.last {
            self.violated(name::ORDER, format!("life {life} acts in {epoch} after {}", self.last));
        }
        self.last = self.last.max(epoch);
        let holds = |Landed { record, .. }: &Landed| {
            let own = self.watched.get(&life).is_some_and(|watched| watched.is(record.incarnation));
            record.held && record.epoch == epoch && own
        };
        if !self.on_the_seat().is_some_and(holds) {
            let seat = self.on_the_seat().map(|seat| seat.record.clone());
            self.violated(checks::name::HOLDS_THE_SEAT, format!("life {life} acts in {epoch}: {seat:?}"));
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

//! Pods, one plugin, two seats, and anything happening in any order.
#![allow(dead_code, reason = "two test programs use it")]

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tenure_core::{Arbiter, ArbiterEffect, ArbiterInput, Arbitration, Epoch, Sight};

const PODS: usize = 3;
const CHAOS_STEPS: usize = 300;
const QUIET_STEPS: usize = 3000;

/// A seat of the world. A holder that lost it without vacating stays on it until it expires.
#[derive(Clone, Default)]
struct Seat {
    holder: Option<usize>,
    epoch: u64,
}

struct Pod {
    arbiter: Arbiter,
    denied: bool,
    /// Every epoch this pod's plugin has heard of: its fence.
    heard: u64,
    floor: u64,
    global: Option<u64>,
    /// The plugin's own candidate: its floor, and the epoch it leads in.
    own: Option<(u64, Option<u64>)>,
    acts_global: Option<u64>,
    acts_own: Option<u64>,
    todo: Vec<ArbiterEffect>,
}

pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    pub(crate) fallbacks: usize,
    pub(crate) tenures: usize,
}

struct World {
    rng: ChaCha8Rng,
    global: Seat,
    own: Seat,
    pods: Vec<Pod>,
    quiet: bool,
    /// The highest epoch acted in, and by which pod and arbiter.
    highest_acted: (u64, usize, bool),
    outcome: Outcome,
}

/// Runs one random schedule.
pub(crate) fn run(seed: u64, arbiter: impl Fn() -> Arbiter) -> Outcome {
    let pod = || Pod {
        arbiter: arbiter(),
        denied: false,
        heard: 0,
        floor: 0,
        global: None,
        own: None,
        acts_global: None,
        acts_own: None,
        todo: Vec::new(),
    };
    let mut world = World {
        rng: ChaCha8Rng::seed_from_u64(seed),
        global: Seat::default(),
        own: Seat::default(),
        pods: (0..PODS).map(|_| pod()).collect(),
        quiet: false,
        highest_acted: (0, 0, false),
        outcome: Outcome { violations: Vec::new(), fallbacks: 0, tenures: 0 },
    };
    (0..CHAOS_STEPS).for_each(|_| world.step());
    world.quiet = true;
    for pod in 0..PODS {
        world.permit(pod, true);
    }
    (0..QUIET_STEPS).for_each(|_| world.step());
    world.must_have_settled();
    world.outcome
}

impl World {
    fn step(&mut self) {
        let pod = self.rng.random_range(0..PODS);
        match self.rng.random_range(0..12) {
            0 if !self.quiet => {
                let allowed = self.pods[pod].denied;
                self.permit(pod, allowed);
            }
            1 | 2 => self.claim_global(pod),
            3 if !self.quiet || self.pods[pod].denied => self.end_global(pod),
            4 | 5 => self.claim_own(pod),
            6 if !self.quiet => self.end_own(pod),
            7 => self.expire(),
            8 => self.look(pod),
            _ => self.work(pod),
        }
        self.check();
    }

    fn tell(&mut self, pod: usize, input: ArbiterInput) {
        let mut out = Vec::new();
        self.pods[pod].arbiter.handle(input, &mut out);
        self.outcome.fallbacks += out.iter().filter(|e| **e == ArbiterEffect::FallbackStarted).count();
        self.pods[pod].todo.extend(out);
        self.act(pod);
    }

    /// The plugin acts as soon as it may.
    fn act(&mut self, pod: usize) {
        let Pod { arbiter, global, own, acts_global, acts_own, heard, .. } = &mut self.pods[pod];
        match arbiter.in_force() {
            Some(Arbitration::Global) => *acts_global = *global,
            Some(Arbitration::Own) => *acts_own = own.and_then(|(_, leads)| leads),
            None => {}
        }
        *heard = (*heard).max(acts_global.unwrap_or(0)).max(acts_own.unwrap_or(0));
    }

    fn permit(&mut self, pod: usize, allowed: bool) {
        self.pods[pod].denied = !allowed;
        self.tell(pod, if allowed { ArbiterInput::Allowed } else { ArbiterInput::Denied });
    }

    fn claim_global(&mut self, pod: usize) {
        let free = self.global.holder.is_none() && self.pods[pod].global.is_none();
        if !free || self.pods[pod].denied {
            return;
        }
        let epoch = self.global.epoch.max(self.pods[pod].floor) + 1;
        self.global = Seat { holder: Some(pod), epoch };
        self.pods[pod].global = Some(epoch);
        self.tell(pod, ArbiterInput::GlobalLeads(Epoch(epoch)));
    }

    /// Work stops first; then the seat is given up, or left to expire.
    fn end_global(&mut self, pod: usize) {
        if self.pods[pod].global.take().is_none() {
            return;
        }
        self.pods[pod].acts_global = None;
        if !self.pods[pod].denied && self.rng.random_bool(0.5) {
            self.global.holder = None;
        }
        self.tell(pod, ArbiterInput::GlobalEnded);
    }

    fn claim_own(&mut self, pod: usize) {
        let stopping = self.pods[pod].todo.contains(&ArbiterEffect::StopOwn);
        let Some((floor, None)) = self.pods[pod].own else { return };
        if stopping || self.own.holder.is_some() {
            return;
        }
        let epoch = self.own.epoch.max(floor) + 1;
        self.own = Seat { holder: Some(pod), epoch };
        self.pods[pod].own = Some((floor, Some(epoch)));
        self.tell(pod, ArbiterInput::OwnLeads(Epoch(epoch)));
    }

    fn end_own(&mut self, pod: usize) {
        let Some((floor, Some(_))) = self.pods[pod].own else { return };
        self.pods[pod].own = Some((floor, None));
        self.pods[pod].acts_own = None;
        if self.rng.random_bool(0.5) {
            self.own.holder = None;
        }
        self.tell(pod, ArbiterInput::OwnEnded);
    }

    /// A seat whose holder leads no longer is free after a while.
    fn expire(&mut self) {
        if self.global.holder.is_some_and(|pod| self.pods[pod].global.is_none()) {
            self.global.holder = None;
        }
        let leads = |pod: &Pod| pod.own.is_some_and(|(_, leads)| leads.is_some());
        if self.own.holder.is_some_and(|pod| !leads(&self.pods[pod])) {
            self.own.holder = None;
        }
    }

    fn sight(&self, pod: usize) -> Sight {
        match self.global.holder {
            Some(holder) if holder != pod || self.pods[pod].global.is_some() => Sight::Held,
            Some(_) | None => Sight::Free(Epoch(self.global.epoch)),
        }
    }

    fn look(&mut self, pod: usize) {
        if self.pods[pod].denied {
            let sight = if self.rng.random_bool(0.2) { Sight::Unknown } else { self.sight(pod) };
            self.tell(pod, ArbiterInput::GlobalSeat(sight));
        }
    }

    /// Carries out something that was asked for, in any order.
    fn work(&mut self, pod: usize) {
        let count = self.pods[pod].todo.len();
        if count == 0 {
            return;
        }
        let at = self.rng.random_range(0..count);
        let effect = self.pods[pod].todo.remove(at);
        match effect {
            ArbiterEffect::FallbackStarted | ArbiterEffect::FallbackEnded => {}
            ArbiterEffect::StartOwn(above) => {
                let floor = self.pods[pod].heard.max(above.0);
                self.pods[pod].own = Some((floor, None));
            }
            ArbiterEffect::StopOwn => {
                if self.pods[pod].todo.iter().any(|e| matches!(e, ArbiterEffect::StartOwn(_))) {
                    self.pods[pod].todo.push(effect); // Never before it was started.
                    return;
                }
                self.pods[pod].acts_own = None;
                let led = self.pods[pod].own.take().is_some_and(|(_, leads)| leads.is_some());
                if led && self.own.holder == Some(pod) {
                    self.own.holder = None;
                }
                self.tell(pod, ArbiterInput::OwnStopped);
            }
            ArbiterEffect::CheckOwnSeat(check) => {
                if self.pods[pod].global != Some(check.0) {
                    return;
                }
                if self.own.holder.is_some() {
                    self.pods[pod].todo.push(effect); // Still watching.
                    return;
                }
                let epoch = Epoch(self.own.epoch);
                self.tell(pod, ArbiterInput::OwnSeatFree { check, epoch });
            }
            ArbiterEffect::CheckGlobalSeat(check) => {
                let sight = if self.rng.random_bool(0.2) { Sight::Unknown } else { self.sight(pod) };
                self.tell(pod, ArbiterInput::GlobalSeatChecked { check, sight });
            }
            ArbiterEffect::Raise(above) => {
                self.pods[pod].floor = self.pods[pod].floor.max(above.0);
                if self.pods[pod].global.is_some_and(|epoch| epoch <= above.0) {
                    self.end_global(pod);
                }
            }
            ArbiterEffect::RaiseOwn(above) => {
                if let Some((floor, leads)) = &mut self.pods[pod].own {
                    *floor = (*floor).max(above.0);
                    if leads.is_some_and(|epoch| epoch <= above.0) {
                        self.end_own(pod);
                    }
                }
            }
        }
    }

    fn check(&mut self) {
        let mut acting = Vec::new();
        for (at, pod) in self.pods.iter().enumerate() {
            acting.extend(pod.acts_global.map(|epoch| (epoch, at, true)));
            acting.extend(pod.acts_own.map(|epoch| (epoch, at, false)));
        }
        if acting.len() > 1 {
            self.outcome.violations.push(format!("two arbiters lead one plugin: {acting:?}"));
        }
        for now in acting {
            if now == self.highest_acted {
                continue;
            }
            if now.0 <= self.highest_acted.0 {
                self.outcome.violations.push(format!("{now:?} after {:?}", self.highest_acted));
            }
            self.outcome.tenures += 1;
            self.highest_acted = now;
        }
    }

    fn must_have_settled(&mut self) {
        let leaders = self.pods.iter().filter(|pod| pod.acts_global.is_some()).count();
        let stray = self.pods.iter().any(|pod| pod.arbiter.is_fallback() || pod.acts_own.is_some());
        if leaders != 1 || stray {
            self.outcome.violations.push(format!("not settled: {leaders} global leaders, stray: {stray}"));
        }
    }
}

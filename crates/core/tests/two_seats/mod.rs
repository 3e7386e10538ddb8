//! Pods, one plugin, two seats, reads that may take long or get no answer, and anything happening in any order.
#![allow(dead_code, reason = "two test programs use it")]

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tenure_core::machine::{Effect, In, Input, Machine, Now, RequestId};
use tenure_core::{
    Epoch, Holder, Incarnation, Lease, NodeId, Nonce, SeatAnswer, SeatChoice, SeatChoiceCommand,
    SeatChoiceConfig, SeatChoiceOutput, SeatChoiceRequest, SeatObserverAnswer, SeatObserverRequest,
    SeatState, Time, Version, WhichSeat,
};

const PODS: usize = 3;
const CHAOS_STEPS: usize = 400;
const QUIET_STEPS: usize = 4000;
const LEASE_MS: u64 = 1000;
const EXPIRY_PERMILLE: u64 = 3000;
const CONFIG: SeatChoiceConfig = SeatChoiceConfig { every_ms: 200, patience_ms: 500 };
const STEP_MS_MAX: u64 = 150;

/// A seat of the world. A holder that lost it without vacating stays on it, and renews it no more.
#[derive(Clone, Default)]
struct Seat {
    holder: Option<usize>,
    epoch: u64,
    version: u64,
    changed: u64,
}

impl Seat {
    fn write(&mut self, now: u64, holder: Option<usize>, epoch: u64) {
        (self.holder, self.epoch, self.changed) = (holder, epoch, now);
        self.version += 1;
    }

    fn may_be_claimed(&self, now: u64, alive: bool) -> bool {
        let expired = now >= self.changed + LEASE_MS * EXPIRY_PERMILLE / 1000;
        self.holder.is_none() || !alive && expired
    }

    fn nonce(&self) -> Nonce {
        Nonce { incarnation: Incarnation(1), sequence: self.version }
    }

    fn read(&self, unless: Option<&Version>) -> SeatAnswer {
        let version = Version::new(&self.version.to_string());
        if self.version == 0 {
            return SeatAnswer::Absent;
        }
        if unless == Some(&version) {
            return SeatAnswer::Unchanged;
        }
        let node = NodeId::new("pod").expect("valid");
        let seat = tenure_core::Seat {
            epoch: Epoch(self.epoch),
            state: if self.holder.is_some() { SeatState::Held } else { SeatState::Vacant },
            holder: Holder { node, incarnation: Incarnation(1) },
            lease: Lease { hold_ms: LEASE_MS, expiry_ms: LEASE_MS * EXPIRY_PERMILLE / 1000 },
            terms: None,
            renewals: 0,
            nonce: self.nonce(),
            step_down: false,
        };
        SeatAnswer::Found { seat, version, modified_ms: 0 }
    }
}

struct Pod {
    choice: SeatChoice,
    /// The store refuses it the global seat.
    refused: bool,
    /// Every epoch this pod's plugin has heard of: its fence.
    heard: u64,
    floor: u64,
    global: Option<u64>,
    /// The last epoch of the global seat that this process held: its own dead record is nobody's.
    led: u64,
    /// The plugin's own candidate: its floor, and the epoch it leads in.
    own: Option<(u64, Option<u64>)>,
    acts_global: Option<u64>,
    acts_own: Option<u64>,
    todo: Vec<SeatChoiceOutput>,
    /// Requests under way, and what came of those that have reached the store.
    asked: Vec<(RequestId, SeatChoiceRequest, Option<SeatObserverAnswer>)>,
}

#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    pub(crate) fallbacks: usize,
    pub(crate) by_global: usize,
    pub(crate) by_own: usize,
}

struct World {
    rng: ChaCha8Rng,
    now: u64,
    global: Seat,
    own: Seat,
    pods: Vec<Pod>,
    quiet: bool,
    /// The highest epoch acted in, and by which pod and seat.
    highest_acted: (u64, usize, bool),
    outcome: Outcome,
}

pub(crate) fn run(seed: u64) -> Outcome {
    let mut world = World {
        rng: ChaCha8Rng::seed_from_u64(seed),
        now: 0,
        global: Seat::default(),
        own: Seat::default(),
        pods: Vec::new(),
        quiet: false,
        highest_acted: (0, 0, false),
        outcome: Outcome::default(),
    };
    for _ in 0..PODS {
        let pod = world.pod();
        world.pods.push(pod);
    }
    (0..CHAOS_STEPS).for_each(|_| world.step());
    world.quiet = true;
    (0..QUIET_STEPS).for_each(|_| world.step());
    world.must_have_settled();
    world.outcome
}

impl World {
    fn pod(&mut self) -> Pod {
        Pod {
            choice: SeatChoice::new(CONFIG),
            refused: self.rng.random_bool(0.4),
            heard: 0,
            floor: 0,
            global: None,
            led: 0,
            own: None,
            acts_global: None,
            acts_own: None,
            todo: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn step(&mut self) {
        self.now += self.rng.random_range(0..STEP_MS_MAX);
        self.renew();
        let pod = self.rng.random_range(0..PODS);
        match self.rng.random_range(0..24) {
            0 if !self.quiet => self.restart(pod),
            1 if !self.quiet => self.pods[pod].refused = true,
            2 if self.pods[pod].refused => self.refuse(pod),
            3..7 => self.claim_global(pod),
            7 if !self.quiet => self.end_global(pod),
            8..12 => self.claim_own(pod),
            12 if !self.quiet => self.end_own(pod),
            13..16 => self.carry(pod),
            16..19 => self.wake(pod),
            _ => self.work(pod),
        }
        self.check();
    }

    fn tell(&mut self, pod: usize, command: SeatChoiceCommand) {
        self.feed(pod, Input::Command(command));
    }

    fn feed(&mut self, pod: usize, input: In<SeatChoice>) {
        let (mut out, woken) = (Vec::new(), matches!(input, Input::Wake));
        let choice = &mut self.pods[pod].choice;
        choice.handle(Now { at: Time(self.now), wall_ms: 0 }, input, &mut out);
        assert!(!woken || choice.wake_at().is_none_or(|at| at > Time(self.now)), "it would spin");
        for effect in out {
            match effect {
                Effect::Request(id, request) => self.pods[pod].asked.push((id, request, None)),
                Effect::Output(output) => {
                    self.outcome.fallbacks += usize::from(output == SeatChoiceOutput::FallbackStarted);
                    self.pods[pod].todo.push(output);
                }
            }
        }
        self.act(pod);
    }

    fn wake(&mut self, pod: usize) {
        if self.pods[pod].choice.wake_at().is_some_and(|at| at <= Time(self.now)) {
            self.feed(pod, Input::Wake);
        }
    }

    /// Any request under way reaches the store, or is answered: now and then it is as if it never was.
    fn carry(&mut self, pod: usize) {
        let count = self.pods[pod].asked.len();
        if count == 0 {
            return;
        }
        let at = self.rng.random_range(0..count);
        let (id, request, answer) = self.pods[pod].asked.remove(at);
        match answer {
            Some(answer) => self.feed(pod, Input::Answer(id, answer)),
            None => {
                let done = self.done(&request);
                let unanswered = tenure_core::machine::Request::unanswered(&request);
                let answer = if self.rng.random_bool(0.3) { unanswered } else { done };
                self.pods[pod].asked.push((id, request, Some(answer)));
            }
        }
    }

    fn done(&mut self, request: &SeatChoiceRequest) -> SeatObserverAnswer {
        let seat = match request.seat {
            WhichSeat::Global => &mut self.global,
            WhichSeat::Own => &mut self.own,
        };
        match &request.request {
            SeatObserverRequest::Read { unless } => SeatObserverAnswer::Read(seat.read(unless.as_ref())),
            SeatObserverRequest::Vacate(nonce) => {
                let unchanged = *nonce == seat.nonce();
                if unchanged {
                    seat.write(self.now, None, seat.epoch);
                }
                SeatObserverAnswer::Vacated(unchanged)
            }
        }
    }

    /// The plugin acts as soon as it may.
    fn act(&mut self, pod: usize) {
        let Pod { choice, global, own, acts_global, acts_own, heard, .. } = &mut self.pods[pod];
        match choice.in_force() {
            Some(WhichSeat::Global) => *acts_global = *global,
            Some(WhichSeat::Own) => *acts_own = own.and_then(|(_, leads)| leads),
            None => {}
        }
        *heard = (*heard).max(acts_global.unwrap_or(0)).max(acts_own.unwrap_or(0));
    }

    fn own_led_by(&self, pod: usize) -> bool {
        self.pods[pod].own.is_some_and(|(_, leads)| leads == Some(self.own.epoch))
    }

    /// Whoever leads renews in time, or lets its lease end if it is refused that.
    fn renew(&mut self) {
        let now = self.now;
        if let Some(pod) = self.global.holder
            && self.pods[pod].global == Some(self.global.epoch)
            && now >= self.global.changed + LEASE_MS / 2
        {
            let epoch = self.global.epoch;
            match self.pods[pod].refused {
                true => self.end_global(pod),
                false => self.global.write(now, Some(pod), epoch),
            }
        }
        if let Some(pod) = self.own.holder
            && self.own_led_by(pod)
            && now >= self.own.changed + LEASE_MS / 2
        {
            let epoch = self.own.epoch;
            self.own.write(now, Some(pod), epoch);
        }
    }

    /// The process dies, and another starts in its place. What it held stays behind.
    fn restart(&mut self, pod: usize) {
        self.pods[pod] = self.pod();
    }

    /// The process leaves the global election; its lease has ended.
    fn refuse(&mut self, pod: usize) {
        if self.pods[pod].global.is_none() {
            let led = Some(Epoch(self.pods[pod].led));
            self.tell(pod, SeatChoiceCommand::Refused { led });
        }
    }

    fn claim_global(&mut self, pod: usize) {
        let alive = self.global.holder.is_some_and(|held| self.pods[held].global == Some(self.global.epoch));
        let Pod { refused, global, floor, .. } = self.pods[pod];
        if refused || global.is_some() || !self.global.may_be_claimed(self.now, alive) {
            return;
        }
        let epoch = self.global.epoch.max(floor) + 1;
        self.global.write(self.now, Some(pod), epoch);
        (self.pods[pod].global, self.pods[pod].led) = (Some(epoch), epoch);
        self.tell(pod, SeatChoiceCommand::GlobalLeads(Epoch(epoch)));
    }

    /// Work stops first; then the seat is given up, or left to expire.
    fn end_global(&mut self, pod: usize) {
        if self.pods[pod].global.take().is_none() {
            return;
        }
        self.pods[pod].acts_global = None;
        if !self.pods[pod].refused && self.rng.random_bool(0.5) {
            let epoch = self.global.epoch;
            self.global.write(self.now, None, epoch);
        }
        self.tell(pod, SeatChoiceCommand::GlobalEnded);
    }

    fn claim_own(&mut self, pod: usize) {
        let stopping = self.pods[pod].todo.contains(&SeatChoiceOutput::StopOwn);
        let Some((floor, None)) = self.pods[pod].own else { return };
        let alive = self.own.holder.is_some_and(|held| self.own_led_by(held));
        if stopping || !self.own.may_be_claimed(self.now, alive) {
            return;
        }
        let epoch = self.own.epoch.max(floor) + 1;
        self.own.write(self.now, Some(pod), epoch);
        self.pods[pod].own = Some((floor, Some(epoch)));
        self.tell(pod, SeatChoiceCommand::OwnLeads(Epoch(epoch)));
    }

    fn end_own(&mut self, pod: usize) {
        let Some((floor, Some(_))) = self.pods[pod].own else { return };
        self.pods[pod].own = Some((floor, None));
        self.pods[pod].acts_own = None;
        if self.rng.random_bool(0.5) {
            let epoch = self.own.epoch;
            self.own.write(self.now, None, epoch);
        }
        self.tell(pod, SeatChoiceCommand::OwnEnded);
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
            SeatChoiceOutput::FallbackStarted | SeatChoiceOutput::Left => {}
            SeatChoiceOutput::StartOwn(above) => {
                let floor = self.pods[pod].heard.max(above.0);
                self.pods[pod].own = Some((floor, None));
            }
            SeatChoiceOutput::StopOwn => {
                if self.pods[pod].todo.iter().any(|e| matches!(e, SeatChoiceOutput::StartOwn(_))) {
                    self.pods[pod].todo.push(effect); // Never before it was started.
                    return;
                }
                let led = self.own_led_by(pod);
                (self.pods[pod].acts_own, self.pods[pod].own) = (None, None);
                if led && self.own.holder == Some(pod) {
                    let epoch = self.own.epoch;
                    self.own.write(self.now, None, epoch);
                }
                self.tell(pod, SeatChoiceCommand::OwnStopped);
            }
            SeatChoiceOutput::Raise(WhichSeat::Global, above) => {
                self.pods[pod].floor = self.pods[pod].floor.max(above.0);
                if self.pods[pod].global.is_some_and(|epoch| epoch <= above.0) {
                    self.end_global(pod);
                }
            }
            SeatChoiceOutput::Raise(WhichSeat::Own, above) => {
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
            self.outcome.violations.push(format!("two seats lead one plugin: {acting:?}"));
        }
        for now in acting {
            if now == self.highest_acted {
                continue;
            }
            if now.0 <= self.highest_acted.0 {
                self.outcome.violations.push(format!("{now:?} after {:?}", self.highest_acted));
            }
            if now.2 {
                self.outcome.by_global += 1;
            } else {
                self.outcome.by_own += 1;
            }
            self.highest_acted = now;
        }
    }

    /// In the end somebody leads the plugin: by the global seat if anybody may write that.
    fn must_have_settled(&mut self) {
        let count = |acts: fn(&Pod) -> Option<u64>| self.pods.iter().filter_map(acts).count();
        let found = (count(|pod| pod.acts_global), count(|pod| pod.acts_own));
        let allowed = self.pods.iter().any(|pod| !pod.refused);
        let wanted = if allowed { (1, 0) } else { (0, 1) };
        if found != wanted {
            self.outcome.violations.push(format!("not settled: {found:?} lead, not {wanted:?}"));
        }
    }
}

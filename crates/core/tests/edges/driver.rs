//! One node, fed by hand what a driver would feed it.

use crate::world::{Kind, kind_of, round_numbers};
use tenure_core::*;

pub(crate) const ME: u64 = 1;

pub(crate) struct Driver {
    pub(crate) core: Coordinator,
    pub(crate) now: u64,
    /// What came of the last input.
    pub(crate) out: Vec<Effect>,
    pub(crate) open: Vec<(RequestId, Request)>,
    pub(crate) wake: Option<(WakeToken, u64)>,
    pub(crate) versions: u64,
}

pub(crate) fn id(name: &str) -> NodeId {
    NodeId::new(name).expect("valid")
}

pub(crate) fn holder(name: &str, incarnation: u64) -> Holder {
    Holder { node: id(name), incarnation: Incarnation(incarnation) }
}

pub(crate) fn seat(holder: Holder, epoch: u64, state: SeatState) -> Seat {
    let nonce = Nonce { incarnation: Incarnation(0xf0), sequence: epoch };
    Seat {
        epoch: Epoch(epoch),
        state,
        holder,
        lease: Lease { hold_ms: 2500, expiry_ms: 7500 },
        terms: None,
        renewals: 3,
        nonce,
        step_down: false,
    }
}

pub(crate) fn nodes(entries: &[(&str, u64)]) -> Answer {
    let entry = |(name, modified_ms): &(&str, u64)| NodeEntry { node: id(name), modified_ms: *modified_ms };
    Answer::Nodes(NodesAnswer::Found { nodes: entries.iter().map(entry).collect(), more: false })
}

pub(crate) fn written(answer: WriteAnswer) -> Answer {
    Answer::SeatWritten(answer)
}

/// All at once where nothing says otherwise: no jitter, nothing to settle.
pub(crate) fn config() -> Config {
    Config { startup_jitter_max_ms: 0, settle_ms: 0, ..round_numbers() }
}

impl Driver {
    pub(crate) fn new(config: Config) -> Driver {
        let core = Coordinator::new(config, holder("pod-b", ME));
        Driver { core, now: 0, out: Vec::new(), open: Vec::new(), wake: None, versions: 0 }
    }

    pub(crate) fn tell(&mut self, now: u64, input: Input) {
        self.now = now;
        self.out.clear();
        self.core.step(Time(now), input, &mut self.out);
        for effect in &self.out {
            match effect {
                Effect::Request(id, request) => self.open.push((*id, request.clone())),
                Effect::Wake { token, at } => self.wake = Some((*token, at.0)),
                Effect::StartProcesses { .. }
                | Effect::ExtendLease { .. }
                | Effect::StopProcesses { .. }
                | Effect::Emit(_)
                | Effect::Stopped(_) => {}
            }
        }
    }

    pub(crate) fn start(config: Config) -> Driver {
        let mut driver = Driver::new(config);
        driver.tell(0, Input::Start { random: 0 });
        driver
    }

    /// Wakes it when it asked to be woken.
    pub(crate) fn wake(&mut self) {
        let (token, at) = self.wake.take().expect("a wake-up was asked for");
        self.tell(at.max(self.now), Input::Wake(token));
    }

    pub(crate) fn answer(&mut self, now: u64, kind: Kind, answer: Answer) {
        let at = self.open.iter().position(|(_, request)| kind_of(request) == kind);
        let (id, _) = self.open.remove(at.unwrap_or_else(|| panic!("{kind:?} among {:?}", self.open)));
        self.tell(now, Input::Answer { id, answer });
    }

    pub(crate) fn won(&mut self) -> WriteAnswer {
        self.versions += 1;
        WriteAnswer::Won(Version::new(&format!("v{}", self.versions)))
    }

    pub(crate) fn found(&mut self, seat: Seat, modified_ms: u64) -> Answer {
        self.versions += 1;
        let version = Version::new(&format!("v{}", self.versions));
        Answer::Seat(SeatAnswer::Found { seat, version, modified_ms })
    }

    /// Started, and known to the store.
    pub(crate) fn enrolled(config: Config) -> Driver {
        let mut driver = Driver::start(config);
        driver.answer(0, Kind::Probe, Answer::Probe(ProbeAnswer::Safe));
        let won = driver.won();
        driver.answer(0, Kind::Presence, Answer::PresenceWritten(won));
        driver
    }

    /// Its claim left at 0, and has not been answered.
    pub(crate) fn candidate(config: Config) -> Driver {
        let mut driver = Driver::enrolled(config);
        driver.answer(0, Kind::Read, Answer::Seat(SeatAnswer::Absent));
        driver.answer(0, Kind::List, nodes(&[("pod-b", 0)]));
        driver.answer(0, Kind::Read, Answer::Seat(SeatAnswer::Absent));
        assert_eq!(driver.asked(), [Kind::Claim]);
        driver
    }

    /// Leads in epoch 1 by a claim sent at 0: renews at 1000, winds down at 2000, must be silent at 2500.
    pub(crate) fn leader(config: Config) -> Driver {
        let mut driver = Driver::candidate(config);
        let won = driver.won();
        driver.answer(0, Kind::Claim, written(won));
        assert!(driver.core.lease().is_some());
        driver
    }

    /// A standby that has seen another hold the seat since 0.
    pub(crate) fn watcher(config: Config) -> Driver {
        let mut driver = Driver::enrolled(config);
        let held = driver.found(seat(holder("pod-a", 9), 4, SeatState::Held), 1000);
        driver.answer(0, Kind::Read, held);
        driver.answer(0, Kind::List, nodes(&[("pod-b", 1000)]));
        driver
    }

    /// The same leader, wound down at 2000 because no renewal got through; its work has stopped.
    pub(crate) fn wound_down() -> Driver {
        let mut driver = Driver::leader(config());
        driver.wake();
        driver.answer(1750, Kind::Renew, written(WriteAnswer::Unknown));
        driver.tell(2000, Input::Wake(driver.wake.expect("at 80 %").0));
        assert!(driver.out.contains(&Effect::StopProcesses { epoch: Epoch(1), by: Time(2500) }));
        driver.tell(2010, Input::ProcessesStopped { epoch: Epoch(1) });
        driver
    }

    /// What the last input made it ask of the store.
    pub(crate) fn asked(&self) -> Vec<Kind> {
        let kind = |effect: &Effect| match effect {
            Effect::Request(_, request) => Some(kind_of(request)),
            Effect::Wake { .. }
            | Effect::StartProcesses { .. }
            | Effect::ExtendLease { .. }
            | Effect::StopProcesses { .. }
            | Effect::Emit(_)
            | Effect::Stopped(_) => None,
        };
        self.out.iter().filter_map(kind).collect()
    }

    pub(crate) fn events(&self) -> Vec<&Event> {
        self.out.iter().filter_map(|e| if let Effect::Emit(event) = e { Some(event) } else { None }).collect()
    }

    pub(crate) fn lost(&self) -> Option<(LossReason, bool, u64)> {
        self.events().into_iter().find_map(|event| {
            let Event::LostLeadership { reason, vacated, acted_until, .. } = event else { return None };
            Some((*reason, *vacated, acted_until.0))
        })
    }

    pub(crate) fn wakes_at(&self) -> u64 {
        self.wake.expect("a wake-up was asked for").1
    }
}

/// Answers whatever it asks, the seat being gone from `now` on, until it claims; says when.
pub(crate) fn claims_with_the_seat_gone(mut driver: Driver, now: u64) -> u64 {
    driver.now = now;
    for _ in 0..100 {
        let Some(kind) = driver.open.first().map(|(_, request)| kind_of(request)) else {
            driver.wake();
            continue;
        };
        let answer = match kind {
            Kind::Claim => return driver.now,
            Kind::Read => Answer::Seat(SeatAnswer::Absent),
            Kind::List => nodes(&[("pod-b", 1000)]),
            Kind::Presence => Answer::PresenceWritten(driver.won()),
            Kind::Probe | Kind::Renew | Kind::Vacate | Kind::Leave | Kind::Any => {
                panic!("{kind:?} at {}", driver.now)
            }
        };
        driver.answer(driver.now, kind, answer);
    }
    panic!("no claim by {}: {:?}", driver.now, driver.core)
}

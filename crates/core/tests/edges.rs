//! Where one decision turns into another: the very millisecond of a limit, and inputs that come out of turn. One node,
//! told by hand what it would be told by a driver.

mod world;

use tenure_core::*;
use world::{Kind, World, kind_of};

const ME: u64 = 1;

/// A node and what is outstanding.
struct Hand {
    core: Coordinator,
    now: u64,
    /// What came of the last input.
    out: Vec<Effect>,
    open: Vec<(RequestId, Request)>,
    wake: Option<(WakeToken, u64)>,
    versions: u64,
}

fn id(name: &str) -> NodeId {
    NodeId::new(name).expect("valid")
}

fn holder(name: &str, incarnation: u64) -> Holder {
    Holder { node: id(name), incarnation: Incarnation(incarnation) }
}

fn seat(holder: Holder, epoch: u64, state: SeatState) -> Seat {
    let nonce = Nonce { incarnation: Incarnation(0xf0), sequence: epoch };
    Seat { epoch: Epoch(epoch), state, holder, lease_ms: 2500, renewals: 3, nonce, step_down: false }
}

fn nodes(entries: &[(&str, u64)]) -> Answer {
    let entry = |(name, modified_ms): &(&str, u64)| NodeEntry { node: id(name), modified_ms: *modified_ms };
    Answer::Nodes(NodesAnswer::Found(entries.iter().map(entry).collect()))
}

fn written(answer: WriteAnswer) -> Answer {
    Answer::SeatWritten(answer)
}

/// All at once where nothing says otherwise: no jitter, nothing to settle.
fn config() -> Config {
    Config { startup_jitter_max_ms: 0, settle_ms: 0, ..Config::default() }
}

impl Hand {
    fn new(config: Config) -> Hand {
        let core = Coordinator::new(config, holder("pod-b", ME));
        Hand { core, now: 0, out: Vec::new(), open: Vec::new(), wake: None, versions: 0 }
    }

    fn tell(&mut self, now: u64, input: Input) {
        self.now = now;
        self.out.clear();
        self.core.handle(Time(now), input, &mut self.out);
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

    fn start(config: Config) -> Hand {
        let mut hand = Hand::new(config);
        hand.tell(0, Input::Start { random: 0 });
        hand
    }

    /// Wakes it when it asked to be woken.
    fn wake(&mut self) {
        let (token, at) = self.wake.take().expect("a wake-up was asked for");
        self.tell(at.max(self.now), Input::Wake(token));
    }

    fn answer(&mut self, now: u64, kind: Kind, answer: Answer) {
        let at = self.open.iter().position(|(_, request)| kind_of(request) == kind);
        let (id, _) = self.open.remove(at.unwrap_or_else(|| panic!("{kind:?} among {:?}", self.open)));
        self.tell(now, Input::Answer { id, answer });
    }

    fn won(&mut self) -> WriteAnswer {
        self.versions += 1;
        WriteAnswer::Won(Version::new(&format!("v{}", self.versions)))
    }

    fn found(&mut self, seat: Seat, modified_ms: u64) -> Answer {
        self.versions += 1;
        let version = Version::new(&format!("v{}", self.versions));
        Answer::Seat(SeatAnswer::Found { seat, version, modified_ms })
    }

    /// Started, and known to the store.
    fn enrolled(config: Config) -> Hand {
        let mut hand = Hand::start(config);
        hand.answer(0, Kind::Probe, Answer::Probe(ProbeAnswer::Safe));
        let won = hand.won();
        hand.answer(0, Kind::Presence, Answer::PresenceWritten(won));
        hand
    }

    /// Its claim left at 0, and has not been answered.
    fn candidate(config: Config) -> Hand {
        let mut hand = Hand::enrolled(config);
        hand.answer(0, Kind::Read, Answer::Seat(SeatAnswer::Absent));
        hand.answer(0, Kind::List, nodes(&[("pod-b", 0)]));
        hand.answer(0, Kind::Read, Answer::Seat(SeatAnswer::Absent));
        assert_eq!(hand.asked(), [Kind::Claim]);
        hand
    }

    /// Leads in epoch 1 by a claim sent at 0: renews at 1000, winds down at 2000, must be silent at 2500.
    fn leader(config: Config) -> Hand {
        let mut hand = Hand::candidate(config);
        let won = hand.won();
        hand.answer(0, Kind::Claim, written(won));
        assert!(hand.core.lease().is_some());
        hand
    }

    /// A standby that has seen another hold the seat since 0.
    fn watcher(config: Config) -> Hand {
        let mut hand = Hand::enrolled(config);
        let held = hand.found(seat(holder("pod-a", 9), 4, SeatState::Held), 1000);
        hand.answer(0, Kind::Read, held);
        hand.answer(0, Kind::List, nodes(&[("pod-b", 1000)]));
        hand
    }

    /// The same leader, wound down at 2000 because no renewal got through; its work has stopped.
    fn wound_down() -> Hand {
        let mut hand = Hand::leader(config());
        hand.wake();
        hand.answer(1750, Kind::Renew, written(WriteAnswer::Unknown));
        hand.tell(2000, Input::Wake(hand.wake.expect("at 80 %").0));
        assert!(hand.out.contains(&Effect::StopProcesses { epoch: Epoch(1), by: Time(2500) }));
        hand.tell(2010, Input::ProcessesStopped { epoch: Epoch(1) });
        hand
    }

    /// What the last input made it ask of the store.
    fn asked(&self) -> Vec<Kind> {
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

    fn events(&self) -> Vec<&Event> {
        self.out.iter().filter_map(|e| if let Effect::Emit(event) = e { Some(event) } else { None }).collect()
    }

    fn lost(&self) -> Option<(LossReason, bool, u64)> {
        self.events().into_iter().find_map(|event| {
            let Event::LostLeadership { reason, vacated, acted_until, .. } = event else { return None };
            Some((*reason, *vacated, acted_until.0))
        })
    }

    fn wakes_at(&self) -> u64 {
        self.wake.expect("a wake-up was asked for").1
    }
}

// ---- Startup

#[test]
fn a_node_that_has_told_nobody_of_itself_leaves_without_a_request() {
    let mut hand = Hand::start(Config { startup_jitter_min_ms: 5000, ..Config::default() });
    assert_eq!(hand.wakes_at(), 5000, "the jitter");
    hand.tell(100, Input::Stop);
    assert_eq!(hand.out, [Effect::Stopped(StopCause::Asked)]);
}

#[test]
fn a_presence_under_way_is_waited_for_and_then_removed() {
    let mut hand = Hand::start(config());
    hand.answer(0, Kind::Probe, Answer::Probe(ProbeAnswer::Safe));
    hand.tell(10, Input::Stop);
    assert_eq!(hand.asked(), [], "it may land after its removal");
    let won = hand.won();
    hand.answer(20, Kind::Presence, Answer::PresenceWritten(won));
    assert_eq!(hand.asked(), [Kind::Leave]);
    hand.answer(30, Kind::Leave, Answer::PresenceRemoved);
    assert_eq!(hand.out, [Effect::Stopped(StopCause::Asked)]);
}

#[test]
fn nobody_is_woken_for_what_is_under_way() {
    let mut hand = Hand::start(config());
    assert_eq!((hand.asked(), hand.wake), (vec![Kind::Probe], None), "only the answer matters");
    hand.answer(0, Kind::Probe, Answer::Probe(ProbeAnswer::Unavailable));
    assert_eq!(hand.wakes_at(), 1000);
    hand.wake();
    hand.answer(1000, Kind::Probe, Answer::Probe(ProbeAnswer::Safe));
    assert_eq!((hand.asked(), hand.wake), (vec![Kind::Read, Kind::Presence], None));
    let won = hand.won();
    hand.answer(1000, Kind::Presence, Answer::PresenceWritten(won));
    assert_eq!(hand.wakes_at(), 21_000, "the next presence, not the look under way");
    hand.answer(1100, Kind::Read, Answer::Seat(SeatAnswer::Unavailable));
    assert_eq!(hand.wakes_at(), 1350, "a look that failed is tried again");
    hand.wake();
    assert_eq!(hand.asked(), [Kind::Read]);
}

#[test]
fn a_store_that_refuses_is_news_and_one_that_refused_and_is_away_is_not() {
    let mut hand = Hand::start(config());
    for (now, answer, told) in [
        (0, ProbeAnswer::Unavailable, vec![&Event::StoreUnavailable]),
        (1000, ProbeAnswer::Unavailable, vec![]),
        (2000, ProbeAnswer::Denied, vec![&Event::StoreDenied]),
        (3000, ProbeAnswer::Denied, vec![]),
        (4000, ProbeAnswer::Unavailable, vec![]),
    ] {
        hand.answer(now, Kind::Probe, Answer::Probe(answer));
        assert_eq!(hand.events(), told, "{answer:?} at {now}");
        hand.wake();
    }
}

// ---- Standby and campaign

/// Dead by the store's clock is only what is older than expiry and margin together.
#[test]
fn a_seat_as_old_as_the_limit_is_not_dead_yet() {
    for (age_ms, dead) in [(37_500, false), (37_501, true)] {
        let mut hand = Hand::enrolled(config());
        let held = hand.found(seat(holder("pod-a", 9), 4, SeatState::Held), 1000);
        hand.answer(0, Kind::Read, held);
        hand.answer(0, Kind::List, nodes(&[("pod-b", 1000 + age_ms)]));
        assert_eq!(hand.core.election().is_some(), dead, "{age_ms}");
    }
}

/// Whoever vacated the seat found at a start may have been started again like everybody else.
#[test]
fn in_a_first_election_the_last_holder_is_waited_for() {
    for (cause, waits_ms) in [(ElectionCause::First, 250), (ElectionCause::Vacant, 0)] {
        let mut hand = Hand::enrolled(config());
        if cause == ElectionCause::Vacant {
            let held = hand.found(seat(holder("pod-a", 9), 4, SeatState::Held), 1000);
            hand.answer(0, Kind::Read, held);
            hand.answer(0, Kind::List, nodes(&[("pod-a", 1000), ("pod-b", 1000)]));
            hand.wake();
        }
        let now = hand.now;
        let vacant = hand.found(seat(holder("pod-a", 9), 4, SeatState::Vacant), 1000);
        hand.answer(now, Kind::Read, vacant);
        assert_eq!(hand.core.election(), Some((cause, Time(now))));
        hand.answer(now, Kind::List, nodes(&[("pod-a", 1000), ("pod-b", 1000)]));
        if waits_ms > 0 {
            assert_eq!((hand.asked(), hand.wakes_at()), (vec![], now + waits_ms));
        } else {
            assert_eq!(hand.asked(), [Kind::Read], "the look that confirms");
        }
    }
}

#[test]
fn a_list_under_way_is_waited_for_without_waking() {
    let mut hand = Hand::watcher(config());
    hand.tell(7500, Input::Wake(hand.wake.expect("the expiry").0));
    hand.answer(7500, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(hand.core.election(), Some((ElectionCause::LeaderDown, Time(8500))));
    assert_eq!((hand.asked(), hand.wakes_at()), (vec![Kind::List], 8000), "the regular look");
    hand.wake();
    assert_eq!(hand.asked(), [Kind::Read]);
    hand.answer(8000, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(
        (hand.asked(), hand.wakes_at()),
        (vec![], 9000),
        "ready at 8500, but it does not know its rank"
    );
}

#[test]
fn a_node_that_is_not_listed_tells_of_itself_again() {
    let mut hand = Hand::enrolled(config());
    hand.answer(0, Kind::Read, Answer::Seat(SeatAnswer::Absent));
    hand.answer(0, Kind::List, nodes(&[("pod-c", 0)]));
    assert_eq!(hand.asked(), [Kind::Read, Kind::Presence]);
    let unconditional =
        |(_, request): &(RequestId, Request)| matches!(request, Request::WritePresence { expect: None, .. });
    assert!(hand.open.iter().any(unconditional), "{:?}", hand.open);
}

/// Somebody took the seat away between the last look and the one that was to confirm the claim.
#[test]
fn a_held_seat_that_vanished_in_the_confirming_look_is_waited_out() {
    let mut hand = Hand::watcher(Config { election_interval_ms: 20_000, ..config() });
    assert_eq!(hand.wakes_at(), 7500, "the expiry comes before the regular look");
    hand.wake();
    hand.answer(7500, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    hand.answer(7500, Kind::List, nodes(&[("pod-b", 1000)]));
    hand.wake();
    assert_eq!((hand.now, hand.asked()), (8500, vec![Kind::Read]));
    hand.answer(8500, Kind::Read, Answer::Seat(SeatAnswer::Absent));
    assert_eq!((hand.asked(), hand.wakes_at()), (vec![], 16_000), "whoever held it may act until then");
    hand.wake();
    assert_eq!(hand.asked(), [Kind::Read]);
    hand.answer(16_000, Kind::Read, Answer::Seat(SeatAnswer::Absent));
    assert_eq!(hand.asked(), [Kind::Claim], "at the very moment, not a look later");
}

/// Answers whatever it asks, the seat being gone from `now` on, until it claims; says when.
fn claims_with_the_seat_gone(mut hand: Hand, now: u64) -> u64 {
    hand.now = now;
    for _ in 0..100 {
        let Some(kind) = hand.open.first().map(|(_, request)| kind_of(request)) else {
            hand.wake();
            continue;
        };
        let answer = match kind {
            Kind::Claim => return hand.now,
            Kind::Read => Answer::Seat(SeatAnswer::Absent),
            Kind::List => nodes(&[("pod-b", 1000)]),
            Kind::Presence => Answer::PresenceWritten(hand.won()),
            Kind::Probe | Kind::Renew | Kind::Vacate | Kind::Leave | Kind::Any => {
                panic!("{kind:?} at {}", hand.now)
            }
        };
        hand.answer(hand.now, kind, answer);
    }
    panic!("no claim by {}: {:?}", hand.now, hand.core)
}

/// Somebody may have claimed it before it was taken away.
#[test]
fn a_vacant_seat_that_vanished_is_waited_out() {
    let mut hand = Hand::enrolled(config());
    let vacant = hand.found(seat(holder("pod-a", 9), 4, SeatState::Vacant), 1000);
    hand.answer(0, Kind::Read, vacant);
    assert_eq!(claims_with_the_seat_gone(hand, 20), 7520);
}

/// Somebody may have taken it over after the lease, and acted on it until it was taken away.
#[test]
fn a_seat_of_its_own_that_vanished_after_its_tenure_is_waited_out() {
    let mut hand = Hand::wound_down();
    hand.wake();
    assert_eq!(hand.lost().map(|(reason, ..)| reason), Some(LossReason::LeaseExpired));
    assert_eq!(claims_with_the_seat_gone(hand, 60_000), 67_500);
}

/// It stopped and starts again in the same life: what it has seen before counts, and the longest lease of it.
#[test]
fn a_seat_that_vanished_while_its_node_was_at_rest_is_waited_out() {
    for (lease_ms, claims) in [(2500, 67_500), (5000, 75_000)] {
        let mut hand = Hand::watcher(config());
        let held = Seat { lease_ms, ..seat(holder("pod-a", 9), 5, SeatState::Held) };
        hand.wake();
        let held = hand.found(held, 1000);
        hand.answer(hand.now, Kind::Read, held);
        hand.tell(hand.now, Input::Stop);
        hand.answer(hand.now, Kind::Leave, Answer::PresenceRemoved);
        assert!(hand.open.is_empty() && hand.core.role().is_none(), "{:?}", hand.open);
        hand.tell(60_000, Input::Start { random: 0 });
        hand.answer(60_000, Kind::Probe, Answer::Probe(ProbeAnswer::Safe));
        assert_eq!(claims_with_the_seat_gone(hand, 60_000), claims);
    }
}

/// The same epoch, but another's: it was given out twice, and the holder that was seen may act still.
#[test]
fn an_epoch_of_another_holder_than_before_a_rest_is_waited_out() {
    for (found_by, ready_at) in [("pod-a", 60_000), ("pod-c", 67_500)] {
        let mut hand = Hand::watcher(config());
        hand.tell(0, Input::Stop);
        hand.answer(0, Kind::Leave, Answer::PresenceRemoved);
        hand.tell(60_000, Input::Start { random: 0 });
        hand.answer(60_000, Kind::Probe, Answer::Probe(ProbeAnswer::Safe));
        let won = hand.won();
        hand.answer(60_000, Kind::Presence, Answer::PresenceWritten(won));
        let vacant = hand.found(seat(holder(found_by, 9), 4, SeatState::Vacant), 1000);
        hand.answer(60_000, Kind::Read, vacant);
        assert_eq!(hand.core.election(), Some((ElectionCause::First, Time(ready_at))), "{found_by}");
    }
}

/// A claim that is known not to have landed is repeated a pause after the last, not later.
#[test]
fn an_unresolved_claim_is_repeated_after_the_pause() {
    for (answered, again) in [(249, vec![]), (250, vec![Kind::Claim])] {
        let mut hand = Hand::candidate(config());
        hand.answer(100, Kind::Claim, written(WriteAnswer::Unknown));
        hand.answer(answered, Kind::Read, Answer::Seat(SeatAnswer::Absent));
        assert_eq!(hand.asked(), again, "at {answered}");
    }
}

/// Found only at 80 % of its lease, a claim is of no use: it is given back.
#[test]
fn a_claim_found_too_late_is_vacated() {
    for (found_at, leads) in [(1999, true), (2000, false)] {
        let mut hand = Hand::candidate(config());
        let Some((_, Request::WriteSeat { seat, .. })) = hand.open.first().cloned() else { panic!() };
        hand.answer(750, Kind::Claim, written(WriteAnswer::Unknown));
        let own = hand.found(seat, 0);
        hand.answer(found_at, Kind::Read, own);
        assert_eq!(hand.core.lease().is_some(), leads, "at {found_at}");
        assert_eq!(hand.asked(), if leads { vec![Kind::Renew] } else { vec![Kind::Vacate] });
    }
}

#[test]
fn nobody_leads_by_a_vacant_seat() {
    let mut hand = Hand::watcher(config());
    hand.wake();
    let vacant = hand.found(seat(holder("pod-a", 9), 4, SeatState::Vacant), 2000);
    hand.answer(1000, Kind::Read, vacant);
    assert!(hand.events().contains(&&Event::ElectionCheck { leader: None, unchanged_ms: 0 }));
}

// ---- Leadership

#[test]
fn a_leader_is_woken_when_something_is_due_and_not_before() {
    let mut hand = Hand::leader(config());
    assert_eq!(hand.wakes_at(), 1000, "the renewal");
    hand.wake();
    assert_eq!((hand.asked(), hand.wakes_at()), (vec![Kind::Renew], 2000), "80 % of the lease");
    hand.wake();
    assert_eq!((hand.asked(), hand.wakes_at()), (vec![], 2500), "the deadline");
}

#[test]
fn a_wake_up_that_was_replaced_does_nothing() {
    let mut hand = Hand::leader(Config { drain_ms: 100, ..config() });
    let (replaced, _) = hand.wake.expect("the renewal");
    hand.tell(500, Input::StepDown);
    assert_eq!((hand.asked(), hand.wakes_at()), (vec![], 600));
    hand.tell(550, Input::Wake(replaced));
    assert_eq!(hand.out, []);
}

#[test]
fn a_raised_leader_steps_down_and_claims_above() {
    let mut world = World::new();
    world.add("pod-a", config());
    world.input("pod-a", Input::Start { random: 0 });
    world.run_until(2000);
    world.input("pod-a", Input::Raise { above: Epoch(0) });
    world.run_until(3000);
    assert_eq!(world.node("pod-a").core.lease().map(|(epoch, _)| epoch), Some(Epoch(1)), "it is above");
    world.input("pod-a", Input::Raise { above: Epoch(7) });
    assert_eq!(world.node("pod-a").core.lease(), None);
    world.run_until(10_000);
    assert_eq!(world.node("pod-a").core.lease().map(|(epoch, _)| epoch), Some(Epoch(8)));
}

#[test]
fn a_renewal_that_fails_at_80_percent_is_not_repeated_in_the_same_moment() {
    let mut hand = Hand::leader(config());
    hand.wake();
    hand.answer(2000, Kind::Renew, written(WriteAnswer::Unavailable));
    assert_eq!((hand.asked(), hand.wakes_at()), (vec![], 2250));
}

/// Whatever stands there that is not exactly this leadership ends it.
#[test]
fn any_other_record_on_the_seat_ends_leadership() {
    let me = holder("pod-b", ME);
    for other in [
        seat(holder("pod-a", 9), 1, SeatState::Held),
        seat(holder("pod-b", 2), 1, SeatState::Held),
        seat(me.clone(), 2, SeatState::Held),
        seat(me, 1, SeatState::Vacant),
    ] {
        let mut hand = Hand::leader(config());
        hand.wake();
        hand.answer(1010, Kind::Renew, written(WriteAnswer::Lost));
        let found = hand.found(other.clone(), 1000);
        hand.answer(1020, Kind::Read, found);
        assert_eq!(hand.lost(), Some((LossReason::Superseded, false, 1020)), "{other:?}");
        assert!(hand.out.contains(&Effect::StopProcesses { epoch: Epoch(1), by: Time(1020) }));
    }
}

#[test]
fn only_the_processes_of_this_epoch_that_were_told_to_stop_count_as_stopped() {
    let mut hand = Hand::leader(config());
    hand.tell(100, Input::ProcessesStopped { epoch: Epoch(1) });
    assert!(hand.core.lease().is_some(), "nobody told them to stop");
    hand.tell(200, Input::StepDown);
    hand.tell(300, Input::ProcessesStopped { epoch: Epoch(9) });
    assert!(hand.core.lease().is_some(), "of another leadership");
    assert_eq!(hand.asked(), [], "nothing is vacated while work runs");
    hand.tell(400, Input::ProcessesStopped { epoch: Epoch(1) });
    assert_eq!((hand.core.lease(), hand.asked()), (None, vec![Kind::Vacate]));
}

#[test]
fn a_stop_overrides_a_step_down_and_nothing_overrides_a_stop() {
    let stops = |hand: &Hand| hand.out.iter().any(|effect| matches!(effect, Effect::StopProcesses { .. }));
    let by = |ms| Effect::StopProcesses { epoch: Epoch(1), by: Time(ms) };
    let config = || Config { drain_ms: 1000, ..config() };
    let mut hand = Hand::leader(config());
    hand.tell(100, Input::StepDown);
    assert!(hand.out.contains(&by(1100)));
    hand.tell(200, Input::StepDown);
    assert!(!stops(&hand), "asked twice, it is no later");
    hand.tell(300, Input::Stop);
    assert!(hand.out.contains(&by(1300)));
    hand.tell(400, Input::StepDown);
    assert!(!stops(&hand));
    hand.tell(500, Input::ProcessesStopped { epoch: Epoch(1) });
    let won = hand.won();
    hand.answer(510, Kind::Vacate, written(won));
    assert_eq!(hand.lost(), Some((LossReason::Shutdown, true, 500)));
}

/// Four tries a pause apart; then the lease is left to run out.
#[test]
fn vacating_is_tried_four_times_with_pauses() {
    let mut hand = Hand::leader(Config { lease_ms: 10_000, ..config() });
    hand.tell(100, Input::StepDown);
    hand.tell(100, Input::ProcessesStopped { epoch: Epoch(1) });
    for now in [100, 350, 600] {
        assert_eq!((hand.now, hand.asked()), (now, vec![Kind::Vacate]));
        hand.answer(now, Kind::Vacate, written(WriteAnswer::Unavailable));
        assert_eq!((hand.asked(), hand.wakes_at()), (vec![], now + 250));
        hand.wake();
    }
    hand.answer(850, Kind::Vacate, written(WriteAnswer::Unavailable));
    assert_eq!(hand.lost(), Some((LossReason::StepDown, false, 100)));
}

#[test]
fn a_leader_that_leaves_tells_nobody_that_it_is_there() {
    let mut hand = Hand::leader(Config { presence_ms: 500, ..config() });
    hand.tell(100, Input::Stop);
    hand.tell(600, Input::Wake(hand.wake.expect("something is due").0));
    assert_eq!(hand.asked(), []);
}

/// Work that went on after a recovery acted until the loss, not until the wind-down before it.
#[test]
fn a_recovered_leader_acted_until_it_lost_the_seat() {
    let mut hand = Hand::wound_down();
    // The renewal sent at 1000 had landed: it gave time until 3000, and the leader works again.
    let Some((_, Request::ReadSeat { .. })) = hand.open.first() else { panic!("{:?}", hand.open) };
    hand.answer(2020, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(hand.asked(), [Kind::Renew]);
    let won = hand.won();
    hand.answer(2030, Kind::Renew, written(won));
    assert!(hand.events().contains(&&Event::LeaseRecovered { epoch: Epoch(1) }), "{:?}", hand.out);
    hand.wake();
    let now = hand.now;
    hand.answer(now + 10, Kind::Renew, written(WriteAnswer::Lost));
    let other = hand.found(seat(holder("pod-a", 9), 2, SeatState::Held), 1000);
    hand.answer(now + 20, Kind::Read, other);
    assert_eq!(hand.lost(), Some((LossReason::Superseded, false, now + 20)));
}

/// What has stopped needs no sparing: a free seat may be claimed at once.
#[test]
fn after_a_loss_with_its_work_stopped_a_node_may_claim_at_once() {
    let mut hand = Hand::wound_down();
    let vacant = hand.found(seat(holder("pod-a", 9), 2, SeatState::Vacant), 1000);
    hand.answer(2100, Kind::Read, vacant);
    assert_eq!(hand.lost(), Some((LossReason::Superseded, false, 2010)));
    assert_eq!(hand.asked(), [Kind::Read], "it looks at once");
    hand.answer(2110, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(hand.core.election(), Some((ElectionCause::Vacant, Time(2110))));
}

/// Work that was told to stop and has not said so may run until the lease of its epoch ends: nothing is claimed beside it,
/// neither a seat that is gone nor one that a successor has left already.
#[test]
fn nobody_claims_beside_its_own_work_of_a_lost_epoch() {
    let refused = || {
        let mut hand = Hand::leader(config());
        hand.wake();
        hand.answer(1010, Kind::Renew, written(WriteAnswer::Lost));
        hand
    };
    let mut hand = refused();
    hand.answer(1020, Kind::Read, Answer::Seat(SeatAnswer::Absent));
    assert_eq!(hand.lost(), Some((LossReason::SeatGone, false, 1020)));
    assert_eq!(claims_with_the_seat_gone(hand, 1020), 2500);
    let mut hand = refused();
    let left = hand.found(seat(holder("pod-a", 9), 2, SeatState::Vacant), 1000);
    hand.answer(1020, Kind::Read, left);
    hand.answer(1030, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(hand.core.election(), Some((ElectionCause::Vacant, Time(2500))));
}

/// A renewal answered after the deadline leaves a record that nobody leads by: it is vacated, and nobody is called dead.
#[test]
fn a_renewal_won_too_late_is_given_back_quietly() {
    let mut hand = Hand::leader(config());
    hand.wake();
    hand.tell(2500, Input::Wake(hand.wake.expect("80 %").0));
    assert_eq!(hand.lost().map(|(reason, ..)| reason), Some(LossReason::LeaseExpired));
    let won = hand.won();
    hand.answer(2600, Kind::Renew, written(won));
    assert_eq!((hand.events(), hand.asked()), (vec![], vec![Kind::Vacate]));
}

/// One's own record has no expiry for oneself: it is looked at when a look is due, and vacated as soon as it may be.
#[test]
fn nobody_waits_for_the_expiry_of_its_own_record() {
    let mut hand = Hand::leader(Config { election_interval_ms: 60_000, ..config() });
    hand.wake();
    hand.answer(1010, Kind::Renew, written(WriteAnswer::Lost));
    let own = hand.found(seat(holder("pod-b", ME), 2, SeatState::Held), 1000);
    hand.answer(1020, Kind::Read, own);
    assert_eq!(hand.asked(), [Kind::Read], "superseded, and looks at once");
    hand.answer(1030, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(hand.core.heartbeat_due(), Some(Time(61_020)));
    assert_eq!((hand.asked(), hand.wakes_at()), (vec![], 2500), "its work may run until then");
    hand.wake();
    assert_eq!(hand.asked(), [Kind::Vacate]);
}

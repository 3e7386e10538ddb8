//! Until it leads.

use crate::edges::driver::{Driver, claims_with_the_seat_gone, config, holder, nodes, seat, written};
use crate::world::Kind;
use tenure_core::*;

// ---- Startup

#[test]
fn a_node_that_has_told_nobody_of_itself_leaves_without_a_request() {
    let mut driver = Driver::start(Config { startup_jitter_min_ms: 5000, ..crate::world::round_numbers() });
    assert_eq!(driver.wakes_at(), 5000, "the jitter");
    driver.tell(100, Input::Stop);
    assert_eq!(driver.out, [Effect::Stopped(StopCause::Asked)]);
}

#[test]
fn a_presence_under_way_is_waited_for_and_then_removed() {
    let mut driver = Driver::start(config());
    driver.answer(0, Kind::Probe, Answer::Probe(ProbeAnswer::Safe));
    driver.tell(10, Input::Stop);
    assert_eq!(driver.asked(), [], "it may land after its removal");
    let won = driver.won();
    driver.answer(20, Kind::Presence, Answer::PresenceWritten(won));
    assert_eq!(driver.asked(), [Kind::Leave]);
    driver.answer(30, Kind::Leave, Answer::PresenceRemoved);
    assert_eq!(driver.out, [Effect::Stopped(StopCause::Asked)]);
}

#[test]
fn nobody_is_woken_for_what_is_under_way() {
    let mut driver = Driver::start(config());
    assert_eq!((driver.asked(), driver.wake), (vec![Kind::Probe], None), "only the answer matters");
    driver.answer(0, Kind::Probe, Answer::Probe(ProbeAnswer::Unavailable));
    assert_eq!(driver.wakes_at(), 1000);
    driver.wake();
    driver.answer(1000, Kind::Probe, Answer::Probe(ProbeAnswer::Safe));
    assert_eq!((driver.asked(), driver.wake), (vec![Kind::Read, Kind::Presence], None));
    let won = driver.won();
    driver.answer(1000, Kind::Presence, Answer::PresenceWritten(won));
    assert_eq!(driver.wakes_at(), 21_000, "the next presence, not the look under way");
    driver.answer(1100, Kind::Read, Answer::Seat(SeatAnswer::Unavailable));
    assert_eq!(driver.wakes_at(), 1350, "a look that failed is tried again");
    driver.wake();
    assert_eq!(driver.asked(), [Kind::Read]);
}

#[test]
fn a_store_that_refuses_is_news_and_one_that_refused_and_is_away_is_not() {
    let mut driver = Driver::start(config());
    for (now, answer, told) in [
        (0, ProbeAnswer::Unavailable, vec![&Event::StoreUnavailable]),
        (1000, ProbeAnswer::Unavailable, vec![]),
        (2000, ProbeAnswer::Denied, vec![&Event::StoreDenied]),
        (3000, ProbeAnswer::Denied, vec![]),
        (4000, ProbeAnswer::Unavailable, vec![]),
    ] {
        driver.answer(now, Kind::Probe, Answer::Probe(answer));
        assert_eq!(driver.events(), told, "{answer:?} at {now}");
        driver.wake();
    }
}

// ---- Standby and campaign

/// Dead by the store's clock is only what is older than expiry and margin together.
#[test]
fn a_seat_as_old_as_the_limit_is_not_dead_yet() {
    for (age_ms, dead) in [(37_500, false), (37_501, true)] {
        let mut driver = Driver::enrolled(config());
        let held = driver.found(seat(holder("pod-a", 9), 4, SeatState::Held), 1000);
        driver.answer(0, Kind::Read, held);
        driver.answer(0, Kind::List, nodes(&[("pod-b", 1000 + age_ms)]));
        assert_eq!(driver.core.election().is_some(), dead, "{age_ms}");
    }
}

/// Whoever vacated the seat found at a start may have been started again like everybody else.
#[test]
fn in_a_first_election_the_last_holder_is_waited_for() {
    for (cause, waits_ms) in [(ElectionCause::First, 250), (ElectionCause::Vacant, 0)] {
        let mut driver = Driver::enrolled(config());
        if cause == ElectionCause::Vacant {
            let held = driver.found(seat(holder("pod-a", 9), 4, SeatState::Held), 1000);
            driver.answer(0, Kind::Read, held);
            driver.answer(0, Kind::List, nodes(&[("pod-a", 1000), ("pod-b", 1000)]));
            driver.wake();
        }
        let now = driver.now;
        let vacant = driver.found(seat(holder("pod-a", 9), 4, SeatState::Vacant), 1000);
        driver.answer(now, Kind::Read, vacant);
        assert_eq!(driver.core.election(), Some((cause, Time(now))));
        driver.answer(now, Kind::List, nodes(&[("pod-a", 1000), ("pod-b", 1000)]));
        if waits_ms > 0 {
            assert_eq!((driver.asked(), driver.wakes_at()), (vec![], now + waits_ms));
        } else {
            assert_eq!(driver.asked(), [Kind::Read], "the look that confirms");
        }
    }
}

#[test]
fn a_list_under_way_is_waited_for_without_waking() {
    let mut driver = Driver::watcher(config());
    driver.tell(7500, Input::Wake(driver.wake.expect("the expiry").0));
    driver.answer(7500, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(driver.core.election(), Some((ElectionCause::LeaderDown, Time(8500))));
    assert_eq!((driver.asked(), driver.wakes_at()), (vec![Kind::List], 8000), "the regular look");
    driver.wake();
    assert_eq!(driver.asked(), [Kind::Read]);
    driver.answer(8000, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(
        (driver.asked(), driver.wakes_at()),
        (vec![], 9000),
        "ready at 8500, but it does not know its rank"
    );
}

/// What people are told while nobody leads.
#[test]
fn a_standby_knows_when_it_may_claim() {
    let mut driver = Driver::watcher(config());
    assert_eq!(
        driver.core.claims_at(),
        Some(Time(8500)),
        "the expiry and the delay, if the leader stays silent"
    );
    driver.tell(7500, Input::Wake(driver.wake.expect("the expiry").0));
    driver.answer(7500, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(driver.core.claims_at(), Some(Time(8500)));
    driver.answer(7600, Kind::List, nodes(&[("pod-a", 1000), ("pod-aa", 8000), ("pod-b", 8000)]));
    assert_eq!(driver.core.claims_at(), Some(Time(8750)), "another one comes before it");
    driver.tell(7700, Input::Stop);
    assert_eq!(driver.core.claims_at(), None, "it leaves");
    assert_eq!(Driver::leader(config()).core.claims_at(), None, "it leads");
}

#[test]
fn a_node_that_is_not_listed_tells_of_itself_again() {
    let mut driver = Driver::enrolled(config());
    driver.answer(0, Kind::Read, Answer::Seat(SeatAnswer::Absent));
    driver.answer(0, Kind::List, nodes(&[("pod-c", 0)]));
    assert_eq!(driver.asked(), [Kind::Read, Kind::Presence]);
    let unconditional =
        |(_, request): &(RequestId, Request)| matches!(request, Request::WritePresence { expect: None, .. });
    assert!(driver.open.iter().any(unconditional), "{:?}", driver.open);
}

/// One page is all that is listed: whoever is not on it comes last, and does not take its presence for lost.
#[test]
fn ob4_a_list_that_is_cut_off_ranks_and_rewrites_no_presence() {
    let mut driver = Driver::enrolled(config());
    driver.answer(0, Kind::Read, Answer::Seat(SeatAnswer::Absent));
    let Answer::Nodes(NodesAnswer::Found { nodes, .. }) = nodes(&[("node-1", 0), ("node-2", 0)]) else {
        unreachable!("a list")
    };
    driver.answer(0, Kind::List, Answer::Nodes(NodesAnswer::Found { nodes, more: true }));
    assert_eq!(driver.asked(), [], "no presence is written");
    let before_it = config().settle_ms + 2 * (config().heartbeat_ms / 4);
    assert_eq!(driver.wakes_at(), before_it, "two names come before it");
}

/// Somebody took the seat away between the last look and the one that was to confirm the claim.
#[test]
fn a_held_seat_that_vanished_in_the_confirming_look_is_waited_out() {
    let mut driver = Driver::watcher(Config { election_interval_ms: 20_000, ..config() });
    assert_eq!(driver.wakes_at(), 7500, "the expiry comes before the regular look");
    driver.wake();
    driver.answer(7500, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    driver.answer(7500, Kind::List, nodes(&[("pod-b", 1000)]));
    driver.wake();
    assert_eq!((driver.now, driver.asked()), (8500, vec![Kind::Read]));
    driver.answer(8500, Kind::Read, Answer::Seat(SeatAnswer::Absent));
    assert_eq!((driver.asked(), driver.wakes_at()), (vec![], 16_000), "whoever held it may act until then");
    driver.wake();
    assert_eq!(driver.asked(), [Kind::Read]);
    driver.answer(16_000, Kind::Read, Answer::Seat(SeatAnswer::Absent));
    assert_eq!(driver.asked(), [Kind::Claim], "at the very moment, not a look later");
}

/// Somebody may have claimed it before it was taken away.
#[test]
fn a_vacant_seat_that_vanished_is_waited_out() {
    let mut driver = Driver::enrolled(config());
    let vacant = driver.found(seat(holder("pod-a", 9), 4, SeatState::Vacant), 1000);
    driver.answer(0, Kind::Read, vacant);
    assert_eq!(claims_with_the_seat_gone(driver, 20), 7520);
}

/// Somebody may have taken it over after the lease, and acted on it until it was taken away.
#[test]
fn a_seat_of_its_own_that_vanished_after_its_tenure_is_waited_out() {
    let mut driver = Driver::wound_down();
    driver.wake();
    assert_eq!(driver.lost().map(|(reason, ..)| reason), Some(LossReason::LeaseExpired));
    assert_eq!(claims_with_the_seat_gone(driver, 60_000), 67_500);
}

/// It stopped and starts again in the same life: what it has seen before counts, and the longest expiry of it.
#[test]
fn a_seat_that_vanished_while_its_node_was_at_rest_is_waited_out() {
    for (expiry_ms, claims) in [(7500, 67_500), (15_000, 75_000)] {
        let mut driver = Driver::watcher(config());
        let lease = Lease { hold_ms: 2500, expiry_ms };
        let held = Seat { lease, ..seat(holder("pod-a", 9), 5, SeatState::Held) };
        driver.wake();
        let held = driver.found(held, 1000);
        driver.answer(driver.now, Kind::Read, held);
        driver.tell(driver.now, Input::Stop);
        driver.answer(driver.now, Kind::Leave, Answer::PresenceRemoved);
        assert!(driver.open.is_empty() && driver.core.role().is_none(), "{:?}", driver.open);
        driver.tell(60_000, Input::Start { random: 0 });
        driver.answer(60_000, Kind::Probe, Answer::Probe(ProbeAnswer::Safe));
        assert_eq!(claims_with_the_seat_gone(driver, 60_000), claims);
    }
}

/// The same epoch, but another's: it was given out twice, and the holder that was seen may act still.
#[test]
fn an_epoch_of_another_holder_than_before_a_rest_is_waited_out() {
    for (found_by, ready_at) in [("pod-a", 60_000), ("pod-c", 67_500)] {
        let mut driver = Driver::watcher(config());
        driver.tell(0, Input::Stop);
        driver.answer(0, Kind::Leave, Answer::PresenceRemoved);
        driver.tell(60_000, Input::Start { random: 0 });
        driver.answer(60_000, Kind::Probe, Answer::Probe(ProbeAnswer::Safe));
        let won = driver.won();
        driver.answer(60_000, Kind::Presence, Answer::PresenceWritten(won));
        let vacant = driver.found(seat(holder(found_by, 9), 4, SeatState::Vacant), 1000);
        driver.answer(60_000, Kind::Read, vacant);
        assert_eq!(driver.core.election(), Some((ElectionCause::First, Time(ready_at))), "{found_by}");
    }
}

/// A claim that is known not to have landed is repeated a pause after the last, not later.
#[test]
fn an_unresolved_claim_is_repeated_after_the_pause() {
    for (answered, again) in [(249, vec![]), (250, vec![Kind::Claim])] {
        let mut driver = Driver::candidate(config());
        driver.answer(100, Kind::Claim, written(WriteAnswer::Unknown));
        driver.answer(answered, Kind::Read, Answer::Seat(SeatAnswer::Absent));
        assert_eq!(driver.asked(), again, "at {answered}");
    }
}

/// Found only at 80 % of its lease, a claim is of no use: it is given back.
#[test]
fn a_claim_found_too_late_is_vacated() {
    for (found_at, leads) in [(1999, true), (2000, false)] {
        let mut driver = Driver::candidate(config());
        let Some((_, Request::WriteSeat { seat, .. })) = driver.open.first().cloned() else { panic!() };
        driver.answer(750, Kind::Claim, written(WriteAnswer::Unknown));
        let own = driver.found(seat, 0);
        driver.answer(found_at, Kind::Read, own);
        assert_eq!(driver.core.lease().is_some(), leads, "at {found_at}");
        assert_eq!(driver.asked(), if leads { vec![Kind::Renew] } else { vec![Kind::Vacate] });
    }
}

#[test]
fn nobody_leads_by_a_vacant_seat() {
    let mut driver = Driver::watcher(config());
    driver.wake();
    let vacant = driver.found(seat(holder("pod-a", 9), 4, SeatState::Vacant), 2000);
    driver.answer(1000, Kind::Read, vacant);
    assert!(driver.events().contains(&&Event::ElectionCheck { leader: None, unchanged_ms: 0 }));
}

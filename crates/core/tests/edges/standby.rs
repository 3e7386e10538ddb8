//! Until it leads.

use crate::hand::{Hand, claims_with_the_seat_gone, config, holder, nodes, seat, written};
use crate::world::Kind;
use tenure_core::*;

// ---- Startup

#[test]
fn a_node_that_has_told_nobody_of_itself_leaves_without_a_request() {
    let mut hand = Hand::start(Config { startup_jitter_min_ms: 5000, ..crate::world::round_numbers() });
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

/// One page is all that is listed: whoever is not on it comes last, and does not take its presence for lost.
#[test]
fn ob4_a_list_that_is_cut_off_ranks_and_rewrites_no_presence() {
    let mut hand = Hand::enrolled(config());
    hand.answer(0, Kind::Read, Answer::Seat(SeatAnswer::Absent));
    let Answer::Nodes(NodesAnswer::Found { nodes, .. }) = nodes(&[("node-1", 0), ("node-2", 0)]) else {
        unreachable!("a list")
    };
    hand.answer(0, Kind::List, Answer::Nodes(NodesAnswer::Found { nodes, more: true }));
    assert_eq!(hand.asked(), [], "no presence is written");
    let before_it = config().settle_ms + 2 * (config().heartbeat_ms / 4);
    assert_eq!(hand.wakes_at(), before_it, "two names come before it");
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

/// It stopped and starts again in the same life: what it has seen before counts, and the longest expiry of it.
#[test]
fn a_seat_that_vanished_while_its_node_was_at_rest_is_waited_out() {
    for (expiry_ms, claims) in [(7500, 67_500), (15_000, 75_000)] {
        let mut hand = Hand::watcher(config());
        let lease = Lease { hold_ms: 2500, expiry_ms };
        let held = Seat { lease, ..seat(holder("pod-a", 9), 5, SeatState::Held) };
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

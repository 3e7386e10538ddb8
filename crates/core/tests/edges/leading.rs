//! While it leads, and after.

use crate::edges::driver::{Driver, ME, claims_with_the_seat_gone, config, holder, nodes, seat, written};
use crate::world::{Kind, World};
use tenure_core::*;

#[test]
fn a_leader_is_woken_when_something_is_due_and_not_before() {
    let mut driver = Driver::leader(config());
    assert_eq!(driver.wakes_at(), 1000, "the renewal");
    driver.wake();
    assert_eq!((driver.asked(), driver.wakes_at()), (vec![Kind::Renew], 2000), "80 % of the lease");
    driver.wake();
    assert_eq!((driver.asked(), driver.wakes_at()), (vec![], 2500), "the deadline");
}

#[test]
fn a_wake_up_that_was_replaced_does_nothing() {
    let mut driver = Driver::leader(Config { drain_ms: 100, ..config() });
    let (replaced, _) = driver.wake.expect("the renewal");
    driver.tell(500, Input::StepDown);
    assert_eq!((driver.asked(), driver.wakes_at()), (vec![], 600));
    driver.tell(550, Input::Wake(replaced));
    assert_eq!(driver.out, []);
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
    let mut driver = Driver::leader(config());
    driver.wake();
    driver.answer(2000, Kind::Renew, written(WriteAnswer::Unavailable));
    assert_eq!((driver.asked(), driver.wakes_at()), (vec![], 2250));
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
        let mut driver = Driver::leader(config());
        driver.wake();
        driver.answer(1010, Kind::Renew, written(WriteAnswer::Lost));
        let found = driver.found(other.clone(), 1000);
        driver.answer(1020, Kind::Read, found);
        assert_eq!(driver.lost(), Some((LossReason::Superseded, false, 1020)), "{other:?}");
        assert!(driver.out.contains(&Effect::StopProcesses { epoch: Epoch(1), by: Time(1020) }));
    }
}

#[test]
fn only_the_processes_of_this_epoch_that_were_told_to_stop_count_as_stopped() {
    let mut driver = Driver::leader(config());
    driver.tell(100, Input::ProcessesStopped { epoch: Epoch(1) });
    assert!(driver.core.lease().is_some(), "nobody told them to stop");
    driver.tell(200, Input::StepDown);
    driver.tell(300, Input::ProcessesStopped { epoch: Epoch(9) });
    assert!(driver.core.lease().is_some(), "of another leadership");
    assert_eq!(driver.asked(), [], "nothing is vacated while work runs");
    driver.tell(400, Input::ProcessesStopped { epoch: Epoch(1) });
    assert_eq!((driver.core.lease(), driver.asked()), (None, vec![Kind::Vacate]));
}

#[test]
fn a_stop_overrides_a_step_down_and_nothing_overrides_a_stop() {
    let stops =
        |driver: &Driver| driver.out.iter().any(|effect| matches!(effect, Effect::StopProcesses { .. }));
    let by = |ms| Effect::StopProcesses { epoch: Epoch(1), by: Time(ms) };
    let config = || Config { drain_ms: 1000, ..config() };
    let mut driver = Driver::leader(config());
    driver.tell(100, Input::StepDown);
    assert!(driver.out.contains(&by(1100)));
    driver.tell(200, Input::StepDown);
    assert!(!stops(&driver), "asked twice, it is no later");
    driver.tell(300, Input::Stop);
    assert!(driver.out.contains(&by(1300)));
    driver.tell(400, Input::StepDown);
    assert!(!stops(&driver));
    driver.tell(500, Input::ProcessesStopped { epoch: Epoch(1) });
    let won = driver.won();
    driver.answer(510, Kind::Vacate, written(won));
    assert_eq!(driver.lost(), Some((LossReason::Shutdown, true, 500)));
}

/// The vacate may have landed before the stop came: whoever is found on the seat afterwards came after it.
#[test]
fn a_stop_that_overrides_a_step_down_knows_of_its_vacate() {
    let mut driver = Driver::leader(config());
    driver.tell(100, Input::StepDown);
    driver.tell(100, Input::ProcessesStopped { epoch: Epoch(1) });
    driver.answer(200, Kind::Vacate, written(WriteAnswer::Unknown));
    driver.tell(210, Input::Stop);
    let successor = driver.found(seat(holder("pod-a", 9), 2, SeatState::Held), 1000);
    driver.answer(220, Kind::Read, successor);
    assert_eq!(driver.lost(), Some((LossReason::Shutdown, true, 100)));
}

/// Four tries a pause apart; then the lease is left to run out.
#[test]
fn vacating_is_tried_four_times_with_pauses() {
    let mut driver = Driver::leader(Config { lease_ms: 10_000, ..config() });
    driver.tell(100, Input::StepDown);
    driver.tell(100, Input::ProcessesStopped { epoch: Epoch(1) });
    for now in [100, 350, 600] {
        assert_eq!((driver.now, driver.asked()), (now, vec![Kind::Vacate]));
        driver.answer(now, Kind::Vacate, written(WriteAnswer::Unavailable));
        assert_eq!((driver.asked(), driver.wakes_at()), (vec![], now + 250));
        driver.wake();
    }
    driver.answer(850, Kind::Vacate, written(WriteAnswer::Unavailable));
    assert_eq!(driver.lost(), Some((LossReason::StepDown, false, 100)));
}

#[test]
fn a_leader_that_leaves_tells_nobody_that_it_is_there() {
    let mut driver = Driver::leader(Config { presence_ms: 500, ..config() });
    driver.tell(100, Input::Stop);
    driver.tell(600, Input::Wake(driver.wake.expect("something is due").0));
    assert_eq!(driver.asked(), []);
}

/// Work that went on after a recovery acted until the loss, not until the wind-down before it.
#[test]
fn a_recovered_leader_acted_until_it_lost_the_seat() {
    let mut driver = Driver::wound_down();
    // The renewal sent at 1000 had landed: it gave time until 3000, and the leader works again.
    let Some((_, Request::ReadSeat { .. })) = driver.open.first() else { panic!("{:?}", driver.open) };
    driver.answer(2020, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(driver.asked(), [Kind::Renew]);
    let won = driver.won();
    driver.answer(2030, Kind::Renew, written(won));
    assert!(driver.events().contains(&&Event::LeaseRecovered { epoch: Epoch(1) }), "{:?}", driver.out);
    driver.wake();
    let now = driver.now;
    driver.answer(now + 10, Kind::Renew, written(WriteAnswer::Lost));
    let other = driver.found(seat(holder("pod-a", 9), 2, SeatState::Held), 1000);
    driver.answer(now + 20, Kind::Read, other);
    assert_eq!(driver.lost(), Some((LossReason::Superseded, false, now + 20)));
}

/// What has stopped needs no sparing: a free seat may be claimed at once.
#[test]
fn after_a_loss_with_its_work_stopped_a_node_may_claim_at_once() {
    let mut driver = Driver::wound_down();
    let vacant = driver.found(seat(holder("pod-a", 9), 2, SeatState::Vacant), 1000);
    driver.answer(2100, Kind::Read, vacant);
    assert_eq!(driver.lost(), Some((LossReason::Superseded, false, 2010)));
    assert_eq!(driver.asked(), [Kind::Read], "it looks at once");
    driver.answer(2110, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(driver.core.election(), Some((ElectionCause::Vacant, Time(2110))));
}

/// Work that was told to stop and has not said so may run, also past the lease of its epoch: nothing is claimed beside it,
/// neither a seat that is gone nor one that a successor has left already.
#[test]
fn nobody_claims_beside_its_own_work_of_a_lost_epoch() {
    let refused = || {
        let mut driver = Driver::leader(config());
        driver.wake();
        driver.answer(1010, Kind::Renew, written(WriteAnswer::Lost));
        driver
    };
    let mut driver = refused();
    driver.answer(1020, Kind::Read, Answer::Seat(SeatAnswer::Absent));
    assert_eq!(driver.lost(), Some((LossReason::SeatGone, false, 1020)));
    driver.answer(1030, Kind::Read, Answer::Seat(SeatAnswer::Absent));
    for now in [2030, 3030] {
        driver.wake();
        driver.answer(now, Kind::Read, Answer::Seat(SeatAnswer::Absent));
        assert_eq!((driver.core.election(), driver.asked()), (None, vec![]), "the lease ended at 2500");
    }
    driver.tell(3040, Input::ProcessesStopped { epoch: Epoch(1) });
    assert_eq!(claims_with_the_seat_gone(driver, 3040), 4020, "with the next look");
    let mut driver = refused();
    let left = driver.found(seat(holder("pod-a", 9), 2, SeatState::Vacant), 1000);
    driver.answer(1020, Kind::Read, left);
    driver.answer(1030, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(driver.core.election(), None);
    driver.tell(1040, Input::ProcessesStopped { epoch: Epoch(1) });
    driver.wake();
    driver.answer(2030, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(driver.core.election(), Some((ElectionCause::Vacant, Time(2030))));
}

/// A node with stuck work that finds somebody else on the seat leaves at once. If it starts again in the same life and is shown its
/// own record, by an answer as late as can be, that record is not vacated before the work has stopped; nor is a free seat claimed.
#[test]
fn stuck_work_is_remembered_across_a_rest() {
    let again = || {
        let mut driver = Driver::leader(config());
        driver.wake();
        driver.answer(1010, Kind::Renew, written(WriteAnswer::Lost));
        let successor = driver.found(seat(holder("pod-a", 9), 2, SeatState::Held), 1000);
        driver.answer(1020, Kind::Read, successor);
        driver.answer(1030, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
        driver.tell(1040, Input::Stop);
        driver.answer(1050, Kind::Leave, Answer::PresenceRemoved);
        assert!(driver.out.contains(&Effect::Stopped(StopCause::Asked)), "nothing of its own is on the seat");
        driver.tell(1060, Input::Start { random: 0 });
        driver.answer(1060, Kind::Probe, Answer::Probe(ProbeAnswer::Safe));
        let won = driver.won();
        driver.answer(1070, Kind::Presence, Answer::PresenceWritten(won));
        driver
    };
    let mut driver = again();
    let own = driver.found(seat(holder("pod-b", ME), 1, SeatState::Held), 1000);
    driver.answer(1080, Kind::Read, own);
    driver.answer(1080, Kind::List, nodes(&[("pod-b", 1000)]));
    driver.wake();
    driver.answer(2080, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(driver.asked(), [], "its work may run");
    driver.tell(2090, Input::ProcessesStopped { epoch: Epoch(1) });
    assert_eq!(driver.asked(), [Kind::Vacate]);
    let mut driver = again();
    let vacant = driver.found(seat(holder("pod-a", 9), 2, SeatState::Vacant), 1000);
    driver.answer(1080, Kind::Read, vacant);
    assert_eq!(driver.core.election(), None);
    driver.tell(1090, Input::ProcessesStopped { epoch: Epoch(1) });
    driver.wake();
    driver.answer(2080, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert!(driver.core.election().is_some());
}

/// A successor that falls silent cannot be replaced by a node whose own work is stuck: it goes on with its regular looks, and no
/// others.
#[test]
fn ex3_stuck_work_makes_nobody_look_more_often() {
    let mut driver = Driver::leader(config());
    driver.wake();
    driver.answer(1010, Kind::Renew, written(WriteAnswer::Lost));
    let successor = driver.found(seat(holder("pod-a", 9), 2, SeatState::Held), 1000);
    driver.answer(1020, Kind::Read, successor);
    let mut looks = 0;
    // Its expiry, and as long again. A request is answered after 10 ms.
    while driver.now < 17_000 && looks < 100 {
        match driver.asked().first() {
            Some(Kind::Read) => {
                looks += 1;
                driver.answer(driver.now + 10, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
            }
            Some(other) => panic!("{other:?} at {}", driver.now),
            None => driver.wake(),
        }
    }
    assert!((15..=17).contains(&looks), "{looks} looks in sixteen seconds, one each second");
}

/// A renewal answered after the deadline leaves a record that nobody leads by: it is vacated, and nobody is called dead.
#[test]
fn a_renewal_won_too_late_is_given_back_quietly() {
    let mut driver = Driver::leader(config());
    driver.wake();
    driver.tell(2500, Input::Wake(driver.wake.expect("80 %").0));
    assert_eq!(driver.lost().map(|(reason, ..)| reason), Some(LossReason::LeaseExpired));
    driver.tell(2510, Input::ProcessesStopped { epoch: Epoch(1) });
    let won = driver.won();
    driver.answer(2600, Kind::Renew, written(won));
    assert_eq!((driver.events(), driver.asked()), (vec![], vec![Kind::Vacate]));
}

/// One's own record has no expiry for oneself: it is looked at when a look is due, and vacated as soon as its work has stopped.
#[test]
fn nobody_waits_for_the_expiry_of_its_own_record() {
    let mut driver = Driver::leader(Config { election_interval_ms: 60_000, ..config() });
    driver.wake();
    driver.answer(1010, Kind::Renew, written(WriteAnswer::Lost));
    let own = driver.found(seat(holder("pod-b", ME), 2, SeatState::Held), 1000);
    driver.answer(1020, Kind::Read, own);
    assert_eq!(driver.asked(), [Kind::Read], "superseded, and looks at once");
    driver.answer(1030, Kind::Read, Answer::Seat(SeatAnswer::Unchanged));
    assert_eq!(driver.core.heartbeat_due(), Some(Time(61_020)));
    assert_eq!(driver.asked(), [], "its work may run");
    driver.tell(9000, Input::ProcessesStopped { epoch: Epoch(1) });
    assert_eq!(driver.asked(), [Kind::Vacate]);
}

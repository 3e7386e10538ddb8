//! A plugin's arbiter: never two of them at once, never an epoch twice, and always a way back.

mod arbitration;

use tenure_core::{Arbiter, ArbiterEffect, ArbiterInput, Arbitration, Epoch, Sight};

fn told(arbiter: &mut Arbiter, input: ArbiterInput) -> Vec<ArbiterEffect> {
    let mut out = Vec::new();
    arbiter.handle(input, &mut out);
    out
}

#[test]
fn gc2_random_schedules_never_have_two_arbiters_and_always_come_back() {
    let (mut fallbacks, mut tenures) = (0, 0);
    for seed in 0..3000 {
        let outcome = arbitration::run(seed, Arbiter::default);
        assert_eq!(outcome.violations, [""; 0], "seed {seed}");
        fallbacks += outcome.fallbacks;
        tenures += outcome.tenures;
    }
    assert!(fallbacks > 3000 && tenures > 3000, "it happened at all: {fallbacks}, {tenures}");
}

#[test]
fn leadership_counts_only_once_the_other_seat_was_looked_at() {
    let mut arbiter = Arbiter::default();
    assert_eq!(
        told(&mut arbiter, ArbiterInput::GlobalLeads(Epoch(4))),
        [ArbiterEffect::CheckOwnSeat(Epoch(4))]
    );
    assert_eq!(arbiter.in_force(), None);
    told(&mut arbiter, ArbiterInput::OwnSeatFree { check: Epoch(3), epoch: Epoch(0) });
    assert_eq!(arbiter.in_force(), None, "the answer to an earlier question");
    told(&mut arbiter, ArbiterInput::OwnSeatFree { check: Epoch(4), epoch: Epoch(2) });
    assert_eq!(arbiter.in_force(), Some(Arbitration::Global));
    // A refusal does not end a lease that runs.
    assert_eq!(told(&mut arbiter, ArbiterInput::Denied), []);
    assert_eq!(arbiter.in_force(), Some(Arbitration::Global));
    assert_eq!(told(&mut arbiter, ArbiterInput::GlobalEnded), [ArbiterEffect::FallbackStarted]);
}

#[test]
fn on_its_own_only_while_nobody_holds_the_global_seat() {
    let mut arbiter = Arbiter::default();
    assert_eq!(told(&mut arbiter, ArbiterInput::Denied), [ArbiterEffect::FallbackStarted]);
    assert_eq!(told(&mut arbiter, ArbiterInput::GlobalSeat(Sight::Held)), [], "it waits");
    let free = ArbiterInput::GlobalSeat(Sight::Free(Epoch(7)));
    assert_eq!(told(&mut arbiter, free), [ArbiterEffect::StartOwn(Epoch(7))]);
    assert_eq!(
        told(&mut arbiter, ArbiterInput::OwnLeads(Epoch(8))),
        [ArbiterEffect::CheckGlobalSeat(Epoch(8))]
    );
    let seen = |sight| ArbiterInput::GlobalSeatChecked { check: Epoch(8), sight };
    assert_eq!(told(&mut arbiter, seen(Sight::Unknown)), [ArbiterEffect::CheckGlobalSeat(Epoch(8))]);
    told(&mut arbiter, seen(Sight::Free(Epoch(7))));
    assert_eq!(arbiter.in_force(), Some(Arbitration::Own));
    assert_eq!(told(&mut arbiter, ArbiterInput::GlobalSeat(Sight::Held)), [ArbiterEffect::StopOwn]);
    assert_eq!((arbiter.in_force(), arbiter.is_fallback()), (None, true));
}

#[test]
fn the_way_back_is_drained_first_and_raised_above_what_was_handed_out() {
    let mut arbiter = Arbiter::default();
    told(&mut arbiter, ArbiterInput::Denied);
    told(&mut arbiter, ArbiterInput::GlobalSeat(Sight::Free(Epoch(0))));
    told(&mut arbiter, ArbiterInput::OwnLeads(Epoch(1)));
    let seen = ArbiterInput::GlobalSeatChecked { check: Epoch(1), sight: Sight::Free(Epoch(0)) };
    told(&mut arbiter, seen);
    assert_eq!(
        told(&mut arbiter, ArbiterInput::Allowed),
        [ArbiterEffect::Raise(Epoch(1)), ArbiterEffect::StopOwn]
    );
    assert_eq!(told(&mut arbiter, ArbiterInput::GlobalLeads(Epoch(1))), [], "not before it is gone");
    assert_eq!(
        told(&mut arbiter, ArbiterInput::OwnStopped),
        [ArbiterEffect::FallbackEnded, ArbiterEffect::CheckOwnSeat(Epoch(1))]
    );
    let free = ArbiterInput::OwnSeatFree { check: Epoch(1), epoch: Epoch(1) };
    assert_eq!(told(&mut arbiter, free), [ArbiterEffect::Raise(Epoch(1))], "that epoch was given out");
    assert_eq!(arbiter.in_force(), None);
}

#[test]
fn whether_it_is_on_its_own_can_be_asked() {
    let mut arbiter = Arbiter::default();
    assert!(!arbiter.runs_own());
    told(&mut arbiter, ArbiterInput::Denied);
    assert!(!arbiter.runs_own(), "nobody knows yet who holds the global seat");
    told(&mut arbiter, ArbiterInput::GlobalSeat(Sight::Free(Epoch(0))));
    assert!(arbiter.runs_own());
    told(&mut arbiter, ArbiterInput::Leave);
    assert!(!arbiter.runs_own(), "it is being stopped");
}

#[test]
fn only_epochs_that_were_handed_out_raise_the_global_candidate_and_once() {
    let mut arbiter = Arbiter::default();
    told(&mut arbiter, ArbiterInput::Denied);
    assert_eq!(told(&mut arbiter, ArbiterInput::Allowed), [ArbiterEffect::FallbackEnded]);
    told(&mut arbiter, ArbiterInput::Denied);
    told(&mut arbiter, ArbiterInput::GlobalSeat(Sight::Free(Epoch(0))));
    told(&mut arbiter, ArbiterInput::OwnLeads(Epoch(1)));
    told(&mut arbiter, ArbiterInput::OwnEnded);
    assert!(told(&mut arbiter, ArbiterInput::Allowed).contains(&ArbiterEffect::Raise(Epoch(1))));
    assert_eq!(told(&mut arbiter, ArbiterInput::Allowed), [], "told already");
}

#[test]
fn what_was_seen_before_a_refusal_counts_for_nothing() {
    let mut arbiter = Arbiter::default();
    told(&mut arbiter, ArbiterInput::Denied);
    let free = ArbiterInput::GlobalSeat(Sight::Free(Epoch(3)));
    assert_eq!(told(&mut arbiter, free), [ArbiterEffect::StartOwn(Epoch(3))]);
    told(&mut arbiter, ArbiterInput::Allowed);
    told(&mut arbiter, ArbiterInput::OwnStopped);
    told(&mut arbiter, free);
    assert_eq!(told(&mut arbiter, ArbiterInput::Denied), [ArbiterEffect::FallbackStarted], "old news");
    assert_eq!(told(&mut arbiter, free), [ArbiterEffect::StartOwn(Epoch(3))], "seen since");
}

#[test]
fn no_answer_does_not_undo_what_is_known() {
    let mut arbiter = Arbiter::default();
    told(&mut arbiter, ArbiterInput::Denied);
    told(&mut arbiter, ArbiterInput::GlobalSeat(Sight::Free(Epoch(3))));
    assert_eq!(told(&mut arbiter, ArbiterInput::GlobalLeads(Epoch(4))), [ArbiterEffect::StopOwn]);
    told(&mut arbiter, ArbiterInput::OwnStopped);
    told(&mut arbiter, ArbiterInput::GlobalSeat(Sight::Unknown));
    assert_eq!(told(&mut arbiter, ArbiterInput::GlobalEnded), [ArbiterEffect::StartOwn(Epoch(3))]);
}

#[test]
fn every_leadership_is_checked_once() {
    let mut arbiter = Arbiter::default();
    told(&mut arbiter, ArbiterInput::GlobalLeads(Epoch(4)));
    told(&mut arbiter, ArbiterInput::OwnSeatFree { check: Epoch(4), epoch: Epoch(0) });
    assert_eq!(told(&mut arbiter, ArbiterInput::GlobalLeads(Epoch(4))), [], "the same one");
    assert_eq!(arbiter.in_force(), Some(Arbitration::Global));
    let next = told(&mut arbiter, ArbiterInput::GlobalLeads(Epoch(5)));
    assert_eq!((next, arbiter.in_force()), (vec![ArbiterEffect::CheckOwnSeat(Epoch(5))], None));
    told(&mut arbiter, ArbiterInput::GlobalEnded);

    told(&mut arbiter, ArbiterInput::Denied);
    told(&mut arbiter, ArbiterInput::GlobalSeat(Sight::Free(Epoch(5))));
    told(&mut arbiter, ArbiterInput::OwnLeads(Epoch(6)));
    let seen = ArbiterInput::GlobalSeatChecked { check: Epoch(6), sight: Sight::Free(Epoch(5)) };
    told(&mut arbiter, seen);
    assert_eq!(told(&mut arbiter, ArbiterInput::OwnLeads(Epoch(6))), [], "the same one");
    assert_eq!(arbiter.in_force(), Some(Arbitration::Own));
    let next = told(&mut arbiter, ArbiterInput::OwnLeads(Epoch(7)));
    assert_eq!((next, arbiter.in_force()), (vec![ArbiterEffect::CheckGlobalSeat(Epoch(7))], None));
}

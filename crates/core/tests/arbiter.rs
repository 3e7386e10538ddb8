//! A plugin's arbiter: never two of them at once, never an epoch twice, and one way only.

mod arbitration;

use tenure_core::{Arbiter, ArbiterEffect, ArbiterInput, Arbitration, Epoch, Lookout, Sight};

const FREE: Sight = Sight::Free(Epoch(0));

fn told(arbiter: &mut Arbiter, input: ArbiterInput) -> Vec<ArbiterEffect> {
    let mut out = Vec::new();
    arbiter.handle(input, &mut out);
    out
}

/// One in fallback that has seen the global seat like this.
fn refused(sight: Sight) -> (Arbiter, Vec<ArbiterEffect>) {
    let mut arbiter = Arbiter::default();
    assert_eq!(told(&mut arbiter, ArbiterInput::Refused), [ArbiterEffect::FallbackStarted]);
    let out = told(&mut arbiter, ArbiterInput::GlobalSeat(sight));
    (arbiter, out)
}

#[test]
fn gc2_random_schedules_never_have_two_arbiters_and_always_have_one_in_the_end() {
    let (mut fallbacks, mut by_global, mut by_own) = (0, 0, 0);
    for seed in 0..3000 {
        let outcome = arbitration::run(seed, Arbiter::default, Lookout::new);
        assert_eq!(outcome.violations, [""; 0], "seed {seed}");
        fallbacks += outcome.fallbacks;
        by_global += outcome.by_global;
        by_own += outcome.by_own;
    }
    let all = (fallbacks, by_global, by_own);
    assert!(fallbacks > 3000 && by_global > 3000 && by_own > 1000, "it happened at all: {all:?}");
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
    told(&mut arbiter, ArbiterInput::GlobalEnded);
    assert_eq!(arbiter.in_force(), None);
}

#[test]
fn an_epoch_that_was_handed_out_by_the_other_seat_is_not_acted_in() {
    let mut arbiter = Arbiter::default();
    told(&mut arbiter, ArbiterInput::GlobalLeads(Epoch(4)));
    let free = ArbiterInput::OwnSeatFree { check: Epoch(4), epoch: Epoch(4) };
    assert_eq!(told(&mut arbiter, free), [ArbiterEffect::Raise(Epoch(4))]);
    assert_eq!(arbiter.in_force(), None);

    let (mut arbiter, _) = refused(FREE);
    told(&mut arbiter, ArbiterInput::OwnLeads(Epoch(1)));
    let free = ArbiterInput::GlobalSeatChecked { check: Epoch(1), sight: Sight::Free(Epoch(1)) };
    assert_eq!(told(&mut arbiter, free), [ArbiterEffect::RaiseOwn(Epoch(1))]);
    assert_eq!(arbiter.in_force(), None);
}

#[test]
fn on_its_own_only_while_nobody_holds_the_global_seat() {
    let (mut arbiter, out) = refused(Sight::Held);
    assert_eq!((out, arbiter.runs_own()), (Vec::new(), false), "it waits");
    let free = ArbiterInput::GlobalSeat(Sight::Free(Epoch(7)));
    assert_eq!(told(&mut arbiter, free), [ArbiterEffect::StartOwn(Epoch(7))]);
    assert_eq!(told(&mut arbiter, free), [], "it runs");
    assert_eq!(
        told(&mut arbiter, ArbiterInput::OwnLeads(Epoch(8))),
        [ArbiterEffect::CheckGlobalSeat(Epoch(8))]
    );
    assert_eq!(told(&mut arbiter, free), [], "a look from before the win says nothing about after it");
    assert_eq!(arbiter.in_force(), None);
    let seen = |check, sight| ArbiterInput::GlobalSeatChecked { check: Epoch(check), sight };
    told(&mut arbiter, seen(7, Sight::Free(Epoch(7))));
    assert_eq!(arbiter.in_force(), None, "the answer to an earlier question");
    told(&mut arbiter, seen(8, Sight::Free(Epoch(7))));
    assert_eq!(arbiter.in_force(), Some(Arbitration::Own));
    assert_eq!(told(&mut arbiter, ArbiterInput::GlobalSeat(Sight::Held)), [ArbiterEffect::StopOwn]);
    assert_eq!((arbiter.in_force(), arbiter.is_fallback()), (None, true));
    assert_eq!(told(&mut arbiter, free), [], "not before it is gone");
    assert_eq!(told(&mut arbiter, ArbiterInput::OwnStopped), [ArbiterEffect::StartOwn(Epoch(7))]);
}

#[test]
fn a_candidate_that_won_yields_to_the_holder_of_the_global_seat() {
    let (mut arbiter, _) = refused(FREE);
    told(&mut arbiter, ArbiterInput::OwnLeads(Epoch(1)));
    let held = ArbiterInput::GlobalSeatChecked { check: Epoch(1), sight: Sight::Held };
    assert_eq!(told(&mut arbiter, held), [ArbiterEffect::StopOwn]);
    assert_eq!(told(&mut arbiter, ArbiterInput::OwnStopped), [], "it waits until that one is gone");
}

#[test]
fn there_is_no_way_back() {
    let (mut arbiter, _) = refused(FREE);
    assert_eq!(told(&mut arbiter, ArbiterInput::Refused), [], "told once");
    assert_eq!(told(&mut arbiter, ArbiterInput::GlobalLeads(Epoch(9))), []);
    told(&mut arbiter, ArbiterInput::OwnSeatFree { check: Epoch(9), epoch: Epoch(0) });
    assert_eq!((arbiter.in_force(), arbiter.is_fallback()), (None, true));
}

#[test]
fn one_that_leaves_starts_nothing() {
    let (mut arbiter, _) = refused(FREE);
    assert_eq!(told(&mut arbiter, ArbiterInput::Leave), [ArbiterEffect::StopOwn]);
    assert!(!arbiter.runs_own(), "it is being stopped");
    assert_eq!(told(&mut arbiter, ArbiterInput::OwnStopped), []);
    let mut arbiter = Arbiter::default();
    told(&mut arbiter, ArbiterInput::Leave);
    assert_eq!(told(&mut arbiter, ArbiterInput::Refused), []);
    assert!(!arbiter.is_fallback());
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

    let (mut arbiter, _) = refused(FREE);
    told(&mut arbiter, ArbiterInput::OwnLeads(Epoch(6)));
    told(&mut arbiter, ArbiterInput::GlobalSeatChecked { check: Epoch(6), sight: FREE });
    assert_eq!(told(&mut arbiter, ArbiterInput::OwnLeads(Epoch(6))), [], "the same one");
    assert_eq!(arbiter.in_force(), Some(Arbitration::Own));
    let next = told(&mut arbiter, ArbiterInput::OwnLeads(Epoch(7)));
    assert_eq!((next, arbiter.in_force()), (vec![ArbiterEffect::CheckGlobalSeat(Epoch(7))], None));
    told(&mut arbiter, ArbiterInput::OwnEnded);
    assert_eq!(arbiter.in_force(), None);
}

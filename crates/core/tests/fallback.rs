//! A plugin's choice: never two of them at once, never an epoch twice, and one way only.

mod two_seats;

use tenure_core::{Epoch, SeatChoice, SeatChoiceEffect, SeatChoiceInput, SeatUse, WhichSeat};

const FREE: SeatUse = SeatUse::Free(Epoch(0));

fn told(choice: &mut SeatChoice, input: SeatChoiceInput) -> Vec<SeatChoiceEffect> {
    let mut out = Vec::new();
    choice.handle(input, &mut out);
    out
}

/// One in fallback that has seen the global seat like this.
fn refused(usage: SeatUse) -> (SeatChoice, Vec<SeatChoiceEffect>) {
    let mut choice = SeatChoice::default();
    assert_eq!(told(&mut choice, SeatChoiceInput::Refused), [SeatChoiceEffect::FallbackStarted]);
    let out = told(&mut choice, SeatChoiceInput::GlobalSeat(usage));
    (choice, out)
}

#[test]
fn gc2_random_schedules_never_act_by_both_seats_and_always_by_one_in_the_end() {
    let (mut fallbacks, mut by_global, mut by_own) = (0, 0, 0);
    for seed in 0..3000 {
        let outcome = two_seats::run(seed);
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
    let mut choice = SeatChoice::default();
    assert_eq!(
        told(&mut choice, SeatChoiceInput::GlobalLeads(Epoch(4))),
        [SeatChoiceEffect::CheckOwnSeat(Epoch(4))]
    );
    assert_eq!(choice.in_force(), None);
    told(&mut choice, SeatChoiceInput::OwnSeatFree { check: Epoch(3), epoch: Epoch(0) });
    assert_eq!(choice.in_force(), None, "the answer to an earlier question");
    told(&mut choice, SeatChoiceInput::OwnSeatFree { check: Epoch(4), epoch: Epoch(2) });
    assert_eq!(choice.in_force(), Some(WhichSeat::Global));
    told(&mut choice, SeatChoiceInput::GlobalEnded);
    assert_eq!(choice.in_force(), None);
}

#[test]
fn an_epoch_that_was_handed_out_by_the_other_seat_is_not_acted_in() {
    let mut choice = SeatChoice::default();
    told(&mut choice, SeatChoiceInput::GlobalLeads(Epoch(4)));
    let free = SeatChoiceInput::OwnSeatFree { check: Epoch(4), epoch: Epoch(4) };
    assert_eq!(told(&mut choice, free), [SeatChoiceEffect::Raise(Epoch(4))]);
    assert_eq!(choice.in_force(), None);

    let (mut choice, _) = refused(FREE);
    told(&mut choice, SeatChoiceInput::OwnLeads(Epoch(1)));
    let free = SeatChoiceInput::GlobalSeatChecked { check: Epoch(1), usage: SeatUse::Free(Epoch(1)) };
    assert_eq!(told(&mut choice, free), [SeatChoiceEffect::RaiseOwn(Epoch(1))]);
    assert_eq!(choice.in_force(), None);
}

#[test]
fn on_its_own_only_while_nobody_holds_the_global_seat() {
    let (mut choice, out) = refused(SeatUse::Held);
    assert_eq!((out, choice.runs_own()), (Vec::new(), false), "it waits");
    let free = SeatChoiceInput::GlobalSeat(SeatUse::Free(Epoch(7)));
    assert_eq!(told(&mut choice, free), [SeatChoiceEffect::StartOwn(Epoch(7))]);
    assert_eq!(told(&mut choice, free), [], "it runs");
    assert_eq!(
        told(&mut choice, SeatChoiceInput::OwnLeads(Epoch(8))),
        [SeatChoiceEffect::CheckGlobalSeat(Epoch(8))]
    );
    assert_eq!(told(&mut choice, free), [], "a look from before the win says nothing about after it");
    assert_eq!(choice.in_force(), None);
    let seen = |check, usage| SeatChoiceInput::GlobalSeatChecked { check: Epoch(check), usage };
    told(&mut choice, seen(7, SeatUse::Free(Epoch(7))));
    assert_eq!(choice.in_force(), None, "the answer to an earlier question");
    told(&mut choice, seen(8, SeatUse::Free(Epoch(7))));
    assert_eq!(choice.in_force(), Some(WhichSeat::Own));
    assert_eq!(told(&mut choice, SeatChoiceInput::GlobalSeat(SeatUse::Held)), [SeatChoiceEffect::StopOwn]);
    assert_eq!((choice.in_force(), choice.is_fallback()), (None, true));
    assert_eq!(told(&mut choice, free), [], "not before it is gone");
    assert_eq!(told(&mut choice, SeatChoiceInput::OwnStopped), [SeatChoiceEffect::StartOwn(Epoch(7))]);
}

#[test]
fn a_candidate_that_won_yields_to_the_holder_of_the_global_seat() {
    let (mut choice, _) = refused(FREE);
    told(&mut choice, SeatChoiceInput::OwnLeads(Epoch(1)));
    let held = SeatChoiceInput::GlobalSeatChecked { check: Epoch(1), usage: SeatUse::Held };
    assert_eq!(told(&mut choice, held), [SeatChoiceEffect::StopOwn]);
    assert_eq!(told(&mut choice, SeatChoiceInput::OwnStopped), [], "it waits until that one is gone");
}

#[test]
fn there_is_no_way_back() {
    let (mut choice, _) = refused(FREE);
    assert_eq!(told(&mut choice, SeatChoiceInput::Refused), [], "told once");
    assert_eq!(told(&mut choice, SeatChoiceInput::GlobalLeads(Epoch(9))), []);
    told(&mut choice, SeatChoiceInput::OwnSeatFree { check: Epoch(9), epoch: Epoch(0) });
    assert_eq!((choice.in_force(), choice.is_fallback()), (None, true));
}

#[test]
fn one_that_leaves_starts_nothing() {
    let (mut choice, _) = refused(FREE);
    assert_eq!(told(&mut choice, SeatChoiceInput::Leave), [SeatChoiceEffect::StopOwn]);
    assert!(!choice.runs_own(), "it is being stopped");
    assert_eq!(told(&mut choice, SeatChoiceInput::OwnStopped), []);
    let mut choice = SeatChoice::default();
    told(&mut choice, SeatChoiceInput::Leave);
    assert_eq!(told(&mut choice, SeatChoiceInput::Refused), []);
    assert!(!choice.is_fallback());
}

#[test]
fn every_leadership_is_checked_once() {
    let mut choice = SeatChoice::default();
    told(&mut choice, SeatChoiceInput::GlobalLeads(Epoch(4)));
    told(&mut choice, SeatChoiceInput::OwnSeatFree { check: Epoch(4), epoch: Epoch(0) });
    assert_eq!(told(&mut choice, SeatChoiceInput::GlobalLeads(Epoch(4))), [], "the same one");
    assert_eq!(choice.in_force(), Some(WhichSeat::Global));
    let next = told(&mut choice, SeatChoiceInput::GlobalLeads(Epoch(5)));
    assert_eq!((next, choice.in_force()), (vec![SeatChoiceEffect::CheckOwnSeat(Epoch(5))], None));

    let (mut choice, _) = refused(FREE);
    told(&mut choice, SeatChoiceInput::OwnLeads(Epoch(6)));
    told(&mut choice, SeatChoiceInput::GlobalSeatChecked { check: Epoch(6), usage: FREE });
    assert_eq!(told(&mut choice, SeatChoiceInput::OwnLeads(Epoch(6))), [], "the same one");
    assert_eq!(choice.in_force(), Some(WhichSeat::Own));
    let next = told(&mut choice, SeatChoiceInput::OwnLeads(Epoch(7)));
    assert_eq!((next, choice.in_force()), (vec![SeatChoiceEffect::CheckGlobalSeat(Epoch(7))], None));
    told(&mut choice, SeatChoiceInput::OwnEnded);
    assert_eq!(choice.in_force(), None);
}

//! A plugin's choice: never two of them at once, never an epoch twice, and one way only.

use tenure_core::machine::{Effect, In, Input, Machine, Now, RequestId};
use tenure_core::{
    Epoch, Holder, Incarnation, Lease, NodeId, Nonce, Seat, SeatAnswer, SeatChoice, SeatChoiceCommand,
    SeatChoiceConfig, SeatChoiceOutput, SeatObserverAnswer, SeatObserverRequest, SeatState, Time, Version,
    WhichSeat,
};

const EVERY_MS: u64 = 1000;

fn node() -> NodeId {
    NodeId::new("pod-a").expect("valid")
}

/// A plugin's choice, and the requests that wait for an answer.
struct Plugin {
    choice: SeatChoice,
    now: u64,
    versions: u64,
    asked: Vec<(RequestId, WhichSeat)>,
}

impl Plugin {
    fn new() -> Plugin {
        let choice = SeatChoice::new(SeatChoiceConfig { every_ms: EVERY_MS, patience_ms: 0 });
        Plugin { choice, now: 0, versions: 0, asked: Vec::new() }
    }

    /// One in fallback that has seen the global seat like this.
    fn refused(seat: Option<(SeatState, u64)>) -> (Plugin, Vec<SeatChoiceOutput>) {
        let mut plugin = Plugin::new();
        let told = plugin.tell(SeatChoiceCommand::Refused { led: None });
        assert_eq!(told, [SeatChoiceOutput::FallbackStarted]);
        let out = plugin.reads(WhichSeat::Global, seat);
        (plugin, out)
    }

    fn feed(&mut self, input: In<SeatChoice>) -> Vec<SeatChoiceOutput> {
        let mut out = Vec::new();
        self.choice.handle(Now { at: Time(self.now), wall_ms: 0 }, input, &mut out);
        let mut outputs = Vec::new();
        for effect in out {
            match effect {
                Effect::Request(id, asked) => {
                    assert!(matches!(asked.request, SeatObserverRequest::Read { .. }), "{asked:?}");
                    self.asked.push((id, asked.seat));
                }
                Effect::Output(output) => outputs.push(output),
            }
        }
        outputs
    }

    fn tell(&mut self, command: SeatChoiceCommand) -> Vec<SeatChoiceOutput> {
        self.feed(Input::Command(command))
    }

    /// The newest read of this seat shows this; if none is under way, the next one does.
    fn reads(&mut self, which: WhichSeat, seat: Option<(SeatState, u64)>) -> Vec<SeatChoiceOutput> {
        if !self.asked.iter().any(|(_, asked)| *asked == which) {
            self.now += EVERY_MS;
            assert_eq!(self.feed(Input::Wake), []);
        }
        let at = self.asked.iter().rposition(|(_, asked)| *asked == which).expect("it reads");
        let (id, _) = self.asked.remove(at);
        self.answers(id, seat)
    }

    fn answers(&mut self, id: RequestId, seat: Option<(SeatState, u64)>) -> Vec<SeatChoiceOutput> {
        self.versions += 1;
        let answer = seat.map_or(SeatAnswer::Absent, |(state, epoch)| SeatAnswer::Found {
            seat: Seat {
                epoch: Epoch(epoch),
                state,
                holder: Holder { node: node(), incarnation: Incarnation(1) },
                lease: Lease { hold_ms: 2000, expiry_ms: 3000 },
                terms: None,
                renewals: 0,
                nonce: Nonce { incarnation: Incarnation(1), sequence: self.versions },
                step_down: false,
            },
            version: Version::new(&self.versions.to_string()),
            modified_ms: 0,
        });
        self.feed(Input::Answer(id, SeatObserverAnswer::Read(answer)))
    }
}

fn held(epoch: u64) -> Option<(SeatState, u64)> {
    Some((SeatState::Held, epoch))
}

fn vacant(epoch: u64) -> Option<(SeatState, u64)> {
    Some((SeatState::Vacant, epoch))
}

#[test]
fn gc2_random_schedules_never_act_by_both_seats_and_always_by_one_in_the_end() {
    let (mut fallbacks, mut by_global, mut by_own) = (0, 0, 0);
    for seed in 0..3000 {
        let outcome = crate::two_seats::run(seed);
        assert_eq!(outcome.violations, [""; 0], "seed {seed}");
        fallbacks += outcome.fallbacks;
        by_global += outcome.by_global;
        by_own += outcome.by_own;
    }
    let all = (fallbacks, by_global, by_own);
    assert!(fallbacks > 3000 && by_global > 3000 && by_own > 1000, "it happened at all: {all:?}");
}

#[test]
fn leadership_counts_only_once_the_other_seat_was_read() {
    let mut plugin = Plugin::new();
    assert_eq!(plugin.tell(SeatChoiceCommand::GlobalLeads(Epoch(3))), []);
    let (earlier, _) = plugin.asked.pop().expect("it reads the other seat");
    plugin.tell(SeatChoiceCommand::GlobalEnded);
    plugin.tell(SeatChoiceCommand::GlobalLeads(Epoch(4)));
    plugin.answers(earlier, None);
    assert_eq!(plugin.choice.in_force(), None, "that read was sent before this win");
    plugin.reads(WhichSeat::Own, vacant(2));
    assert_eq!(plugin.choice.in_force(), Some(WhichSeat::Global));
    assert_eq!((plugin.choice.wake_at(), plugin.asked.len()), (None, 0), "once is enough");
    plugin.tell(SeatChoiceCommand::GlobalEnded);
    assert_eq!(plugin.choice.in_force(), None);
}

#[test]
fn an_epoch_that_was_handed_out_by_the_other_seat_is_not_acted_in() {
    let mut plugin = Plugin::new();
    plugin.tell(SeatChoiceCommand::GlobalLeads(Epoch(4)));
    let raised = plugin.reads(WhichSeat::Own, vacant(4));
    assert_eq!(raised, [SeatChoiceOutput::Raise(WhichSeat::Global, Epoch(4))]);
    assert_eq!(plugin.choice.in_force(), None);

    let (mut plugin, _) = Plugin::refused(None);
    plugin.tell(SeatChoiceCommand::OwnLeads(Epoch(1)));
    let raised = plugin.reads(WhichSeat::Global, vacant(1));
    assert_eq!(raised, [SeatChoiceOutput::Raise(WhichSeat::Own, Epoch(1))]);
    assert_eq!(plugin.reads(WhichSeat::Global, vacant(1)), [], "said once");
    assert_eq!(plugin.choice.in_force(), None);
}

#[test]
fn on_its_own_only_while_nobody_holds_the_global_seat() {
    let (mut plugin, out) = Plugin::refused(held(7));
    assert_eq!((out, plugin.choice.runs_own()), (Vec::new(), false), "it waits");
    assert_eq!(plugin.choice.global_leader(), Some((&node(), Epoch(7))));
    assert_eq!(plugin.reads(WhichSeat::Global, vacant(7)), [SeatChoiceOutput::StartOwn(Epoch(7))]);
    assert_eq!(plugin.reads(WhichSeat::Global, vacant(7)), [], "it runs");
    assert!(plugin.choice.runs_own());
    assert_eq!(plugin.choice.wake_at(), Some(Time(plugin.now + EVERY_MS)));
    plugin.now += EVERY_MS;
    plugin.feed(Input::Wake);
    let (earlier, _) = plugin.asked.pop().expect("it reads the global seat all the time");
    plugin.tell(SeatChoiceCommand::OwnLeads(Epoch(8)));
    plugin.answers(earlier, vacant(7));
    assert_eq!(plugin.choice.in_force(), None, "a read from before the win says nothing about after it");
    plugin.reads(WhichSeat::Global, vacant(7));
    assert_eq!(plugin.choice.in_force(), Some(WhichSeat::Own));
    assert_eq!(plugin.reads(WhichSeat::Global, held(9)), [SeatChoiceOutput::StopOwn]);
    assert_eq!((plugin.choice.in_force(), plugin.choice.is_fallback()), (None, true));
    assert_eq!(plugin.reads(WhichSeat::Global, vacant(9)), [], "not before it is gone");
    assert_eq!(plugin.tell(SeatChoiceCommand::OwnStopped), [SeatChoiceOutput::StartOwn(Epoch(9))]);
}

#[test]
fn a_candidate_that_won_yields_to_the_holder_of_the_global_seat() {
    let (mut plugin, _) = Plugin::refused(None);
    plugin.tell(SeatChoiceCommand::OwnLeads(Epoch(1)));
    assert_eq!(plugin.reads(WhichSeat::Global, held(5)), [SeatChoiceOutput::StopOwn]);
    assert_eq!(plugin.tell(SeatChoiceCommand::OwnStopped), [], "it waits until that one is gone");
}

#[test]
fn its_own_dead_record_on_the_global_seat_is_not_waited_for() {
    let mut plugin = Plugin::new();
    plugin.tell(SeatChoiceCommand::Refused { led: Some(Epoch(5)) });
    assert_eq!(plugin.reads(WhichSeat::Global, held(5)), [SeatChoiceOutput::StartOwn(Epoch(5))]);
    assert_eq!(plugin.reads(WhichSeat::Global, held(6)), [SeatChoiceOutput::StopOwn], "that is another");
}

#[test]
fn there_is_no_way_back() {
    let (mut plugin, _) = Plugin::refused(None);
    assert_eq!(plugin.tell(SeatChoiceCommand::Refused { led: None }), [], "told once");
    assert_eq!(plugin.tell(SeatChoiceCommand::GlobalLeads(Epoch(9))), []);
    assert!(plugin.asked.is_empty(), "it does not even read the other seat");
    assert_eq!((plugin.choice.in_force(), plugin.choice.is_fallback()), (None, true));
}

#[test]
fn one_that_leaves_starts_nothing() {
    let (mut plugin, _) = Plugin::refused(None);
    assert_eq!(plugin.tell(SeatChoiceCommand::Leave), [SeatChoiceOutput::StopOwn]);
    assert!(!plugin.choice.runs_own(), "it is being stopped");
    assert_eq!(plugin.tell(SeatChoiceCommand::OwnStopped), [SeatChoiceOutput::Left]);
    let mut plugin = Plugin::new();
    assert_eq!(plugin.tell(SeatChoiceCommand::Leave), [SeatChoiceOutput::Left]);
    assert_eq!(plugin.tell(SeatChoiceCommand::Refused { led: None }), []);
    assert!(!plugin.choice.is_fallback());
}

#[test]
fn every_leadership_is_checked_once() {
    let mut plugin = Plugin::new();
    plugin.tell(SeatChoiceCommand::GlobalLeads(Epoch(4)));
    plugin.reads(WhichSeat::Own, None);
    plugin.tell(SeatChoiceCommand::GlobalLeads(Epoch(4)));
    assert_eq!((plugin.choice.in_force(), plugin.asked.len()), (Some(WhichSeat::Global), 0), "the same one");
    plugin.tell(SeatChoiceCommand::GlobalLeads(Epoch(5)));
    assert_eq!((plugin.choice.in_force(), plugin.asked.len()), (None, 1));

    let (mut plugin, _) = Plugin::refused(None);
    plugin.tell(SeatChoiceCommand::OwnLeads(Epoch(6)));
    plugin.reads(WhichSeat::Global, None);
    plugin.tell(SeatChoiceCommand::OwnLeads(Epoch(6)));
    assert_eq!((plugin.choice.in_force(), plugin.asked.len()), (Some(WhichSeat::Own), 0), "the same one");
    plugin.tell(SeatChoiceCommand::OwnLeads(Epoch(7)));
    assert_eq!((plugin.choice.in_force(), plugin.asked.len()), (None, 1));
    plugin.tell(SeatChoiceCommand::OwnEnded);
    assert_eq!(plugin.choice.in_force(), None);
}

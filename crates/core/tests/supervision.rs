//! Leader-only processes: started in order, restarted within limits, stopped in reverse and in time.

use tenure_core::machine::{Effect, Input, Machine, Now};
use tenure_core::{
    Epoch, GaveUp, ProcessConfig, ProcessOutcome, ProcessState, Restart, Supervision, SupervisionCommand,
    SupervisionConfig, SupervisionEvent, SupervisionOutput, Time,
};

/// A deadline that no test lives to see.
const FAR: Time = Time(1 << 40);

fn plan(restart: Restart) -> ProcessConfig {
    ProcessConfig { restart, ready_within_ms: None, stop_grace_ms: 1000 }
}

fn slow(restart: Restart) -> ProcessConfig {
    ProcessConfig { ready_within_ms: Some(5000), ..plan(restart) }
}

fn config(processes: Vec<ProcessConfig>) -> SupervisionConfig {
    SupervisionConfig {
        processes,
        intensity: 3,
        window_ms: 60_000,
        backoff_first_ms: 100,
        backoff_max_ms: 1000,
        hold_first_ms: 5000,
        hold_max_ms: 20_000,
        drain_ms: 10_000,
    }
}

/// A machine with its clock and the epoch it leads in; says what is to be done, events left out.
struct Bench(Supervision, u64, u64);

impl Bench {
    fn new(processes: Vec<ProcessConfig>) -> Bench {
        Bench::with(config(processes))
    }

    fn with(config: SupervisionConfig) -> Bench {
        Bench(Supervision::new(config), 0, 0)
    }

    fn tell(&mut self, command: SupervisionCommand) -> Vec<SupervisionOutput> {
        self.hand(Input::Command(command))
    }

    fn hand(&mut self, input: tenure_core::machine::In<Supervision>) -> Vec<SupervisionOutput> {
        let mut out = Vec::new();
        self.0.handle(Now { at: Time(self.1), wall_ms: 0 }, input, &mut out);
        let outputs = out.into_iter().map(|effect| match effect {
            Effect::Output(output) => output,
            Effect::Request(_, never) => match never {},
        });
        outputs
            .filter(|output| !matches!(output, SupervisionOutput::Event(_, event) if !is_end(event)))
            .collect()
    }

    fn exit(&mut self, process: usize, instance: u64, outcome: ProcessOutcome) -> Vec<SupervisionOutput> {
        self.tell(SupervisionCommand::Exited { process, instance, outcome })
    }

    fn wait(&mut self, ms: u64) -> Vec<SupervisionOutput> {
        self.1 += ms;
        self.hand(Input::Wake)
    }

    fn led(&mut self, epoch: u64) -> Vec<SupervisionOutput> {
        self.2 = epoch;
        self.tell(SupervisionCommand::Leadership(Some((Epoch(epoch), FAR))))
    }

    /// Leadership is withdrawn, so long before its deadline.
    fn lost(&mut self, in_ms: u64) -> Vec<SupervisionOutput> {
        let lease = (Epoch(self.2), Time(self.1 + in_ms));
        let last = self.tell(SupervisionCommand::Leadership(Some(lease)));
        [last, self.tell(SupervisionCommand::Leadership(None))].concat()
    }

    /// When to wake it, besides the end of its lease.
    fn due(&self) -> Option<Time> {
        self.0.wake_at().filter(|at| *at != FAR)
    }
}

fn is_end(event: &SupervisionEvent) -> bool {
    matches!(event, SupervisionEvent::Stuck { .. } | SupervisionEvent::GaveUp { .. })
}

fn start(process: usize, instance: u64, attempt: u32) -> SupervisionOutput {
    SupervisionOutput::Start { process, instance, attempt }
}

fn gave_up(epoch: u64, process: usize, cause: GaveUp, hold_ms: u64) -> SupervisionOutput {
    SupervisionOutput::Event(Epoch(epoch), SupervisionEvent::GaveUp { process, cause, hold_ms })
}

const RELEASED: SupervisionOutput = SupervisionOutput::Released { epoch: Epoch(1) };

#[test]
fn cp1_each_is_started_once_the_one_before_is_ready() {
    let mut bench = Bench::new(vec![
        slow(Restart::Permanent),
        plan(Restart::Permanent),
        slow(Restart::Permanent),
        plan(Restart::Permanent),
    ]);
    assert_eq!(bench.wait(1000), [], "nothing runs without leadership");
    assert_eq!(bench.led(1), [start(0, 1, 1)]);
    assert_eq!(bench.wait(1000), []);
    assert_eq!(
        bench.tell(SupervisionCommand::Ready { process: 0, instance: 1 }),
        [start(1, 2, 1), start(2, 3, 1)]
    );
    assert_eq!(bench.tell(SupervisionCommand::Ready { process: 2, instance: 99 }), [], "another's word");
    assert_eq!(bench.tell(SupervisionCommand::Ready { process: 2, instance: 3 }), [start(3, 4, 1)]);
    assert!((0..4).all(|process| bench.0.state(process) == ProcessState::Running));
    assert_eq!(bench.due(), None);
}

#[test]
pub(crate) fn cp2_they_are_stopped_in_reverse_each_awaited_before_the_next() {
    let mut bench = Bench::new(vec![plan(Restart::Permanent); 3]);
    bench.led(1);
    let cancel = |process| SupervisionOutput::Cancel { process };
    assert_eq!(bench.lost(10_000), [cancel(2)]);
    bench.1 += 300;
    assert_eq!(bench.exit(2, 3, ProcessOutcome::Done), [cancel(1)]);
    // This one does not listen, and is cut off after its grace.
    assert_eq!(bench.wait(999), []);
    assert_eq!(bench.wait(1), [SupervisionOutput::Abort { process: 1 }]);
    assert_eq!(bench.exit(1, 2, ProcessOutcome::Aborted), [cancel(0)]);
    assert_eq!(bench.exit(0, 1, ProcessOutcome::Done), [RELEASED]);
    assert_eq!(bench.due(), None);
}

#[test]
fn with_little_time_left_everybody_gets_a_share_and_nobody_outlives_the_deadline() {
    let mut bench = Bench::new(vec![plan(Restart::Permanent); 3]);
    bench.led(1);
    bench.lost(300);
    let mut aborted = Vec::new();
    while bench.1 < 1000 {
        let at = bench.1 + 1;
        for effect in bench.wait(1) {
            if let SupervisionOutput::Abort { process } = effect {
                aborted.push((process, at));
            }
        }
    }
    assert_eq!(aborted, [(2, 80), (1, 180), (0, 280)], "four fifths of a third each, then the next");
    assert!((0..3).all(|process| bench.0.state(process) == ProcessState::Stuck));
    // No time at all.
    let mut bench = Bench::new(vec![plan(Restart::Permanent); 2]);
    bench.led(1);
    let done = bench.lost(0);
    let order = |process| [SupervisionOutput::Cancel { process }, SupervisionOutput::Abort { process }];
    assert_eq!(done, [order(1), order(0)].concat());
    bench.exit(1, 2, ProcessOutcome::Aborted);
    assert_eq!(bench.exit(0, 1, ProcessOutcome::Aborted), [RELEASED]);
}

#[test]
fn strategies_decide_what_is_started_again() {
    for (restart, outcome, again) in [
        (Restart::Permanent, ProcessOutcome::Done, true),
        (Restart::Permanent, ProcessOutcome::Failed, true),
        (Restart::Permanent, ProcessOutcome::Panicked, true),
        (Restart::Transient, ProcessOutcome::Done, false),
        (Restart::Transient, ProcessOutcome::Failed, true),
        (Restart::Transient, ProcessOutcome::Panicked, true),
        (Restart::Temporary, ProcessOutcome::Done, false),
        (Restart::Temporary, ProcessOutcome::Failed, false),
        (Restart::Temporary, ProcessOutcome::Panicked, false),
    ] {
        let mut bench = Bench::new(vec![plan(restart)]);
        bench.led(1);
        assert_eq!(bench.exit(0, 1, outcome), [], "not at once");
        let expected = if again { vec![start(0, 2, 2)] } else { Vec::new() };
        assert_eq!(bench.wait(100), expected, "{restart:?} after {outcome:?}");
        assert_eq!(bench.0.state(0) == ProcessState::Ended, !again);
        // The next leadership starts it whatever became of it.
        bench.lost(0);
        bench.exit(0, 2, ProcessOutcome::Aborted);
        assert!(matches!(bench.led(2)[..], [SupervisionOutput::Start { process: 0, attempt: 1, .. }]));
    }
}

#[test]
pub(crate) fn pauses_double_up_to_a_limit_and_start_anew_after_a_stable_run() {
    let mut bench =
        Bench::with(SupervisionConfig { intensity: 100, ..config(vec![plan(Restart::Permanent)]) });
    bench.led(1);
    let mut pauses = Vec::new();
    for instance in 1..=7 {
        if instance == 7 {
            bench.1 += 60_000;
        }
        bench.exit(0, instance, ProcessOutcome::Failed);
        let due = bench.due().expect("a restart").0;
        pauses.push(due - bench.1);
        bench.1 = due;
        bench.hand(Input::Wake);
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000, 100]);
}

#[test]
pub(crate) fn too_many_restarts_of_whichever_process_end_all_and_release_leadership() {
    let mut bench = Bench::new(vec![plan(Restart::Permanent), plan(Restart::Permanent)]);

    for epoch in 1..=4 {
        let effects = bench.led(epoch);
        let [SupervisionOutput::Start { instance, .. }, ..] = effects[..] else { panic!("{effects:?}") };
        let mut numbers = [instance, instance + 1];
        let mut last = Vec::new();
        for failure in 0..4 {
            let process = failure % 2;
            last = bench.exit(process, numbers[process], ProcessOutcome::Failed);
            for effect in bench.wait(1000) {
                if let SupervisionOutput::Start { process, instance, .. } = effect {
                    numbers[process] = instance;
                }
            }
        }
        let hold_ms = [5000, 10_000, 20_000, 20_000][epoch as usize - 1];
        assert_eq!(
            last,
            [gave_up(epoch, 1, GaveUp::Intensity, hold_ms), SupervisionOutput::Cancel { process: 0 }],
            "three restarts were allowed"
        );
        let over = bench.exit(0, numbers[0], ProcessOutcome::Done);
        let released = SupervisionOutput::Released { epoch: Epoch(epoch) };
        assert_eq!(over, [released, SupervisionOutput::StandAside { hold_ms }], "first they stop");
        assert_eq!(bench.led(epoch), [], "the same leadership, not over yet");
        bench.lost(0);
        assert_eq!(bench.tell(SupervisionCommand::StoodAside), []);
        bench.1 += hold_ms;
    }
}

#[test]
fn a_calm_term_makes_earlier_failures_forgotten() {
    let once = SupervisionConfig { intensity: 0, ..config(vec![plan(Restart::Permanent)]) };
    let mut bench = Bench::with(once);
    let mut hold = |epoch: u64, calm_ms: u64| {
        let effects = bench.led(epoch);
        let [SupervisionOutput::Start { instance, .. }] = effects[..] else { panic!("{effects:?}") };
        bench.1 += calm_ms;
        let effects = bench.exit(0, instance, ProcessOutcome::Panicked);
        bench.lost(0);
        bench.tell(SupervisionCommand::StoodAside);
        let Some(SupervisionOutput::StandAside { hold_ms }) = effects.last() else { panic!("{effects:?}") };
        *hold_ms
    };
    assert_eq!([hold(1, 0), hold(2, 59_999), hold(3, 60_000), hold(4, 10)], [5000, 10_000, 5000, 10_000]);
}

#[test]
fn what_cannot_start_releases_leadership() {
    // It fails before it is ready, more slowly than the window would notice.
    let mut bench =
        Bench::with(SupervisionConfig { window_ms: 10, ..config(vec![slow(Restart::Permanent)]) });
    bench.led(1);
    let mut last = Vec::new();
    for instance in 1..=4 {
        bench.1 += 4000;
        last = bench.exit(0, instance, ProcessOutcome::Failed);
        bench.wait(1000);
    }
    assert_eq!(last[0], gave_up(1, 0, GaveUp::CannotStart, 5000));
    // It never becomes ready; the one after it was not even started.
    let mut bench = Bench::new(vec![slow(Restart::Permanent), plan(Restart::Permanent)]);
    bench.led(1);
    assert_eq!(bench.due(), Some(Time(5000)));
    assert_eq!(
        bench.wait(5000),
        [gave_up(1, 0, GaveUp::CannotStart, 5000), SupervisionOutput::Cancel { process: 0 }]
    );
    // It fails before it is ready and is never restarted.
    let mut bench = Bench::new(vec![slow(Restart::Temporary)]);
    bench.led(1);
    assert_eq!(bench.exit(0, 1, ProcessOutcome::Failed)[0], gave_up(1, 0, GaveUp::CannotStart, 5000));
    // Done before it said so is done all the same.
    let mut bench = Bench::new(vec![slow(Restart::Transient), plan(Restart::Permanent)]);
    bench.led(1);
    assert_eq!(bench.exit(0, 1, ProcessOutcome::Done), [start(1, 2, 1)]);
}

#[test]
fn what_is_stuck_keeps_this_node_from_leading_until_it_has_ended() {
    let mut bench = Bench::new(vec![plan(Restart::Permanent)]);
    bench.led(1);
    bench.lost(0);
    assert_eq!(
        bench.wait(100),
        [SupervisionOutput::Event(Epoch(1), SupervisionEvent::Stuck { process: 0 }), RELEASED]
    );
    assert_eq!(bench.0.state(0), ProcessState::Stuck);
    let released = SupervisionOutput::Released { epoch: Epoch(2) };
    let hold = SupervisionOutput::StandAside { hold_ms: 5000 };
    assert_eq!(bench.led(2), [gave_up(2, 0, GaveUp::StillStuck, 5000), released, hold]);
    bench.lost(0);
    bench.tell(SupervisionCommand::StoodAside);
    bench.exit(0, 1, ProcessOutcome::Done);
    assert_eq!(bench.led(3), [start(0, 2, 1)]);
}

#[test]
fn leadership_that_comes_while_processes_stop_waits_for_them() {
    let mut bench = Bench::new(vec![plan(Restart::Permanent)]);
    bench.led(1);
    bench.lost(500);
    assert_eq!(bench.led(1), [], "the lease was saved; the work has not stopped yet");
    assert_eq!(bench.exit(0, 1, ProcessOutcome::Done), [RELEASED, start(0, 2, 1)]);
    // A loss that nobody told of.
    assert_eq!(
        bench.led(2),
        [SupervisionOutput::Cancel { process: 0 }, SupervisionOutput::Abort { process: 0 }]
    );
    assert_eq!(bench.exit(0, 2, ProcessOutcome::Aborted), [RELEASED, start(0, 3, 1)]);
}

#[test]
fn a_stop_ends_everything_and_for_good() {
    let mut bench = Bench::new(vec![plan(Restart::Permanent)]);
    bench.led(1);
    bench.tell(SupervisionCommand::Stop);
    assert_eq!(bench.exit(0, 1, ProcessOutcome::Done), [RELEASED, SupervisionOutput::Ended]);
    assert_eq!(bench.led(2), []);
    let mut bench = Bench::new(vec![plan(Restart::Permanent)]);
    assert_eq!(bench.tell(SupervisionCommand::Stop), [SupervisionOutput::Ended]);
}

#[test]
fn the_epoch_is_that_of_the_work_until_it_has_stopped() {
    let mut bench = Bench::new(vec![plan(Restart::Permanent)]);
    assert_eq!(bench.0.epoch(), None);
    bench.led(4);
    assert_eq!(bench.0.epoch(), Some(Epoch(4)));
    assert_eq!(bench.led(4), [], "told again, it is no other leadership");
    bench.lost(500);
    assert_eq!(bench.0.epoch(), Some(Epoch(4)));
    bench.exit(0, 1, ProcessOutcome::Done);
    assert_eq!(bench.0.epoch(), None);
}

#[test]
fn the_end_of_another_instance_is_no_news() {
    let mut bench = Bench::new(vec![plan(Restart::Permanent)]);
    bench.led(1);
    bench.exit(0, 99, ProcessOutcome::Failed);
    assert_eq!(bench.0.state(0), ProcessState::Running);
    bench.lost(0);
    bench.wait(100);
    bench.exit(0, 99, ProcessOutcome::Aborted);
    assert_eq!(bench.0.state(0), ProcessState::Stuck);
    bench.exit(0, 1, ProcessOutcome::Aborted);
    assert_eq!(bench.0.state(0), ProcessState::Idle);
}

#[test]
fn what_waits_to_be_restarted_is_forgotten_with_the_leadership() {
    let mut bench = Bench::new(vec![plan(Restart::Permanent)]);
    bench.led(1);
    bench.exit(0, 1, ProcessOutcome::Failed);
    assert_eq!((bench.0.state(0), bench.due()), (ProcessState::Waiting, Some(Time(100))));
    assert_eq!(bench.lost(500), [RELEASED]);
    assert_eq!((bench.0.state(0), bench.due()), (ProcessState::Idle, None));
}

#[test]
fn who_has_given_leadership_up_starts_with_the_next_one() {
    let mut bench = Bench::new(vec![slow(Restart::Temporary)]);
    bench.led(1);
    let gone = bench.exit(0, 1, ProcessOutcome::Failed);
    assert_eq!(gone.last(), Some(&SupervisionOutput::StandAside { hold_ms: 5000 }));
    assert_eq!(bench.led(1), [], "that one is being given up");
    assert_eq!(bench.led(2), [], "it is not over yet");
    assert_eq!(bench.tell(SupervisionCommand::StoodAside), [start(0, 2, 1)]);
}

#[test]
fn leadership_that_could_not_be_given_up_is_taken_up_again_after_a_pause() {
    let mut bench = Bench::new(vec![slow(Restart::Temporary)]);
    bench.led(1);
    bench.exit(0, 1, ProcessOutcome::Failed);
    assert_eq!(bench.tell(SupervisionCommand::StoodAside), [], "not in a hot loop");
    assert_eq!((bench.due(), bench.wait(999)), (Some(Time(1000)), vec![]));
    assert_eq!(bench.wait(1), [start(0, 2, 1)]);
    // Unless it ends after all.
    bench.exit(0, 2, ProcessOutcome::Failed);
    bench.tell(SupervisionCommand::StoodAside);
    bench.lost(0);
    assert_eq!(bench.led(2), [start(0, 3, 1)]);
}

#[test]
fn a_lease_that_runs_out_is_a_loss_even_if_nobody_says_so() {
    let lease = |deadline| SupervisionCommand::Leadership(Some((Epoch(1), Time(deadline))));
    let over = [SupervisionOutput::Cancel { process: 0 }, SupervisionOutput::Abort { process: 0 }];
    let mut bench = Bench::new(vec![plan(Restart::Permanent)]);
    assert_eq!(bench.tell(lease(0)), [], "over before it was told");
    assert_eq!(bench.tell(lease(5000)), [start(0, 1, 1)]);
    assert_eq!(bench.due(), Some(Time(5000)));
    bench.1 = 5000;
    assert_eq!(bench.tell(lease(8000)), [], "renewed, and told late");
    bench.1 = 7999;
    assert_eq!(bench.hand(Input::Wake), []);
    bench.1 = 8000;
    assert_eq!(bench.tell(SupervisionCommand::Ready { process: 0, instance: 1 }), over, "whatever comes in");
    assert_eq!(bench.exit(0, 1, ProcessOutcome::Aborted), [RELEASED]);
}

/// What ended for good is not started a second time in its term, though others are.
#[test]
fn what_has_ended_stays_so_while_others_start() {
    let mut bench = Bench::new(vec![plan(Restart::Temporary), slow(Restart::Permanent)]);
    assert_eq!(bench.led(1), [start(0, 1, 1), start(1, 2, 1)]);
    bench.exit(0, 1, ProcessOutcome::Done);
    assert_eq!(bench.0.state(0), ProcessState::Ended);
    assert_eq!(bench.tell(SupervisionCommand::Ready { process: 1, instance: 2 }), []);
}

/// A restart as old as the window counts no more.
#[test]
fn restarts_count_for_less_than_a_window() {
    for (failed_at, gives_up) in [(59_999, true), (60_000, false)] {
        let config = SupervisionConfig { intensity: 1, ..config(vec![plan(Restart::Permanent)]) };
        let mut bench = Bench::with(config);
        bench.led(1);
        bench.exit(0, 1, ProcessOutcome::Failed);
        assert_eq!(bench.wait(100), [start(0, 2, 2)]);
        bench.1 = failed_at;
        let told = bench.exit(0, 2, ProcessOutcome::Failed);
        assert_eq!(!told.is_empty(), gives_up, "at {failed_at}: {told:?}");
    }
}

#[test]
fn the_next_wake_up_is_for_whatever_comes_next() {
    let mut bench = Bench::new(vec![plan(Restart::Permanent); 2]);
    bench.led(1);
    bench.lost(10_000);
    assert_eq!(bench.due(), Some(Time(1000)), "the grace of the last");
    assert_eq!(bench.wait(1050), [SupervisionOutput::Abort { process: 1 }], "woken late");
    assert_eq!(bench.due(), Some(Time(1100)), "the first is not kept waiting");
    assert_eq!(bench.wait(50), [SupervisionOutput::Cancel { process: 0 }]);
    assert_eq!(bench.due(), Some(Time(1150)), "then the last counts as stuck");
}

/// Time for all of their graces, but not for settling them: everybody gets a share.
#[test]
fn settling_is_counted_for_every_process() {
    let mut bench = Bench::new(vec![plan(Restart::Permanent); 2]);
    bench.led(1);
    bench.lost(2200);
    assert_eq!(bench.due(), Some(Time(1000)), "just enough for both");
    let mut bench = Bench::new(vec![plan(Restart::Permanent); 2]);
    bench.led(1);
    bench.lost(2150);
    assert_eq!(bench.due(), Some(Time(975)), "half of it, less the settling");
}

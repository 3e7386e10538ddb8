//! A node's sweep, told by hand.

use std::sync::Arc;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Stamp};
use tenure_core::machine::{Effect, In, Input, Machine, Now, Out};
use tenure_core::{
    Epoch, Expect, Incarnation, KnownWorkers, Listed, ListedWorkers, NodeId, Nonce, PluginName, ReadOutcome,
    RequestId, Snapshot, SnapshotEntry, SnapshotId, Sweep, SweepAnswer, SweepCommand, SweepConfig,
    SweepOutput, SweepRequest, Time, Version, WorkerDetails, WorkerId, WriteAnswer,
};

const SWEEP_MS: u64 = 5000;
const TIMEOUT_MS: u64 = 20_000;
const LOOK: SweepRequest = SweepRequest::Snapshot(DocumentRequest::Read { unless: None });

fn worker(n: usize) -> WorkerId {
    WorkerId::new(&format!("w{n:03}")).expect("valid")
}

fn details() -> WorkerDetails {
    WorkerDetails {
        plugin_type: PluginName::new("queue").expect("valid"),
        pod: NodeId::new("pod-x").expect("valid"),
        timeout_ms: TIMEOUT_MS,
    }
}

fn id(epoch: u64, sequence: u64) -> SnapshotId {
    SnapshotId { epoch: Epoch(epoch), sequence }
}

fn version(text: &str) -> Version {
    Version::new(text)
}

/// What a leader of this epoch wrote, as a read answers.
fn found(epoch: u64, snapshot: Snapshot, text: &str) -> SweepAnswer {
    let owner = Incarnation(100 + epoch);
    let stamp = Stamp { epoch: Epoch(epoch), owner, nonce: Nonce { incarnation: owner, sequence: 1 } };
    read(Read::Found { stamp, body: Arc::new(snapshot), version: version(text) })
}

fn read(read: Read<Arc<Snapshot>>) -> SweepAnswer {
    SweepAnswer::Snapshot(DocumentAnswer::Read(read))
}

fn written(answer: WriteAnswer) -> SweepAnswer {
    SweepAnswer::Snapshot(DocumentAnswer::Written(answer))
}

fn list(count: usize) -> SweepAnswer {
    let listed = |n| Listed { worker: worker(n), modified_ms: 1, bytes: 200 };
    SweepAnswer::Listed(Some(ListedWorkers {
        workers: (0..count).map(listed).collect(),
        ..Default::default()
    }))
}

fn snapshot(id: SnapshotId, active: bool) -> Snapshot {
    let silence = (!active).then_some(id);
    let workers = vec![SnapshotEntry { worker: worker(0), details: details(), active, silence }];
    let (active, inactive) = (u64::from(active), u64::from(!active));
    Snapshot { id, workers, active, inactive, ..Snapshot::default() }
}

struct Hand {
    machine: Sweep,
    now: u64,
    asked: Vec<(RequestId, SweepRequest)>,
    /// The newest id of a request.
    newest: RequestId,
    told: Vec<SweepOutput>,
}

impl Hand {
    fn new() -> Hand {
        let config = SweepConfig {
            sweep_ms: SWEEP_MS,
            retention_ms: 3_600_000,
            node_retention_ms: 86_400_000,
            snapshot_weight_max: 1 << 20,
        };
        let machine = Sweep::new(config, KnownWorkers::default());
        Hand { machine, now: 0, asked: Vec::new(), newest: RequestId(0), told: Vec::new() }
    }

    /// Leads in this epoch, and has asked for the snapshot.
    fn leading(epoch: u64) -> Hand {
        let mut hand = Hand::new();
        hand.lead(epoch);
        assert_eq!(hand.requests(), [LOOK]);
        hand
    }

    fn lead(&mut self, epoch: u64) {
        let me = Incarnation(epoch);
        self.tell(Input::Command(SweepCommand::Lead { epoch: Epoch(epoch), me }));
    }

    fn tell(&mut self, input: In<Sweep>) {
        let mut effects: Vec<Out<Sweep>> = Vec::new();
        let woken = input == Input::Wake;
        self.machine.handle(Now { at: Time(self.now), wall_ms: 0 }, input, &mut effects);
        if woken {
            assert!(self.machine.wake_at().is_none_or(|at| at > Time(self.now)), "it would spin");
        }
        for effect in effects {
            match effect {
                Effect::Request(id, request) => {
                    assert!(id > self.newest, "{id:?} was used before");
                    self.newest = id;
                    self.asked.push((id, request));
                }
                Effect::Output(output) => self.told.push(output),
            }
        }
    }

    fn requests(&self) -> Vec<SweepRequest> {
        self.asked.iter().map(|(_, request)| request.clone()).collect()
    }

    /// Answers the oldest open request.
    fn answer(&mut self, answer: SweepAnswer) {
        let (id, _) = self.asked.remove(0);
        self.tell(Input::Answer(id, answer));
    }

    fn wake(&mut self, now: u64) {
        self.now = now;
        self.tell(Input::Wake);
    }

    /// The write that is open: its envelope, its body and its condition.
    fn write(&self) -> (Stamp, Arc<Snapshot>, Expect) {
        match self.requests().as_slice() {
            [SweepRequest::Snapshot(DocumentRequest::Write { stamp, body, expect })] => {
                (*stamp, Arc::clone(body), expect.clone())
            }
            other => panic!("one write, not {other:?}"),
        }
    }

    fn won(&mut self, text: &str) {
        self.answer(written(WriteAnswer::Won(version(text))));
    }
}

#[test]
fn a_leader_looks_lists_reads_and_publishes_once() {
    let mut hand = Hand::leading(1);
    hand.answer(read(Read::Absent));
    assert_eq!(hand.requests(), [SweepRequest::List]);
    hand.answer(list(1));
    assert_eq!(hand.requests(), [SweepRequest::Read(worker(0))]);
    hand.answer(SweepAnswer::Read(ReadOutcome::Found(details())));
    let (stamp, body, expect) = hand.write();
    assert_eq!((stamp.epoch, body.id, body.active, expect), (Epoch(1), id(1, 1), 1, Expect::Absent));
    hand.told.clear();
    hand.won("a");
    let said: Vec<_> = hand.told.iter().map(std::mem::discriminant).collect();
    let point = SweepOutput::Point { epoch: Epoch(1), id: id(1, 1), version: version("a") };
    assert_eq!(hand.told[0], point);
    assert_eq!((said.len(), &hand.told[1]), (4, &SweepOutput::Applied(id(1, 1))), "{:?}", hand.told);
    assert_eq!(hand.told[3], SweepOutput::Told { epoch: Epoch(1), whole: true });
    // Nothing changes: one list per sweep, and nothing else.
    for n in 1..4 {
        assert_eq!(hand.machine.wake_at(), Some(Time(n * SWEEP_MS)));
        hand.wake(n * SWEEP_MS);
        assert_eq!(hand.requests(), [SweepRequest::List]);
        hand.answer(list(1));
        assert_eq!(hand.requests(), []);
    }
}

#[test]
fn an_empty_registry_costs_one_list_in_four_intervals_and_no_write() {
    let mut hand = Hand::leading(1);
    hand.answer(read(Read::Absent));
    hand.answer(list(0));
    assert_eq!((hand.requests(), hand.machine.wake_at()), (Vec::new(), Some(Time(4 * SWEEP_MS))));
}

#[test]
fn fr1_a_new_leader_adopts_to_the_letter_and_a_former_one_that_reads_it_back_is_stopped() {
    let before = snapshot(id(1, 7), true);
    let mut second = Hand::leading(2);
    second.answer(found(1, before.clone(), "a"));
    second.answer(list(1));
    let (stamp, body, expect) = second.write();
    assert_eq!((stamp.epoch, &*body), (Epoch(2), &before), "nothing changed, so nobody has to read it");
    assert_eq!(expect, Expect::Version(version("a")));
    // The first one still thinks it leads, and judged the worker silent.
    let mut first = Hand::leading(1);
    first.answer(found(1, before.clone(), "a"));
    first.answer(list(1));
    first.answer(written(WriteAnswer::Lost));
    assert_eq!(first.requests().len(), 1, "read back");
    first.answer(found(2, before, "b"));
    assert_eq!(first.requests(), [], "a higher epoch, although the snapshot is the same");
    for now in (5000..100_000).step_by(5000) {
        first.wake(now);
        assert_eq!(first.requests(), [], "for good");
    }
}

/// A node that read it in that state does not read it again until the seat names another one.
#[test]
fn what_was_found_and_is_spoiled_or_removed_meanwhile_gets_a_new_number() {
    for (there, over) in [
        (Read::Unreadable { version: version("junk"), newer: false }, Expect::Version(version("junk"))),
        (Read::Absent, Expect::Absent),
    ] {
        let mut hand = Hand::leading(2);
        hand.answer(found(1, snapshot(id(1, 7), true), "a"));
        hand.answer(list(1));
        hand.answer(written(WriteAnswer::Lost));
        hand.answer(read(there));
        let (_, body, expect) = hand.write();
        assert_eq!((body.id, body.active, expect), (id(2, 1), 1, over));
    }
}

#[test]
fn at_most_sixteen_objects_are_read_at_once() {
    let mut hand = Hand::leading(1);
    hand.answer(read(Read::Absent));
    hand.answer(list(40));
    let mut reads = 0;
    while matches!(hand.requests().first(), Some(SweepRequest::Read(_))) {
        assert_eq!(hand.requests().len(), 16.min(40 - reads));
        hand.answer(SweepAnswer::Read(ReadOutcome::Found(details())));
        reads += 1;
    }
    assert_eq!((reads, hand.write().1.active), (40, 40));
}

#[test]
fn an_unreadable_snapshot_is_replaced_only_when_everybody_listed_was_read() {
    let mut hand = Hand::leading(2);
    hand.answer(read(Read::Unreadable { version: version("junk"), newer: false }));
    hand.answer(list(2));
    hand.answer(SweepAnswer::Read(ReadOutcome::Found(details())));
    hand.answer(SweepAnswer::Read(ReadOutcome::Nothing));
    assert_eq!(hand.requests(), [], "one is missing");
    for now in [5000, 10_000] {
        hand.wake(now);
        hand.answer(list(2));
    }
    hand.answer(SweepAnswer::Read(ReadOutcome::Found(details())));
    let (_, body, expect) = hand.write();
    assert_eq!((body.active, expect), (2, Expect::Version(version("junk"))));
    let mut newer = Hand::leading(2);
    newer.answer(read(Read::Unreadable { version: version("new"), newer: true }));
    assert_eq!(newer.requests(), [], "left alone, and nobody is judged");
    newer.wake(SWEEP_MS);
    assert_eq!(newer.requests(), [LOOK]);
}

#[test]
fn a_lost_answer_is_read_back_and_not_a_lost_race() {
    let mut hand = Hand::leading(1);
    hand.answer(read(Read::Absent));
    hand.answer(list(1));
    hand.answer(SweepAnswer::Read(ReadOutcome::Found(details())));
    let (stamp, body, _) = hand.write();
    hand.answer(written(WriteAnswer::Unknown));
    assert_eq!(hand.requests(), []);
    hand.wake(SWEEP_MS / 8);
    assert_eq!(hand.requests(), [LOOK]);
    hand.told.clear();
    hand.answer(read(Read::Found { stamp, body: Arc::clone(&body), version: version("a") }));
    assert!(hand.told.contains(&SweepOutput::Applied(body.id)), "{:?}", hand.told);
    assert_eq!(hand.requests(), [], "it stands");
}

#[test]
fn a_follower_reads_once_what_the_seat_names_and_nothing_else() {
    let mut hand = Hand::new();
    assert_eq!((hand.requests(), hand.machine.wake_at()), (Vec::new(), None));
    hand.tell(Input::Command(SweepCommand::Seat(None)));
    assert_eq!(hand.requests(), [], "nothing was ever published");
    hand.tell(Input::Command(SweepCommand::Seat(Some(id(1, 1)))));
    assert_eq!(hand.requests(), [LOOK]);
    hand.answer(read(Read::Unavailable));
    assert_eq!((hand.requests(), hand.machine.wake_at()), (Vec::new(), Some(Time(1000))));
    hand.wake(1000);
    hand.answer(found(1, snapshot(id(1, 1), false), "a"));
    assert_eq!(hand.told.len(), 3, "applied, registered, timeout: {:?}", hand.told);
    hand.tell(Input::Command(SweepCommand::Seat(Some(id(1, 1)))));
    assert_eq!((hand.requests(), hand.machine.wake_at()), (Vec::new(), None), "known");
    hand.tell(Input::Command(SweepCommand::Seat(Some(id(1, 2)))));
    // The seat names yet another one while it is read.
    hand.tell(Input::Command(SweepCommand::Seat(Some(id(1, 3)))));
    assert_eq!(hand.requests().len(), 1);
    hand.answer(found(1, snapshot(id(1, 2), true), "b"));
    assert_eq!(hand.requests().len(), 1, "it looks again");
    hand.answer(read(Read::Unreadable { version: version("junk"), newer: false }));
    assert_eq!((hand.requests(), hand.machine.wake_at()), (Vec::new(), None), "until the seat names another");
}

#[test]
fn a_node_that_no_longer_leads_ignores_what_it_asked_and_catches_up() {
    let mut hand = Hand::leading(1);
    hand.answer(read(Read::Absent));
    let (asked, _) = hand.asked.remove(0);
    hand.tell(Input::Command(SweepCommand::Seat(Some(id(2, 1)))));
    assert_eq!(hand.requests(), [], "it leads");
    hand.tell(Input::Command(SweepCommand::Lost));
    assert_eq!(hand.requests(), [LOOK]);
    let before = hand.machine.clone();
    hand.tell(Input::Answer(asked, list(3)));
    hand.tell(Input::Wake);
    assert_eq!((hand.requests(), hand.machine == before), (vec![LOOK], true));
}

#[test]
fn a_node_that_no_longer_leads_does_not_read_what_it_published_itself() {
    let mut hand = Hand::leading(1);
    hand.answer(read(Read::Absent));
    hand.answer(list(1));
    hand.answer(SweepAnswer::Read(ReadOutcome::Found(details())));
    hand.won("a");
    hand.tell(Input::Command(SweepCommand::Seat(Some(id(1, 1)))));
    hand.tell(Input::Command(SweepCommand::Lost));
    assert_eq!((hand.requests(), hand.machine.wake_at()), (Vec::new(), None));
}

#[test]
fn another_term_begins_anew_and_the_same_one_goes_on() {
    let mut hand = Hand::leading(1);
    hand.lead(1);
    assert_eq!(hand.requests(), [LOOK]);
    hand.lead(2);
    assert_eq!(hand.requests(), [LOOK, LOOK]);
    assert_eq!(hand.machine.liveness().map(|liveness| liveness.known()), Some(0));
    hand.tell(Input::Command(SweepCommand::Lost));
    assert!(hand.machine.liveness().is_none());
}

#[test]
fn what_was_published_before_a_node_came_is_no_news_to_it() {
    let mut hand = Hand::new();
    hand.tell(Input::Command(SweepCommand::Seat(Some(id(1, 1)))));
    hand.answer(found(1, snapshot(id(1, 1), false), "a"));
    assert_eq!(hand.told, [SweepOutput::Applied(id(1, 1))]);
    assert_eq!(hand.machine.known().applied(), Some(id(1, 1)));
}

#[test]
fn a_list_asked_for_in_a_former_term_is_ignored() {
    let mut hand = Hand::leading(1);
    hand.answer(read(Read::Absent));
    let (former, _) = hand.asked.remove(0);
    hand.tell(Input::Command(SweepCommand::Lost));
    hand.lead(2);
    hand.answer(read(Read::Absent));
    assert_eq!(hand.requests(), [SweepRequest::List]);
    hand.tell(Input::Answer(former, list(3)));
    assert_eq!(hand.requests(), [SweepRequest::List]);
}

#[test]
fn presences_of_dead_nodes_are_removed_every_half_of_their_retention() {
    let mut hand = Hand::leading(1);
    for half_days in 1..4 {
        hand.asked.clear();
        hand.wake(half_days * 43_200_000 - 1);
        assert_eq!(hand.requests(), []);
        hand.wake(half_days * 43_200_000);
        assert_eq!(hand.requests(), [SweepRequest::ForgetNodes]);
    }
}

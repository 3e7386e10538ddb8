//! What is done for a key, and what is not done again.

use std::time::Duration;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Stamp};
use tenure_core::machine::{Effect, Input, Machine, Now, Out, RequestId};
use tenure_core::{
    Epoch, Incarnation, NodeId, Nonce, Once, OnceCommand, OnceEnd, OnceNext, OnceOutput, OnceRecord,
    OnceState, OnceTerms, Time, Version, WriteAnswer,
};

const KEEP_MS: u64 = 1000;
const WALL_MS: i64 = 1_000_000;

fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a valid id")
}

fn record(state: OnceState, by: &str) -> OnceRecord {
    OnceRecord { state, node: node(by), at_ms: WALL_MS }
}

fn terms(retry: bool) -> OnceTerms {
    OnceTerms { keep: Duration::from_millis(KEEP_MS), retry }
}

fn next(state: OnceState, age_ms: u64, retry: bool) -> OnceNext {
    terms(retry).next(WALL_MS + age_ms as i64, Some(&record(state, "pod-a")))
}

/// What the holder of epoch 2 does, and what it asks of the store.
struct Holder {
    machine: Once,
    open: Option<(RequestId, DocumentRequest<OnceRecord>)>,
    said: Vec<OnceOutput>,
}

impl Holder {
    fn new(retry: bool) -> Holder {
        let machine = Once::new(node("pod-b"), Epoch(2), Incarnation(2), terms(retry));
        let mut holder = Holder { machine, open: None, said: Vec::new() };
        holder.feed(Input::Wake);
        holder
    }

    fn feed(&mut self, input: Input<OnceCommand, DocumentAnswer<OnceRecord>>) {
        let (now, mut out) = (Now { at: Time(0), wall_ms: WALL_MS }, Vec::new());
        self.machine.handle(now, input, &mut out);
        if self.machine.wake_at() == Some(now.at) {
            self.machine.handle(now, Input::Wake, &mut out);
        }
        for effect in out {
            let effect: Out<Once> = effect;
            match effect {
                Effect::Request(id, request) => self.open = Some((id, request)),
                Effect::Output(output) => self.said.push(output),
            }
        }
    }

    fn answer(&mut self, answer: DocumentAnswer<OnceRecord>) {
        let (id, _) = self.open.take().expect("a request");
        self.feed(Input::Answer(id, answer));
    }

    fn finds(&mut self, found: Option<(u64, OnceRecord)>) {
        let Some((by, body)) = found else { return self.answer(DocumentAnswer::Read(Read::Absent)) };
        let nonce = Nonce { incarnation: Incarnation(by), sequence: 1 };
        let stamp = Stamp { epoch: Epoch(by), owner: Incarnation(by), nonce };
        let version = Version::new(&format!("{by}-{:?}", body.state));
        self.answer(DocumentAnswer::Read(Read::Found { stamp, body, version }));
    }

    /// Its write is answered like this.
    fn writes(&mut self, state: OnceState, answer: WriteAnswer) {
        let Some((_, DocumentRequest::Write { body, .. })) = &self.open else {
            panic!("it writes {state:?}, and not {:?}", self.open)
        };
        assert_eq!(body.state, state);
        self.answer(DocumentAnswer::Written(answer));
    }

    fn lands(&mut self, state: OnceState) {
        self.writes(state, WriteAnswer::Won(Version::new("own")));
    }
}

#[test]
fn on1_it_runs_once_for_as_long_as_the_record_is_kept() {
    assert_eq!(terms(false).next(WALL_MS, None), OnceNext::Run);
    for retry in [false, true] {
        assert_eq!(next(OnceState::Ended { code: 3 }, KEEP_MS - 1, retry), OnceNext::Done(3));
        assert_eq!(next(OnceState::Ended { code: 3 }, KEEP_MS, retry), OnceNext::Run);
    }
}

#[test]
pub(crate) fn on2_what_may_have_been_begun_is_run_again_only_on_request() {
    for age_ms in [0, 5 * KEEP_MS] {
        assert_eq!(next(OnceState::Running, age_ms, false), OnceNext::Lost);
        assert_eq!(next(OnceState::Running, age_ms, true), OnceNext::Run);
    }
    assert_eq!(next(OnceState::Lost, KEEP_MS - 1, false), OnceNext::Lost);
    assert_eq!(next(OnceState::Lost, KEEP_MS - 1, true), OnceNext::Run);
    assert_eq!(next(OnceState::Lost, KEEP_MS, false), OnceNext::Run, "forgotten");
}

#[test]
pub(crate) fn on1_the_record_says_that_it_runs_before_it_does() {
    let mut holder = Holder::new(false);
    holder.finds(None);
    assert_eq!(holder.said, [], "nothing is recorded yet");
    holder.writes(OnceState::Running, WriteAnswer::Unknown);
    assert_eq!(holder.said, [], "nobody knows whether it is recorded");
    let mut holder = Holder::new(false);
    holder.finds(None);
    holder.lands(OnceState::Running);
    assert_eq!(holder.said, [OnceOutput::Run]);
    holder.feed(Input::Command(OnceCommand::Ended { code: 7 }));
    holder.lands(OnceState::Ended { code: 7 });
    assert_eq!(holder.said[1..], [OnceOutput::Over(OnceEnd::Done(7))]);
    assert_eq!((holder.open, holder.machine.wake_at()), (None, None));
}

#[test]
fn on1_whoever_was_faster_is_taken_into_account() {
    let mut holder = Holder::new(false);
    holder.finds(None);
    holder.writes(OnceState::Running, WriteAnswer::Lost);
    holder.finds(Some((1, record(OnceState::Running, "pod-a"))));
    holder.lands(OnceState::Lost);
    assert_eq!(holder.said, [OnceOutput::Over(OnceEnd::Lost(node("pod-a")))]);
}

#[test]
fn on2_with_retry_it_is_run_again_and_a_later_holder_ends_that() {
    let mut holder = Holder::new(true);
    holder.finds(Some((1, record(OnceState::Running, "pod-a"))));
    holder.lands(OnceState::Running);
    assert_eq!(holder.said, [OnceOutput::Run]);
    holder.feed(Input::Command(OnceCommand::Ended { code: 0 }));
    holder.writes(OnceState::Ended { code: 0 }, WriteAnswer::Lost);
    holder.finds(Some((3, record(OnceState::Running, "pod-c"))));
    assert_eq!(holder.said[1..], [OnceOutput::Over(OnceEnd::Superseded)]);
}

#[test]
fn on1_what_was_done_or_cannot_be_read_ends_it_without_a_write() {
    let mut done = Holder::new(true);
    done.finds(Some((1, record(OnceState::Ended { code: 3 }, "pod-a"))));
    assert_eq!((done.said, done.open), (vec![OnceOutput::Over(OnceEnd::Done(3))], None));
    let mut odd = Holder::new(true);
    odd.answer(DocumentAnswer::Read(Read::Unreadable { version: Version::new("1"), newer: false }));
    assert_eq!((odd.said, odd.open), (vec![OnceOutput::Over(OnceEnd::Blocked)], None));
    let mut refused = Holder::new(true);
    refused.finds(None);
    refused.writes(OnceState::Running, WriteAnswer::Denied);
    assert_eq!((refused.said, refused.open), (vec![OnceOutput::Over(OnceEnd::Denied)], None));
}

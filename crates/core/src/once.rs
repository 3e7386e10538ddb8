//! Work that is done once for a key, whoever wants to do it.
//!
//! Whoever holds the seat of the key decides by its record, and records that it begins before it begins. So a holder that finds
//! "it runs" knows that somebody may have begun and has not ended: the holder before it died, or lost the seat.

use crate::document::{
    BackOff, Content, Document, DocumentAnswer, DocumentRequest, Rules, Unreadable, What, Writer,
};
use crate::election::Epoch;
use crate::id::{Incarnation, NodeId};
use crate::machine::{Effect, In, Input, Machine, Now, Out, RequestId};
use crate::mutants::Mutant;
use crate::time::Time;
use std::time::Duration;

/// Pauses after failed requests. Somebody waits for the work.
const RETRY: BackOff = BackOff { first_ms: 100, max_ms: 5000 };

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnceState {
    /// It runs, or the process that ran it died.
    Running,
    /// It ended with this exit code.
    Ended { code: u8 },
    /// Whoever ran it died, and nobody may run it again.
    Lost,
}

/// The record of a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OnceRecord {
    pub state: OnceState,
    /// Who runs it, or ran it last.
    pub node: NodeId,
    /// When this was written, by the wall clock of whoever did.
    pub at_ms: i64,
}

/// On which terms a key is wanted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OnceTerms {
    /// How long a key stays used.
    pub keep: Duration,
    /// Run it again if whoever ran it died.
    pub retry: bool,
}

/// What the holder of the seat does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnceNext {
    /// Records that it runs, and then runs it.
    Run,
    /// Nothing: it was done, with this exit code.
    Done(u8),
    /// Records that it is lost.
    Lost,
}

impl OnceTerms {
    /// What the holder of the seat does, by the record. One older than is kept counts as none, unless it says that something
    /// runs: nobody knows how that ended.
    pub fn next(&self, wall_ms: i64, record: Option<&OnceRecord>) -> OnceNext {
        let Some(record) = record else { return OnceNext::Run };
        let age = Duration::from_millis(u64::try_from(wall_ms.saturating_sub(record.at_ms)).unwrap_or(0));
        match record.state {
            OnceState::Ended { .. } | OnceState::Lost if age >= self.keep => OnceNext::Run,
            OnceState::Ended { code } => OnceNext::Done(code),
            OnceState::Running | OnceState::Lost if self.retry || Mutant::OnceAgain.on() => OnceNext::Run,
            OnceState::Running | OnceState::Lost => OnceNext::Lost,
        }
    }
}

/// How it ended for this holder of the seat.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum OnceEnd {
    /// It is done, by this process or before, with this exit code.
    Done(u8),
    /// This node began it and never ended it, and nobody may run it again.
    Lost(NodeId),
    /// Somebody else holds the seat.
    Superseded,
    /// The record cannot be read, and is left alone.
    Blocked,
    /// The store denies it.
    Denied,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum OnceOutput {
    /// The record says that it runs: now it may. Whoever runs the machine makes sure that it still holds the seat.
    Run,
    Over(OnceEnd),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnceCommand {
    /// What runs has ended.
    Ended { code: u8 },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Looking,
    /// This has to stand before anything else happens.
    Recording(OnceRecord),
    Running,
    Over,
}

/// What one holder of the seat does for a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Once {
    node: NodeId,
    terms: OnceTerms,
    document: Document,
    content: Content<OnceRecord>,
    phase: Phase,
    requests: u64,
    now: Time,
    unsettled: bool,
}

impl Once {
    /// For the holder of the seat in this epoch; `me` is new at every start.
    pub fn new(node: NodeId, epoch: Epoch, me: Incarnation, terms: OnceTerms) -> Once {
        // The first write decides: it stands only if nobody wrote since the record was read.
        let writer = Writer::Owner { epoch, me };
        let rules = Rules { writer, adopt: false, unreadable: Unreadable::LeaveAlone, retry: RETRY };
        Once {
            node,
            terms,
            document: Document::new(rules),
            content: Content::default(),
            phase: Phase::Looking,
            requests: 0,
            now: Time(0),
            unsettled: true,
        }
    }

    fn decide(&mut self, wall_ms: i64, out: &mut Vec<Out<Once>>) {
        let found = self.content.get();
        let began = found.map_or_else(|| self.node.clone(), |record| record.node.clone());
        let is_lost = found.is_some_and(|record| record.state == OnceState::Lost);
        match self.terms.next(wall_ms, found) {
            OnceNext::Done(code) => self.over(OnceEnd::Done(code), out),
            OnceNext::Lost if is_lost => self.over(OnceEnd::Lost(began), out),
            OnceNext::Lost => self.record(wall_ms, OnceState::Lost, began),
            OnceNext::Run => {
                self.record(wall_ms, OnceState::Running, self.node.clone());
                if Mutant::OnceUnrecorded.on() {
                    self.recorded(out);
                }
            }
        }
    }

    fn record(&mut self, wall_ms: i64, state: OnceState, node: NodeId) {
        self.document.touch();
        self.phase = Phase::Recording(OnceRecord { state, node, at_ms: wall_ms });
    }

    fn recorded(&mut self, out: &mut Vec<Out<Once>>) {
        let Phase::Recording(record) = &self.phase else { return };
        match record.state {
            OnceState::Running => {
                self.phase = Phase::Running;
                out.push(Effect::Output(OnceOutput::Run));
            }
            OnceState::Ended { code } => self.over(OnceEnd::Done(code), out),
            OnceState::Lost => self.over(OnceEnd::Lost(record.node.clone()), out),
        }
    }

    fn over(&mut self, end: OnceEnd, out: &mut Vec<Out<Once>>) {
        self.phase = Phase::Over;
        out.push(Effect::Output(OnceOutput::Over(end)));
    }

    fn on_answer(
        &mut self,
        now: Now,
        id: RequestId,
        answer: DocumentAnswer<OnceRecord>,
        out: &mut Vec<Out<Once>>,
    ) {
        let (settled, body) = self.document.answered(now.at, id, answer);
        self.content.settle(&settled.what, body);
        match settled.what {
            What::Superseded(_) => self.over(OnceEnd::Superseded, out),
            What::Blocked { .. } => self.over(OnceEnd::Blocked, out),
            What::Failed { denied: true, .. } => self.over(OnceEnd::Denied, out),
            What::Landed { .. } if self.document.is_confirmed(self.document.revision()) => self.recorded(out),
            What::Loaded | What::Empty | What::Shared | What::Overtaken(_) => match &self.phase {
                // What was done is recorded whatever stands there now.
                Phase::Recording(OnceRecord { state: OnceState::Ended { .. }, .. }) => {}
                Phase::Looking | Phase::Recording(_) => self.decide(now.wall_ms, out),
                Phase::Running | Phase::Over => {}
            },
            What::Landed { .. } | What::Nothing | What::Same | What::Failed { .. } | What::Removed => {}
        }
    }

    fn send(&mut self, now: Time, out: &mut Vec<Out<Once>>) {
        let id = RequestId(self.requests + 1);
        let body = match &self.phase {
            Phase::Looking => None,
            Phase::Recording(record) => Some(record.clone()),
            Phase::Running | Phase::Over => return,
        };
        let Some(op) = self.document.next(now, id, body.is_some()) else { return };
        self.requests += 1;
        let content = &mut self.content;
        let body = || content.send(body.expect("only what has to stand is written"));
        out.push(Effect::Request(id, op.with(body)));
    }
}

impl Machine for Once {
    type Command = OnceCommand;
    type Request = DocumentRequest<OnceRecord>;
    type Output = OnceOutput;

    fn handle(&mut self, now: Now, input: In<Self>, out: &mut Vec<Out<Self>>) {
        self.now = now.at;
        self.unsettled = !matches!(input, Input::Wake);
        match input {
            Input::Wake => self.send(now.at, out),
            Input::Command(OnceCommand::Ended { code }) if self.phase == Phase::Running => {
                self.record(now.wall_ms, OnceState::Ended { code }, self.node.clone());
            }
            Input::Command(OnceCommand::Ended { .. }) => {}
            Input::Answer(id, answer) if self.phase != Phase::Over => self.on_answer(now, id, answer, out),
            Input::Answer(..) => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        match self.phase {
            Phase::Running | Phase::Over => None,
            Phase::Looking | Phase::Recording(_) if self.unsettled => Some(self.now),
            Phase::Looking => self.document.wake_at(false),
            Phase::Recording(_) => self.document.wake_at(true),
        }
    }
}

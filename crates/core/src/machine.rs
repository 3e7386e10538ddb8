//! The one shape of every state machine in this crate.
//!
//! A machine takes the time and one input, and pushes effects. It does no IO, reads no clock and draws no random number;
//! whatever it needs from outside is a request, and the answer comes back as an input.
//!
//! Every machine keeps these rules, and a test per rule holds each of them to it:
//!
//! 1. Deadlines are enforced before the input is looked at: a machine that was paused first learns what it missed.
//! 2. [`Input::Wake`] is harmless at any time.
//! 3. An answer to a request that is not open is ignored.
//! 4. After [`Input::Wake`], [`Machine::wake_at`] is later than now, or the shell would spin.
//!
//! A machine that wants to batch returns `wake_at() == now` after every other input and acts on [`Input::Wake`] only: the
//! shell hands over everything that is ready before it wakes. So a hundred submissions become one write.

use crate::time::Time;

/// Matches an answer to its request. Unique within one life of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RequestId(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Now {
    /// On this process's monotonic clock. All deadlines are counted by it.
    pub at: Time,
    /// Wall clock, for calendars, stamps and people. No deadline is counted by it.
    pub wall_ms: i64,
}

/// An input of a machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input<C, A> {
    Wake,
    Answer(RequestId, A),
    Command(C),
}

/// An effect of a machine, to be carried out in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect<R, O> {
    /// Send this, and answer with the same id exactly once.
    Request(RequestId, R),
    /// Tell whoever runs the machine.
    Output(O),
}

/// A request of a machine.
pub trait Request {
    type Answer;

    /// The answer to assume when none came: a write may have happened, a read did not.
    fn unanswered(&self) -> Self::Answer;
}

/// The requests of a machine that asks for nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NoRequest {}

impl Request for NoRequest {
    type Answer = NoRequest;

    fn unanswered(&self) -> NoRequest {
        *self
    }
}

/// A state machine without IO.
pub trait Machine {
    /// What can happen besides time and answers.
    type Command;
    type Request: Request;
    type Output;

    /// Takes one input and pushes what follows from it.
    fn handle(&mut self, now: Now, input: In<Self>, out: &mut Vec<Out<Self>>);

    /// When to send [`Input::Wake`]; `None` if nothing waits for time.
    fn wake_at(&self) -> Option<Time>;
}

/// The answers to a machine's requests.
pub type Answer<M> = <<M as Machine>::Request as Request>::Answer;

/// The inputs of a machine.
pub type In<M> = Input<<M as Machine>::Command, Answer<M>>;

/// The effects of a machine.
pub type Out<M> = Effect<<M as Machine>::Request, <M as Machine>::Output>;

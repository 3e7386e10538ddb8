//! The one shell: how any machine of the core is fed, woken, paused and answered here.
//!
//! To play another machine: give it a [`PartName`], a place for its [`Part`] on a node or a worker, and an implementation of
//! [`Played`] in a file under `machines/`. What its requests suffer on the way is the network's business, and what they mean
//! for the promises is that of the checks, which see every write that takes effect.

use crate::fault::FaultKind;
use crate::network::Sender;
use crate::queue::Happening;
use crate::store::{Op, Said};
use crate::world::World;
use rand::seq::SliceRandom;
use std::hash::Hash;
use tenure_core::machine::{Answer, Effect, In, Input, Machine, Now, Out};
use tenure_core::{RequestId, Time};

/// Somebody in the world, by index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Who {
    Node(usize),
    Worker(usize),
}

/// The machines that are played.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum PartName {
    Election,
    Sweep,
    Supervision,
    Dispatcher,
    Scheduler,
    Submitter,
    Once,
    Registration,
    Claimer,
}

impl PartName {
    /// The machines of a node or a worker.
    pub(crate) fn all_of(who: Who) -> &'static [PartName] {
        match who {
            Who::Node(_) => &[
                PartName::Election,
                PartName::Sweep,
                PartName::Supervision,
                PartName::Dispatcher,
                PartName::Scheduler,
                PartName::Submitter,
                PartName::Once,
            ],
            Who::Worker(_) => &[PartName::Registration, PartName::Claimer],
        }
    }
}

/// Calls a method of the world that is generic over the machine.
macro_rules! for_part {
    ($name:expr, $world:ident.$method:ident($($arg:expr),*)) => {
        match $name {
            PartName::Election => $world.$method::<tenure_core::Coordinator>($($arg),*),
            PartName::Sweep => $world.$method::<tenure_core::Sweep>($($arg),*),
            PartName::Supervision => $world.$method::<tenure_core::Supervision>($($arg),*),
            PartName::Dispatcher => $world.$method::<crate::machines::dispatcher::Dispatching>($($arg),*),
            PartName::Scheduler => $world.$method::<crate::machines::scheduler::Scheduling>($($arg),*),
            PartName::Submitter => $world.$method::<tenure_core::Submitter>($($arg),*),
            PartName::Once => $world.$method::<tenure_core::Once>($($arg),*),
            PartName::Registration => $world.$method::<tenure_core::Registration>($($arg),*),
            PartName::Claimer => $world.$method::<tenure_core::Claimer>($($arg),*),
        }
    };
}

/// What can happen to a machine, with the store's own answers.
type Happened<M> = Input<<M as Machine>::Command, Said>;

/// A machine, and what a shell keeps for it.
pub(crate) struct Part<M: Machine> {
    pub(crate) machine: M,
    /// Tells it from the machines before it in the same place.
    pub(crate) number: u64,
    /// What came in while its process stood still.
    held: Vec<Happened<M>>,
    /// Requests that wait for an answer.
    asked: Vec<(RequestId, M::Request)>,
    /// The wake-up that is on the queue.
    armed: Option<Time>,
    token: u64,
}

impl<M: Machine> Part<M> {
    pub(crate) fn new(machine: M, number: u64) -> Part<M> {
        Part { machine, number, held: Vec::new(), asked: Vec::new(), armed: None, token: 0 }
    }

    /// The requests that wait for an answer.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &M::Request> {
        self.asked.iter().map(|(_, request)| request)
    }

    /// It waits for no answer any more.
    pub(crate) fn forget_asked(&mut self) {
        self.asked.clear();
    }
}

/// How one kind of machine is played.
pub(crate) trait Played: Machine<Output: Hash> {
    const NAME: PartName;
    /// What came in during a pause is handled in any order, not as it came.
    const ANY_ORDER: bool = false;

    /// The machine of this node or worker.
    fn part(world: &mut World, who: Who) -> Option<&mut Part<Self>>
    where
        Self: Sized;

    /// What the machine must be told before anything else; whether it is still there.
    fn before(_: &mut World, _: Who) -> bool {
        true
    }

    /// One step of the machine.
    fn react(world: &mut World, who: Who, now: Now, input: In<Self>, out: &mut Vec<Out<Self>>)
    where
        Self: Sized,
    {
        if let Some(part) = Self::part(world, who) {
            part.machine.handle(now, input, out);
        }
    }

    /// What a request asks of the store; nothing if somebody else answers it.
    fn op(world: &mut World, who: Who, id: RequestId, request: &Self::Request) -> Option<Op>;

    /// What the store's answer means to the machine.
    fn answer(world: &mut World, who: Who, request: Self::Request, said: Said) -> Answer<Self>
    where
        Self: Sized;

    /// What an output means in the world.
    fn output(world: &mut World, who: Who, output: Self::Output);

    /// What must hold, and what follows, after each input.
    fn after(_: &mut World, _: Who) {}
}

impl World {
    /// The time of a step, on the clocks of a node or a worker.
    pub(crate) fn time(&self, who: Who) -> Now {
        Now { at: self.computer(who).clock.local(self.now), wall_ms: self.wall(who) as i64 }
    }

    /// One input for a machine.
    pub(crate) fn feed<M: Played>(&mut self, who: Who, input: Happened<M>) {
        if !self.is_up(who) {
            return;
        }
        let paused = self.computer(who).paused;
        let Some(part) = M::part(self, who) else { return };
        if paused {
            part.held.push(input);
        } else if M::before(self, who) && self.step::<M>(who, input) {
            M::after(self, who);
            self.arm::<M>(who);
        }
    }

    pub(crate) fn command<M: Played>(&mut self, who: Who, command: M::Command) {
        self.feed::<M>(who, Input::Command(command));
    }

    /// One step; returns whether it ran to its end.
    pub(crate) fn step<M: Played>(&mut self, who: Who, input: Happened<M>) -> bool {
        let input = match input {
            Input::Wake => Input::Wake,
            Input::Command(command) => Input::Command(command),
            Input::Answer(id, said) => {
                let Some(part) = M::part(self, who) else { return false };
                let Some(index) = part.asked.iter().position(|(asked, _)| *asked == id) else { return false };
                let (_, request) = part.asked.swap_remove(index);
                Input::Answer(id, M::answer(self, who, request, said))
            }
        };
        self.steps += 1;
        let mut effects = Vec::new();
        let now = self.time(who);
        M::react(self, who, now, input, &mut effects);
        for effect in effects {
            if !self.survives(who) {
                return false;
            }
            match effect {
                Effect::Request(id, request) => {
                    let op = M::op(self, who, id, &request);
                    let (life, sent) = (self.life(who), self.now);
                    let Some(part) = M::part(self, who) else { return false };
                    part.asked.push((id, request));
                    let from = Sender { who, part: M::NAME, number: part.number, life, id, sent };
                    if let Some(op) = op {
                        self.send(from, op);
                    }
                }
                Effect::Output(output) => {
                    self.trace.digest(&(self.now, who, M::NAME, &output));
                    M::output(self, who, output);
                }
            }
        }
        true
    }

    /// Puts the machine's wake-up on the queue, unless it is there.
    fn arm<M: Played>(&mut self, who: Who) {
        let Some(part) = M::part(self, who) else { return };
        let at = part.machine.wake_at();
        if at == part.armed {
            return;
        }
        part.armed = at;
        part.token += 1;
        let (number, token) = (part.number, Some(part.token));
        if let Some(when) = at.and_then(|at| self.computer(who).clock.when(at)) {
            self.schedule(when, who, Happening::Wake { part: M::NAME, number, token });
        }
    }

    fn arm_anew<M: Played>(&mut self, who: Who) {
        if let Some(part) = M::part(self, who) {
            part.armed = None;
            self.arm::<M>(who);
        }
    }

    /// The clock of a computer changed: all its wake-ups come at different times now.
    pub(crate) fn clock_changed(&mut self, who: Who) {
        for who in self.sharing(who) {
            PartName::all_of(who).iter().for_each(|part| for_part!(part, self.arm_anew(who)));
        }
    }

    /// Makes a machine look around soon, after whatever happens now.
    pub(crate) fn nudge<M: Played>(&mut self, who: Who) {
        let now = self.now;
        if let Some(part) = M::part(self, who) {
            let number = part.number;
            self.schedule(now, who, Happening::Wake { part: M::NAME, number, token: None });
        }
    }

    pub(crate) fn wake(&mut self, who: Who, part: PartName, number: u64, token: Option<u64>) {
        for_part!(part, self.wake_part(who, number, token));
    }

    fn wake_part<M: Played>(&mut self, who: Who, number: u64, token: Option<u64>) {
        let local = self.time(who).at;
        let Some(part) = M::part(self, who).filter(|part| part.number == number) else { return };
        if token == Some(part.token) && part.armed.take_if(|at| *at > local).is_some() {
            self.arm::<M>(who); // The clock has slowed down since.
        } else if token.is_none_or(|token| token == part.token) {
            part.armed = part.armed.filter(|_| token.is_none());
            self.feed::<M>(who, Input::Wake);
        } else if self.mix.has(FaultKind::StaleWake) && self.is_up(who) && !self.computer(who).paused {
            self.strike(FaultKind::StaleWake, who);
            self.feed::<M>(who, Input::Wake);
        }
    }

    pub(crate) fn deliver(&mut self, who: Who, part: PartName, number: u64, id: RequestId, said: Said) {
        for_part!(part, self.deliver_part(who, number, id, said));
    }

    fn deliver_part<M: Played>(&mut self, who: Who, number: u64, id: RequestId, said: Said) {
        let part = M::part(self, who);
        let waits =
            |part: &mut Part<M>| part.number == number && part.asked.iter().any(|(asked, _)| *asked == id);
        if part.is_some_and(waits) {
            self.feed::<M>(who, Input::Answer(id, said));
        }
    }

    /// A computer that stood still goes on: its machines get what came in meanwhile.
    pub(crate) fn hand_out_held(&mut self, who: Who) {
        for who in self.sharing(who) {
            PartName::all_of(who).iter().for_each(|part| for_part!(part, self.hand_out_to(who)));
        }
    }

    fn hand_out_to<M: Played>(&mut self, who: Who) {
        let Some(part) = M::part(self, who) else { return };
        let (number, mut held) = (part.number, std::mem::take(&mut part.held));
        if M::ANY_ORDER {
            held.shuffle(&mut self.rng);
        }
        for input in held {
            if M::part(self, who).is_some_and(|part| part.number == number) {
                self.feed::<M>(who, input);
            }
        }
    }
}

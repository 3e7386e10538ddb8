//! The election in the shape of every machine.
//!
//! [`Coordinator::step`] is the protocol as it is explored and transcribed, with numbered wake-ups. Here a wake-up needs no
//! number: one that comes too early or twice is passed on as a stale one, which enforces the deadline and does nothing else.

use super::{Coordinator, Effect, Input, Request, WakeToken};
use crate::machine::{self, In, Machine, Now, Out};
use crate::time::Time;

/// Never handed out.
const STALE: WakeToken = WakeToken(0);

impl machine::Request for Request {
    type Answer = super::Answer;

    fn unanswered(&self) -> super::Answer {
        Request::unanswered(self)
    }
}

impl Machine for Coordinator {
    /// Any input but wake-ups and answers.
    type Command = Input;
    type Request = Request;
    /// Any effect but requests and wake-ups.
    type Output = Effect;

    fn handle(&mut self, now: Now, input: In<Coordinator>, out: &mut Vec<Out<Coordinator>>) {
        let input = self.step_input(now.at, input);
        let mut effects = Vec::new();
        self.step(now.at, input, &mut effects);
        out.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Request(id, request) => Some(machine::Effect::Request(id, request)),
            Effect::Wake { .. } => None,
            output @ (Effect::StartProcesses { .. }
            | Effect::ExtendLease { .. }
            | Effect::StopProcesses { .. }
            | Effect::Emit(_)
            | Effect::Stopped(_)) => Some(machine::Effect::Output(output)),
        }));
    }

    fn wake_at(&self) -> Option<Time> {
        self.wake.map(|(_, at)| at)
    }
}

impl Coordinator {
    /// What [`step`](Coordinator::step) takes for an input of the machine. For whoever follows the protocol from outside.
    pub fn step_input(&self, now: Time, input: In<Coordinator>) -> Input {
        match input {
            machine::Input::Wake => {
                let due = self.wake.filter(|(_, at)| *at <= now);
                Input::Wake(due.map_or(STALE, |(token, _)| token))
            }
            machine::Input::Answer(id, answer) => Input::Answer { id, answer },
            machine::Input::Command(input) => input,
        }
    }

    /// What [`step`](Coordinator::step) pushed for the effects of the last step, with the wake-up as it stands now.
    pub fn step_effects(&self, effects: &[Out<Coordinator>]) -> Vec<Effect> {
        let wake = self.wake.map(|(token, at)| Effect::Wake { token, at });
        let pushed = effects.iter().map(|effect| match effect {
            machine::Effect::Request(id, request) => Effect::Request(*id, request.clone()),
            machine::Effect::Output(effect) => effect.clone(),
        });
        pushed.chain(wake).collect()
    }
}

//! A worker's hand: the production taker, and the runs it has started. Does what the library's runner does.

use crate::fault::FaultKind;
use crate::node::Gate;
use crate::queue::Happening;
use crate::wire::{Ask, Party};
use crate::world::World;
use rand::RngExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_core::document::{DocumentAnswer, Read};
use tenure_core::machine::{Effect, In, Input, Machine, Now, Out};
use tenure_core::{
    Claimer, ClaimerAnswer, ClaimerCommand, ClaimerConfig, ClaimerOutput, EntryState, Incarnation, JobId,
    Outcome, OutcomeKind, RegistrationCommand,
};

type Key = (JobId, u32);

/// One worker's hand, as long as it has its id.
pub(crate) struct Hand {
    pub(crate) taker: Claimer,
    /// What is running, and the number that identifies the end of each run.
    running: BTreeMap<Key, u64>,
    /// On a machine of its own: what it knows about leaders.
    gate: Gate,
    token: u64,
    held: Vec<In<Claimer>>,
    /// Requests made.
    pub(crate) sent: u64,
}

impl World {
    /// The worker has its id: it begins to look for work.
    pub(crate) fn begin_hand(&mut self, index: usize) {
        if !self.staffed {
            return;
        }
        let config =
            ClaimerConfig { incarnation: Incarnation(self.workers[index].life), ..self.labour.taker.clone() };
        let before = self.hands.remove(&index);
        let hand = Hand {
            taker: Claimer::new(config),
            running: BTreeMap::new(),
            gate: before.map_or_else(Gate::default, |before| before.gate),
            token: 0,
            held: Vec::new(),
            sent: 0,
        };
        self.hands.insert(index, hand);
        self.feed_hand(index, Input::Wake);
    }

    /// A worker without its id does nothing; its runs are stopped.
    pub(crate) fn end_hand(&mut self, index: usize) {
        self.hands.remove(&index);
    }

    /// The worker leaves: it finishes what it has, then gives up its id.
    pub(crate) fn drain_hand(&mut self, index: usize) -> bool {
        let busy = self.hands.contains_key(&index);
        if busy {
            self.feed_hand(index, Input::Command(ClaimerCommand::Drain));
        }
        busy
    }

    pub(crate) fn resume_hand(&mut self, index: usize) {
        let Some(hand) = self.hands.get_mut(&index) else { return };
        for input in std::mem::take(&mut hand.held).into_iter().chain([Input::Wake]) {
            self.feed_hand(index, input);
        }
    }

    pub(crate) fn wake_hand(&mut self, index: usize, token: u64) {
        if self.hands.get(&index).is_some_and(|hand| hand.token == token) {
            self.feed_hand(index, Input::Wake);
        }
    }

    /// A run comes to its end.
    pub(crate) fn run_ends(&mut self, index: usize, key: Key, token: u64, kind: OutcomeKind) {
        let Some(hand) = self.hands.get_mut(&index) else { return };
        if hand.running.get(&key) != Some(&token) {
            return;
        }
        let (id, attempt) = key;
        let result = Arc::from(format!("{id}/{attempt}").as_bytes());
        let ended = ClaimerCommand::Ended { id, attempt, outcome: Outcome { kind, result } };
        self.feed_hand(index, Input::Command(ended));
    }

    pub(crate) fn feed_hand(&mut self, index: usize, input: In<Claimer>) {
        if !self.workers[index].registered {
            return self.end_hand(index);
        }
        let (stands, now) = (self.worker_stands(index), self.now);
        let input = if stands { input } else { self.fence_entries(index, input) };
        let local = self.worker_clock(index).local(now);
        let Some(hand) = self.hands.get_mut(&index) else { return };
        if stands {
            return hand.held.push(input);
        }
        if let Input::Command(ClaimerCommand::Ended { id, attempt, .. }) = &input {
            hand.running.remove(&(id.clone(), *attempt));
        }
        let mut effects = Vec::new();
        hand.taker.handle(Now { at: local, wall_ms: 0 }, input, &mut effects);
        self.steps += 1;
        for effect in effects {
            self.carry_hand(index, effect);
        }
        self.rearm_hand(index);
    }

    fn carry_hand(&mut self, index: usize, effect: Out<Claimer>) {
        let (now, life) = (self.now, self.workers[index].life);
        let output = match effect {
            Effect::Request(id, request) => {
                if let Some(hand) = self.hands.get_mut(&index) {
                    hand.sent += 1;
                    self.ask(Party::Worker(index), 0, Ask::Take(id, Box::new(request)));
                }
                return;
            }
            Effect::Output(output) => output,
        };
        match output {
            ClaimerOutput::Run { id, attempt, epoch, .. } => {
                self.trace.worker(now, index, &(&id, attempt));
                self.say_worker(index, || format!("runs {id} attempt {attempt} of {epoch:?}"));
                self.work_done.runs += 1;
                self.book.ran(&id, attempt, Incarnation(life));
                self.hold_book();
                self.begin_run(index, (id, attempt));
            }
            ClaimerOutput::Cancel { id, attempt, dropped } => {
                let Some(hand) = self.hands.get_mut(&index) else { return };
                let key = (id, attempt);
                let ran = hand.running.contains_key(&key);
                if dropped {
                    hand.running.remove(&key);
                } else if ran {
                    // It stops a moment after it is asked to.
                    let token = hand.running[&key];
                    let ends = Happening::RunEnds { key, token, kind: OutcomeKind::Cancelled };
                    self.schedule(now + 20, index, life, ends);
                }
            }
            ClaimerOutput::Drained => {
                self.end_hand(index);
                self.feed_worker(index, Input::Command(RegistrationCommand::Stop));
            }
        }
    }

    fn begin_run(&mut self, index: usize, key: Key) {
        let (now, life, peace) = (self.now, self.workers[index].life, self.peace);
        let token = self.new_life();
        let fails = self.mix.has(FaultKind::JobFails);
        let (kind, longest) = match self.rng.random_range(0..20) {
            _ if peace => (OutcomeKind::Succeeded, 200),
            0..3 if fails => (OutcomeKind::Failed, 1500),
            3 if fails => (OutcomeKind::Partial, 1500),
            // Longer than its time limit.
            4 if fails => (OutcomeKind::Succeeded, 12_000),
            _ => (OutcomeKind::Succeeded, 3000),
        };
        let at = now + self.rng.random_range(5..longest);
        if kind != OutcomeKind::Succeeded || longest > 3000 {
            self.strike_worker(FaultKind::JobFails, index);
        }
        if let Some(hand) = self.hands.get_mut(&index) {
            hand.running.insert(key.clone(), token);
            self.schedule(at, index, life, Happening::RunEnds { key, token, kind });
        }
    }

    /// The fence judges entries that nobody has claimed yet.
    fn fence_entries(&mut self, index: usize, input: In<Claimer>) -> In<Claimer> {
        let Input::Answer(_, ClaimerAnswer::Inbox(DocumentAnswer::Read(Read::Found { body, .. }), _)) =
            &input
        else {
            return input;
        };
        let (now, rule) = (self.now, self.fence);
        let local = self.worker_clock(index).local(now);
        let host = self.workers[index].host;
        let wall = now as i64 + host.map_or(0, |host| self.nodes[host].wall_off_ms);
        let mut gate = match (host, self.hands.get(&index)) {
            (Some(host), _) => self.nodes[host].gate.clone(),
            (None, Some(hand)) => hand.gate.clone(),
            (None, None) => Gate::default(),
        };
        let mut fenced = std::collections::BTreeSet::new();
        for entry in body.entries.iter().filter(|entry| entry.state == EntryState::Dispatched) {
            let age_ms = u64::try_from(wall - (entry.dispatched_at - crate::bureau::WALL_MS as i64)).ok();
            if !gate.judge(rule, local, entry.epoch, age_ms).is_accepted() {
                fenced.insert((entry.id.clone(), entry.attempt, entry.epoch));
            }
        }
        self.fenced += fenced.len() as u64;
        match (host, self.hands.get_mut(&index)) {
            (Some(host), _) => self.nodes[host].gate = gate,
            (None, Some(hand)) => hand.gate = gate,
            (None, None) => {}
        }
        match input {
            Input::Answer(id, ClaimerAnswer::Inbox(answer, _)) => {
                Input::Answer(id, ClaimerAnswer::Inbox(answer, fenced))
            }
            Input::Wake | Input::Command(_) | Input::Answer(..) => input,
        }
    }

    pub(crate) fn rearm_hand(&mut self, index: usize) {
        let local = self.worker_clock(index).local(self.now);
        let Some(at) = self.hands.get(&index).and_then(|hand| hand.taker.wake_at()) else { return };
        let Some(when) = self.worker_clock(index).when(at.max(local + 5)) else { return };
        let life = self.workers[index].life;
        let Some(hand) = self.hands.get_mut(&index) else { return };
        hand.token += 1;
        let token = hand.token;
        self.schedule(when, index, life, Happening::HandWake { token });
    }
}

//! The election, and the leader's work as the election knows it: when it starts, when it stops, and the tasks it sends.

use crate::caller_mistakes::CallerMistake;
use crate::checks::name;
use crate::fault::FaultKind;
use crate::node::{Acting, Work};
use crate::queue::{Happening, Run};
use crate::shell::{Part, PartName, Played, Who};
use crate::store::{Folder, Key, Listed, NotFound, Object, Op, Said, Value};
use crate::trace::Noted;
use crate::world::World;
use rand::RngExt;
use std::sync::Arc;
use tenure_core::machine::{self, In, Machine, Now, Out};
use tenure_core::{
    Answer, Coordinator, Effect, Epoch, Event, Expect, Input, NodeEntry, NodesAnswer, Request, RequestId,
    SeatAnswer, SeatProblem, Supervision, Sweep, Time, Verdict,
};

/// How often a leader sends a task.
const TASK_EVERY_MS: u64 = 700;

fn index(who: Who) -> usize {
    match who {
        Who::Node(node) => node,
        Who::Worker(_) => unreachable!("workers do not elect"),
    }
}

impl Played for Coordinator {
    const NAME: PartName = PartName::Election;
    const ANY_ORDER: bool = true;

    fn part(world: &mut World, who: Who) -> Option<&mut Part<Coordinator>> {
        Some(&mut world.nodes[index(who)].election)
    }

    fn react(world: &mut World, who: Who, now: Now, input: In<Coordinator>, out: &mut Vec<Out<Coordinator>>) {
        let node = index(who);
        let target = &mut world.nodes[node];
        if let machine::Input::Command(Input::ProcessesStopped { epoch }) = &input
            && target.acting.as_ref().is_some_and(|acting| acting.epoch == *epoch)
        {
            target.ended = target.acted_until(world.now);
            target.acting = None;
        }
        if let machine::Input::Answer(_, answer) = &input {
            world.seat_edits.hear(world.now, target.life, answer);
        }
        let core = &mut target.election.machine;
        let before = world.modelled.then(|| (core.view(), core.step_input(now.at, input.clone())));
        core.handle(now, input, out);
        if let Some((before, input)) = before {
            let effects = core.step_effects(out);
            world.follow(node, &before, &input, &effects);
        }
    }

    fn op(world: &mut World, who: Who, _: RequestId, request: &Request) -> Option<Op> {
        let node = index(who);
        world.check_sending(node, request);
        let presence = || Key::Presence(world.nodes[node].id.clone());
        Some(match request {
            Request::Probe => Op::Probe,
            Request::ReadSeat { unless } => Op::Get(Key::Seat, unless.clone()),
            Request::WriteSeat { seat, expect } => {
                let names = world.nodes[node].sweep.as_ref().and_then(|sweep| sweep.seat_names(seat.epoch));
                Op::Put(Key::Seat, Arc::new(Value::Seat(seat.clone(), names)), Some(expect.clone()))
            }
            Request::WritePresence { expect, .. } => {
                let expect = expect.clone().map(Expect::Version);
                Op::Put(presence(), Arc::new(Value::Presence), expect)
            }
            Request::RemovePresence => Op::Remove(presence()),
            Request::ListNodes => Op::List(Folder::Presences),
        })
    }

    fn answer(world: &mut World, who: Who, request: Request, said: Said) -> Answer {
        match (request, said) {
            (Request::Probe, Said::Probed(answer)) => Answer::Probe(answer),
            (Request::ReadSeat { .. }, Said::Found(Object { value, version, modified_ms, .. })) => {
                Answer::Seat(if let Value::Seat(seat, names) = &*value {
                    world.saw_seat(index(who), *names);
                    SeatAnswer::Found { seat: seat.clone(), version, modified_ms }
                } else {
                    let newer = matches!(*value, Value::Garbage(SeatProblem::Newer));
                    let problem = if newer { SeatProblem::Newer } else { SeatProblem::Corrupt };
                    SeatAnswer::Unreadable { version, problem }
                })
            }
            (Request::ReadSeat { .. }, Said::NotFound(why)) => Answer::Seat(match why {
                NotFound::Unchanged => SeatAnswer::Unchanged,
                NotFound::Absent => SeatAnswer::Absent,
                NotFound::Unavailable => SeatAnswer::Unavailable,
                NotFound::Denied => SeatAnswer::Denied,
            }),
            (Request::WriteSeat { .. }, Said::Written(answer)) => Answer::SeatWritten(answer),
            (Request::WritePresence { .. }, Said::Written(answer)) => Answer::PresenceWritten(answer),
            (Request::RemovePresence, _) => Answer::PresenceRemoved,
            (Request::ListNodes, Said::Listed(Some(list))) => {
                let entry = |Listed { key, object }| {
                    let Key::Presence(node) = key else { return None };
                    Some(NodeEntry { node, modified_ms: object.modified_ms })
                };
                let nodes = list.into_iter().filter_map(entry).collect();
                Answer::Nodes(NodesAnswer::Found { nodes, more: false })
            }
            (request, _) => request.unanswered(),
        }
    }

    fn output(world: &mut World, who: Who, output: Effect) {
        let (now, node) = (world.now, index(who));
        match output {
            Effect::StartProcesses { epoch, deadline } => {
                world.tell(who, || Noted::Began(epoch));
                world.start_work(node, epoch, deadline);
            }
            Effect::ExtendLease { epoch, deadline } => {
                let deadline = world.handed_out(node, deadline);
                let acting = world.nodes[node].acting.as_mut().filter(|acting| acting.epoch == epoch);
                if let Some(acting) = acting {
                    acting.deadline = deadline;
                }
            }
            Effect::StopProcesses { epoch, by } => {
                world.tell(who, || Noted::Ending(epoch));
                world.stop_work(node, epoch, by);
            }
            Effect::Emit(event) => {
                if let Event::LostLeadership { epoch, .. } = event {
                    world.nodes[node].lost = world.nodes[node].lost.max(epoch);
                    world.far.losses += 1;
                    world.leadership_lost(node);
                } else if let Event::LeaderChanged { epoch, .. } = event {
                    let local = world.nodes[node].computer.clock.local(now);
                    world.nodes[node].fence.observe(epoch, local);
                } else if let Event::LeaseAtRisk { .. } = event {
                    world.far.stops += 1;
                }
                world.tell(who, || Noted::Event(event));
            }
            Effect::Stopped(_) => {
                let target = &mut world.nodes[node];
                target.running = false;
                // A node at rest waits for no answer any more, and starts again with what it never forgets.
                target.election.forget_asked();
                world.seat_edits.forget(target.life);
                world.new_sweep(node);
                world.tell(who, || Noted::Rests);
            }
            Effect::Request(..) | Effect::Wake { .. } => {}
        }
    }

    fn after(world: &mut World, who: Who) {
        world.check_node(index(who));
    }
}

impl World {
    /// The deadline as the caller hands it to work.
    fn handed_out(&self, node: usize, deadline: Time) -> Time {
        let late = self.mistake == Some(CallerMistake::DeadlineDoubled);
        deadline + if late { self.nodes[node].config.hold_ms() } else { 0 }
    }

    fn start_work(&mut self, node: usize, epoch: Epoch, deadline: Time) {
        let (now, who) = (self.now, Who::Node(node));
        let deadline = self.handed_out(node, deadline);
        self.check_start(node, epoch, deadline);
        let target = &mut self.nodes[node];
        target.acting = Some(Acting { epoch, deadline, told: false, since: now });
        let life = target.life;
        self.schedule(now + 50, who, Happening::SendTask { life, epoch });
        self.check_processes_over(node, epoch);
        self.nudge::<Sweep>(who);
        self.nudge::<Supervision>(who);
        self.run_later(now, who, Run::OnceNext);
    }

    fn stop_work(&mut self, node: usize, epoch: Epoch, by: Time) {
        let (now, who, too_soon) =
            (self.now, Who::Node(node), self.mistake == Some(CallerMistake::StoppedToldTooSoon));
        let target = &mut self.nodes[node];
        if let Some(acting) = target.acting.as_mut().filter(|acting| acting.epoch == epoch) {
            acting.told = true;
        }
        let (work, clock) = (target.work, target.computer.clock.clone());
        self.nudge::<Sweep>(who);
        if self.stop_processes(node, epoch) {
            return;
        }
        if too_soon && work != Work::Prompt {
            // The core is told something untrue; the work continues.
            let acting = self.nodes[node].acting;
            self.command::<Coordinator>(who, Input::ProcessesStopped { epoch });
            self.nodes[node].acting = acting;
            return;
        }
        match work {
            Work::Prompt => self.run_later(now, who, Run::WorkStopped(epoch)),
            Work::Slow => {
                let last = clock.when(by).unwrap_or(now).saturating_sub(2).max(now);
                self.run_later(last, who, Run::WorkStopped(epoch));
                self.struck.add(FaultKind::SlowWork);
            }
            Work::Stuck => self.struck.add(FaultKind::StuckWork),
        }
    }

    /// Stuck work finally stops; until then its node no longer leads.
    pub(crate) fn free_work(&mut self, node: usize) {
        let (now, target) = (self.now, &mut self.nodes[node]);
        // Supervised processes report themselves when they have stopped.
        if target.work != Work::Stuck || target.processes.is_some() {
            return;
        }
        target.work = Work::Prompt;
        if let Some(acting) = target.acting.filter(|acting| acting.told) {
            self.run_later(now, Who::Node(node), Run::WorkStopped(acting.epoch));
        }
    }

    /// The nodes that act at this instant.
    pub(crate) fn acting(&self) -> Vec<usize> {
        let unchecked = self.mistake == Some(CallerMistake::DeadlineUnchecked);
        (0..self.nodes.len()).filter(|index| self.nodes[*index].acts(self.now, unchecked)).collect()
    }

    /// A leader's work sends a task to some node, as long as it may act.
    pub(crate) fn send_task(&mut self, who: Who, epoch: Epoch) {
        let (now, life, target) = (self.now, self.life(who), &self.nodes[index(who)]);
        if target.acting.is_none_or(|acting| acting.epoch != epoch) {
            return;
        }
        if target.acts(now, false) && !target.computer.paused {
            let to = self.rng.random_range(0..self.nodes.len());
            let delay = match self.rng.random_range(0..8) {
                0 => self.rng.random_range(500..15_000),
                _ => self.rng.random_range(1..200),
            };
            let dispatched = self.wall(who) as i64;
            self.schedule(now + delay, Who::Node(to), Happening::Task { epoch, dispatched });
        }
        self.schedule(now + TASK_EVERY_MS, who, Happening::SendTask { life, epoch });
    }

    /// A task arrives. It is judged twice: by the production rule, and by what must be true of its verdict.
    pub(crate) fn receive_task(&mut self, who: Who, epoch: Epoch, dispatched: i64) {
        let (rule, node, now) = (self.fence, index(who), self.time(who));
        let target = &mut self.nodes[node];
        if !target.alive || target.computer.paused {
            return;
        }
        let age_ms = u64::try_from(now.wall_ms - dispatched).ok();
        let before = target.fence.clone();
        let verdict = target.fence.judge(rule, now.at, epoch, age_ms);
        let since = now.at.since(before.changed);
        let newer_seen = epoch < before.known;
        let grace = rule.grace_ms;
        let wrong = match verdict {
            Verdict::Accept => newer_seen,
            Verdict::RejectStale => !newer_seen,
            Verdict::AcceptLate => {
                !newer_seen
                    || epoch.next() != Some(before.known)
                    || since >= grace
                    || age_ms.is_none_or(|age| age >= grace)
            }
        };
        self.fenced += u64::from(verdict == Verdict::RejectStale);
        if wrong {
            self.violated(name::FENCE, || {
                format!(
                    "{node} says {verdict:?} to a task of {epoch:?}, {age_ms:?} ms old by its sender, having seen {:?} for {since} ms",
                    before.known
                )
            });
        }
    }
}

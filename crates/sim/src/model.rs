//! Ties the proof to the code: each step of the production coordinator must consist of transitions of `proof/seat.py`.
//!
//! `follow` takes the coordinator's state before a step, its input and its effects. It plays the transitions that this must have
//! been, checks the guard of each, and compares the result with the coordinator's state afterwards. A step that the model does
//! not have is an error.
//!
//! It does not see whether a write that an answer speaks of has landed, or whether work that is reported stopped has stopped. For
//! those it takes the word of the store and the caller; `monitor.rs` checks them against the truth. The meaning of the cold
//! start's margin is an assumption of the proof.

use crate::transition::{Followed, Transition};
use tenure_core::{
    Answer, Config, Effect, Epoch, Event, Expect, Holder, Input, LeadView, Nonce, Request, Seat, SeatAnswer,
    SeatProblem, SeatState, SeenView, Time, Version, View, WriteAnswer,
};

/// What is the same in every step of a node.
pub(crate) struct Terms<'a> {
    pub(crate) me: &'a Holder,
    pub(crate) config: &'a Config,
    /// The version that a list of presences showed to be long dead, by the store's clock.
    pub(crate) aged: Option<&'a Version>,
}

/// One step: its time on the node's clock, its input, its effects.
pub(crate) struct Step<'a> {
    pub(crate) now: Time,
    pub(crate) input: &'a Input,
    pub(crate) effects: &'a [Effect],
}

/// The version that this list shows to be long dead, if any: the condition of the model's `claim_cold`.
pub(crate) fn aged(before: &View, me: &Holder, config: &Config, input: &Input) -> Option<Version> {
    let Input::Answer { answer: Answer::Nodes(tenure_core::NodesAnswer::Found { nodes, .. }), .. } = input
    else {
        return None;
    };
    let SeenView::Record { seat, version, modified_ms: Some(written_ms), .. } = &before.seen else {
        return None;
    };
    let own = nodes.iter().find(|entry| entry.node == me.node)?;
    let limit_ms = written_ms + seat.lease.expiry_ms + config.store_clock_margin_ms;
    (own.modified_ms > limit_ms).then(|| version.clone())
}

/// Whether a node is done with an epoch: it does not act in it, and never will again.
pub(crate) fn is_over(view: &View, acts: Option<Epoch>, epoch: Epoch) -> bool {
    let gone = view.retired >= epoch && acts != Some(epoch);
    let going = view.lead.is_some_and(|lead| lead.epoch == epoch && lead.asked && !lead.work);
    gone || going
}

/// Whether the coordinator knows that work of this epoch runs: it leads in the epoch and its work has not stopped, or it has
/// retired the epoch and spares its work.
pub(crate) fn is_known(view: &View, epoch: Epoch) -> bool {
    match view.lead.filter(|lead| lead.epoch == epoch) {
        Some(lead) => lead.work,
        None => view.spare == Some(epoch) && epoch <= view.retired,
    }
}

/// Plays one step.
pub(crate) fn follow(
    terms: &Terms<'_>,
    before: &View,
    step: &Step<'_>,
    after: &View,
    followed: &mut Followed,
) -> Result<(), String> {
    followed.steps += 1;
    let mut replay = Replay { terms, now: step.now, node: before.clone(), won: None, lost: None, followed };
    replay.deadline();
    replay.input(step.input)?;
    for effect in step.effects {
        replay.effect(effect)?;
    }
    replay.agrees(after)
}

fn require(what: &str, guards: &[(bool, &str)]) -> Result<(), String> {
    match guards.iter().find(|(holds, _)| !holds) {
        Some((_, guard)) => Err(format!("{what}, but this does not hold: {guard}")),
        None => Ok(()),
    }
}

/// The model's node while a step is played.
struct Replay<'a> {
    terms: &'a Terms<'a>,
    now: Time,
    node: View,
    /// The write whose success this step reports, and when it was sent.
    won: Option<(Nonce, Time)>,
    /// The epoch lost in this step, until the coordinator reports it.
    lost: Option<Epoch>,
    followed: &'a mut Followed,
}

impl Replay<'_> {
    fn fire(&mut self, transition: Transition, guards: &[(bool, &str)]) -> Result<(), String> {
        require(transition.name(), guards)?;
        self.followed.transitions[transition as usize] += 1;
        Ok(())
    }

    fn hold_ms(&self) -> u64 {
        self.terms.config.hold_ms()
    }

    fn is_mine(&self, seat: &Seat) -> bool {
        seat.holder == *self.terms.me
    }

    /// When a write that is still remembered was sent.
    fn sent(&self, nonce: Nonce) -> Option<Time> {
        let known = |(write, _): &&(Nonce, Time)| *write == nonce;
        self.won.iter().chain(&self.node.pending).find(known).map(|(_, sent)| *sent)
    }

    /// Every step of a leader begins with its deadline.
    fn deadline(&mut self) {
        if let Some(lead) = self.node.lead
            && self.now >= lead.renewed + self.hold_ms()
        {
            self.lose(lead, Transition::Lose);
        }
    }

    fn lose(&mut self, lead: LeadView, by: Transition) {
        self.followed.transitions[by as usize] += 1;
        self.node.retired = self.node.retired.max(lead.epoch);
        if lead.work {
            self.node.spare = Some(lead.epoch);
        }
        self.node.lead = None;
        self.lost = Some(lead.epoch);
    }

    fn ask(&mut self) {
        if let Some(lead) = &mut self.node.lead {
            lead.asked = true;
            self.followed.transitions[Transition::Ask as usize] += 1;
        }
    }

    fn input(&mut self, input: &Input) -> Result<(), String> {
        match input {
            Input::Answer { id, answer: Answer::Seat(answer) } => {
                if self.node.flight.take_if(|(flight, ..)| flight == id).is_some() {
                    self.read(answer)?;
                }
            }
            Input::Answer { id, answer: Answer::SeatWritten(answer) } => {
                if let Some((_, sent, Some(seat))) = self.node.flight.take_if(|(flight, ..)| flight == id) {
                    self.written(seat, sent, answer)?;
                }
            }
            Input::ProcessesStopped { epoch } => self.stopped(*epoch),
            Input::StepDown | Input::StandAside { .. } | Input::Stop => self.ask(),
            Input::Raise { above } => {
                if self.node.lead.is_some_and(|lead| lead.epoch <= *above) {
                    self.ask();
                }
            }
            Input::Answer { .. } | Input::Start { .. } | Input::Wake(_) => {}
        }
        Ok(())
    }

    fn stopped(&mut self, epoch: Epoch) {
        match &mut self.node.lead {
            Some(lead) if lead.epoch == epoch && lead.draining => lead.work = false,
            Some(_) => return,
            None if self.node.spare == Some(epoch) => self.node.spare = None,
            None => return,
        }
        self.followed.transitions[Transition::Stopped as usize] += 1;
    }

    fn read(&mut self, answer: &SeatAnswer) -> Result<(), String> {
        match answer {
            SeatAnswer::Unavailable | SeatAnswer::Denied | SeatAnswer::Unchanged => Ok(()),
            SeatAnswer::Unreadable { .. } => {
                self.node.seen = SeenView::Unknown;
                self.fire(Transition::Unreadable, &[])
            }
            SeatAnswer::Absent if self.node.seen == SeenView::Absent => Ok(()),
            SeatAnswer::Absent => self.saw(None),
            SeatAnswer::Found { version, .. } if self.seen_version() == Some(version) => Ok(()),
            SeatAnswer::Found { seat, version, .. } => self.saw(Some((seat, version))),
        }
    }

    fn seen_version(&self) -> Option<&Version> {
        match &self.node.seen {
            SeenView::Record { version, .. } => Some(version),
            SeenView::Unknown | SeenView::Absent => None,
        }
    }

    /// A different record than before: the silence starts over, and a leader that does not find its own record stops.
    fn saw(&mut self, found: Option<(&Seat, &Version)>) -> Result<(), String> {
        self.node.seen = match found {
            None => SeenView::Absent,
            Some((seat, version)) => SeenView::Record {
                seat: seat.clone(),
                version: version.clone(),
                since: self.now,
                modified_ms: None,
            },
        };
        let Some(lead) = self.node.lead else { return self.fire(Transition::StandbyRead, &[]) };
        let own =
            |seat: &&Seat| seat.state == SeatState::Held && self.is_mine(seat) && seat.epoch == lead.epoch;
        let Some(seat) = found.map(|(seat, _)| seat).filter(own) else {
            self.lose(lead, Transition::LeaderRead);
            return Ok(());
        };
        self.fire(Transition::LeaderRead, &[])?;
        if seat.step_down {
            self.ask();
        }
        self.sent(seat.nonce).map_or(Ok(()), |sent| self.renewed(sent))
    }

    fn renewed(&mut self, sent: Time) -> Result<(), String> {
        let hold_ms = self.hold_ms();
        let on_time = self.node.lead.is_some_and(|lead| self.now < lead.renewed + hold_ms);
        self.fire(Transition::Renewed, &[(on_time, "it leads, and its hold is not over")])?;
        if let Some(lead) = &mut self.node.lead {
            lead.renewed = lead.renewed.max(sent);
        }
        Ok(())
    }

    fn written(&mut self, seat: Seat, sent: Time, answer: &WriteAnswer) -> Result<(), String> {
        match answer {
            WriteAnswer::Won(version) => {
                self.won = Some((seat.nonce, sent));
                self.saw(Some((&seat, version)))
            }
            WriteAnswer::Unknown | WriteAnswer::Lost => {
                self.node.pending.push((seat.nonce, sent));
                Ok(())
            }
            WriteAnswer::Unavailable | WriteAnswer::Denied => self.fire(Transition::Forget, &[]),
        }
    }

    fn effect(&mut self, effect: &Effect) -> Result<(), String> {
        match effect {
            Effect::Request(id, Request::ReadSeat { .. }) => {
                self.node.flight = Some((*id, self.now, None));
                Ok(())
            }
            Effect::Request(id, Request::WriteSeat { seat, expect }) => {
                self.sends(seat, expect)?;
                self.node.flight = Some((*id, self.now, Some(seat.clone())));
                Ok(())
            }
            Effect::StartProcesses { epoch, deadline } => self.starts(*epoch, *deadline),
            Effect::ExtendLease { epoch, deadline } => {
                let earned = self.node.lead.map(|lead| (lead.epoch, lead.renewed + self.hold_ms()));
                if earned == Some((*epoch, *deadline)) {
                    return Ok(());
                }
                Err(format!("the lease of {epoch:?} is extended to {deadline:?}, and {earned:?} was earned"))
            }
            Effect::Emit(Event::LostLeadership { epoch, .. }) => {
                if let Some(lead) = self.node.lead {
                    self.lose(lead, Transition::Lose);
                }
                match self.lost.take() == Some(*epoch) {
                    true => Ok(()),
                    false => Err(format!("{epoch:?} is said to be lost, and was not led")),
                }
            }
            Effect::Emit(Event::SeatUnreadable { problem: SeatProblem::LastEpoch }) => {
                self.node.seen = SeenView::Unknown;
                self.fire(Transition::Unreadable, &[])
            }
            Effect::Stopped(_) => {
                (self.node.seen, self.node.flight) = (SeenView::Unknown, None);
                self.node.pending.clear();
                let rests = self.node.lead.is_none();
                self.fire(Transition::Rest, &[(rests, "it does not lead")])
            }
            Effect::Request(..) | Effect::Wake { .. } | Effect::StopProcesses { .. } | Effect::Emit(_) => {
                Ok(())
            }
        }
    }

    fn starts(&mut self, epoch: Epoch, deadline: Time) -> Result<(), String> {
        let (now, hold_ms) = (self.now, self.hold_ms());
        if let Some(lead) = self.node.lead {
            self.fire(
                Transition::Recover,
                &[
                    (lead.epoch == epoch, "it leads in this epoch"),
                    (now < lead.renewed + hold_ms, "its hold is not over"),
                    (!lead.asked, "it was not asked to give up"),
                    (!lead.work, "its work has stopped"),
                    (deadline == lead.renewed + hold_ms, "the deadline is the end of its hold"),
                ],
            )?;
            self.node.lead = Some(LeadView { work: true, draining: false, ..lead });
            return Ok(());
        }
        let claim = match &self.node.seen {
            SeenView::Record { seat, .. } => Some(seat.clone()),
            SeenView::Unknown | SeenView::Absent => None,
        };
        let Some(claim) = claim else { return Err("`lead` without a record".to_owned()) };
        let sent = self.sent(claim.nonce);
        self.fire(
            Transition::Lead,
            &[
                (claim.state == SeatState::Held && self.is_mine(&claim), "the record is its own"),
                (claim.epoch == epoch, "of this epoch"),
                (sent.is_some(), "by a write that it remembers"),
                (epoch > self.node.retired, "of an epoch that is not retired"),
                (self.node.spare.is_none(), "no work of a lost epoch is left"),
                (sent.is_some_and(|sent| now < sent + hold_ms), "sent less than a hold ago"),
                (sent.is_some_and(|sent| deadline == sent + hold_ms), "the deadline counts from its sending"),
            ],
        )?;
        let renewed = sent.unwrap_or(now);
        self.node.lead = Some(LeadView { epoch, renewed, work: true, draining: false, asked: false });
        Ok(())
    }

    /// A seat write leaves the node; its content says which transition that is.
    fn sends(&mut self, new: &Seat, expect: &Expect) -> Result<(), String> {
        let (now, hold_ms) = (self.now, self.hold_ms());
        let (seen, since) = match &self.node.seen {
            SeenView::Record { seat, since, .. } => (Some(seat.clone()), *since),
            SeenView::Absent => (None, now),
            SeenView::Unknown => return Err("a write on top of a seat that it has not seen".to_owned()),
        };
        let condition = match expect {
            Expect::Absent => seen.is_none(),
            Expect::Version(version) => self.seen_version() == Some(version),
        };
        let fresh = new.nonce.incarnation == self.terms.me.incarnation
            && self.sent(new.nonce).is_none()
            && seen.as_ref().is_none_or(|seat| seat.nonce != new.nonce);
        let guards =
            [(condition, "conditional on what it saw last"), (fresh, "with a nonce of its own, used once")];
        require("a seat write", &guards)?;
        let vacant = new.state == SeatState::Vacant;
        let kept = |from: &Seat| match vacant {
            true => Seat { state: SeatState::Vacant, nonce: new.nonce, step_down: false, ..from.clone() },
            false => Seat { nonce: new.nonce, renewals: from.renewals + 1, ..from.clone() },
        };
        let rewrites = seen.as_ref().is_some_and(|seat| *new == kept(seat));
        if let Some(lead) = self.node.lead {
            let on_time = (now < lead.renewed + hold_ms, "its hold is not over");
            let copy = (rewrites, "nothing else is changed");
            return match vacant {
                false => self.fire(Transition::Renew, &[on_time, copy]),
                true => {
                    let asked = (lead.asked, "it was asked to give up");
                    self.fire(
                        Transition::Vacate,
                        &[on_time, asked, (!lead.work, "its work has stopped"), copy],
                    )
                }
            };
        }
        let spared = (self.node.spare.is_none(), "no work of a lost epoch is left");
        if vacant {
            let mine = seen.as_ref().filter(|seat| seat.state == SeatState::Held && self.is_mine(seat));
            let own = (mine.is_some(), "the record is its own");
            let epoch = mine.map_or(Epoch(0), |seat| seat.epoch);
            self.fire(Transition::VacateOwnRecord, &[own, spared, (rewrites, "nothing else is changed")])?;
            self.node.retired = self.node.retired.max(epoch);
            return Ok(());
        }
        let raised = new.epoch > seen.as_ref().map_or(Epoch(0), |seat| seat.epoch);
        let claim = [
            spared,
            (raised, "the epoch is above the one seen"),
            (self.is_mine(new) && new.lease == self.terms.config.lease(), "for itself, on its own terms"),
        ];
        let Some(held) = seen.filter(|seat| seat.state == SeatState::Held) else {
            return self.fire(Transition::ClaimFree, &claim);
        };
        let aged = self.terms.aged.is_some() && self.terms.aged == self.seen_version();
        let silent = now >= since + held.lease.expiry_ms;
        let by = if aged && !silent { Transition::ClaimCold } else { Transition::ClaimSilent };
        let other = (!self.is_mine(&held), "the record is somebody else's");
        let expired =
            (silent || aged, "it has not changed for its expiry, or is long dead by the store's clock");
        self.fire(by, &[claim[0], claim[1], claim[2], other, expired])
    }

    /// Whether the coordinator agrees with the model.
    fn agrees(mut self, after: &View) -> Result<(), String> {
        if let Some(epoch) = self.lost {
            return Err(format!("{epoch:?} is over, and the node does not say so"));
        }
        if after.retired > self.node.retired
            && let SeenView::Record { seat, .. } = &self.node.seen
            && seat.epoch == after.retired
        {
            let own = seat.state == SeatState::Held && self.is_mine(seat);
            let guards = [(own, "the record is its own"), (self.node.lead.is_none(), "it does not lead")];
            self.fire(Transition::RetireOwnRecord, &guards)?;
            self.node.retired = after.retired;
        }
        let told =
            |lead: Option<LeadView>| lead.map(|lead| (lead.epoch, lead.renewed, lead.work, lead.asked));
        let same = |name: &str, model: String, code: String| match model == code {
            true => Ok(()),
            false => Err(format!("{name} is {code}, and {model} in the model")),
        };
        if told(self.node.lead) != told(after.lead) {
            same("leadership", format!("{:?}", self.node.lead), format!("{:?}", after.lead))?;
        }
        if (self.node.spare, self.node.retired) != (after.spare, after.retired) {
            let (model, code) = ((self.node.spare, self.node.retired), (after.spare, after.retired));
            same("what is spared and retired", format!("{model:?}"), format!("{code:?}"))?;
        }
        let flight = |view: &View| view.flight.as_ref().map(|(id, sent, _)| (*id, *sent));
        if flight(&self.node) != flight(after) {
            same(
                "the request under way",
                format!("{:?}", flight(&self.node)),
                format!("{:?}", flight(after)),
            )?;
        }
        // Writes may be forgotten at any time, but one that is remembered must have the right sending time.
        if let Some(write) = after.pending.iter().find(|write| !self.node.pending.contains(write)) {
            return Err(format!("{write:?} is remembered, and was not sent then"));
        }
        let seen = |view: &View| match &view.seen {
            SeenView::Record { version, since, .. } => (2, Some((version.clone(), *since))),
            SeenView::Absent => (1, None),
            SeenView::Unknown => (0, None),
        };
        if seen(&self.node) != seen(after) {
            same("what was seen", format!("{:?}", self.node.seen), format!("{:?}", after.seen))?;
        }
        Ok(())
    }
}

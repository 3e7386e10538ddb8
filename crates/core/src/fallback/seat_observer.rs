//! Watches a seat from outside its election: who leads, whether somebody acts by it, and until when its own node is seen to
//! lead.
//!
//! It judges like a standby: by observed change on the watcher's own clock, never by time stamps. It is a little more
//! patient than a standby, so that the nodes in that election have claimed the seat before the watcher calls it free.

use crate::election::{Epoch, Seat, SeatAnswer, SeatProblem, SeatState, Version};
use crate::id::{NodeId, Nonce};
use crate::machine::{Effect, In, Input, Machine, Now, Out, Request, RequestId};
use crate::mutants::Mutant;
use crate::time::Time;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SeatObserverConfig {
    /// How often it reads the seat.
    pub every_ms: u64,
    /// How much longer to wait than the seat's own election: for a silent holder to be replaced, and for a vacated seat to
    /// be taken by the next.
    pub patience_ms: u64,
    /// Whether a seat that may not be read counts as free.
    pub may_be_hidden: bool,
    /// Whether it vacates a seat whose holder fell silent, so that nobody has to wait for it again.
    pub clears: bool,
    /// The node whose leadership it reports.
    pub node: Option<NodeId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeatObserverCommand {
    /// Begin to watch, as if the seat had never been seen. Held in the epoch `ended`, it is free: this process led in it, and
    /// no longer does.
    Watch { ended: Option<Epoch> },
    /// Read now. A read that is already under way no longer counts.
    ReadAgain,
    /// Stop watching.
    Rest,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SeatObserverRequest {
    /// `unless` is the version seen last: an unchanged seat costs no body.
    Read { unless: Option<Version> },
    /// Vacate the seat if its last write is still this one.
    Vacate(Nonce),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SeatObserverAnswer {
    Read(SeatAnswer),
    /// Whether nobody has to wait for that holder any more. It also stands for a lack of permission, which is no reason to
    /// wait for the dead.
    Vacated(bool),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SeatObserverOutput {
    /// A read was answered, and says this. An unanswered one says nothing, whatever earlier ones said.
    Use(SeatUse),
    /// The seat has changed. `is_new`: this leader has not been told before.
    Seen { leader: Option<NodeId>, epoch: Epoch, is_new: bool },
    /// The node it reports on is seen to lead, until one hold after the read was sent that saw the seat change.
    Extend { epoch: Epoch, until: Time },
    /// The node it reports on is no longer seen to lead.
    Withdraw,
}

/// What an answered read says about a seat.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeatUse {
    /// Somebody holds it and may act.
    Held,
    /// Nobody acts by it. The epoch is the highest seen on it, or 0 if there was no seat.
    Free(Epoch),
}

impl Request for SeatObserverRequest {
    type Answer = SeatObserverAnswer;

    fn unanswered(&self) -> SeatObserverAnswer {
        match self {
            SeatObserverRequest::Read { .. } => SeatObserverAnswer::Read(SeatAnswer::Unavailable),
            SeatObserverRequest::Vacate(_) => SeatObserverAnswer::Vacated(false),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SeatObserver {
    config: SeatObserverConfig,
    now: Time,
    watching: bool,
    ended: Option<Epoch>,
    record: Option<Record>,
    highest: Epoch,
    /// What the last answered read said; `None` before the first.
    usage: Option<SeatUse>,
    /// The epoch of the leader told last.
    told: Option<Epoch>,
    /// The node it reports on leads in this epoch, until then.
    leads: Option<(Epoch, Time)>,
    requests: u64,
    under_way: Option<UnderWay>,
    due: Time,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Record {
    version: Version,
    /// `None` once it was deleted, or may no longer be read.
    seat: Option<Seat>,
    /// The seat is free once a read *sent* at or after this still shows no change.
    free_at: Time,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct UnderWay {
    id: RequestId,
    sent: Time,
}

impl Machine for SeatObserver {
    type Command = SeatObserverCommand;
    type Request = SeatObserverRequest;
    type Output = SeatObserverOutput;

    fn handle(&mut self, now: Now, input: In<SeatObserver>, out: &mut Vec<Out<SeatObserver>>) {
        self.now = self.now.max(now.at);
        if self.leads.is_some_and(|(_, until)| until <= self.now) {
            self.withdraw(out);
        }
        match input {
            Input::Wake => {}
            Input::Command(SeatObserverCommand::Watch { ended }) => {
                (self.watching, self.ended) = (true, ended);
                (self.record, self.usage) = (None, None);
                self.read_again();
            }
            Input::Command(SeatObserverCommand::ReadAgain) => self.read_again(),
            Input::Command(SeatObserverCommand::Rest) => (self.watching, self.under_way) = (false, None),
            Input::Answer(id, answer) => {
                if let Some(UnderWay { sent, .. }) = self.under_way.take_if(|asked| asked.id == id) {
                    match answer {
                        SeatObserverAnswer::Read(answer) => self.on_read(sent, answer, out),
                        SeatObserverAnswer::Vacated(true) => self.tell_use(out),
                        SeatObserverAnswer::Vacated(false) => {}
                    }
                }
            }
        }
        if self.watching && self.under_way.is_none() && self.due <= self.now {
            self.due = self.now + self.config.every_ms.max(1);
            let unless = self.version().cloned();
            self.send(SeatObserverRequest::Read { unless }, out);
        }
    }

    fn wake_at(&self) -> Option<Time> {
        let due = (self.watching && self.under_way.is_none()).then_some(self.due);
        due.into_iter().chain(self.leads.map(|(_, until)| until)).min()
    }
}

impl SeatObserver {
    pub fn new(config: SeatObserverConfig) -> SeatObserver {
        SeatObserver {
            config,
            now: Time(0),
            watching: false,
            ended: None,
            record: None,
            highest: Epoch(0),
            usage: None,
            told: None,
            leads: None,
            requests: 0,
            under_way: None,
            due: Time(0),
        }
    }

    /// Who was seen to hold the seat, and in which epoch, as long as it may act.
    pub fn leader(&self) -> Option<(&NodeId, Epoch)> {
        let seat = self.seat()?;
        let acts = self.judged() == Some(SeatUse::Held) && seat.state == SeatState::Held;
        acts.then_some((&seat.holder.node, seat.epoch))
    }

    fn read_again(&mut self) {
        if !(Mutant::EarlierReadCounts.on() && self.under_way.is_some()) {
            (self.under_way, self.due) = (None, self.now);
        }
    }

    fn send(&mut self, request: SeatObserverRequest, out: &mut Vec<Out<SeatObserver>>) {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.under_way = Some(UnderWay { id, sent: self.now });
        out.push(Effect::Request(id, request));
    }

    fn on_read(&mut self, sent: Time, answer: SeatAnswer, out: &mut Vec<Out<SeatObserver>>) {
        match answer {
            SeatAnswer::Found { version, seat, .. } if self.version() != Some(&version) => {
                self.on_change(sent, version, seat, out);
            }
            // A store that ignores the condition answers with the whole object again.
            SeatAnswer::Found { .. } | SeatAnswer::Unchanged => self.settle(sent),
            // Nobody can claim or renew an object that is not a seat, or has the last epoch.
            SeatAnswer::Absent
            | SeatAnswer::Unreadable { problem: SeatProblem::Corrupt | SeatProblem::LastEpoch, .. } => {
                self.on_gone(sent);
            }
            // Whoever is kept from an election, and may not even read its seat, can only carry on without it.
            SeatAnswer::Denied if self.config.may_be_hidden => self.on_gone(sent),
            // A newer version of this program may hold a seat that it alone can read.
            SeatAnswer::Unreadable { problem: SeatProblem::Newer, .. }
            | SeatAnswer::Denied
            | SeatAnswer::Unavailable => {
                if !Mutant::UnansweredLookTakenForFree.on() {
                    return;
                }
                self.usage = self.usage.or(Some(SeatUse::Free(self.highest)));
            }
        }
        let silent = self.seat().filter(|seat| seat.state == SeatState::Held).map(|seat| seat.nonce);
        match silent.filter(|_| self.config.clears && self.usage != Some(SeatUse::Held)) {
            Some(nonce) => self.send(SeatObserverRequest::Vacate(nonce), out),
            None => self.tell_use(out),
        }
    }

    /// The seat has not changed. Only a read sent after the wait proves that it stayed unchanged throughout.
    fn settle(&mut self, sent: Time) {
        if self.record.as_ref().is_none_or(|record| sent >= record.free_at) {
            self.usage = Some(SeatUse::Free(self.highest));
        }
    }

    /// There is no seat to be read. A holder seen before that still has its lease.
    fn on_gone(&mut self, sent: Time) {
        self.settle(sent);
        if let Some(record) = &mut self.record {
            record.seat = None;
        }
    }

    fn on_change(&mut self, sent: Time, version: Version, seat: Seat, out: &mut Vec<Out<SeatObserver>>) {
        let (epoch, held) = (seat.epoch, seat.state == SeatState::Held);
        self.highest = self.highest.max(epoch);
        let wait_ms = match self.usage {
            _ if held => seat.lease.expiry_ms.saturating_add(self.config.patience_ms),
            Some(SeatUse::Held) => self.config.patience_ms,
            // Nobody was seen to hold it, so nobody is about to hand it over.
            Some(SeatUse::Free(_)) | None => 0,
        };
        self.usage = Some(if wait_ms == 0 { SeatUse::Free(self.highest) } else { SeatUse::Held });
        let is_new = held && self.told.is_none_or(|told| told < epoch);
        if is_new {
            self.told = Some(epoch);
        }
        // The first read cannot tell a live holder from a dead one: only a change is a sign of life. If the epoch went back,
        // somebody repaired the seat; nobody works under it until it has risen again.
        let alive = held && self.record.is_some() && self.told == Some(epoch);
        let until = sent + seat.lease.hold_ms;
        let leads = alive && until > self.now && self.config.node.as_ref() == Some(&seat.holder.node);
        if self.leads.is_some_and(|(led, _)| !leads || led != epoch) {
            self.withdraw(out);
        }
        let leader = held.then(|| seat.holder.node.clone());
        out.push(Effect::Output(SeatObserverOutput::Seen { leader, epoch, is_new }));
        if leads {
            self.leads = Some((epoch, until));
            out.push(Effect::Output(SeatObserverOutput::Extend { epoch, until }));
        }
        self.record = Some(Record { version, seat: Some(seat), free_at: self.now + wait_ms });
    }

    fn withdraw(&mut self, out: &mut Vec<Out<SeatObserver>>) {
        self.leads = None;
        out.push(Effect::Output(SeatObserverOutput::Withdraw));
    }

    /// What the last answered read said. Nobody acts in an epoch of this process that has ended.
    fn judged(&self) -> Option<SeatUse> {
        let ended = self.seat().is_some_and(|seat| self.ended == Some(seat.epoch));
        match self.usage {
            Some(SeatUse::Held) if ended => Some(SeatUse::Free(self.highest)),
            usage => usage,
        }
    }

    fn tell_use(&self, out: &mut Vec<Out<SeatObserver>>) {
        out.extend(self.judged().map(|usage| Effect::Output(SeatObserverOutput::Use(usage))));
    }

    fn seat(&self) -> Option<&Seat> {
        self.record.as_ref()?.seat.as_ref()
    }

    fn version(&self) -> Option<&Version> {
        self.record.as_ref().map(|record| &record.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::Lease;
    use crate::id::{Holder, Incarnation};

    fn node(name: &str) -> NodeId {
        NodeId::new(name).expect("valid")
    }

    fn seat_of(name: &str, version: &str, state: SeatState, epoch: u64) -> SeatAnswer {
        let seat = Seat {
            epoch: Epoch(epoch),
            state,
            holder: Holder { node: node(name), incarnation: Incarnation(1) },
            lease: Lease { hold_ms: 2000, expiry_ms: 3000 },
            terms: None,
            renewals: 0,
            nonce: Nonce { incarnation: Incarnation(1), sequence: epoch },
            step_down: false,
        };
        SeatAnswer::Found { seat, version: Version::new(version), modified_ms: 0 }
    }

    fn seat(version: &str, state: SeatState, epoch: u64) -> SeatAnswer {
        seat_of("pod-a", version, state, epoch)
    }

    fn closed() -> SeatAnswer {
        SeatAnswer::Unreadable { version: Version::new("x"), problem: SeatProblem::Corrupt }
    }

    fn config() -> SeatObserverConfig {
        let node = Some(node("pod-a"));
        SeatObserverConfig { every_ms: 1000, patience_ms: 500, may_be_hidden: false, clears: false, node }
    }

    fn observer(config: SeatObserverConfig) -> SeatObserver {
        let mut observer = SeatObserver::new(config);
        step(&mut observer, 0, Input::Command(SeatObserverCommand::Watch { ended: None }));
        observer
    }

    fn step(observer: &mut SeatObserver, now: u64, input: In<SeatObserver>) -> Vec<Out<SeatObserver>> {
        let mut out = Vec::new();
        observer.handle(Now { at: Time(now), wall_ms: 0 }, input, &mut out);
        out
    }

    /// One read, with the times at which it was sent and ended: what it said.
    fn read(
        observer: &mut SeatObserver,
        sent: u64,
        ended: u64,
        answer: SeatAnswer,
    ) -> Vec<Out<SeatObserver>> {
        let out = step(observer, sent, Input::Command(SeatObserverCommand::ReadAgain));
        let Some(Effect::Request(id, SeatObserverRequest::Read { .. })) = out.last() else {
            panic!("no read: {out:?}")
        };
        step(observer, ended, Input::Answer(*id, SeatObserverAnswer::Read(answer)))
    }

    fn used(out: &[Out<SeatObserver>]) -> Option<SeatUse> {
        out.iter().find_map(|effect| match effect {
            Effect::Output(SeatObserverOutput::Use(usage)) => Some(*usage),
            Effect::Output(_) | Effect::Request(..) => None,
        })
    }

    fn held(observer: &mut SeatObserver, sent: u64, ended: u64, answer: SeatAnswer) -> bool {
        used(&read(observer, sent, ended, answer)) == Some(SeatUse::Held)
    }

    fn free(observer: &mut SeatObserver, sent: u64, answer: SeatAnswer) -> Option<u64> {
        match used(&read(observer, sent, sent + 10, answer)) {
            Some(SeatUse::Free(epoch)) => Some(epoch.0),
            Some(SeatUse::Held) | None => None,
        }
    }

    fn extended(out: &[Out<SeatObserver>]) -> Option<u64> {
        out.iter().find_map(|effect| match effect {
            Effect::Output(SeatObserverOutput::Extend { until, .. }) => Some(until.0),
            Effect::Output(_) | Effect::Request(..) => None,
        })
    }

    fn withdrawn(out: &[Out<SeatObserver>]) -> bool {
        out.contains(&Effect::Output(SeatObserverOutput::Withdraw))
    }

    #[test]
    fn a_held_seat_is_free_only_when_a_late_read_still_shows_the_same() {
        let mut observer = observer(config());
        assert!(held(&mut observer, 0, 10, seat("a", SeatState::Held, 4)));
        assert!(held(&mut observer, 3500, 9000, SeatAnswer::Unchanged), "sent too early");
        let mut observer = self::observer(config());
        assert!(held(&mut observer, 0, 10, seat("a", SeatState::Held, 4)));
        assert!(held(&mut observer, 3700, 3710, seat("b", SeatState::Held, 4)));
        assert!(held(&mut observer, 7209, 7209, SeatAnswer::Unchanged));
        assert_eq!(observer.leader(), Some((&node("pod-a"), Epoch(4))));
        assert_eq!(free(&mut observer, 7210, SeatAnswer::Unchanged), Some(4));
        assert_eq!(observer.leader(), None);
        assert!(held(&mut observer, 8000, 8010, seat("c", SeatState::Held, 5)));
    }

    #[test]
    fn a_seat_vacated_under_watch_is_left_to_its_next_holder_for_a_while() {
        let mut observer = observer(config());
        assert!(held(&mut observer, 0, 10, seat("a", SeatState::Held, 4)));
        assert!(held(&mut observer, 1000, 1010, seat("b", SeatState::Vacant, 4)));
        assert_eq!(observer.leader(), None);
        assert!(held(&mut observer, 1400, 1410, seat("c", SeatState::Held, 5)), "taken");
        assert!(held(&mut observer, 2000, 2010, seat("d", SeatState::Vacant, 5)));
        assert_eq!(free(&mut observer, 2510, SeatAnswer::Unchanged), Some(5));
    }

    #[test]
    fn what_is_vacant_absent_or_closed_at_the_first_read_is_free_at_once() {
        for (answer, epoch) in [(seat("a", SeatState::Vacant, 7), 7), (SeatAnswer::Absent, 0), (closed(), 0)]
        {
            assert_eq!(free(&mut observer(config()), 0, answer), Some(epoch));
        }
        let mut hidden = observer(SeatObserverConfig { may_be_hidden: true, ..config() });
        assert_eq!(free(&mut hidden, 0, SeatAnswer::Denied), Some(0), "it may not know");
    }

    #[test]
    fn a_read_without_an_answer_says_nothing_whatever_was_seen_before() {
        let newer = SeatAnswer::Unreadable { version: Version::new("n"), problem: SeatProblem::Newer };
        let mut observer = observer(config());
        for silence in [SeatAnswer::Unavailable, SeatAnswer::Denied, newer] {
            assert_eq!(read(&mut observer, 0, 10, silence), []);
        }
        assert_eq!(free(&mut observer, 100, seat("a", SeatState::Vacant, 7)), Some(7));
        assert_eq!(read(&mut observer, 200, 210, SeatAnswer::Unavailable), [], "it was free before, not now");
        assert!(held(&mut observer, 300, 310, seat("b", SeatState::Held, 8)));
        assert_eq!(read(&mut observer, 9000, 9010, SeatAnswer::Unavailable), []);
        assert_eq!(free(&mut observer, 9100, SeatAnswer::Unchanged), Some(8), "an answer settles it");
    }

    #[test]
    fn a_holder_seen_before_the_seat_was_deleted_or_closed_is_waited_for() {
        for gone in [SeatAnswer::Absent, closed()] {
            let mut observer = observer(config());
            assert!(held(&mut observer, 0, 10, seat("a", SeatState::Held, 4)));
            assert!(held(&mut observer, 100, 110, gone.clone()));
            assert_eq!(free(&mut observer, 3510, gone), Some(4));
        }
    }

    /// A store that ignores the condition answers with the whole object again; it is still the same object.
    #[test]
    fn the_same_version_read_again_is_no_change() {
        let mut observer = observer(config());
        assert_eq!(observer.version(), None);
        assert!(held(&mut observer, 0, 10, seat("a", SeatState::Held, 4)));
        assert_eq!(observer.version(), Some(&Version::new("a")));
        let again = read(&mut observer, 3510, 3520, seat("a", SeatState::Held, 4));
        assert_eq!((used(&again), extended(&again)), (Some(SeatUse::Free(Epoch(4))), None));
    }

    #[test]
    fn it_reads_at_its_pace_one_request_at_a_time() {
        let mut observer = observer(config());
        assert_eq!(observer.wake_at(), None, "it waits for an answer");
        assert_eq!(step(&mut observer, 1500, Input::Wake), []);
        let unknown = Input::Answer(RequestId(9), SeatObserverAnswer::Read(SeatAnswer::Absent));
        assert_eq!(step(&mut observer, 1600, unknown), [], "nobody asked");
        assert_eq!(free(&mut observer, 2000, SeatAnswer::Absent), Some(0));
        assert_eq!(observer.wake_at(), Some(Time(3000)));
        assert_eq!(step(&mut observer, 2999, Input::Wake), []);
        assert_eq!(step(&mut observer, 3000, Input::Wake).len(), 1);
        step(&mut observer, 3001, Input::Command(SeatObserverCommand::Rest));
        assert_eq!(observer.wake_at(), None);
    }

    #[test]
    fn a_silent_holder_is_cleared_away_before_the_seat_counts_as_free() {
        let mut observer = observer(SeatObserverConfig { clears: true, ..config() });
        assert!(held(&mut observer, 0, 10, seat("a", SeatState::Held, 4)));
        for (sent, cleared) in [(3600, false), (4700, true)] {
            let out = read(&mut observer, sent, sent + 10, SeatAnswer::Unchanged);
            let [Effect::Request(id, SeatObserverRequest::Vacate(nonce))] = &out[..] else {
                panic!("not cleared: {out:?}")
            };
            assert_eq!(nonce.sequence, 4);
            let out =
                step(&mut observer, sent + 20, Input::Answer(*id, SeatObserverAnswer::Vacated(cleared)));
            assert_eq!(used(&out), cleared.then_some(SeatUse::Free(Epoch(4))), "whoever wrote it is alive");
        }
    }

    #[test]
    fn its_node_leads_for_one_hold_after_sending_the_read_that_saw_a_change() {
        let mut observer = observer(config());
        let first = read(&mut observer, 0, 10, seat("a", SeatState::Held, 4));
        assert_eq!(extended(&first), None, "one read cannot tell a live leader from a dead one");
        assert_eq!(extended(&read(&mut observer, 1000, 1400, seat("b", SeatState::Held, 4))), Some(3000));
        assert_eq!(extended(&read(&mut observer, 2000, 2100, SeatAnswer::Unchanged)), None);
        assert_eq!(observer.wake_at(), Some(Time(3000)));
        assert!(withdrawn(&step(&mut observer, 3000, Input::Wake)), "nothing has changed since");
        let late = read(&mut observer, 3100, 5100, seat("c", SeatState::Held, 4));
        assert_eq!(extended(&late), None, "the answer came too late");
        assert_eq!(extended(&read(&mut observer, 5300, 5310, seat("d", SeatState::Held, 4))), Some(7300));
        assert!(withdrawn(&read(&mut observer, 5400, 5410, seat_of("pod-b", "e", SeatState::Held, 5))));
    }

    #[test]
    fn its_leadership_is_withdrawn_once_the_seat_says_otherwise() {
        let led = || {
            let mut observer = observer(config());
            read(&mut observer, 0, 10, seat("a", SeatState::Held, 4));
            assert_eq!(extended(&read(&mut observer, 100, 110, seat("b", SeatState::Held, 4))), Some(2100));
            observer
        };
        let mut observer = led();
        assert!(!withdrawn(&read(&mut observer, 200, 210, seat("c", SeatState::Held, 4))), "it goes on");
        assert!(withdrawn(&read(&mut observer, 300, 310, seat("d", SeatState::Vacant, 4))));
        let out = read(&mut led(), 200, 210, seat("c", SeatState::Held, 5));
        assert_eq!((withdrawn(&out), extended(&out)), (true, Some(2200)), "another epoch");
    }

    #[test]
    fn a_leader_is_new_once_and_an_epoch_of_the_past_enables_nobody() {
        let mut observer = observer(config());
        let mut seen = |version: &str, state, epoch| {
            let out = read(&mut observer, 0, 0, seat(version, state, epoch));
            let new = out.iter().any(|effect| {
                matches!(effect, Effect::Output(SeatObserverOutput::Seen { is_new: true, .. }))
            });
            (new, extended(&out).is_some())
        };
        assert_eq!(seen("a", SeatState::Vacant, 3), (false, false));
        assert_eq!(seen("b", SeatState::Held, 4), (true, true));
        assert_eq!(seen("c", SeatState::Held, 4), (false, true));
        assert_eq!(seen("d", SeatState::Held, 3), (false, false), "somebody restored an old record");
        assert_eq!(seen("e", SeatState::Held, 4), (false, true));
    }
}

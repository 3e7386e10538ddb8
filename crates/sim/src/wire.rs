//! Requests about workers, between their processes, the nodes and the store. The same faults strike them.

use crate::fault::FaultKind;
use crate::node::{Fate, Kind};
use crate::queue::{Happening, Then};
use crate::registry::Written;
use crate::sweep::ListTruth;
use crate::world::World;
use rand::RngExt;
use tenure_core::document::{DocumentAnswer, DocumentRequest, Read, Removal};
use tenure_core::machine::{Input, Request};
use tenure_core::{
    ClaimerAnswer, ClaimerRequest, DispatchAnswer, DispatchRequest, ListedWorkers, RegisteredBy, RequestId,
    SweepAnswer, SweepRequest, WriteAnswer,
};

/// The time limit of a whole list, in request timeouts, as in the stores.
const LIST_TIMEOUTS_MAX: u64 = tenure_store::LIST_TIMEOUTS_MAX as u64;

/// The sender of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Party {
    Worker(usize),
    Node(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// A worker's request for its own object.
    Own(DocumentRequest<RegisteredBy>),
    /// A node's request about the workers.
    Sweep(SweepRequest),
    /// A dispatcher's request, with the dispatcher's number.
    Dispatch(u64, RequestId, Box<DispatchRequest>),
    /// A claimer's request.
    Take(RequestId, Box<ClaimerRequest>),
}

#[derive(Clone, Debug)]
pub(crate) enum Told {
    Own(DocumentAnswer<RegisteredBy>),
    /// And what is true of it, if it is a list.
    Sweep(SweepAnswer, Option<ListTruth>),
    Dispatch(u64, RequestId, DispatchAnswer),
    Take(RequestId, ClaimerAnswer),
}

impl Ask {
    fn kind(&self) -> Kind {
        match self {
            Ask::Own(DocumentRequest::Write { .. }) => Kind::Beat,
            Ask::Own(DocumentRequest::Read { .. } | DocumentRequest::Remove) => Kind::Own,
            Ask::Sweep(SweepRequest::List) => Kind::Sweep,
            Ask::Sweep(SweepRequest::Snapshot(DocumentRequest::Write { .. })) => Kind::Publish,
            Ask::Sweep(SweepRequest::Snapshot(_)) => Kind::Snapshot,
            Ask::Sweep(SweepRequest::Read(_) | SweepRequest::Remove(_) | SweepRequest::ForgetNodes) => {
                Kind::Worker
            }
            Ask::Dispatch(_, _, request) => match **request {
                DispatchRequest::Ledger(..) => Kind::Ledger,
                DispatchRequest::Inbox(..) => Kind::Inbox,
                DispatchRequest::ListInboxes => Kind::Inboxes,
                DispatchRequest::Archive(..) => Kind::Archive,
            },
            Ask::Take(..) if self.conditional() => Kind::Hand,
            Ask::Take(..) => Kind::Look,
        }
    }

    fn conditional(&self) -> bool {
        match self {
            Ask::Own(request) => matches!(request, DocumentRequest::Write { .. }),
            Ask::Sweep(SweepRequest::Snapshot(request)) => matches!(request, DocumentRequest::Write { .. }),
            Ask::Dispatch(_, _, request) => matches!(
                **request,
                DispatchRequest::Ledger(_, DocumentRequest::Write { .. })
                    | DispatchRequest::Inbox(_, DocumentRequest::Write { .. })
            ),
            Ask::Take(_, request) => {
                matches!(**request, ClaimerRequest::Inbox(DocumentRequest::Write { .. }, _))
            }
            Ask::Sweep(_) => false,
        }
    }

    fn unanswered(&self) -> Told {
        match self {
            Ask::Own(request) => Told::Own(request.unanswered()),
            Ask::Sweep(request) => Told::Sweep(request.unanswered(), None),
            Ask::Dispatch(incarnation, id, request) => {
                Told::Dispatch(*incarnation, *id, request.unanswered())
            }
            Ask::Take(id, request) => Told::Take(*id, request.unanswered()),
        }
    }

    /// A definite no, without effect.
    fn refused(&self, denied: bool) -> Told {
        match self {
            Ask::Own(request) => Told::Own(refusal_of(request, denied)),
            Ask::Sweep(SweepRequest::Snapshot(request)) => {
                Told::Sweep(SweepAnswer::Snapshot(refusal_of(request, denied)), None)
            }
            Ask::Dispatch(incarnation, id, request) => {
                let answer = match &**request {
                    DispatchRequest::Ledger(part, request) => {
                        DispatchAnswer::Ledger(*part, refusal_of(request, denied))
                    }
                    DispatchRequest::Inbox(worker, request) => {
                        DispatchAnswer::Inbox(worker.clone(), refusal_of(request, denied))
                    }
                    DispatchRequest::ListInboxes | DispatchRequest::Archive(..) => request.unanswered(),
                };
                Told::Dispatch(*incarnation, *id, answer)
            }
            Ask::Take(id, request) => match &**request {
                ClaimerRequest::Inbox(request, refused) => {
                    Told::Take(*id, ClaimerAnswer::Inbox(refusal_of(request, denied), refused.clone()))
                }
                ClaimerRequest::Confirm => self.unanswered(),
            },
            Ask::Sweep(_) => self.unanswered(),
        }
    }
}

impl World {
    /// Everything about workers: `index` is a worker's, or a node's for its own requests.
    pub(crate) fn happen_to_workers(&mut self, index: usize, life: u64, what: Happening) {
        let present = |party: Party| match party {
            Party::Worker(index) => self.workers[index].life == life && self.workers[index].alive,
            Party::Node(index) => self.nodes[index].life == life && self.nodes[index].alive,
        };
        match what {
            Happening::Ask { who, id, ask, sent, then } => self.land_ask(who, life, id, &ask, sent, then),
            Happening::Told { who, id, told } if present(who) => self.deliver(who, id, told),
            Happening::WorkerWake { token } if present(Party::Worker(index)) => {
                self.wake_worker(index, token)
            }
            Happening::WorkerResume if present(Party::Worker(index)) => self.resume_worker(index),
            Happening::HandWake { token } if present(Party::Worker(index)) => self.wake_hand(index, token),
            Happening::RunEnds { key, token, kind } if present(Party::Worker(index)) => {
                self.run_ends(index, key, token, kind);
            }
            Happening::Told { .. }
            | Happening::WorkerWake { .. }
            | Happening::WorkerResume
            | Happening::Wake { .. }
            | Happening::Land { .. }
            | Happening::Answer { .. }
            | Happening::Stopped { .. }
            | Happening::Dispatch { .. }
            | Happening::Task { .. }
            | Happening::SweepWake { .. }
            | Happening::Office(_)
            | Happening::Aside { .. }
            | Happening::Fails { .. }
            | Happening::Bureau { .. }
            | Happening::HandWake { .. }
            | Happening::RunEnds { .. }
            | Happening::Resume => {}
        }
    }

    fn worker_fate(&mut self, index: usize, kind: Kind) -> Fate {
        let worker = &mut self.workers[index];
        if let Some(host) = worker.host {
            return self.fate(host, kind);
        }
        if worker.cut_out {
            return Fate::LoseRequest;
        }
        if let Some(fate) = worker.faults.pop_front() {
            return fate;
        }
        let burst = worker.burst;
        if burst > 0
            && self.rng.random_range(0..1000) < burst
            && let Some((kind, fate)) = self.draw_fate()
        {
            self.strike_worker(kind, index);
            return fate;
        }
        Fate::Pass
    }

    pub(crate) fn ask(&mut self, who: Party, id: u64, ask: Ask) {
        let (now, kind) = (self.now, ask.kind());
        let (low, high) = self.latency_ms;
        let (out, back) = (self.rng.random_range(low..=high), self.rng.random_range(low..=high));
        let (index, life, fate, cut_in) = match who {
            Party::Worker(index) => {
                let sent = &mut self.workers[index].sent;
                if kind == Kind::Beat {
                    sent.0 += 1;
                } else if !matches!(kind, Kind::Look | Kind::Hand) {
                    sent.1 += 1;
                }
                let fate = self.worker_fate(index, kind);
                (index, self.workers[index].life, fate, self.worker_cut_in(index))
            }
            Party::Node(index) => {
                self.nodes[index].sent[kind as usize] += 1;
                self.check_job_storm(index, kind);
                let fate = self.fate(index, kind);
                (index, self.nodes[index].life, fate, self.nodes[index].cut_in)
            }
        };
        let lost = matches!(fate, Fate::LoseRequest | Fate::LoseAnswer | Fate::Late(_));
        let timeout = match matches!(kind, Kind::Sweep | Kind::Inboxes) {
            // One page is lost, after any number of others that took their time.
            true if lost => self.timeout_ms * self.rng.random_range(1..=LIST_TIMEOUTS_MAX),
            true => self.timeout_ms * LIST_TIMEOUTS_MAX,
            false => self.timeout_ms,
        };
        let no_answer = ask.unanswered();
        let (lands_in, then) = match fate {
            Fate::Pass => (Some(out), Then::Answer(back)),
            Fate::Slow(out, back) => (Some(out), Then::Answer(back)),
            Fate::LoseRequest => (None, Then::Nothing),
            Fate::LoseAnswer => (Some(out), Then::Nothing),
            Fate::Late(ms) => (Some(ms), Then::Nothing),
            Fate::Echo if ask.conditional() => (Some(out), Then::Echo(back)),
            Fate::UnknownLanded => (Some(out), Then::Unknown(back)),
            Fate::StaleList if matches!(kind, Kind::Sweep | Kind::Inboxes) => {
                (Some(out), Then::Stale(back, self.rng.random_range(0..6)))
            }
            Fate::Echo | Fate::StaleList => (Some(out), Then::Answer(back)),
            Fate::Unavailable | Fate::Denied => {
                let told = ask.refused(fate == Fate::Denied);
                self.schedule(now + out + back, index, life, Happening::Told { who, id, told });
                return;
            }
            Fate::UnknownNotLanded => {
                self.schedule(now + out + back, index, life, Happening::Told { who, id, told: no_answer });
                return;
            }
        };
        let sure = match then {
            Then::Answer(back) | Then::Echo(back) | Then::Unknown(back) | Then::Stale(back, _) => {
                lands_in.unwrap_or(0) + back < timeout / 2 && !cut_in
            }
            Then::Nothing => false,
        };
        if let Some(delay) = lands_in {
            let ask = Box::new(ask);
            self.schedule(now + delay, index, life, Happening::Ask { who, id, ask, sent: now, then });
        }
        if !sure {
            let clock = match who {
                Party::Worker(index) => self.worker_clock(index),
                Party::Node(index) => &self.nodes[index].clock,
            };
            let at = clock.when(clock.local(now) + timeout).unwrap_or(now + timeout);
            self.schedule(at, index, life, Happening::Told { who, id, told: no_answer });
        }
    }

    /// A request lands, whether its sender is alive or not.
    pub(crate) fn land_ask(&mut self, who: Party, life: u64, id: u64, ask: &Ask, sent: u64, then: Then) {
        let now = self.now;
        let told = self.perform(who, life, ask, sent, then);
        let (back, told) = match then {
            Then::Answer(back) | Then::Stale(back, _) => (back, told),
            Then::Echo(back) => (back, echo(told)),
            Then::Unknown(back) => (back, ask.unanswered()),
            Then::Nothing => return,
        };
        let (index, cut_in) = match who {
            Party::Worker(index) => (index, self.worker_cut_in(index)),
            Party::Node(index) => (index, self.nodes[index].cut_in),
        };
        let (at, told) = match cut_in {
            false => (now + back, told),
            true => (now + self.timeout_ms, ask.unanswered()),
        };
        self.schedule(at, index, life, Happening::Told { who, id, told });
    }

    fn perform(&mut self, who: Party, life: u64, ask: &Ask, sent: u64, then: Then) -> Told {
        match (ask, who) {
            (Ask::Own(request), Party::Worker(index)) => {
                Told::Own(self.perform_own(index, life, request, sent))
            }
            (Ask::Sweep(request), Party::Node(node)) => self.perform_sweep(node, request, then),
            (Ask::Dispatch(incarnation, id, request), Party::Node(node)) => {
                self.perform_dispatch(node, *incarnation, *id, request, then)
            }
            (Ask::Take(id, request), Party::Worker(index)) => match &**request {
                ClaimerRequest::Inbox(request, _) => self.perform_work(index, *id, request),
                ClaimerRequest::Confirm => {
                    let found = self.registry.read(&self.workers[index].id, None);
                    let mine = matches!(found, Read::Found { stamp, .. } if stamp.owner.0 == life);
                    Told::Take(*id, ClaimerAnswer::Confirmed(mine))
                }
            },
            (Ask::Own(_) | Ask::Take(..), Party::Node(_))
            | (Ask::Sweep(_) | Ask::Dispatch(..), Party::Worker(_)) => ask.unanswered(),
        }
    }

    fn perform_sweep(&mut self, node: usize, request: &SweepRequest, then: Then) -> Told {
        let now = self.now;
        let answer = match request {
            SweepRequest::List => {
                let stale = match then {
                    Then::Stale(_, back) => Some(back),
                    Then::Answer(_) | Then::Nothing | Then::Echo(_) | Then::Unknown(_) => None,
                };
                let (until, workers) = self.registry.list(now, stale);
                let list = ListedWorkers { workers, ..ListedWorkers::default() };
                let truth = (self.nodes[node].clock.local(now), until);
                return Told::Sweep(SweepAnswer::Listed(Some(list)), Some(truth));
            }
            SweepRequest::Read(worker) => SweepAnswer::Read(self.registry.details(worker)),
            SweepRequest::Remove(worker) => {
                self.object_changed(worker);
                self.registry.remove(now, worker);
                SweepAnswer::Removed
            }
            SweepRequest::Snapshot(DocumentRequest::Read { unless }) => {
                SweepAnswer::Snapshot(DocumentAnswer::Read(self.registry.read_snapshot(unless.as_ref())))
            }
            SweepRequest::Snapshot(DocumentRequest::Write { stamp, body, expect }) => {
                SweepAnswer::Snapshot(DocumentAnswer::Written(self.land_snapshot(*stamp, body, expect)))
            }
            SweepRequest::Snapshot(DocumentRequest::Remove) | SweepRequest::ForgetNodes => {
                request.unanswered()
            }
        };
        Told::Sweep(answer, None)
    }

    fn perform_own(
        &mut self,
        index: usize,
        life: u64,
        request: &DocumentRequest<RegisteredBy>,
        sent: u64,
    ) -> DocumentAnswer<RegisteredBy> {
        let (now, id) = (self.now, self.workers[index].id.clone());
        match request {
            DocumentRequest::Read { unless } => {
                DocumentAnswer::Read(self.registry.read(&id, unless.as_ref()))
            }
            DocumentRequest::Write { stamp, expect, .. } => {
                if self.registry.holds(&id, expect) {
                    self.check_worker_landing(index, life, sent);
                    self.landed(&id, life);
                }
                let worker = &self.workers[index];
                let written = Written {
                    stamp: *stamp,
                    heartbeat_ms: worker.heartbeat_ms,
                    details: worker.details.clone(),
                };
                let answer = self.registry.write(&self.store, now, &id, written, expect);
                DocumentAnswer::Written(answer)
            }
            DocumentRequest::Remove => {
                self.check_removal(index, life, sent);
                self.object_changed(&id);
                self.registry.remove(now, &id);
                DocumentAnswer::Removed(Removal::Gone)
            }
        }
    }

    pub(crate) fn deliver(&mut self, who: Party, id: u64, told: Told) {
        match (who, told) {
            (Party::Worker(index), Told::Own(answer)) => self.answer_worker(index, RequestId(id), answer),
            (Party::Worker(index), Told::Take(id, answer)) => {
                self.feed_hand(index, Input::Answer(id, answer))
            }
            (Party::Node(node), Told::Dispatch(incarnation, id, answer)) => {
                self.feed_bureau(node, incarnation, Input::Answer(id, answer));
            }
            (Party::Node(node), Told::Sweep(answer, list)) => self.answer_sweep(node, id, answer, list),
            (Party::Node(_), Told::Own(_) | Told::Take(..))
            | (Party::Worker(_), Told::Sweep(..) | Told::Dispatch(..)) => {}
        }
    }

    /// A bad link of a worker on a machine of its own.
    pub(crate) fn bad_worker_wire(&mut self, index: usize) {
        match self.rng.random_range(0..6) {
            0 => self.workers[index].burst = [0, 100, 400][self.rng.random_range(0..3)],
            1 if self.mix.has(FaultKind::CutOff) => {
                self.strike_worker(FaultKind::CutOff, index);
                self.workers[index].cut_out ^= true;
            }
            2 if self.mix.has(FaultKind::AnswersCutOff) => {
                self.strike_worker(FaultKind::AnswersCutOff, index);
                self.workers[index].cut_in ^= true;
            }
            _ => {
                let Some((fault, fate)) = self.draw_fate() else { return };
                for _ in 0..self.rng.random_range(1..5) {
                    self.strike_worker(fault, index);
                    self.workers[index].faults.push_back(fate);
                }
            }
        }
    }
}

/// A definite no to a request for a document.
fn refusal_of<T>(request: &DocumentRequest<T>, denied: bool) -> DocumentAnswer<T> {
    match request {
        DocumentRequest::Read { .. } if denied => DocumentAnswer::Read(Read::Denied),
        DocumentRequest::Write { .. } => {
            DocumentAnswer::Written(if denied { WriteAnswer::Denied } else { WriteAnswer::Unavailable })
        }
        DocumentRequest::Read { .. } | DocumentRequest::Remove => request.unanswered(),
    }
}

/// How a client whose own retry is refused sees a write that happened.
fn echo(told: Told) -> Told {
    fn echo_of<T>(answer: DocumentAnswer<T>) -> DocumentAnswer<T> {
        match answer {
            DocumentAnswer::Written(WriteAnswer::Won(_)) => DocumentAnswer::Written(WriteAnswer::Lost),
            DocumentAnswer::Written(_) | DocumentAnswer::Read(_) | DocumentAnswer::Removed(_) => answer,
        }
    }
    match told {
        Told::Own(answer) => Told::Own(echo_of(answer)),
        Told::Sweep(SweepAnswer::Snapshot(answer), list) => {
            Told::Sweep(SweepAnswer::Snapshot(echo_of(answer)), list)
        }
        Told::Take(id, ClaimerAnswer::Inbox(answer, refused)) => {
            Told::Take(id, ClaimerAnswer::Inbox(echo_of(answer), refused))
        }
        Told::Dispatch(by, id, DispatchAnswer::Ledger(part, answer)) => {
            Told::Dispatch(by, id, DispatchAnswer::Ledger(part, echo_of(answer)))
        }
        Told::Dispatch(by, id, DispatchAnswer::Inbox(worker, answer)) => {
            Told::Dispatch(by, id, DispatchAnswer::Inbox(worker, echo_of(answer)))
        }
        Told::Sweep(..) | Told::Take(..) | Told::Dispatch(..) => told,
    }
}

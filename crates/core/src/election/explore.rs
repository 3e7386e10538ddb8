//! The same state, renumbered.
//!
//! Times matter only by their distance from now; ids, nonces and versions only by being equal or not. A state explorer for
//! several coordinators rewrites them to small numbers, so that it recognises a state it has reached before. Nothing else
//! uses this.

use crate::election::campaign::Campaign;
use crate::election::coordinator::{Coordinator, FlightKind, PendingWrite, Phase, SeatFlight};
use crate::election::io::{RequestId, WakeToken};
use crate::election::leader::{Drain, Term};
use crate::election::observe::{Seen, SeenSeat};
use crate::election::presence::Presence;
use crate::election::seat::{Seat, SeatState, Version};
use crate::election::standby::Standby;
use crate::election::startup::Starting;
use crate::election::watching::Watching;
use crate::id::Nonce;
use crate::time::Time;

/// Rewrites values that have no meaning of their own. Equal values must stay equal, and different ones different.
pub trait Renumber {
    fn time(&mut self, time: &mut Time);
    /// A moment before which something is not done; once it has passed, it does not matter how long ago.
    fn bound(&mut self, time: &mut Time);
    /// A moment that affects only the age of presences or the content of events, and no decision about the seat.
    fn age(&mut self, time: &mut Time);
    fn request(&mut self, id: &mut RequestId);
    fn wake(&mut self, token: &mut WakeToken);
    fn nonce(&mut self, nonce: &mut Nonce);
    fn version(&mut self, version: &mut Version);
    /// A number of consecutive failures.
    fn failures(&mut self, count: &mut u32);
}

/// A record: only its nonce, and whether it was renewed at all.
fn seat(seat: &mut Seat, with: &mut impl Renumber) {
    with.nonce(&mut seat.nonce);
    seat.renewals = seat.renewals.min(1);
}

impl Coordinator {
    /// Rewrites everything that has meaning only by distance or equality. New request ids continue from `requests` and new
    /// nonces from `nonces`, so these must not be below the highest ones left.
    pub fn renumber(&mut self, requests: u64, nonces: u64, with: &mut impl Renumber) {
        // No rest pattern: a new field must find its place here.
        let Coordinator {
            config: _,
            terms: _,
            me,
            now,
            role: _,
            phase,
            seen,
            announced: _,
            highest: _,
            top_holder: _,
            expiry_seen_ms: _,
            floor: _,
            retired: _,
            spare: _,
            seat_flight,
            pending,
            presence,
            health: _,
            troubled,
            writes_fail: _,
            wait_out,
            stop_by,
            requests: next_request,
            nonces: next_nonce,
            wake,
        } = self;
        (*next_request, *next_nonce) = (requests, nonces);
        // The next input sets the time.
        *now = Time(0);
        with.bound(wait_out);
        with.age(troubled);
        stop_by.iter_mut().for_each(|at| with.time(at));
        if let Some((token, at)) = wake {
            with.wake(token);
            with.time(at);
        }
        match seen {
            Seen::Nothing | Seen::Absent => {}
            Seen::Unreadable { version } => with.version(version),
            Seen::Seat(SeenSeat { seat: record, version, modified_ms: _, since }) => {
                seat(record, with);
                with.version(version);
                // Silence is measured only for other holders of the seat.
                match record.state == SeatState::Held && record.holder != *me {
                    true => with.time(since),
                    false => with.age(since),
                }
            }
        }
        for PendingWrite { nonce, sent } in pending {
            with.nonce(nonce);
            with.time(sent);
        }
        if let Some(SeatFlight { id, sent, kind }) = seat_flight {
            with.request(id);
            with.time(sent);
            match kind {
                FlightKind::Read => {}
                FlightKind::Claim(record) | FlightKind::Renew(record) | FlightKind::Vacate(record) => {
                    seat(record, with);
                }
            }
        }
        presence.renumber(with);
        match phase {
            Phase::Idle => {}
            Phase::Watching(Watching { read_at }) => with.time(read_at),
            Phase::Starting(starting) => starting.renumber(with),
            Phase::Standby(standby) => standby.renumber(with),
            Phase::Leading(term) => term.renumber(with),
            Phase::Leaving { removal } => removal.iter_mut().for_each(|id| with.request(id)),
        }
    }
}

impl Presence {
    fn renumber(&mut self, with: &mut impl Renumber) {
        let Presence { due, beat, flight, version: _, confirmed, sent: _, failures } = self;
        with.time(beat);
        due.iter_mut().for_each(|at| with.time(at));
        confirmed.iter_mut().for_each(|at| with.age(at));
        flight.iter_mut().for_each(|id| with.request(id));
        with.failures(failures);
    }
}

impl Starting {
    fn renumber(&mut self, with: &mut impl Renumber) {
        match self {
            Starting::Jitter { started, until } => [started, until].into_iter().for_each(|at| with.time(at)),
            Starting::Probing { started, flight, retry_at } => {
                [started, retry_at].into_iter().for_each(|at| with.time(at));
                flight.iter_mut().for_each(|id| with.request(id));
            }
            Starting::Enrolling { started, read_at, seat_read: _ } => {
                [started, read_at].into_iter().for_each(|at| with.time(at));
            }
        }
    }
}

impl Standby {
    fn renumber(&mut self, with: &mut impl Renumber) {
        let Standby {
            poll_at,
            campaign,
            nodes,
            cold: _,
            settled,
            not_before,
            vacate_at,
            retry_at,
            reads_failed,
            writes_failed,
        } = self;
        with.time(poll_at);
        [settled, not_before, vacate_at, retry_at].into_iter().for_each(|at| with.bound(at));
        nodes.iter_mut().for_each(|(id, _)| with.request(id));
        with.failures(reads_failed);
        with.failures(writes_failed);
        if let Some(Campaign { ready_at, claim_at, tried, .. }) = campaign {
            [ready_at].into_iter().chain(claim_at).for_each(|at| with.bound(at));
            with.time(tried);
        }
    }
}

impl Term {
    fn renumber(&mut self, with: &mut impl Renumber) {
        let Term {
            epoch: _,
            renewed,
            renew_at,
            tried,
            look_until,
            unresolved: _,
            blame: _,
            processes: _,
            stopped,
            hold_ms: _,
            drain,
        } = self;
        [renewed, renew_at, tried].into_iter().for_each(|at| with.time(at));
        with.bound(look_until);
        stopped.iter_mut().for_each(|at| with.age(at));
        if let Some(Drain { cause: _, by, attempts: _, vacated: _ }) = drain {
            with.time(by);
        }
    }
}

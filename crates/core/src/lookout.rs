//! The lookout: watching a seat from outside its election, to learn whether somebody acts by it.
//!
//! It judges like a standby: by observed change on the watcher's own clock, never by time stamps. It is a little more
//! patient than one, so that whoever takes part in that election has claimed before the watcher calls the seat free.

use crate::seat::{Epoch, SeatState, Version};
use crate::time::Time;

/// What one look at a seat showed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Glimpse {
    /// The record.
    Seat {
        /// The object's version.
        version: Version,
        /// Held or vacant.
        state: SeatState,
        /// The holder's epoch.
        epoch: Epoch,
        /// The holder's lease.
        lease_ms: u64,
    },
    /// Still the version seen before.
    Unchanged,
    /// There is no seat.
    Absent,
    /// The seat may not be read, or is none: nothing can be learned by looking again.
    Closed,
    /// The store did not answer.
    Nothing,
}

/// What is known of a seat.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sight {
    /// Nothing yet.
    Unknown,
    /// Somebody holds it and may act.
    Held,
    /// Nobody acts by it. The epoch is the highest seen on it; 0 if there was none.
    Free(Epoch),
}

/// Watches one seat.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lookout {
    expiry_factor_permille: u64,
    patience_ms: u64,
    record: Option<Record>,
    highest: Epoch,
    sight: Sight,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Record {
    version: Version,
    /// Free once a look *sent* at or after this still shows the same.
    free_at: Time,
}

impl Lookout {
    /// Takes the expiry factor of the settings, and how much longer than the seat's own election to wait: for a silent
    /// holder to be replaced, and for a vacated seat to be taken by the next.
    pub fn new(expiry_factor_permille: u64, patience_ms: u64) -> Lookout {
        Lookout {
            expiry_factor_permille,
            patience_ms,
            record: None,
            highest: Epoch(0),
            sight: Sight::Unknown,
        }
    }

    /// The version to ask about, so that an unchanged seat costs no body.
    pub fn version(&self) -> Option<&Version> {
        self.record.as_ref().map(|record| &record.version)
    }

    /// What is known.
    pub fn sight(&self) -> Sight {
        self.sight
    }

    /// Takes a look that was sent and has ended at these times.
    pub fn look(&mut self, sent: Time, ended: Time, glimpse: Glimpse) -> Sight {
        match glimpse {
            Glimpse::Nothing => {}
            Glimpse::Unchanged => self.settle(sent),
            Glimpse::Absent | Glimpse::Closed => {
                self.record = None;
                self.sight = Sight::Free(self.highest);
            }
            Glimpse::Seat { version, state, epoch, lease_ms } => {
                self.highest = self.highest.max(epoch);
                if self.version() == Some(&version) {
                    self.settle(sent);
                    return self.sight;
                }
                let wait_ms = match (state, self.sight) {
                    // Nobody was seen to hold it, so nobody is about to hand it over.
                    (SeatState::Vacant, Sight::Unknown | Sight::Free(_)) => 0,
                    (SeatState::Vacant, Sight::Held) => self.patience_ms,
                    (SeatState::Held, Sight::Unknown | Sight::Held | Sight::Free(_)) => {
                        let expiry = u128::from(lease_ms) * u128::from(self.expiry_factor_permille) / 1000;
                        u64::try_from(expiry).unwrap_or(u64::MAX).saturating_add(self.patience_ms)
                    }
                };
                self.record = Some(Record { version, free_at: ended + wait_ms });
                self.sight = if wait_ms == 0 { Sight::Free(self.highest) } else { Sight::Held };
            }
        }
        self.sight
    }

    /// The seat has not changed. Only a look sent after the wait proves that it stayed so for it.
    fn settle(&mut self, sent: Time) {
        if self.record.as_ref().is_some_and(|record| sent >= record.free_at) {
            self.sight = Sight::Free(self.highest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(version: &str, state: SeatState, epoch: u64) -> Glimpse {
        Glimpse::Seat { version: Version::new(version), state, epoch: Epoch(epoch), lease_ms: 1000 }
    }

    #[test]
    fn a_held_seat_is_free_only_when_a_late_look_still_shows_the_same() {
        let mut lookout = Lookout::new(3000, 500);
        assert_eq!(lookout.sight(), Sight::Unknown);
        assert_eq!(lookout.look(Time(0), Time(10), seat("a", SeatState::Held, 4)), Sight::Held);
        assert_eq!(lookout.look(Time(3500), Time(9000), Glimpse::Unchanged), Sight::Held, "sent too early");
        assert_eq!(lookout.look(Time(3600), Time(9000), Glimpse::Nothing), Sight::Held);
        assert_eq!(lookout.look(Time(3700), Time(3710), seat("b", SeatState::Held, 4)), Sight::Held);
        assert_eq!(lookout.look(Time(7209), Time(7220), Glimpse::Unchanged), Sight::Held);
        assert_eq!(lookout.look(Time(7210), Time(7220), Glimpse::Unchanged), Sight::Free(Epoch(4)));
        assert_eq!(lookout.look(Time(8000), Time(8010), seat("c", SeatState::Held, 5)), Sight::Held);
    }

    #[test]
    fn a_seat_vacated_under_watch_is_left_to_its_next_holder_for_a_while() {
        let mut lookout = Lookout::new(3000, 500);
        assert_eq!(lookout.look(Time(0), Time(10), seat("a", SeatState::Held, 4)), Sight::Held);
        assert_eq!(lookout.look(Time(1000), Time(1010), seat("b", SeatState::Vacant, 4)), Sight::Held);
        assert_eq!(lookout.look(Time(1400), Time(1410), seat("c", SeatState::Held, 5)), Sight::Held, "taken");
        assert_eq!(lookout.look(Time(2000), Time(2010), seat("d", SeatState::Vacant, 5)), Sight::Held);
        assert_eq!(lookout.look(Time(2510), Time(2520), Glimpse::Unchanged), Sight::Free(Epoch(5)));
    }

    #[test]
    fn what_is_vacant_absent_or_closed_at_the_first_look_is_free_at_once() {
        for (glimpse, epoch) in
            [(seat("a", SeatState::Vacant, 7), 7), (Glimpse::Absent, 0), (Glimpse::Closed, 0)]
        {
            let mut lookout = Lookout::new(3000, 500);
            assert_eq!(lookout.look(Time(0), Time(1), glimpse), Sight::Free(Epoch(epoch)));
        }
        let mut lookout = Lookout::new(3000, 500);
        assert_eq!(lookout.look(Time(0), Time(1), Glimpse::Nothing), Sight::Unknown, "no answer is no news");
    }
    /// A store that does not honour the condition answers with the whole object again; it is the same one all the same.
    #[test]
    fn the_same_version_read_again_is_no_change() {
        let mut lookout = Lookout::new(3000, 500);
        assert_eq!(lookout.version(), None);
        lookout.look(Time(0), Time(10), seat("a", SeatState::Held, 4));
        assert_eq!(lookout.version(), Some(&Version::new("a")));
        let again = lookout.look(Time(3510), Time(3520), seat("a", SeatState::Held, 4));
        assert_eq!(again, Sight::Free(Epoch(4)));
        lookout.look(Time(4000), Time(4010), Glimpse::Absent);
        assert_eq!(lookout.version(), None);
    }
}

//! Watches a seat from outside its election, to learn whether somebody acts by it.
//!
//! It judges like a standby: by observed change on the watcher's own clock, never by time stamps. It is a little more
//! patient than a standby, so that the nodes in that election have claimed the seat before the watcher calls it free.

use crate::election::{Epoch, SeatState, Version};
use crate::mutants::Mutant;
use crate::time::Time;

/// What one look at a seat showed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SeatRead {
    /// There is a seat.
    Seat {
        /// The object's version.
        version: Version,
        /// Whether the seat is held or vacant.
        state: SeatState,
        /// The holder's epoch.
        epoch: Epoch,
        /// How long it must stay unchanged before others may take over.
        expiry_ms: u64,
    },
    /// The seat still has the version seen before.
    Unchanged,
    /// There is no seat.
    Absent,
    /// The seat may not be read, or the object is not a seat: looking again would teach nothing.
    Closed,
    /// There was no answer, or one that says nothing about the seat.
    Nothing,
}

/// What an answered look says about a seat.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeatUse {
    /// Somebody holds it and may act.
    Held,
    /// Nobody acts by it. The epoch is the highest seen on it, or 0 if there was no seat.
    Free(Epoch),
}

/// Watches one seat for somebody who does not take part in its election.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SeatObserver {
    patience_ms: u64,
    record: Option<Record>,
    highest: Epoch,
    /// What the last answered look said; `None` before the first.
    usage: Option<SeatUse>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Record {
    version: Version,
    /// The seat is free once a look *sent* at or after this still shows no change.
    free_at: Time,
}

impl SeatObserver {
    /// `patience_ms` is how much longer to wait than the seat's own election: for a silent holder to be replaced, and for a
    /// vacated seat to be taken by the next.
    pub fn new(patience_ms: u64) -> SeatObserver {
        SeatObserver { patience_ms, record: None, highest: Epoch(0), usage: None }
    }

    /// The version to pass with the next read, so that an unchanged seat costs no body.
    pub fn version(&self) -> Option<&Version> {
        self.record.as_ref().map(|record| &record.version)
    }

    /// Takes a look with the times at which it was sent and ended. Returns `None` if it was not answered: then it says
    /// nothing, whatever earlier looks said, and the caller must look again to know.
    pub fn look(&mut self, sent: Time, ended: Time, read: SeatRead) -> Option<SeatUse> {
        match read {
            SeatRead::Nothing if Mutant::UnansweredLookTakenForFree.on() => {
                return self.usage.or(Some(SeatUse::Free(self.highest)));
            }
            SeatRead::Nothing => return None,
            SeatRead::Unchanged => self.settle(sent),
            // A holder seen before the seat was deleted or closed still has its lease.
            SeatRead::Absent | SeatRead::Closed if self.record.is_some() => self.settle(sent),
            SeatRead::Absent | SeatRead::Closed => self.usage = Some(SeatUse::Free(self.highest)),
            SeatRead::Seat { version, state, epoch, expiry_ms } => {
                self.highest = self.highest.max(epoch);
                if self.version() == Some(&version) {
                    self.settle(sent);
                    return self.usage;
                }
                let wait_ms = match (state, self.usage) {
                    // Nobody was seen to hold it, so nobody is about to hand it over.
                    (SeatState::Vacant, None | Some(SeatUse::Free(_))) => 0,
                    (SeatState::Vacant, Some(SeatUse::Held)) => self.patience_ms,
                    (SeatState::Held, _) => expiry_ms.saturating_add(self.patience_ms),
                };
                self.record = Some(Record { version, free_at: ended + wait_ms });
                self.usage = Some(if wait_ms == 0 { SeatUse::Free(self.highest) } else { SeatUse::Held });
            }
        }
        self.usage
    }

    /// The seat has not changed. Only a look sent after the wait proves that it stayed unchanged throughout.
    fn settle(&mut self, sent: Time) {
        if self.record.as_ref().is_some_and(|record| sent >= record.free_at) {
            self.usage = Some(SeatUse::Free(self.highest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(version: &str, state: SeatState, epoch: u64) -> SeatRead {
        SeatRead::Seat { version: Version::new(version), state, epoch: Epoch(epoch), expiry_ms: 3000 }
    }

    fn held(observer: &mut SeatObserver, sent: u64, ended: u64, read: SeatRead) -> bool {
        observer.look(Time(sent), Time(ended), read) == Some(SeatUse::Held)
    }

    fn free(observer: &mut SeatObserver, sent: u64, read: SeatRead) -> Option<u64> {
        match observer.look(Time(sent), Time(sent + 10), read) {
            Some(SeatUse::Free(epoch)) => Some(epoch.0),
            Some(SeatUse::Held) | None => None,
        }
    }

    #[test]
    fn a_held_seat_is_free_only_when_a_late_look_still_shows_the_same() {
        let mut observer = SeatObserver::new(500);
        assert!(held(&mut observer, 0, 10, seat("a", SeatState::Held, 4)));
        assert!(held(&mut observer, 3500, 9000, SeatRead::Unchanged), "sent too early");
        assert!(held(&mut observer, 3700, 3710, seat("b", SeatState::Held, 4)));
        assert!(held(&mut observer, 7209, 7220, SeatRead::Unchanged));
        assert_eq!(free(&mut observer, 7210, SeatRead::Unchanged), Some(4));
        assert!(held(&mut observer, 8000, 8010, seat("c", SeatState::Held, 5)));
    }

    #[test]
    fn a_seat_vacated_under_watch_is_left_to_its_next_holder_for_a_while() {
        let mut observer = SeatObserver::new(500);
        assert!(held(&mut observer, 0, 10, seat("a", SeatState::Held, 4)));
        assert!(held(&mut observer, 1000, 1010, seat("b", SeatState::Vacant, 4)));
        assert!(held(&mut observer, 1400, 1410, seat("c", SeatState::Held, 5)), "taken");
        assert!(held(&mut observer, 2000, 2010, seat("d", SeatState::Vacant, 5)));
        assert_eq!(free(&mut observer, 2510, SeatRead::Unchanged), Some(5));
    }

    #[test]
    fn what_is_vacant_absent_or_closed_at_the_first_look_is_free_at_once() {
        for (read, epoch) in
            [(seat("a", SeatState::Vacant, 7), 7), (SeatRead::Absent, 0), (SeatRead::Closed, 0)]
        {
            assert_eq!(free(&mut SeatObserver::new(500), 0, read), Some(epoch));
        }
    }

    #[test]
    fn a_look_without_an_answer_says_nothing_whatever_was_seen_before() {
        let mut observer = SeatObserver::new(500);
        assert_eq!(observer.look(Time(0), Time(10), SeatRead::Nothing), None);
        assert_eq!(free(&mut observer, 100, seat("a", SeatState::Vacant, 7)), Some(7));
        assert_eq!(
            observer.look(Time(200), Time(210), SeatRead::Nothing),
            None,
            "it was free before, not now"
        );
        assert!(held(&mut observer, 300, 310, seat("b", SeatState::Held, 8)));
        assert_eq!(observer.look(Time(9000), Time(9010), SeatRead::Nothing), None);
        assert_eq!(free(&mut observer, 9100, SeatRead::Unchanged), Some(8), "an answer settles it");
    }

    #[test]
    fn a_holder_seen_before_the_seat_was_deleted_or_closed_is_waited_for() {
        for gone in [SeatRead::Absent, SeatRead::Closed] {
            let mut observer = SeatObserver::new(500);
            assert!(held(&mut observer, 0, 10, seat("a", SeatState::Held, 4)));
            assert!(held(&mut observer, 100, 110, gone.clone()));
            assert_eq!(free(&mut observer, 3510, gone), Some(4));
        }
    }

    /// A store that ignores the condition answers with the whole object again; it is still the same object.
    #[test]
    fn the_same_version_read_again_is_no_change() {
        let mut observer = SeatObserver::new(500);
        assert_eq!(observer.version(), None);
        assert!(held(&mut observer, 0, 10, seat("a", SeatState::Held, 4)));
        assert_eq!(observer.version(), Some(&Version::new("a")));
        assert_eq!(free(&mut observer, 3510, seat("a", SeatState::Held, 4)), Some(4));
    }
}

//! Who has seen which seat. Where somebody's hand was on it, only those are held to waiting for a holder who could know of one.

use std::collections::BTreeMap;
use tenure_core::{Answer, Epoch, SeatAnswer, SeatState, Version};

#[derive(Default)]
pub(crate) struct Witnesses {
    /// When a life of a node saw a holder's life in an epoch for the first time.
    holders: BTreeMap<(u64, u64, Epoch), u64>,
    /// When a life of a node saw a seat for the first time, held or vacant.
    first: BTreeMap<u64, u64>,
    /// The version a life of a node saw last, and since when.
    last: BTreeMap<u64, (Version, u64)>,
    /// The one and only time a hand was on the seat, if all it did was to delete it.
    pub(crate) deleted_once: Option<u64>,
    /// A record that a hand put back under the version it had before, and when.
    put_back: Option<(Version, u64)>,
}

impl Witnesses {
    /// A life of a node hears this.
    pub(crate) fn hear(&mut self, now: u64, life: u64, answer: &Answer) {
        match answer {
            Answer::Seat(SeatAnswer::Found { seat, version, .. }) => {
                self.first.entry(life).or_insert(now);
                if seat.state == SeatState::Held {
                    self.holders.entry((life, seat.holder.incarnation.0, seat.epoch)).or_insert(now);
                }
                self.last.insert(life, (version.clone(), now));
            }
            Answer::Seat(SeatAnswer::Absent | SeatAnswer::Unreadable { .. }) => {
                self.last.remove(&life);
            }
            Answer::Seat(SeatAnswer::Unchanged | SeatAnswer::Unavailable | SeatAnswer::Denied)
            | Answer::SeatWritten(_)
            | Answer::Probe(_)
            | Answer::PresenceWritten(_)
            | Answer::PresenceRemoved
            | Answer::Nodes(_) => {}
        }
    }

    pub(crate) fn put_back(&mut self, now: u64, version: Version) {
        self.put_back = Some((version, now));
    }

    /// A node that is at rest starts again with what it must never forget, and no more.
    pub(crate) fn forget(&mut self, life: u64) {
        self.holders.retain(|(seer, _, _), _| *seer != life);
        self.last.remove(&life);
    }

    /// Whoever saw this holder in this epoch saw another time of it.
    pub(crate) fn forget_holder(&mut self, holder: u64, epoch: Epoch) {
        self.holders.retain(|(_, life, of), _| (*life, *of) != (holder, epoch));
    }

    /// Whether a life of a node saw this holder before this time.
    pub(crate) fn saw_holder(&self, life: u64, holder: u64, epoch: Epoch, before: u64) -> bool {
        self.holders.get(&(life, holder, epoch)).is_some_and(|at| *at < before)
    }

    /// Whether it saw any seat before that was deleted, where that is all that was done to it.
    pub(crate) fn saw_it_vanish(&self, life: u64) -> bool {
        self.deleted_once.zip(self.first.get(&life)).is_some_and(|(deleted, saw)| *saw < deleted)
    }

    /// Whether the very record that it saw last was put back: what was written in between it never saw, and to it the seat
    /// stood still.
    pub(crate) fn is_deceived(&self, life: u64) -> bool {
        let same = |((version, since), (back, at)): (&(Version, u64), &(Version, u64))| {
            version == back && since < at
        };
        self.last.get(&life).zip(self.put_back.as_ref()).is_some_and(same)
    }
}

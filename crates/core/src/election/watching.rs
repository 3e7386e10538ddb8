//! Watching: a node that is not eligible reads the seat, so that it knows who leads and its fence knows the epoch. It sends
//! nothing else: no presence, no list, no write.

use crate::election::config::draw;
use crate::election::coordinator::{Coordinator, Phase};
use crate::election::io::Effect;
use crate::time::Time;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Watching {
    pub(crate) read_at: Time,
}

impl Coordinator {
    /// The first look comes at a random time within one interval, so that many nodes that start together do not look at
    /// once.
    pub(crate) fn start_watching(&mut self, random: u64) {
        let within_ms = draw(random, self.config.election_interval_ms);
        self.phase = Phase::Watching(Watching { read_at: self.now + within_ms });
    }

    pub(crate) fn advance_watching(&mut self, out: &mut Vec<Effect>) {
        let Phase::Watching(watching) = &mut self.phase else { return };
        if self.seat_flight.is_some() || self.stop_by.is_some() || self.now < watching.read_at {
            return;
        }
        while watching.read_at <= self.now {
            watching.read_at = watching.read_at + self.config.election_interval_ms.max(1);
        }
        self.send_read(out);
    }
}

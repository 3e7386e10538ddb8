//! Which connections are open, and which one to close to make room for another.
//!
//! No connection is ever refused: a refused probe would restart a healthy leader. So a new connection is always accepted, and if
//! there is no room, an old one is closed.

use crate::options::Limits;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};

/// File descriptors left for the store, the log and whatever else the process runs.
const FILES_LEFT: u64 = 256;

/// Most connections that count as busy while they wait, because they were used last: their request may be on its way, and it may be a
/// probe. Not more than a quarter of all.
const FRESH_MAX: usize = 16;

/// The remote side of a connection. A subnet that is usually given to one customer counts as one peer, and so does this machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    pub(crate) fn new(address: IpAddr) -> Peer {
        match address.to_canonical() {
            IpAddr::V4(four) if four.is_loopback() => Peer(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(six) if !six.is_loopback() => {
                let subnet = six.to_bits() & !u128::from(u64::MAX);
                Peer(IpAddr::V6(subnet.into()))
            }
            address @ (IpAddr::V4(_) | IpAddr::V6(_)) => Peer(address),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Limits {
    /// Caps the connections at what the process may open, because each needs a file descriptor, and leaves some for other uses.
    pub(crate) fn within(mut self, open_files: Option<u64>) -> Limits {
        if let Some(files) = open_files {
            let free = files - FILES_LEFT.min(files / 2);
            self.connections = self.connections.min(usize::try_from(free).unwrap_or(usize::MAX));
        }
        self.connections = self.connections.max(1);
        // Streams never take all connections.
        self.streams = self.streams.min(self.connections * 3 / 4);
        self
    }
}

/// What a connection is doing, in the order in which they are closed to make room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    /// It has never sent a whole request: anybody can open many of these, and needs no token for it.
    HalfOpen,
    /// It waits for its next request.
    Idle,
    /// A request is being answered.
    Busy,
    /// It is an event stream. These never take all connections, so there is always another one to close.
    Stream,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) peer: Peer,
    pub(crate) stage: Stage,
    /// Orders connections by last use: higher means that a request began or ended more recently.
    pub(crate) used: u64,
}

/// The connection to close when there is no room. Of those that do the least, take the peer with the most, and close the one unused
/// longest.
pub(crate) fn to_close<K: Copy>(open: impl Iterator<Item = (K, Open)>) -> Option<K> {
    let mut open: Vec<(K, Open)> = open.collect();
    open.sort_unstable_by_key(|(_, open)| std::cmp::Reverse(open.used));
    let fresh = (open.len() / 4).min(FRESH_MAX);
    let waiting = open.iter_mut().filter(|(_, open)| open.stage < Stage::Busy);
    waiting.take(fresh).for_each(|(_, open)| open.stage = Stage::Busy);
    let least = open.iter().map(|(_, open)| open.stage).min()?;
    oldest_of_the_greediest(open.into_iter().filter(|(_, open)| open.stage == least))
}

fn oldest_of_the_greediest<K: Copy>(open: impl Iterator<Item = (K, Open)>) -> Option<K> {
    // Per peer: the number of connections, and the one unused longest.
    let mut peers: HashMap<Peer, (usize, u64, K)> = HashMap::new();
    for (key, open) in open {
        let entry = peers.entry(open.peer).or_insert((0, open.used, key));
        entry.0 += 1;
        if open.used <= entry.1 {
            (entry.1, entry.2) = (open.used, key);
        }
    }
    let greediest = peers.into_values().max_by_key(|(count, used, _)| (*count, std::cmp::Reverse(*used)));
    greediest.map(|(_, _, key)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        Peer::new(text.parse().expect("an address"))
    }

    fn chosen(all: &[(&str, Stage, u64)]) -> Option<u64> {
        let open = |(address, stage, used): &(&str, Stage, u64)| {
            (*used, Open { peer: peer(address), stage: *stage, used: *used })
        };
        to_close(all.iter().map(open))
    }

    #[test]
    fn the_longest_idle_of_the_greediest_goes_first() {
        use Stage::{Busy, Idle, Stream};
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&[("10.0.0.1", Idle, 3), ("10.0.0.1", Idle, 2)]), Some(2));
        let greedy = [("10.0.0.1", Idle, 1), ("10.0.0.2", Idle, 5), ("10.0.0.2", Idle, 4)];
        assert_eq!(chosen(&greedy), Some(4), "one each is not greedy, however old");
        let at_work = [("10.0.0.1", Busy, 1), ("10.0.0.1", Busy, 2), ("10.0.0.2", Idle, 9)];
        assert_eq!(chosen(&at_work), Some(9), "an idle one before any that is answered");
        let busy = [("10.0.0.1", Busy, 3), ("10.0.0.2", Busy, 1), ("10.0.0.1", Busy, 2)];
        assert_eq!(chosen(&busy), Some(2), "without idle ones, the oldest of whoever has the most");
        assert_eq!(chosen(&[("10.0.0.1", Idle, 8), ("10.0.0.2", Idle, 7)]), Some(7), "equals: the oldest");
        let streams = [("10.0.0.1", Stream, 1), ("10.0.0.1", Stream, 2), ("10.0.0.2", Busy, 9)];
        assert_eq!(chosen(&streams), Some(9), "anything before a stream");
    }

    #[test]
    fn a_probe_that_has_just_come_stays_however_busy_the_others_are() {
        use Stage::{Busy, HalfOpen};
        let mut open = vec![("10.0.0.1", Busy, 1), ("10.0.0.1", Busy, 2), ("10.0.0.1", Busy, 3)];
        open.push(("10.0.0.2", HalfOpen, 9));
        assert_eq!(chosen(&open), Some(1));
        // From the same address, and among the most recent.
        open[3].0 = "10.0.0.1";
        assert_eq!(chosen(&open), Some(1));
    }

    #[test]
    fn half_requests_make_room_for_each_other_and_take_little_from_the_others() {
        use Stage::{HalfOpen, Idle, Stream};
        let half = [("10.0.0.2", HalfOpen, 8), ("10.0.0.1", Idle, 1), ("10.0.0.1", Idle, 2)];
        assert_eq!(chosen(&half), Some(8), "however recent it is, and however long the others are idle");
        // Addresses of this machine are one peer, so that it is the greediest.
        let near = [("127.0.0.1", HalfOpen, 8), ("127.0.0.2", HalfOpen, 9), ("10.0.0.1", HalfOpen, 1)];
        assert_eq!(chosen(&near), Some(8));
        let mut open: Vec<(&str, Stage, u64)> = (0..768).map(|used| ("10.0.0.1", Stream, used)).collect();
        open.extend((768..768 + 256 - 17).map(|used| ("10.0.0.1", Idle, used)));
        open.extend((1007..1024).map(|used| ("10.0.0.2", HalfOpen, used)));
        assert_eq!(chosen(&open), Some(1007), "sixteen may be on their way");
    }

    #[test]
    fn a_customers_subnet_is_one_peer() {
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:0:0:1"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_eq!(peer("::1").to_string(), "::1");
        assert_eq!(peer("127.0.0.1"), peer("127.8.9.10"), "one machine");
        assert_eq!(peer("127.0.0.1"), peer("::ffff:127.0.0.9"));
    }

    #[test]
    fn the_store_keeps_files_of_its_own() {
        let within = |files| {
            let limits = Limits::default().within(files);
            (limits.connections, limits.streams)
        };
        assert_eq!(within(None), (1024, 768));
        assert_eq!(within(Some(1_048_576)), (1024, 768));
        assert_eq!(within(Some(1280)), (1024, 768));
        assert_eq!(within(Some(1024)), (768, 576));
        assert_eq!(within(Some(256)), (128, 96));
        assert_eq!(within(Some(0)), (1, 0), "a probe is answered all the same");
    }
}

//! Which connections are open, and which one to close to make room for another.
//!
//! No connection is ever refused: a refused probe would restart a healthy leader. So a new connection is always accepted, and if
//! there is no room, an old one is closed.

use crate::options::Limits;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

/// File descriptors left for the store, the log and whatever else the process runs.
const FILES_LEFT: u64 = 256;

/// The remote side of a connection. A subnet that is usually given to one customer counts as one peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    pub(crate) fn new(address: IpAddr) -> Peer {
        match address.to_canonical() {
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) peer: Peer,
    /// A request is being answered.
    pub(crate) busy: bool,
    /// Orders connections by last use: higher means that a request began or ended more recently.
    pub(crate) used: u64,
}

/// The connection to close when there is no room: take the peer with the most idle connections, and close the one idle longest.
/// If none is idle, the same among all connections. The most recent ones do not count as idle: their request may be on its way,
/// and it may be a probe.
pub(crate) fn to_close<K: Copy>(open: impl Iterator<Item = (K, Open)> + Clone) -> Option<K> {
    let mut idle: Vec<(K, Open)> = open.clone().filter(|(_, open)| !open.busy).collect();
    idle.sort_unstable_by_key(|(_, open)| open.used);
    idle.truncate(idle.len().saturating_sub(open.clone().count() / 4));
    oldest_of_the_greediest(idle.into_iter()).or_else(|| oldest_of_the_greediest(open))
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

    fn chosen(open: &[(&str, bool, u64)]) -> Option<u64> {
        let open = open
            .iter()
            .map(|(address, busy, used)| (*used, Open { peer: peer(address), busy: *busy, used: *used }));
        to_close(open)
    }

    #[test]
    fn the_longest_idle_of_the_greediest_goes_first() {
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&[("10.0.0.1", false, 3), ("10.0.0.1", false, 2)]), Some(2));
        let greedy = [("10.0.0.1", false, 1), ("10.0.0.2", false, 5), ("10.0.0.2", false, 4)];
        assert_eq!(chosen(&greedy), Some(4), "one each is not greedy, however old");
        let at_work = [("10.0.0.1", true, 1), ("10.0.0.1", true, 2), ("10.0.0.2", false, 9)];
        assert_eq!(chosen(&at_work), Some(9), "an idle one before any that is answered");
        let streams = [("10.0.0.1", true, 3), ("10.0.0.2", true, 1), ("10.0.0.1", true, 2)];
        assert_eq!(chosen(&streams), Some(2), "without idle ones, the oldest of whoever has the most");
        assert_eq!(chosen(&[("10.0.0.1", false, 8), ("10.0.0.2", false, 7)]), Some(7), "equals: the oldest");
    }

    #[test]
    fn a_probe_that_has_just_come_stays_however_busy_the_others_are() {
        let mut open = vec![("10.0.0.1", true, 1), ("10.0.0.1", true, 2), ("10.0.0.1", true, 3)];
        open.push(("10.0.0.2", false, 9));
        assert_eq!(chosen(&open), Some(1));
        // From the same address, and among the most recent.
        open[3].0 = "10.0.0.1";
        assert_eq!(chosen(&open), Some(1));
    }

    #[test]
    fn a_customers_subnet_is_one_peer() {
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:0:0:1"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_eq!(peer("::1").to_string(), "::1");
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

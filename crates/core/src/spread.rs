//! The spread: how nodes that are numbered draw their startup waits apart from each other, without talking.
//!
//! Independent draws clump: of fifty nodes over five seconds, four or five fall into the same tenth of a second as often
//! as not. Replicas that carry a number (`web-0`, `web-1`, …) need no luck. Multiples of the golden ratio, taken modulo
//! one, lie about evenly for *every* run of consecutive numbers, however many there are; so each node takes the place
//! of its own number, and all of them together are spread, though none knows how many they are. Where the sequence begins
//! depends on the rest of the name and on the namespace, so that sets of replicas do not all begin at the same moment.
//!
//! Not promised: anything about ids that end in digits by chance. Their places depend on all of the name; they are as
//! even as draws at random, and the same at every start.

use crate::id::NodeId;

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that decides a node's startup wait, uniform over `u64` as names go; `None` for an id that does not end in a
/// digit, which is better off with a draw at random.
///
/// ```
/// use tenure_core::{NodeId, spread};
/// let place = |id: &str| spread(&NodeId::new(id).unwrap(), "reports");
/// assert!(place("web-3").is_some() && place("web-3") != place("web-4"));
/// assert_eq!(place("web-3"), place("web-03"), "the number counts, not its spelling");
/// assert_eq!(place("pod-a"), None);
/// ```
pub fn spread(node: &NodeId, namespace: &str) -> Option<u64> {
    let name = node.as_str();
    let rest = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &name[rest.len()..];
    if digits.is_empty() {
        return None;
    }
    // More digits than a u64 holds wrap around: still a place of its own.
    let ordinal = digits
        .bytes()
        .fold(0u64, |ordinal, digit| ordinal.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')));
    // A byte that ids cannot contain keeps `a` + `bc` apart from `ab` + `c`.
    let text = namespace.bytes().chain([0]).chain(rest.bytes());
    Some(ordinal.wrapping_mul(GOLDEN).wrapping_add(hash(text)))
}

/// FNV-1a, stirred once more at the end: by itself it hardly moves the upper bits for the last few bytes, and it is the
/// upper bits that become a wait.
fn hash(text: impl Iterator<Item = u8>) -> u64 {
    let fnv = text
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mixed = (fnv ^ (fnv >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const WINDOW_MS: u64 = 100;

    fn waits(name: &str, namespace: &str, ordinals: std::ops::Range<u64>, max_ms: u64) -> Vec<u64> {
        let config = Config { startup_jitter_max_ms: max_ms, ..Config::default() };
        let wait = |ordinal| {
            let id = NodeId::new(&format!("{name}{ordinal}")).expect("valid");
            config.jitter_ms(spread(&id, namespace).expect("it ends in a digit"))
        };
        let mut waits: Vec<u64> = ordinals.map(wait).collect();
        waits.sort_unstable();
        waits
    }

    /// The most in any window, wherever it begins: it may as well begin with one of them.
    fn peak(waits: &[u64]) -> usize {
        let within = |from: &u64| waits.iter().filter(|at| (*from..from + WINDOW_MS).contains(at)).count();
        waits.iter().map(within).max().unwrap_or(0)
    }

    /// Nodes of different versions share one sequence: where it begins must not change.
    #[test]
    fn where_a_sequence_begins_is_fixed() {
        let place = |id: &str, namespace: &str| spread(&NodeId::new(id).expect("valid"), namespace);
        assert_eq!(place("web-0", "reports"), Some(0x1402_c8bc_1d7c_a2f4));
        assert_eq!(place("db-a-0", "n"), Some(0x4120_fd00_70ca_93b1));
        assert_eq!(place("web-1", "reports"), Some(0x1402_c8bc_1d7c_a2f4u64.wrapping_add(GOLDEN)));
    }

    #[test]
    fn numbered_nodes_never_clump() {
        for (count, max_ms) in [(50, 5000), (200, 15_000), (20, 5000), (500, 60_000), (1000, 15_000)] {
            for first in [0, 1, 7, 100, 12_345] {
                for name in ["web-", "node-", "pod", "db-a-", "10.0.0."] {
                    for namespace in ["default", "reports", "n"] {
                        let waits = waits(name, namespace, first..first + count, max_ms);
                        // peak < 3 × mean, in whole numbers
                        let (peak, total) = (peak(&waits) as u64, count * WINDOW_MS);
                        assert!(peak * max_ms < 3 * total.max(max_ms), "{name}{first}… of {count}: {peak}");
                        let widest = waits.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
                        assert!(widest <= 3 * max_ms / count, "{name}{first}…: a gap of {widest} ms");
                    }
                }
            }
        }
    }

    #[test]
    fn over_many_names_the_places_are_uniform() {
        let names: [fn(u64) -> (String, String); 3] = [
            |i| (format!("web-{i}-0"), "default".to_owned()),
            |i| (format!("host{i}-1"), "default".to_owned()),
            |i| ("web-0".to_owned(), format!("namespace-{i}")),
        ];
        for name in names {
            let mut buckets = [0u32; 20];
            for index in 0..20_000 {
                let (id, namespace) = name(index);
                let place = spread(&NodeId::new(&id).expect("valid"), &namespace).expect("ends in a digit");
                buckets[((u128::from(place) * 20) >> 64) as usize] += 1;
            }
            assert!(buckets.iter().all(|count| (850..1150).contains(count)), "{buckets:?}");
        }
    }

    #[test]
    fn long_numbers_and_bare_numbers_have_places_too() {
        for id in ["7", "0", "a-99999999999999999999999999", &"9".repeat(128)] {
            assert!(spread(&NodeId::new(id).expect("valid"), "n").is_some(), "{id}");
        }
        assert_ne!(
            spread(&NodeId::new("b1").expect("valid"), "a"),
            spread(&NodeId::new("1").expect("valid"), "ab")
        );
    }
}

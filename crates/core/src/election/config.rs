//! The numbers the protocol runs by, already validated.

use crate::election::seat::{Lease, Terms};

/// Parameters of one node's election. All durations are in milliseconds.
///
/// The core trusts these values; the embedding library's settings validate them and explain every rejection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Whether this node takes part at all. If not, it reads the seat every `election_interval_ms` and sends nothing else.
    pub eligible: bool,
    /// How often the leader renews.
    pub heartbeat_ms: u64,
    /// The unit of the lease: the hold and the expiry are multiples of it, and the leader renews at the latest at 80 % of
    /// it.
    pub lease_ms: u64,
    /// The hold: how long the leader may act after sending a renewal, in thousandths of `lease_ms`.
    pub hold_factor_permille: u64,
    /// The expiry: how long the seat must stay unchanged before its holder counts as unavailable, in thousandths of
    /// `lease_ms`.
    pub expiry_factor_permille: u64,
    /// How long a standby waits once it has noticed that the leader is silent, in case the leader comes back.
    pub takeover_delay_ms: u64,
    /// How often a standby looks at the seat.
    pub election_interval_ms: u64,
    /// Shortest wait before the first request.
    pub startup_jitter_min_ms: u64,
    /// Longest wait before the first request.
    pub startup_jitter_max_ms: u64,
    /// How long nodes that start together wait for each other before the first claim.
    pub settle_ms: u64,
    /// How often a node refreshes its presence.
    pub presence_ms: u64,
    /// How much older than the expiry a seat must be, by the store's clock, before a cold start calls it dead.
    pub store_clock_margin_ms: u64,
    /// How long processes may take to stop when leadership is given up. By default, another leader must be there within 5 s
    /// of a graceful stop. That time has to cover this drain, one look by a standby, and some room for the store.
    pub drain_ms: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            eligible: true,
            heartbeat_ms: 1500,
            lease_ms: 2500,
            hold_factor_permille: 2000,
            expiry_factor_permille: 3000,
            takeover_delay_ms: 1000,
            election_interval_ms: 1000,
            startup_jitter_min_ms: 0,
            startup_jitter_max_ms: 5000,
            settle_ms: 500,
            presence_ms: 20_000,
            store_clock_margin_ms: 30_000,
            drain_ms: 3000,
        }
    }
}

/// Ranks above this one wait no longer than it does: with that many nodes ahead, one will have claimed.
const RANK_MAX: u64 = 8;

impl Config {
    /// The lease that a renewal by this node buys. It is stored on the seat: others go by the holder's lease, not by their
    /// own.
    pub fn lease(&self) -> Lease {
        Lease { hold_ms: self.hold_ms(), expiry_ms: self.expiry_ms() }
    }

    pub fn terms(&self) -> Terms {
        Terms {
            heartbeat_ms: self.heartbeat_ms,
            election_interval_ms: self.election_interval_ms,
            takeover_delay_ms: self.takeover_delay_ms,
            presence_ms: self.presence_ms,
        }
    }

    /// Adopts these terms. They do not include the lease: this node alone decides what its claims buy.
    pub(crate) fn follow(&mut self, terms: Terms) {
        self.heartbeat_ms = terms.heartbeat_ms;
        self.election_interval_ms = terms.election_interval_ms;
        self.takeover_delay_ms = terms.takeover_delay_ms;
        self.presence_ms = terms.presence_ms;
    }

    /// How long the leader may act after it has sent a renewal.
    pub fn hold_ms(&self) -> u64 {
        self.lease_ms.saturating_mul(self.hold_factor_permille) / 1000
    }

    /// How long the seat must stay unchanged before this node, as its holder, counts as unavailable.
    pub fn expiry_ms(&self) -> u64 {
        self.lease_ms.saturating_mul(self.expiry_factor_permille) / 1000
    }

    /// How long a seat with these terms must stay unchanged before its holder counts as unavailable.
    pub(crate) fn waits_ms(&self, lease: Lease) -> u64 {
        if crate::Mutant::ExpiryTooShort.on() {
            return lease.hold_ms / 2;
        }
        if crate::Mutant::HoldTakenForExpiry.on() {
            return lease.hold_ms;
        }
        lease.expiry_ms
    }

    /// 80 % of the hold: a leader that has not renewed by then winds its processes down.
    pub fn wind_down_ms(&self) -> u64 {
        self.hold_ms() / 5 * 4
    }

    /// 80 % of `lease_ms`: a renewal is due by then, however long the heartbeat interval.
    pub fn renew_by_ms(&self) -> u64 {
        self.lease_ms / 5 * 4
    }

    /// How much faster (in thousandths) a standby's clock may run than the leader's before two nodes could think they lead:
    /// the gap between the hold and the expiry.
    pub fn tolerated_drift_permille(&self) -> u64 {
        (self.expiry_factor_permille.saturating_mul(1000) / self.hold_factor_permille.max(1))
            .saturating_sub(1000)
    }

    /// How soon a crashed leader is replaced, if the store answers at once: the standby may see the last renewal one
    /// interval late, then waits out the expiry and the takeover delay.
    pub fn failover_bound_ms(&self) -> u64 {
        self.election_interval_ms + self.expiry_ms() + self.takeover_delay_ms
    }

    /// The pause before a failed request is tried again: quick enough to save a lease, slow enough to spare the store.
    pub(crate) fn retry_ms(&self) -> u64 {
        (self.heartbeat_ms / 4).clamp(10, 1000)
    }

    /// A pause that doubles with every consecutive failure, up to a limit: an outage must not set off a storm of requests. A
    /// leader does not back off: its lease is worth hurrying for.
    pub(crate) fn backoff_ms(&self, first_ms: u64, failures: u32, limit_ms: u64) -> u64 {
        first_ms.saturating_mul(1 << failures.min(16)).min(limit_ms.max(first_ms))
    }

    /// Time between the claims of neighbouring ranks.
    pub(crate) fn rank_step_ms(&self) -> u64 {
        (self.heartbeat_ms / 4).clamp(10, 500)
    }

    /// How long a node of this rank waits before it claims in a takeover.
    pub(crate) fn hold_back_ms(&self, rank: u64) -> u64 {
        rank.min(RANK_MAX) * self.rank_step_ms()
    }

    /// In a first election nodes may start up to `settle_ms` apart, so every node but the first waits that much longer. The
    /// same leader must win with and without jitter.
    pub(crate) fn first_hold_back_ms(&self, rank: u64) -> u64 {
        if rank == 0 { 0 } else { self.settle_ms + self.hold_back_ms(rank) }
    }

    /// A node that gave up leadership by request lets all others try before it tries again. Being awake, it would otherwise
    /// be the first to see the vacancy.
    pub(crate) fn step_down_cooldown_ms(&self) -> u64 {
        2 * self.election_interval_ms + self.hold_back_ms(RANK_MAX)
    }

    /// A presence older than this belongs to a dead node.
    pub(crate) fn presence_live_ms(&self) -> u64 {
        self.presence_ms * 3
    }

    /// Turns a random number, uniform over `u64`, into the startup wait. Uniform draws clump, to four or five times the mean
    /// in a tenth of a second, but a store can take that. Numbered slots would need ids that end in a number, and a node
    /// would wait equally long at every start.
    pub(crate) fn jitter_ms(&self, random: u64) -> u64 {
        let span = self.startup_jitter_max_ms.saturating_sub(self.startup_jitter_min_ms).saturating_add(1);
        self.startup_jitter_min_ms + draw(random, span)
    }
}

/// A number below `span`, uniform if `random` is uniform over `u64`.
pub(crate) fn draw(random: u64, span: u64) -> u64 {
    let share = (u128::from(random) * u128::from(span)) >> 64;
    // Always below `span`, so the conversion cannot fail.
    u64::try_from(share).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_spans_its_range_and_no_more() {
        let config = Config { startup_jitter_min_ms: 2000, startup_jitter_max_ms: 8000, ..Config::default() };
        assert_eq!(config.jitter_ms(0), 2000);
        assert_eq!(config.jitter_ms(u64::MAX), 8000);
        assert_eq!(config.jitter_ms(u64::MAX / 2), 5000);
    }

    #[test]
    fn the_promises_follow_from_the_parameters() {
        let config = Config {
            lease_ms: 500,
            election_interval_ms: 250,
            takeover_delay_ms: 100,
            presence_ms: 7000,
            ..Config::default()
        };
        assert_eq!(config.lease(), Lease { hold_ms: 1000, expiry_ms: 1500 });
        assert_eq!((config.wind_down_ms(), config.renew_by_ms()), (800, 400));
        assert_eq!(config.tolerated_drift_permille(), 500);
        assert_eq!(config.failover_bound_ms(), 250 + 1500 + 100);
        assert_eq!(config.presence_live_ms(), 21_000);
        let even = Config { hold_factor_permille: 1250, expiry_factor_permille: 2500, ..config };
        assert_eq!(even.tolerated_drift_permille(), 1000);
    }

    #[test]
    fn pauses_double_up_to_their_limit_and_are_never_shorter_than_the_first() {
        let config = Config { heartbeat_ms: 800, ..Config::default() };
        assert_eq!((config.retry_ms(), config.rank_step_ms()), (200, 200));
        let pauses: Vec<u64> = (0..5).map(|failures| config.backoff_ms(200, failures, 1000)).collect();
        assert_eq!(pauses, [200, 400, 800, 1000, 1000]);
        assert_eq!(config.backoff_ms(200, 9, 50), 200);
        assert_eq!(config.backoff_ms(u64::MAX, 99, u64::MAX), u64::MAX);
    }

    #[test]
    fn ranks_claim_in_order_and_the_crowd_does_not_wait_for_ever() {
        let config = Config::default();
        assert_eq!(config.hold_back_ms(0), 0);
        assert!(config.hold_back_ms(1) < config.hold_back_ms(2));
        assert_eq!(config.hold_back_ms(9), config.hold_back_ms(9999));
        assert!(config.first_hold_back_ms(1) > config.settle_ms);
    }
}

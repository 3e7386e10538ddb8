//! How much of a lease a command gets: when it is told to stop, and when it is killed.

use tenure::Settings;
use tenure::clock::millis;

/// Three quarters of `drainTimeout` are for the work, as the supervisor has it; this much of it is for us.
const DRAIN_ROOM_MS: u64 = 100;

/// The times of one command, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GraceTimes {
    /// Between SIGTERM and SIGKILL when leadership ends.
    pub(crate) grace_ms: u64,
    /// SIGKILL comes this long before the lease ends, so that nothing is left when it does.
    pub(crate) margin_ms: u64,
    /// How often a keeper is told how long it may go on.
    pub(crate) tell_ms: u64,
}

impl GraceTimes {
    /// The times these settings leave room for.
    ///
    /// A leader that cannot renew begins to wind down at 80 % of its hold: the last fifth is the grace, if nobody asks
    /// for another. A longer one means SIGTERM before that, so it has to leave room for the renewals of a healthy leader.
    pub(crate) fn new(settings: &Settings, asked_ms: Option<u64>) -> Result<GraceTimes, String> {
        let (hold_ms, heartbeat_ms) = (settings.core_config().hold_ms(), millis(settings.heartbeat_interval));
        let margin_ms = (hold_ms / 20).clamp(20, 500);
        let tell_ms = (heartbeat_ms / 8).clamp(10, 250);
        let by_drain_ms = (millis(settings.drain_timeout) / 4 * 3).saturating_sub(DRAIN_ROOM_MS);
        let usual_ms = (hold_ms / 5).saturating_sub(margin_ms).min(by_drain_ms);
        let by_hold_ms = hold_ms.saturating_sub(heartbeat_ms * 3 / 2 + margin_ms + tell_ms).max(usual_ms);
        let grace_ms = asked_ms.unwrap_or(usual_ms);
        if grace_ms > by_hold_ms {
            return Err(format!(
                "`--grace` is {grace_ms} ms, but at most {by_hold_ms} ms fit into the hold: SIGTERM must not come \
                 while a healthy leader has yet to renew (1.5 × heartbeatInterval = {} ms), and SIGKILL comes {margin_ms} \
                 ms before the hold ends (leaseTimeout × leaseHoldFactor = {hold_ms} ms); raise leaseTimeout, on all nodes, or lower --grace",
                heartbeat_ms * 3 / 2
            ));
        }
        if grace_ms > by_drain_ms {
            return Err(format!(
                "`--grace` is {grace_ms} ms, but at most {by_drain_ms} ms fit into drainTimeout ({} ms), three quarters of \
                 which are for the work; raise drainTimeout or lower --grace",
                millis(settings.drain_timeout)
            ));
        }
        Ok(GraceTimes { grace_ms, margin_ms, tell_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(more: &[(&'static str, &str)]) -> Settings {
        let loader = Settings::loader().flag("store", "memory:").flag("node", "a");
        more.iter()
            .fold(loader, |loader, (name, value)| loader.flag(name, *value))
            .load()
            .expect("valid")
            .settings
    }

    #[test]
    fn the_usual_grace_is_what_is_left_of_the_last_fifth_of_the_hold() {
        let of =
            |more: &[(&'static str, &str)]| GraceTimes::new(&settings(more), None).expect("it always fits");
        assert_eq!(of(&[]), GraceTimes { grace_ms: 750, margin_ms: 250, tell_ms: 187 });
        assert_eq!(of(&[("preset", "fast")]), GraceTimes { grace_ms: 150, margin_ms: 50, tell_ms: 37 });
        // The last fifth of 30 s would be more than a drain has.
        assert_eq!(of(&[("preset", "thrifty")]).grace_ms, 2150);
        // Even the shortest hold there is has a deadline before its end.
        let tiny = of(&[("heartbeatInterval", "50"), ("leaseTimeout", "75"), ("leaseHoldFactor", "1")]);
        assert_eq!((tiny.grace_ms, tiny.margin_ms), (0, 20));
    }

    #[test]
    fn a_grace_that_does_not_fit_is_refused_with_the_one_that_does() {
        let refused = GraceTimes::new(&settings(&[]), Some(5000)).expect_err("as long as the hold");
        for word in ["`--grace` is 5000 ms", "at most 2313 ms", "leaseTimeout × leaseHoldFactor = 5000 ms"] {
            assert!(refused.contains(word), "{word:?} is not in {refused:?}");
        }
        assert_eq!(GraceTimes::new(&settings(&[]), Some(2150)).expect("it fits").grace_ms, 2150);
        let long = settings(&[("preset", "thrifty")]);
        let refused = GraceTimes::new(&long, Some(5000)).expect_err("the hold has room, the drain has not");
        assert!(
            refused.contains("drainTimeout (3000 ms)") && refused.contains("at most 2150 ms"),
            "{refused}"
        );
        let both = settings(&[("preset", "thrifty"), ("drainTimeout", "8000")]);
        assert_eq!(GraceTimes::new(&both, Some(5000)).expect("now it fits").grace_ms, 5000);
    }

    #[test]
    fn whatever_is_granted_a_healthy_leader_is_never_told_to_stop() {
        for preset in ["default", "fast", "thrifty"] {
            let settings = settings(&[("preset", preset), ("drainTimeout", "60000")]);
            for grace_ms in 0..20_000 {
                let Ok(times) = GraceTimes::new(&settings, Some(grace_ms)) else { continue };
                // The keeper hears of a renewal a tell later, the next is due a heartbeat after the last.
                let oldest_ms = millis(settings.heartbeat_interval) + times.tell_ms;
                assert!(
                    oldest_ms + times.grace_ms + times.margin_ms < settings.core_config().hold_ms(),
                    "{preset} {grace_ms}"
                );
            }
        }
    }
}

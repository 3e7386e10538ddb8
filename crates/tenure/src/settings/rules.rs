//! Rules between settings. Rules of one setting alone are its kind's.

use super::Settings;
use crate::clock::millis;
use std::time::Duration;

/// What a broken rule means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Grade {
    /// The settings cannot work.
    Error,
    /// They work, with a drawback worth knowing.
    Warning,
}

/// One rule.
#[derive(Debug)]
pub(super) struct Rule {
    /// The setting to change first, blamed in the message.
    pub(super) field: &'static str,
    /// The other settings involved, shown with their values.
    pub(super) others: &'static [&'static str],
    pub(super) grade: Grade,
    /// What is wrong, if anything.
    pub(super) broken: fn(&Settings) -> Option<String>,
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        field: "leaseTimeout",
        others: &["heartbeatInterval"],
        grade: Grade::Error,
        broken: lease_outlives_heartbeat,
    },
    Rule {
        field: "leaseExpiryFactor",
        others: &["leaseHoldFactor"],
        grade: Grade::Error,
        broken: expiry_outlives_hold,
    },
    Rule {
        field: "leaseHoldFactor",
        others: &["leaseTimeout", "heartbeatInterval"],
        grade: Grade::Warning,
        broken: hold_survives_a_lost_renewal,
    },
    Rule {
        field: "requestTimeout",
        others: &["leaseTimeout", "leaseHoldFactor"],
        grade: Grade::Error,
        broken: request_leaves_room_for_another,
    },
    Rule {
        field: "electionInterval",
        others: &["leaseTimeout", "leaseExpiryFactor"],
        grade: Grade::Error,
        broken: standby_looks_twice,
    },
    Rule {
        field: "startupJitterMax",
        others: &["startupJitterMin"],
        grade: Grade::Error,
        broken: jitter_has_a_range,
    },
    Rule {
        field: "workerTimeout",
        others: &["workerHeartbeatInterval"],
        grade: Grade::Error,
        broken: worker_may_miss_a_heartbeat,
    },
    Rule {
        field: "nodeRetention",
        others: &["presenceInterval"],
        grade: Grade::Error,
        broken: node_may_miss_a_presence,
    },
    Rule {
        field: "heartbeatInterval",
        others: &["store"],
        grade: Grade::Warning,
        broken: store_takes_one_write_a_second,
    },
];

fn lease_outlives_heartbeat(settings: &Settings) -> Option<String> {
    let (lease, heartbeat) = (millis(settings.lease_timeout), millis(settings.heartbeat_interval));
    if lease <= heartbeat {
        return Some(
            "`leaseTimeout` must be greater than `heartbeatInterval`, at least 1.5 times as long: otherwise every lease \
             ends before it is renewed"
                .to_owned(),
        );
    }
    (lease * 2 < heartbeat * 3).then(|| {
        "`leaseTimeout` must be at least 1.5 × `heartbeatInterval`: a renewal must be sent and answered within 80 % \
         of it"
            .to_owned()
    })
}

fn expiry_outlives_hold(settings: &Settings) -> Option<String> {
    (settings.tolerated_drift_permille() < 250).then(|| {
        "`leaseExpiryFactor` must be at least 1.25 × `leaseHoldFactor`: the gap between them is how far clocks may \
         drift apart before two nodes lead at once, and less than 25 % is not safe"
            .to_owned()
    })
}

fn hold_survives_a_lost_renewal(settings: &Settings) -> Option<String> {
    let allowed = lease_outlives_heartbeat(settings).is_none();
    (allowed && settings.core_config().hold_ms() < millis(settings.heartbeat_interval) * 2).then(|| {
        "`leaseTimeout` × `leaseHoldFactor` is less than 2 × `heartbeatInterval`: a single slow or lost renewal can \
         cost leadership"
            .to_owned()
    })
}

fn request_leaves_room_for_another(settings: &Settings) -> Option<String> {
    let hold_ms = settings.core_config().hold_ms();
    (millis(settings.request_timeout) * 2 >= hold_ms).then(|| {
        format!(
            "`requestTimeout` must be less than half of `leaseTimeout` × `leaseHoldFactor` ({hold_ms} ms): a renewal \
             that hangs must time out soon enough to be retried"
        )
    })
}

fn standby_looks_twice(settings: &Settings) -> Option<String> {
    let most_ms = settings.core_config().expiry_ms() / 2;
    (millis(settings.election_interval) > most_ms).then(|| {
        format!(
            "`electionInterval` must be at most half of `leaseTimeout` × `leaseExpiryFactor` ({most_ms} ms): a \
             standby that reads the seat less often notices a failure late"
        )
    })
}

fn jitter_has_a_range(settings: &Settings) -> Option<String> {
    (settings.startup_jitter_max < settings.startup_jitter_min)
        .then(|| "`startupJitterMax` must be >= `startupJitterMin`".to_owned())
}

fn node_may_miss_a_presence(settings: &Settings) -> Option<String> {
    (settings.node_retention < 3 * settings.presence_interval).then(|| {
        "`nodeRetention` must be at least 3 × `presenceInterval`: otherwise the presence of a live node is removed"
            .to_owned()
    })
}

fn worker_may_miss_a_heartbeat(settings: &Settings) -> Option<String> {
    (settings.worker_timeout < 2 * settings.worker_heartbeat_interval).then(|| {
        "`workerTimeout` must be at least 2 × `workerHeartbeatInterval`: otherwise a worker counts as dead \
         between two heartbeats"
            .to_owned()
    })
}

fn store_takes_one_write_a_second(settings: &Settings) -> Option<String> {
    let service = tenure_store::one_write_a_second(&settings.store, None)?;
    (settings.heartbeat_interval < Duration::from_secs(1)).then(|| {
        format!(
            "`heartbeatInterval` should be at least 1000 on {service}: it allows about one write per second to one \
             object and refuses more renewals"
        )
    })
}

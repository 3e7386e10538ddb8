//! The table of settings, the presets, and what is no longer a setting.
// long: one row for each setting; a table in two files would hide what is missing

use super::field::{Computation, Fallback, Field, Kind, Slot, Value};
use super::places::store_in;
use super::{CoordinationMode, Settings};
use std::path::PathBuf;
use tenure_core::NodeId;

/// No duration of an election is longer than a day; more is a mistaken unit.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A field of [`Settings`] whose type is the value's own.
macro_rules! slot {
    ($value:ident, $field:ident) => {
        Slot {
            get: |settings| Value::$value(settings.$field.clone()),
            set: |settings, value| {
                if let Value::$value(value) = value {
                    settings.$field = value;
                }
            },
        }
    };
}

const fn millis(min: u64) -> Kind {
    Kind::Millis { min, max: DAY_MS }
}

/// Every setting. Order: whatever a computed default follows comes before it.
pub const FIELDS: &[Field] = &[
    Field {
        name: "preset",
        env: "TENURE_PRESET",
        also: &[],
        flag: "--preset",
        kind: Kind::Choice(&["default", "thrifty", "fast"]),
        default: Fallback::Text("default"),
        doc: "A set of defaults for heartbeatInterval, leaseTimeout, electionInterval, takeoverDelay, \
 presenceInterval and workerSweepInterval; anything set explicitly wins over it, in whatever layer the preset was chosen. Default: default. `thrifty` \
 renews a sixth and looks a fifth as often, forgives a store that takes seconds to answer, and takes up to 51 s to replace a crashed leader; `fast` replaces it in \
 under 2 s, renews five times and looks four times as often, and needs a store that answers within 300 ms. All nodes of a namespace should use the same.",
        shared: false,
        slot: slot!(Text, preset),
    },
    Field {
        name: "namespace",
        env: "TENURE_NAMESPACE",
        also: &[],
        flag: "--namespace",
        kind: Kind::Id,
        default: Fallback::Text("default"),
        doc: "The election this node takes part in: one namespace has one leader. Default: default. Nodes meet only \
 if namespace and store are the same. One namespace for all keeps requests few; one for each job lets \
 jobs have different leaders, at the price of one election each.",
        shared: false,
        slot: slot!(Text, namespace),
    },
    Field {
        name: "node",
        env: "TENURE_NODE",
        also: &[],
        flag: "--node",
        kind: Kind::Id,
        default: Fallback::Computed {
            rule: "host name, -, process id",
            needs: &[],
            compute: Computation(|_, places| places.node.to_string()),
        },
        doc: "The name of this node, unique in its namespace. Default: host name, `-`, process id. A name that \
 survives restarts (a pod's) is easier to follow in logs and ranks the same every time; the default is \
 unique even for several processes of one machine, but new at every start.",
        shared: false,
        slot: Slot {
            get: |settings| Value::Text(settings.node.to_string()),
            set: |settings, value| {
                if let Value::Text(text) = value
                    && let Ok(id) = NodeId::new(&text)
                {
                    settings.node = id;
                }
            },
        },
    },
    Field {
        name: "dataDir",
        env: "TENURE_DATA_DIR",
        also: &[],
        flag: "--data-dir",
        kind: Kind::Text,
        default: Fallback::Computed {
            rule: "$XDG_DATA_HOME/tenure, else $HOME/.local/share/tenure, else .",
            needs: &[],
            compute: Computation(|_, places| places.data_dir.display().to_string()),
        },
        doc: "The directory of the default store. Default: $XDG_DATA_HOME/tenure, else $HOME/.local/share/tenure, \
 else the working directory. Without effect if `store` is set. It must be on a local disk: file locks \
 over a network file system are not reliable.",
        shared: false,
        slot: Slot {
            get: |settings| Value::Text(settings.data_dir.display().to_string()),
            set: |settings, value| {
                if let Value::Text(text) = value {
                    settings.data_dir = PathBuf::from(text);
                }
            },
        },
    },
    Field {
        name: "store",
        env: "TENURE_STORE",
        also: &[],
        flag: "--store",
        kind: Kind::Store,
        default: Fallback::Computed {
            rule: "sqlite:<dataDir>/tenure.db",
            needs: &["dataDir"],
            compute: Computation(|settings, _| store_in(&settings.data_dir)),
        },
        doc: "The arbiter: sqlite:<path>, s3://<bucket>[/<prefix>], gs://…, az://…, or memory:[name]. Default: \
 sqlite:tenure.db in `dataDir`. A bucket lets several machines share a namespace and is paid by the \
 request; sqlite is free and fast, for the processes of one machine; memory is for tests in one \
 process. Credentials never stand here: they come from the provider's own environment variables.",
        shared: false,
        slot: Slot {
            get: |settings| Value::Text(settings.store.to_string()),
            set: |settings, value| {
                if let Value::Text(text) = value
                    && let Ok(url) = text.parse()
                {
                    settings.store = url;
                }
            },
        },
    },
    Field {
        name: "eligible",
        env: "TENURE_ELIGIBLE",
        also: &["COORDINATOR_ELIGIBLE"],
        flag: "--eligible",
        kind: Kind::Bool,
        default: Fallback::Text("true"),
        doc: "Whether this node may lead. Default: true. With false it takes no part: it reads the seat every \
 `electionInterval` to know who leads, and sends no other request of the election. At least one node of a namespace must be eligible, or nobody leads; \
 two or more, or nobody takes over.",
        shared: false,
        slot: slot!(Bool, eligible),
    },
    Field {
        name: "coordinationMode",
        env: "TENURE_COORDINATION_MODE",
        also: &[],
        flag: "--coordination-mode",
        kind: Kind::Choice(CoordinationMode::WORDS),
        default: Fallback::Text("per-plugin"),
        doc: "Whether a plugin has an election of its own (`per-plugin`) or shares the namespace's (`global`). Default: \
 per-plugin. Shared: one loop and one set of requests however many plugins there are, and all of them \
 lead on the same node. Its own: plugins lead on different nodes, at one election's price each. Only \
 plugins read it: `tenure run` is the namespace's shared election itself, in either mode.",
        shared: false,
        slot: Slot {
            get: |settings| Value::Text(settings.coordination_mode.to_string()),
            set: |settings, value| {
                if let Value::Text(text) = value
                    && let Some(mode) = CoordinationMode::from_word(&text)
                {
                    settings.coordination_mode = mode;
                }
            },
        },
    },
    Field {
        name: "heartbeatInterval",
        env: "TENURE_HEARTBEAT_INTERVAL",
        also: &[],
        flag: "--heartbeat-interval",
        kind: millis(50),
        default: Fallback::Text("1500"),
        doc: "How often the leader renews its lease, in ms. Default: 1500 (thrifty 9000, fast 300). At most two \
 thirds of leaseTimeout. Shorter: a lost renewal is made up for sooner, but every renewal is a paid write. \
 Longer: cheaper, but with less room for a slow answer. Keep it at 1000 or more on gs:// and on Cloudflare R2, which \
 allow about one write a second to one object.",
        shared: true,
        slot: slot!(Millis, heartbeat_interval_ms),
    },
    Field {
        name: "leaseTimeout",
        env: "TENURE_LEASE_TIMEOUT",
        also: &[],
        flag: "--lease-timeout",
        kind: millis(1),
        default: Fallback::Text("2500"),
        doc: "The unit of the lease, in ms. The leader may act for leaseHoldFactor times as long after the sending of a \
 renewal; others take over after leaseExpiryFactor times as long without one. Default: 2500 (thrifty 15000, fast 500). \
 At least 1.5 × heartbeatInterval. Shorter: a crashed leader is replaced sooner. Longer: a slow or briefly unreachable \
 store does not cost leadership.",
        shared: true,
        slot: slot!(Millis, lease_timeout_ms),
    },
    Field {
        name: "leaseHoldFactor",
        env: "TENURE_LEASE_HOLD_FACTOR",
        also: &[],
        flag: "--lease-hold-factor",
        kind: Kind::Factor { min_permille: 1000, max_permille: 50_000, why: "" },
        default: Fallback::Text("2"),
        doc: "How many leaseTimeouts the leader may act after the sending of a renewal, by its own clock: the hold. Default: 2. \
 At most leaseExpiryFactor ÷ 1.25. At 80 % of the hold without a renewal, work is told to stop. Smaller: more \
 tolerance for drifting clocks. Larger: more time for a slow store, at the same failover time.",
        shared: true,
        slot: slot!(Permille, lease_hold_factor_permille),
    },
    Field {
        name: "leaseExpiryFactor",
        env: "TENURE_LEASE_EXPIRY_FACTOR",
        also: &[],
        flag: "--lease-expiry-factor",
        kind: Kind::Factor { min_permille: 1250, max_permille: 100_000, why: "" },
        default: Fallback::Text("3"),
        doc: "How many leaseTimeouts the seat must stay unchanged before its holder counts as unavailable: the expiry. \
 Default: 3. At least 1.25 × leaseHoldFactor. Clocks may drift apart by expiry ÷ hold − 1: 50 % by default. \
 Smaller: faster failover. Larger: more tolerance for drifting clocks and paused virtual machines.",
        shared: true,
        slot: slot!(Permille, lease_expiry_factor_permille),
    },
    Field {
        name: "takeoverDelay",
        env: "TENURE_TAKEOVER_DELAY",
        also: &["COORDINATOR_TAKEOVER_DELAY"],
        flag: "--takeover-delay",
        kind: millis(0),
        default: Fallback::Text("1000"),
        doc: "How long a standby waits once the leader counts as unavailable, in ms, in case it comes back. \
 Default: 1000 (fast 100). Adds to leaseTimeout × leaseExpiryFactor. 0: failover without pause. \
 Longer: fewer changes of leader when the store falters.",
        shared: true,
        slot: slot!(Millis, takeover_delay_ms),
    },
    Field {
        name: "electionInterval",
        env: "TENURE_ELECTION_INTERVAL",
        also: &["COORDINATOR_ELECTION_INTERVAL"],
        flag: "--election-interval",
        kind: millis(50),
        default: Fallback::Computed {
            rule: "two thirds of heartbeatInterval",
            needs: &["heartbeatInterval"],
            compute: Computation(|settings, _| (settings.heartbeat_interval_ms * 2 / 3).max(50).to_string()),
        },
        doc: "How often a standby looks at the seat, in ms. Default: two thirds of heartbeatInterval, which is 1000 by default (thrifty 5000, fast 250). At most half of \
 leaseTimeout × leaseExpiryFactor. Shorter: a vacated seat is taken sooner, at one conditional read \
 each time and from every standby. Longer: fewer reads, and failover later by as much.",
        shared: true,
        slot: slot!(Millis, election_interval_ms),
    },
    Field {
        name: "startupJitterMin",
        env: "TENURE_STARTUP_JITTER_MIN",
        also: &[],
        flag: "--startup-jitter-min",
        kind: millis(0),
        default: Fallback::Text("0"),
        doc: "The least wait before the first request to the store, in ms. Default: 0. At most startupJitterMax; \
 equal to it, the wait is exactly that long. Larger delays every start by at least as much.",
        shared: true,
        slot: slot!(Millis, startup_jitter_min_ms),
    },
    Field {
        name: "startupJitterMax",
        env: "TENURE_STARTUP_JITTER_MAX",
        also: &[],
        flag: "--startup-jitter-max",
        kind: millis(0),
        default: Fallback::Text("5000"),
        doc: "The longest wait before the first request to the store, in ms; the wait is uniform between \
 the two, drawn anew at every start. Default: 5000. 0: no wait, good for a few nodes and for tests. Longer: a mass restart \
 spreads over more time, and the first election of a namespace waits for it.",
        shared: true,
        slot: slot!(Millis, startup_jitter_max_ms),
    },
    Field {
        name: "electionSettle",
        env: "TENURE_ELECTION_SETTLE",
        also: &[],
        flag: "--election-settle",
        kind: millis(0),
        default: Fallback::Text("500"),
        doc: "How long nodes that start together wait for each other before the first claim, in ms, on top of \
 startupJitterMax. Default: 500. Shorter: the first leader is there sooner, but may not be the first \
 by name if the store is slow. Longer: the ranking is complete. Without effect once there is a leader.",
        shared: true,
        slot: slot!(Millis, election_settle_ms),
    },
    Field {
        name: "presenceInterval",
        env: "TENURE_PRESENCE_INTERVAL",
        also: &[],
        flag: "--presence-interval",
        kind: millis(1000),
        // 50 nodes with a worker each must not cost more than $4.60 per node and month at S3's prices.
        default: Fallback::Text("20000"),
        doc: "How often a node refreshes its presence, in ms; three times that without a refresh and it counts as \
 dead in the ranking. Default: 20000 (thrifty 30000). Only decides who tries first, never who leads. Shorter: dead \
 nodes leave the ranking sooner, at one write from every node each time. Longer: cheaper, but a \
 takeover may wait a moment for a node that is gone.",
        shared: true,
        slot: slot!(Millis, presence_interval_ms),
    },
    Field {
        name: "nodeRetention",
        env: "TENURE_NODE_RETENTION",
        also: &[],
        flag: "--node-retention",
        kind: millis(1000),
        default: Fallback::Text("3600000"),
        doc: "How long the presence of a node that crashed is kept, in ms; the leader removes it at most half as long after. \
 Default: 3600000. At least 3 × presenceInterval. Shorter: `tenure status` forgets the dead sooner. Longer: they can be looked at for longer.",
        shared: true,
        slot: slot!(Millis, node_retention_ms),
    },
    Field {
        name: "workerHeartbeatInterval",
        env: "TENURE_WORKER_HEARTBEAT_INTERVAL",
        also: &[],
        flag: "--worker-heartbeat-interval",
        kind: millis(1000),
        default: Fallback::Text("5000"),
        doc: "How often a worker refreshes its object, in ms. Default: 5000. A worker's timeout is at least twice as \
 long. Shorter: a silent worker can be told sooner, at one write from every worker each time. Longer: \
 cheaper; this is the largest part of the bill where every node has a worker.",
        shared: true,
        slot: slot!(Millis, worker_heartbeat_interval_ms),
    },
    Field {
        name: "workerTimeout",
        env: "TENURE_WORKER_TIMEOUT",
        also: &[],
        flag: "--worker-timeout",
        kind: millis(2000),
        default: Fallback::Text("20000"),
        doc: "How long a worker that names no timeout of its own may be silent before it counts as inactive, in ms. \
 Default: 20000. At least 2 × workerHeartbeatInterval. The leader notices up to workerSweepInterval \
 later. Shorter: the dead are told sooner. Longer: a slow store or a paused process is forgiven.",
        shared: true,
        slot: slot!(Millis, worker_timeout_ms),
    },
    Field {
        name: "workerSweepInterval",
        env: "TENURE_WORKER_SWEEP_INTERVAL",
        also: &[],
        flag: "--worker-sweep-interval",
        kind: millis(500),
        default: Fallback::Text("5000"),
        doc: "How often the leader lists the workers, in ms; every fourth time only while there are none. Default: \
 5000 (thrifty 20000). One list page for each 1,000 workers each time, from the leader alone. Shorter: \
 a silence is noticed sooner after its timeout. Longer: cheaper.",
        shared: true,
        slot: slot!(Millis, worker_sweep_interval_ms),
    },
    Field {
        name: "workerRetention",
        env: "TENURE_WORKER_RETENTION",
        also: &[],
        flag: "--worker-retention",
        kind: millis(1000),
        default: Fallback::Text("3600000"),
        doc: "How long the object of an inactive worker is kept before the leader removes it, in ms, counted by one \
 leader. Default: 3600000. Shorter: the list stays short where workers come and go without \
 deregistering. Longer: the dead can be looked at for longer.",
        shared: true,
        slot: slot!(Millis, worker_retention_ms),
    },
    // The settings of tasks are not the service's: each process may look as often as it likes.
    Field {
        name: "taskPollInterval",
        env: "TENURE_TASK_POLL_INTERVAL",
        also: &[],
        flag: "--task-poll-interval",
        kind: millis(50),
        default: Fallback::Text("500"),
        doc: "How often leader and workers look for what is new about tasks while something moves, in ms; doubled with every \
 look that finds nothing, up to taskIdleInterval. Default: 500. Shorter: tasks are begun and ended sooner. \
 Longer: fewer requests.",
        shared: false,
        slot: slot!(Millis, task_poll_interval_ms),
    },
    Field {
        name: "taskIdleInterval",
        env: "TENURE_TASK_IDLE_INTERVAL",
        also: &[],
        flag: "--task-idle-interval",
        kind: millis(100),
        default: Fallback::Text("5000"),
        doc: "How seldom a worker without tasks looks at its inbox, in ms, one conditional read each time; a leader without \
 tasks does not look at all. Default: 5000. Not below taskPollInterval, which counts instead. Shorter: the first \
 task after a pause begins sooner. Longer: idle workers cost less.",
        shared: false,
        slot: slot!(Millis, task_idle_interval_ms),
    },
    Field {
        name: "taskClaimTimeout",
        env: "TENURE_TASK_CLAIM_TIMEOUT",
        also: &[],
        flag: "--task-claim-timeout",
        kind: millis(500),
        default: Fallback::Text("30000"),
        doc: "How long a task may lie unclaimed in a worker's inbox before the leader takes it back for another, in ms, by the \
 leader's clock. Default: 30000. Should be several taskIdleIntervals. Shorter: a worker that does not look \
 holds work up less. Longer: fewer tasks are moved about for nothing.",
        shared: false,
        slot: slot!(Millis, task_claim_timeout_ms),
    },
    Field {
        name: "taskRetention",
        env: "TENURE_TASK_RETENTION",
        also: &[],
        flag: "--task-retention",
        kind: millis(1000),
        default: Fallback::Text("86400000"),
        doc: "How long finished tasks are kept after the leader put them away in batches, in ms, by the store's own times. \
 Default: 86400000. Shorter: fewer objects. Longer: history for longer. Those finished last stay in the ledger \
 in any case.",
        shared: false,
        slot: slot!(Millis, task_retention_ms),
    },
    Field {
        name: "storeClockMargin",
        env: "TENURE_STORE_CLOCK_MARGIN",
        also: &[],
        flag: "--store-clock-margin",
        kind: millis(0),
        default: Fallback::Text("30000"),
        doc: "How much longer than leaseTimeout × leaseExpiryFactor a seat must have been left alone, by the \
 store's own clock, before a starting node takes it without watching it first, in ms. Default: 30000. \
 Shorter: a cold start after an outage leads sooner, trusting the store's clock more. Longer: a store \
 whose time jumps cannot mislead.",
        shared: true,
        slot: slot!(Millis, store_clock_margin_ms),
    },
    Field {
        name: "requestTimeout",
        env: "TENURE_REQUEST_TIMEOUT",
        also: &[],
        flag: "--request-timeout",
        kind: millis(10),
        default: Fallback::Computed {
            rule: "30 % of leaseTimeout × leaseHoldFactor",
            needs: &["leaseTimeout", "leaseHoldFactor"],
            compute: Computation(|settings, _| {
                (settings.core_config().hold_ms() * 3 / 10).max(10).to_string()
            }),
        },
        doc: "When a request to the store is given up, in ms. Default: 30 % of the hold (leaseTimeout × leaseHoldFactor), which \
 is 1500 by default (thrifty 9000, fast 300). Less than half of the hold, so that a renewal that hangs can be tried again. \
 Shorter: more tries within a hold. Longer: a slow store still gets its answer through.",
        shared: false,
        slot: slot!(Millis, request_timeout_ms),
    },
    Field {
        name: "drainTimeout",
        env: "TENURE_DRAIN_TIMEOUT",
        also: &[],
        flag: "--drain-timeout",
        kind: millis(0),
        default: Fallback::Text("3000"),
        doc: "How long leader-only work may take to stop when leadership is given up by request, in ms. Default: \
 3000. The seat is vacated afterwards, so drainTimeout + electionInterval bounds a hand-over. Shorter: \
 shutdown is quick, and slow work is cut off. Longer: work ends cleanly, but nobody else leads \
 meanwhile; keep it below the grace period of whatever stops the process.",
        shared: false,
        slot: slot!(Millis, drain_timeout_ms),
    },
    Field {
        name: "epochFencingEnabled",
        env: "TENURE_EPOCH_FENCING_ENABLED",
        also: &[],
        flag: "--epoch-fencing-enabled",
        kind: Kind::Bool,
        default: Fallback::Text("true"),
        doc: "Whether tasks of a stale epoch are rejected. Default: true. Off, every task is accepted and none is counted: only for moving plugins that do not stamp their tasks yet.",
        shared: true,
        slot: slot!(Bool, epoch_fencing_enabled),
    },
    Field {
        name: "epochGracePeriod",
        env: "TENURE_EPOCH_GRACE_PERIOD",
        also: &[],
        flag: "--epoch-grace-period",
        kind: millis(0),
        default: Fallback::Text("5000"),
        doc: "For how long after a change of leaders a task of the epoch just before may still be accepted, if it was also dispatched within that time. Default: 5000. 0 is strict: nothing of a former leader is ever accepted. Longer loses less work that was under way when leaders changed, and lets the former leader's work take effect beside the new one's for that long.",
        shared: true,
        slot: slot!(Millis, epoch_grace_period_ms),
    },
    Field {
        name: "telemetryPrefix",
        env: "TENURE_TELEMETRY_PREFIX",
        also: &[],
        flag: "--telemetry-prefix",
        kind: Kind::Id,
        default: Fallback::Text("serviceradar"),
        doc: "The first part of the names of telemetry events (serviceradar.coordinator.became_leader). Default: \
 serviceradar. Follows the rule of ids. Another prefix keeps systems apart in one collector, but \
 dashboards made for the default no longer find the events.",
        shared: false,
        slot: slot!(Text, telemetry_prefix),
    },
    Field {
        name: "diagnosticsEnabled",
        env: "TENURE_DIAGNOSTICS_ENABLED",
        also: &[],
        flag: "--diagnostics-enabled",
        kind: Kind::Bool,
        default: Fallback::Text("false"),
        doc: "Whether the service logs one line for each heartbeat cycle: what was observed, decided and sent. Default: \
 false. On: a stuck election explains itself, at one log line a heartbeat. Off: quiet logs. Decides nothing \
 else.",
        shared: true,
        slot: slot!(Bool, diagnostics_enabled),
    },
    Field {
        name: "contentionDetectionEnabled",
        env: "TENURE_CONTENTION_DETECTION_ENABLED",
        also: &[],
        flag: "--contention-detection-enabled",
        kind: Kind::Bool,
        default: Fallback::Text("true"),
        doc: "Whether heartbeat cycles that take too long are counted and told as `contention:detected`. Default: true. \
 See contentionThreshold. Off: no event and no count; the latencies are still measured. Changes nothing in \
 the election.",
        shared: true,
        slot: slot!(Bool, contention_detection_enabled),
    },
    Field {
        name: "contentionThreshold",
        env: "TENURE_CONTENTION_THRESHOLD",
        also: &[],
        flag: "--contention-threshold",
        kind: Kind::Factor { min_permille: 10, max_permille: 100_000, why: "" },
        default: Fallback::Text("2"),
        doc: "How many heartbeatIntervals a heartbeat cycle may last, from when it was due to when its outcome is known, \
 before it counts as contention. Default: 2. Smaller: a store that slows down is told before it costs \
 leadership, at the price of false alarms. Larger: only outages and long pauses are told.",
        shared: true,
        slot: slot!(Permille, contention_threshold_permille),
    },
    Field {
        name: "priceWritePer1000",
        env: "TENURE_PRICE_WRITE_PER1000",
        also: &[],
        flag: "--price-write-per1000",
        kind: Kind::Price,
        default: Fallback::Text("0.005"),
        doc: "The price of 1,000 writes or list pages, in dollars, for the cost estimate of the metrics. Default: 0.005 \
 (S3 standard). 0: writes are free, as on a store of one's own. Too low or too high, the estimate is as \
 wrong; nothing else depends on it.",
        shared: false,
        slot: slot!(Micros, price_write_per_1000_micros),
    },
    Field {
        name: "priceReadPer1000",
        env: "TENURE_PRICE_READ_PER1000",
        also: &[],
        flag: "--price-read-per1000",
        kind: Kind::Price,
        default: Fallback::Text("0.0004"),
        doc: "The price of 1,000 reads, in dollars, for the cost estimate of the metrics. Default: 0.0004 (S3 standard). \
 0: reads are free. Too low or too high, the estimate is as wrong; nothing else depends on it.",
        shared: false,
        slot: slot!(Micros, price_read_per_1000_micros),
    },
];

/// Defaults that belong together.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Its name, a value of the setting `preset`.
    pub name: &'static str,
    /// The settings it changes, as texts.
    pub values: &'static [(&'static str, &'static str)],
}

/// Every preset.
pub const PRESETS: &[Preset] = &[
    Preset { name: "default", values: &[] },
    Preset {
        name: "thrifty",
        values: &[
            ("heartbeatInterval", "9000"),
            ("leaseTimeout", "15000"),
            ("electionInterval", "5000"),
            // These two keep it at 2.5 requests per node and 5 s at most, even for a single node with a worker.
            ("presenceInterval", "30000"),
            ("workerSweepInterval", "20000"),
        ],
    },
    Preset {
        name: "fast",
        values: &[
            ("heartbeatInterval", "300"),
            ("leaseTimeout", "500"),
            ("electionInterval", "250"),
            ("takeoverDelay", "100"),
        ],
    },
];

/// Something that once was a setting: accepted with any value, ignored, and named in one warning.
#[derive(Clone, Debug)]
pub struct Deprecated {
    /// Its names in files and on the command line.
    pub names: &'static [&'static str],
    /// Its environment variables.
    pub env: &'static [&'static str],
    /// The warning.
    pub warning: &'static str,
}

/// Every deprecated setting.
pub const DEPRECATED: &[Deprecated] = &[Deprecated {
    names: &["cluster_coordinator", "clusterCoordinator"],
    env: &["CLUSTER_COORDINATOR", "TENURE_CLUSTER_COORDINATOR"],
    warning: "`cluster_coordinator` is deprecated and ignored: the election decides which node coordinates; remove \
              the setting (to keep a node from leading, set `eligible` to false)",
}];

impl Default for Settings {
    /// The defaults of the table, for this process: its data directory and its name.
    fn default() -> Settings {
        super::load::defaults(&super::places::Places::of_process())
    }
}

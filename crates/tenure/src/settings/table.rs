//! The table of settings, the presets, and what is no longer a setting.
// long: one row for each setting; a table in two files would hide what is missing

use super::field::{Computation, Fallback, Field, Kind, Slot, Value};
use super::places::store_in;
use super::{CoordinationMode, Preset, Settings};
use crate::clock::millis;
use std::path::PathBuf;
use std::time::Duration;
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

/// A field of [`Settings`] that is a time.
macro_rules! time {
    ($field:ident) => {
        Slot {
            get: |settings| Value::Millis(millis(settings.$field)),
            set: |settings, value| {
                if let Value::Millis(ms) = value {
                    settings.$field = Duration::from_millis(ms);
                }
            },
        }
    };
}

/// A field of [`Settings`] that is one of a few words.
macro_rules! choice {
    ($type:ident, $field:ident) => {
        Slot {
            get: |settings| Value::Text(settings.$field.to_string()),
            set: |settings, value| {
                if let Value::Text(word) = value
                    && let Some(choice) = $type::from_word(&word)
                {
                    settings.$field = choice;
                }
            },
        }
    };
}

const fn at_least(min: u64) -> Kind {
    Kind::Millis { min, max: DAY_MS }
}

/// Every setting. Order: whatever a computed default follows comes before it.
pub const FIELDS: &[Field] = &[
    Field {
        name: "preset",
        env: "TENURE_PRESET",
        also: &[],
        flag: "--preset",
        kind: Kind::Choice(Preset::WORDS),
        default: Fallback::Text("default"),
        doc: "Sets defaults for heartbeatInterval, leaseTimeout, electionInterval, takeoverDelay, \
              presenceInterval and workerSweepInterval. Default: default. A value set explicitly in any \
              layer wins over the preset. `thrifty` sends a sixth of the renewals and a fifth of the \
              reads and tolerates a store that takes seconds to answer, but takes up to 51 s to replace a \
              crashed leader. `fast` replaces it in under 2 s, but renews five times and reads four times \
              as often and needs a store that answers within 300 ms. Use the same preset on all nodes of \
              a namespace.",
        shared: false,
        slot: choice!(Preset, preset),
    },
    Field {
        name: "namespace",
        env: "TENURE_NAMESPACE",
        also: &[],
        flag: "--namespace",
        kind: Kind::Id,
        default: Fallback::Text("default"),
        doc: "The namespace: one leader, its workers and jobs. Default: default. \
              Nodes elect a leader together only if they share both namespace and store. One namespace \
              for everything costs the fewest requests. One per job lets jobs have different leaders, at \
              the price of an election each.",
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
        doc: "The name of this node, unique in its namespace. Default: host name, `-`, process id. A name \
              that survives restarts, such as a pod's, is easier to follow in logs and keeps its rank. \
              The default is unique even among processes on one machine, but changes at every start.",
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
        doc: "The directory of the default store and of the HTTP token. Default: $XDG_DATA_HOME/tenure, \
              else $HOME/.local/share/tenure, else the working directory. If `store` is set, only the \
              token is kept here. It must be on a local disk: file locks on a network file system are not \
              reliable.",
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
        doc: "The store that decides who leads: sqlite:<path>, s3://<bucket>[/<prefix>], gs://…, az://…, \
              or memory:[name]. Default: sqlite:tenure.db in `dataDir`. A bucket lets several machines \
              share a namespace and charges for requests. SQLite is free and fast, but only for processes \
              on one machine. memory is for tests within one process. Credentials are never part of the \
              URL; they come from the provider's own environment variables.",
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
        doc: "Whether this node may lead. Default: true. With false it only reads the seat every \
              `electionInterval` to know who leads, and makes no other election request. A namespace \
              needs at least one eligible node to have a leader, and at least two to replace it.",
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
        doc: "Whether a plugin has its own election (`per-plugin`) or shares the namespace's (`global`). \
              Default: per-plugin. `global`: one loop and one set of requests for any number of plugins, \
              but all of them lead on the same node. `per-plugin`: plugins can lead on different nodes, \
              at the price of an election each. Only plugins read this; `tenure run` always runs the \
              namespace's shared election.",
        shared: false,
        slot: choice!(CoordinationMode, coordination_mode),
    },
    Field {
        name: "heartbeatInterval",
        env: "TENURE_HEARTBEAT_INTERVAL",
        also: &[],
        flag: "--heartbeat-interval",
        kind: at_least(50),
        default: Fallback::Text("1500"),
        doc: "How often the leader renews its lease, in ms. Default: 1500 (thrifty 9000, fast 300). At \
              most two thirds of leaseTimeout. Shorter: a lost renewal is made up for sooner, but every \
              renewal is a paid write. Longer: cheaper, but less room for a slow answer. Keep it at 1000 \
              or more on gs:// and on Cloudflare R2, which allow about one write per second to an object.",
        shared: true,
        slot: time!(heartbeat_interval),
    },
    Field {
        name: "leaseTimeout",
        env: "TENURE_LEASE_TIMEOUT",
        also: &[],
        flag: "--lease-timeout",
        kind: at_least(1),
        default: Fallback::Text("2500"),
        doc: "The unit of the lease, in ms. Default: 2500 (thrifty 15000, fast 500). The leader may act \
              for leaseTimeout × leaseHoldFactor after sending a renewal; others take over after \
              leaseTimeout × leaseExpiryFactor without one. At least 1.5 × heartbeatInterval. Shorter: a \
              crashed leader is replaced sooner. Longer: a slow or briefly unreachable store does not \
              cost leadership.",
        shared: true,
        slot: time!(lease_timeout),
    },
    Field {
        name: "leaseHoldFactor",
        env: "TENURE_LEASE_HOLD_FACTOR",
        also: &[],
        flag: "--lease-hold-factor",
        kind: Kind::Factor { min_permille: 1000, max_permille: 50_000, why: "" },
        default: Fallback::Text("2"),
        doc: "How many leaseTimeouts the leader may act after sending a renewal, by its own clock (the \
              hold). Default: 2. At most leaseExpiryFactor ÷ 1.25. After 80 % of the hold without a \
              renewal, work is told to stop. Smaller: more tolerance for drifting clocks. Larger: more \
              time for a slow store, at the same failover time.",
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
        doc: "How many leaseTimeouts the seat must stay unchanged before its holder counts as unavailable \
              (the expiry). Default: 3. At least 1.25 × leaseHoldFactor. Clocks may drift apart by expiry \
              ÷ hold − 1, which is 50 % by default. Smaller: faster failover. Larger: more tolerance for \
              drifting clocks and paused virtual machines.",
        shared: true,
        slot: slot!(Permille, lease_expiry_factor_permille),
    },
    Field {
        name: "takeoverDelay",
        env: "TENURE_TAKEOVER_DELAY",
        also: &["COORDINATOR_TAKEOVER_DELAY"],
        flag: "--takeover-delay",
        kind: at_least(0),
        default: Fallback::Text("1000"),
        doc: "How long a standby waits for an unavailable leader to come back, in ms. Default: 1000 (fast \
              100). Comes on top of leaseTimeout × leaseExpiryFactor. Shorter: faster failover; 0 does \
              not wait at all. Longer: fewer changes of leader when the store falters.",
        shared: true,
        slot: time!(takeover_delay),
    },
    Field {
        name: "electionInterval",
        env: "TENURE_ELECTION_INTERVAL",
        also: &["COORDINATOR_ELECTION_INTERVAL"],
        flag: "--election-interval",
        kind: at_least(50),
        default: Fallback::Computed {
            rule: "two thirds of heartbeatInterval",
            needs: &["heartbeatInterval"],
            compute: Computation(|settings, _| {
                (millis(settings.heartbeat_interval) * 2 / 3).max(50).to_string()
            }),
        },
        doc: "How often a standby reads the seat, in ms. Default: two thirds of heartbeatInterval, which \
              is 1000 by default (thrifty 5000, fast 250). At most half of leaseTimeout × \
              leaseExpiryFactor. Shorter: a vacated seat is taken sooner, but every standby makes one \
              conditional read each time. Longer: fewer reads, and failover takes that much longer.",
        shared: true,
        slot: time!(election_interval),
    },
    Field {
        name: "startupJitterMin",
        env: "TENURE_STARTUP_JITTER_MIN",
        also: &[],
        flag: "--startup-jitter-min",
        kind: at_least(0),
        default: Fallback::Text("0"),
        doc: "The shortest wait before the first request to the store, in ms. Default: 0. At most \
              startupJitterMax; if they are equal, the wait is exactly that long. Longer: every start \
              takes at least that much longer.",
        shared: true,
        slot: time!(startup_jitter_min),
    },
    Field {
        name: "startupJitterMax",
        env: "TENURE_STARTUP_JITTER_MAX",
        also: &[],
        flag: "--startup-jitter-max",
        kind: at_least(0),
        default: Fallback::Text("5000"),
        doc: "The longest wait before the first request to the store, in ms. Default: 5000. Each start \
              picks a random time between startupJitterMin and this. Shorter: quicker starts; 0 suits a \
              few nodes and tests. Longer: a mass restart spreads over more time, but the first election \
              of a namespace waits for it.",
        shared: true,
        slot: time!(startup_jitter_max),
    },
    Field {
        name: "electionSettle",
        env: "TENURE_ELECTION_SETTLE",
        also: &[],
        flag: "--election-settle",
        kind: at_least(0),
        default: Fallback::Text("500"),
        doc: "How long nodes that start together wait for each other before the first claim, in ms, on \
              top of startupJitterMax. Default: 500. Has no effect once there is a leader. Shorter: the \
              first leader is there sooner, but on a slow store may not be the first by name. Longer: the \
              ranking is complete.",
        shared: true,
        slot: time!(election_settle),
    },
    Field {
        name: "presenceInterval",
        env: "TENURE_PRESENCE_INTERVAL",
        also: &[],
        flag: "--presence-interval",
        kind: at_least(1000),
        // 50 nodes with a worker each must not cost more than $4.60 per node and month at S3's prices.
        default: Fallback::Text("20000"),
        doc: "How often a node refreshes its presence, in ms. Default: 20000 (thrifty 30000). After three \
              intervals without a refresh it counts as dead in the ranking, which only decides who tries \
              first, never who leads. Shorter: dead nodes leave the ranking sooner, but every node makes \
              one write each time. Longer: cheaper, but a takeover may wait a moment for a node that is \
              gone.",
        shared: true,
        slot: time!(presence_interval),
    },
    Field {
        name: "nodeRetention",
        env: "TENURE_NODE_RETENTION",
        also: &[],
        flag: "--node-retention",
        kind: at_least(1000),
        default: Fallback::Text("3600000"),
        doc: "How long the presence of a crashed node is kept, in ms. Default: 3600000. At least 3 × \
              presenceInterval. The leader removes it up to half of this time later. Shorter: `tenure \
              status` forgets dead nodes sooner. Longer: you can look at them for longer.",
        shared: true,
        slot: time!(node_retention),
    },
    Field {
        name: "workerHeartbeatInterval",
        env: "TENURE_WORKER_HEARTBEAT_INTERVAL",
        also: &[],
        flag: "--worker-heartbeat-interval",
        kind: at_least(1000),
        default: Fallback::Text("5000"),
        doc: "How often a worker refreshes its object, in ms. Default: 5000. A worker's timeout must be \
              at least twice this. Shorter: allows shorter timeouts, but every worker makes one write \
              each time. Longer: cheaper; with a worker on every node, this is the largest part of the \
              bill.",
        shared: true,
        slot: time!(worker_heartbeat_interval),
    },
    Field {
        name: "workerTimeout",
        env: "TENURE_WORKER_TIMEOUT",
        also: &[],
        flag: "--worker-timeout",
        kind: at_least(2000),
        default: Fallback::Text("20000"),
        doc: "How long a worker may be silent before it counts as inactive, in ms, if it sets no timeout \
              of its own. Default: 20000. At least 2 × workerHeartbeatInterval. The leader notices up to \
              workerSweepInterval later. Shorter: dead workers are reported sooner. Longer: a slow store \
              or a paused process is forgiven.",
        shared: true,
        slot: time!(worker_timeout),
    },
    Field {
        name: "workerSweepInterval",
        env: "TENURE_WORKER_SWEEP_INTERVAL",
        also: &[],
        flag: "--worker-sweep-interval",
        kind: at_least(500),
        default: Fallback::Text("5000"),
        doc: "How often the leader lists the workers, in ms. Default: 5000 (thrifty 20000). While there \
              are none, it lists only every fourth time. Each sweep is one list page per 1,000 workers, \
              from the leader alone. Shorter: a silent worker is noticed sooner after its timeout. \
              Longer: cheaper.",
        shared: true,
        slot: time!(worker_sweep_interval),
    },
    Field {
        name: "workerRetention",
        env: "TENURE_WORKER_RETENTION",
        also: &[],
        flag: "--worker-retention",
        kind: at_least(1000),
        default: Fallback::Text("3600000"),
        doc: "How long the object of an inactive worker is kept before the leader removes it, in ms. \
              Default: 3600000. A new leader starts counting again. Shorter: the list stays short where \
              workers come and go without deregistering. Longer: you can look at dead workers for longer.",
        shared: true,
        slot: time!(worker_retention),
    },
    // The settings of jobs are not the service's: each process may look as often as it likes.
    Field {
        name: "jobPollInterval",
        env: "TENURE_JOB_POLL_INTERVAL",
        also: &[],
        flag: "--job-poll-interval",
        kind: at_least(50),
        default: Fallback::Text("250"),
        doc: "How often the leader and workers look for changes to jobs while there are any, in ms. \
              Default: 250. Doubles with every look that finds nothing, up to jobIdleInterval. Shorter: \
              jobs start and finish sooner. Longer: fewer requests.",
        shared: false,
        slot: time!(job_poll_interval),
    },
    Field {
        name: "jobIdleInterval",
        env: "TENURE_JOB_IDLE_INTERVAL",
        also: &[],
        flag: "--job-idle-interval",
        kind: at_least(100),
        default: Fallback::Text("1000"),
        doc: "How often a worker without jobs reads its inbox, in ms. Default: 1000 (thrifty 5000). Each \
              look is one conditional read. If it is below jobPollInterval, jobPollInterval counts. \
              Shorter: the first job after a pause starts sooner. Longer: idle workers cost less.",
        shared: false,
        slot: time!(job_idle_interval),
    },
    Field {
        name: "jobClaimTimeout",
        env: "TENURE_JOB_CLAIM_TIMEOUT",
        also: &[],
        flag: "--job-claim-timeout",
        kind: at_least(500),
        default: Fallback::Text("30000"),
        doc: "How long a job may stay unclaimed in a worker's inbox before the leader gives it to \
              another, in ms, by the leader's clock. Default: 30000. Should be several times \
              jobIdleInterval. Shorter: a worker that does not look delays work less. Longer: fewer \
              jobs are moved for nothing.",
        shared: false,
        slot: time!(job_claim_timeout),
    },
    Field {
        name: "jobRetention",
        env: "TENURE_JOB_RETENTION",
        also: &[],
        flag: "--job-retention",
        kind: Kind::Millis { min: 1000, max: 366 * DAY_MS },
        default: Fallback::Text("604800000"),
        doc: "How long the history keeps finished jobs and their output, in ms. Default: 604800000 (7 days). Old \
              ones are removed when newer ones are put away. Shorter: fewer objects. Longer: more history.",
        shared: false,
        slot: time!(job_retention),
    },
    Field {
        name: "storeClockMargin",
        env: "TENURE_STORE_CLOCK_MARGIN",
        also: &[],
        flag: "--store-clock-margin",
        kind: at_least(0),
        default: Fallback::Text("30000"),
        doc: "Extra time a seat must have been left unchanged before a starting node takes it without \
              watching it first, in ms. Default: 30000. Comes on top of leaseTimeout × leaseExpiryFactor, \
              by the store's clock. Shorter: quicker cold start after an outage, but more trust in the \
              store's clock. Longer: a store whose clock jumps does no harm.",
        shared: true,
        slot: time!(store_clock_margin),
    },
    Field {
        name: "requestTimeout",
        env: "TENURE_REQUEST_TIMEOUT",
        also: &[],
        flag: "--request-timeout",
        kind: at_least(10),
        default: Fallback::Computed {
            rule: "30 % of leaseTimeout × leaseHoldFactor",
            needs: &["leaseTimeout", "leaseHoldFactor"],
            compute: Computation(|settings, _| {
                (settings.core_config().hold_ms() * 3 / 10).max(10).to_string()
            }),
        },
        doc: "How long to wait for an answer from the store, in ms. Default: 30 % of the hold \
              (leaseTimeout × leaseHoldFactor), which is 1500 by default (thrifty 9000, fast 300). Less \
              than half of the hold, so that a renewal that hangs can be retried. Shorter: more tries \
              within a hold. Longer: a slow store still gets its answer through.",
        shared: false,
        slot: time!(request_timeout),
    },
    Field {
        name: "drainTimeout",
        env: "TENURE_DRAIN_TIMEOUT",
        also: &[],
        flag: "--drain-timeout",
        kind: at_least(0),
        default: Fallback::Text("3000"),
        doc: "How long leader-only work may take to stop in a hand-over or shutdown, in ms. Default: \
              3000. The seat is vacated afterwards, so a hand-over takes at most drainTimeout + \
              electionInterval. Shorter: quick shutdown, but slow work is cut off. Longer: work ends \
              cleanly, but nobody else leads meanwhile. Keep it below the grace period of whatever stops \
              the process.",
        shared: false,
        slot: time!(drain_timeout),
    },
    Field {
        name: "epochFencingEnabled",
        env: "TENURE_EPOCH_FENCING_ENABLED",
        also: &[],
        flag: "--epoch-fencing-enabled",
        kind: Kind::Bool,
        default: Fallback::Text("true"),
        doc: "Whether tasks with a stale epoch are rejected. Default: true. false: every task is accepted \
              and none is counted. Use false only while you migrate plugins that do not stamp their tasks \
              yet.",
        shared: true,
        slot: slot!(Bool, epoch_fencing_enabled),
    },
    Field {
        name: "epochGracePeriod",
        env: "TENURE_EPOCH_GRACE_PERIOD",
        also: &[],
        flag: "--epoch-grace-period",
        kind: at_least(0),
        default: Fallback::Text("5000"),
        doc: "How long after a change of leader a task of the previous epoch may still be accepted, in \
              ms, if it was also dispatched within that time. Default: 5000. 0 is strict: nothing from a \
              former leader is ever accepted. Longer: a change of leader loses less work in progress, but \
              the former leader's work can take effect beside the new one's for that long.",
        shared: true,
        slot: time!(epoch_grace_period),
    },
    Field {
        name: "telemetryPrefix",
        env: "TENURE_TELEMETRY_PREFIX",
        also: &[],
        flag: "--telemetry-prefix",
        kind: Kind::Id,
        default: Fallback::Text("serviceradar"),
        doc: "The first part of telemetry event names (serviceradar.coordinator.became_leader). Default: \
              serviceradar. Must be a valid id. Another prefix keeps systems apart in one collector, but \
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
        doc: "Whether to log one line per heartbeat cycle: what was observed, decided and sent. Default: \
              false. true: a stuck election explains itself, at one log line per heartbeat. false: quiet \
              logs. Changes nothing else.",
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
        doc: "Whether slow heartbeat cycles are counted and reported as `contention:detected`. Default: \
              true. contentionThreshold says which are slow. false: no event and no count; latencies are \
              still measured. The election works the same either way.",
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
        doc: "How many heartbeatIntervals a heartbeat cycle may take before it counts as contention. \
              Default: 2. A cycle runs from when it is due until its outcome is known. Smaller: a slowing \
              store is reported before it costs leadership, at the price of false alarms. Larger: only \
              outages and long pauses are reported.",
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
        doc: "The price of 1,000 writes or list pages, in dollars, for the cost estimate in the metrics. \
              Default: 0.005 (S3 standard). 0: writes are free, as on your own store. If it is too low or \
              too high, so is the estimate; nothing else depends on it.",
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
        doc: "The price of 1,000 reads, in dollars, for the cost estimate in the metrics. Default: 0.0004 \
              (S3 standard). 0: reads are free. If it is too low or too high, so is the estimate; nothing \
              else depends on it.",
        shared: false,
        slot: slot!(Micros, price_read_per_1000_micros),
    },
];

impl Preset {
    /// The settings it changes, as texts.
    pub fn values(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Preset::Default => &[],
            Preset::Thrifty => &[
                ("heartbeatInterval", "9000"),
                ("leaseTimeout", "15000"),
                ("electionInterval", "5000"),
                // These two keep it at 2.5 requests per node and 5 s at most, even for a single node with a worker.
                ("presenceInterval", "30000"),
                ("workerSweepInterval", "20000"),
                ("jobIdleInterval", "5000"),
            ],
            Preset::Fast => &[
                ("heartbeatInterval", "300"),
                ("leaseTimeout", "500"),
                ("electionInterval", "250"),
                ("takeoverDelay", "100"),
            ],
        }
    }
}

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

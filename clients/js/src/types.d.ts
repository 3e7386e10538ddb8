// Written by generate-types.js from the OpenAPI document of a node.

/** What became of a change. */
export type Changed = {
  namespace: string;
  /** The schedule. */
  id: string;
  /** `created`, `changed`, `unchanged` or `removed`. */
  outcome: string;
  /** Whether it creates jobs; of pause and resume only. */
  enabled?: boolean;
};

/** The result of a check. */
export type CheckOutcome = {
  /** The check's name. */
  name: string;
  /** Whether it is well. */
  ok: boolean;
  /** How long it took. */
  latencyMs: number;
  /** What it found, for people. */
  detail: string;
};

/** How a cluster is doing, ordered from good to bad; `unknown` means that nobody can tell. */
export type HealthStatus = "healthy" | "degraded" | "critical" | "unknown";

/**
 * The health of a namespace, as anybody can read it. This is what the leader says, and it counts only while it is fresh: the seat is
 * held by a leader that was *seen* to renew, the document is from its epoch, and by the store's clock it is no older than two
 * refreshes. Otherwise the status is `unknown` with the reason `stale_snapshot`, or, if there was a leader and now there is none,
 * `critical` with the reason `no_leader`. Nodes and workers are then those of the last document.
 */
export type HealthView = {
  /** The namespace that was read. */
  namespace: string;
  /** The overall status. */
  status: HealthStatus;
  /** Why the status is not `healthy`. */
  reasons: Reason[];
  /** The epoch of the document; 0 if there is none. */
  epoch: number;
  /** The document's number within that epoch. */
  sequence: number;
  /** How much older the document is than the newest renewal of the seat, on the store's clock. */
  ageMs?: number | null;
  /** The time of that renewal, on the store's clock; workers' `lastSeen` use the same clock. */
  storeTime?: number | null;
  /** The leader, if one was seen alive. */
  leader?: string | null;
  /** A living leader stands behind the document. */
  fresh: boolean;
  /** The nodes of the document. */
  nodes: ViewNode[];
  /** The state of the workers. */
  workers: WorkersHealth;
  /** The results of the component probes. */
  probes: ProbeHealth[];
};

/** A job about which the leader was asked something. */
export type JobAsked = {
  namespace: string;
  /** The job. */
  job: string;
  /** `asked`, or `over` if there was nothing left to cancel. */
  outcome: string;
  /** Its state before that. */
  state: string;
};

/** A job, in its namespace. */
export type JobReport = {
  /** The job's id. */
  id: string;
  /** The schedule that made it, if one did. */
  schedule?: string | null;
  /** What kind of job it is. */
  kind: string;
  /** The queue it waits in. */
  queue: string;
  /** 0 to 9: higher ones are run first. */
  priority: number;
  /** `queued`, `dispatched`, `running`, `succeeded`, `failed` and so on. */
  state: string;
  /** It is not over. */
  open: boolean;
  /** When it was due, in ms since 1970: for a job that was submitted, when that was, or its `notBefore`. */
  due?: number | null;
  /** How long ago that was. */
  ageMs?: number | null;
  /** When it was submitted, its last attempt began, and it ended, in ms since 1970. */
  submitted?: number | null;
  /** See `submitted`. */
  began?: number | null;
  /** See `submitted`. */
  ended?: number | null;
  /** How many attempts were begun. */
  attempt: number;
  /** Most attempts. */
  attempts: number;
  /** The worker that runs it, or ran it. */
  worker?: string | null;
  /** The only worker that may run it. */
  target?: string | null;
  /** The epoch of the leader that dispatched it. */
  epoch: number;
  /** Why it waits, or why it ended as it did. */
  reason: string;
  /** How far its worker is with it, 0 to 100, if it says so; only while it runs. */
  percent?: number | null;
  /** What its worker says about that. */
  progress?: string | null;
  /** The results of its checks. */
  checks: CheckOutcome[];
  /** A result that is not a report. */
  result?: string | null;
  /** Results that came too late to count. */
  late: LateOutcome[];
} & {
  namespace: string;
};

/** A result that came too late. */
export type LateOutcome = {
  /** The number of the attempt. */
  attempt: number;
  /** The worker that ran it. */
  worker: string;
  /** How it ended. */
  outcome: string;
};

/** A short answer about leadership, from memory alone. */
export type Leader = {
  /** The namespace. */
  namespace: string;
  /** The leader, which may be dead and not noticed yet; none if nobody is known to lead. */
  leader?: string | null;
  /** The highest epoch this node knows; 0 if there never was one. */
  epoch: number;
  /** The node that answers. */
  node: string;
  /** Its role. */
  role?: string | null;
  /** The node that answers leads, and may act now. */
  isLeader: boolean;
  /** How long it may act if it does not renew. */
  leaseRemainingMs?: number | null;
};

/** A job to submit. */
export type NewJob = {
  /** Your id for it: submitting it again gives the same job. Default: a new one. */
  id?: string | null;
  /** Workers say which kinds they run. */
  kind: string;
  /** The queue it waits in. Default: `default`. */
  queue?: string | null;
  /** 0 to 9: higher ones are run first. Default: 5. */
  priority?: number | null;
  /** It is not run before this time, in ms since 1970, at most a year from now. Default: at once. */
  notBefore?: number | null;
  /**
   * Input for whoever runs it, at most 16 KiB as JSON. For agents: `{"command": ["/bin/date", "-u"], "directory": …, "env": {…}}` in a
   * job of kind `command`, `{"url": …, "method": …, "headers": {…}, "body": …, "status": …}` in one of kind `http`.
   */
  payload?: Record<string, unknown>;
  /** The worker that must run it. Default: any. */
  worker?: string | null;
  /** The partition a worker must be in. Default: any. */
  partition?: string | null;
  /** The domain a worker must be in. Default: any. */
  domain?: string | null;
  /** What a worker must be able to do. */
  capabilities?: string[];
  /** How long one attempt may take. Default: 60,000; for kinds `command` and `http` 3,600,000. */
  timeoutMs?: number | null;
  /** How long it may wait for a worker. Default: for ever. */
  ttlMs?: number | null;
  /** How often it may be started. Default: 3. */
  attempts?: number | null;
  /** The pause before the second attempt; it doubles before each further one. Default: 1,000. */
  backoffMs?: number | null;
};

/** How a node is doing. */
export type NodeState = "up" | "suspect" | "down" | "left";

/** The last result of one component probe. */
export type ProbeHealth = {
  /** The probe's name. */
  name: string;
  /** Whether the check passed. */
  ok: boolean;
  /** A failure makes the cluster `critical`. */
  critical?: boolean;
  /** What the probe reported. */
  detail?: string;
};

/** One reason for a status that is not `healthy`. */
export type Reason = {
  /** For programs. */
  code: ReasonCode;
  /** The node, probe, worker or schedule this is about; left out if it is about the whole cluster. */
  subject?: string;
  /** For people. */
  detail?: string;
};

/** Why a status is not `healthy`. */
export type ReasonCode =
  | "node_down"
  | "node_flapping"
  | "no_leader"
  | "duplicate_node"
  | "no_eligible_standby"
  | "fallback_mode"
  | "contention"
  | "clock_stall"
  | "stale_snapshot"
  | "slow_store"
  | "probe_failed"
  | "schedule_failing"
  | "schedule_waiting"
  | "worker_down"
  | "settling"
  | "recovering";

/** A job that was submitted. */
export type SubmittedJob = {
  id: string;
  /** There was a job with this id; it stays as it is. */
  existed: boolean;
};

/** One node of the view. */
export type ViewNode = {
  /** The node id. */
  node: string;
  /** The state in the document; down if the node has gone since. */
  state: NodeState;
  /** `leader` or `standby` as in the document; `gone` if the node has gone since. */
  role: string;
  /** The incarnation, if known. */
  incarnation?: string | null;
  /** The software version, if known. */
  version?: string | null;
  /** How long ago it was last seen, on the store's clock; none if it has no presence. */
  lastSeenMsAgo?: number | null;
};

/** One worker as the leader sees it. */
export type WorkerHealth = {
  /** The worker id. */
  workerId: string;
  /** `down`: silent for its whole timeout. `suspect`: silent for half of it. `left`: it deregistered. */
  state: NodeState;
  /** The plugin it works for. */
  pluginType: string;
  /** The pod it runs in. */
  pod: string;
  /** The incarnation, if its object was read: on first sight, and when its size changes. */
  incarnation?: string;
  /** The software version. */
  version?: string;
  /** When it last wrote, on the store's clock; 0 if unknown. For a worker that is up, this may lag by one refresh. */
  lastSeen: number;
};

/** The workers of the cluster. */
export type WorkersHealth = {
  /** The number of workers that are up, listed or not. */
  up: number;
  /** The number of workers that are down, listed or not. */
  down: number;
  /** Those that are down come first, those that left last. */
  list: WorkerHealth[];
};

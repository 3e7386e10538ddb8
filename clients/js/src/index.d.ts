import type { Changed, HealthView, JobAsked, JobReport, Leader, NewJob, SubmittedJob } from "./types.js";

export type { Changed, HealthView, JobAsked, JobReport, Leader, SubmittedJob };

export interface ClientOptions {
  /** The token for changes. Default: `TENURE_HTTP_TOKEN`. */
  token?: string;
  /** A file that has the token. */
  tokenFile?: string;
  /** How long a call may take, with all its tries. Default: 30,000. */
  timeoutMs?: number;
  /** Gets what a worker has to say, such as that a result came too late. Default: `console.warn`. */
  log?: (text: string) => void;
}

/** Ends a call early: it throws the signal's reason. */
export interface Stoppable {
  signal?: AbortSignal;
}

/** A request that a node refused, or a job, a key or a lock that ended badly. */
export class TenureError extends Error {
  /** The HTTP status; 0 if the error is not a node's answer. */
  readonly status: number;
  /** The name of the problem, such as `unknown-job`. */
  name: string;
  /** What is wrong this time. */
  readonly detail: string;
  protected constructor();
}

/** No node did what was asked in time. `status` is that of the last answer, or 0 if there was none. */
export class Unavailable extends TenureError {}

/** The lock is no longer held: someone else may hold it. */
export class LockLost extends TenureError {}

export interface SubmitOptions extends Omit<NewJob, "kind" | "payload" | "notBefore"> {
  /** It is not run before this time: a date, or ms since 1970, at most a year from now. Default: at once. */
  notBefore?: Date | number;
}

/** A job to submit. */
export interface JobSpec extends SubmitOptions {
  kind: string;
  /** Anything JSON has, at most 16 KiB. */
  payload?: unknown;
}

export interface WaitOptions extends Stoppable {
  /** Waits for the end of this attempt, or of a later one: a job that is tried again looks ended for some more seconds. */
  attempt?: number;
}

export interface EventsOptions extends Stoppable {
  /** `debug` adds what a healthy node repeats all the time. Default: `info`. */
  level?: "info" | "debug";
  /** Begins with so many events of the past, at most 1,000. */
  recent?: number;
}

/** An event, with its own fields. `missed` says that there is a gap: what happened in it can be read, not replayed. */
export interface TenureEvent {
  event: string;
  namespace?: string;
  node?: string;
  epoch?: number;
  time?: string;
  [field: string]: unknown;
}

export interface WorkerOptions {
  /** Its id, which no other live process may have. Default: a new one with each node. */
  id?: string;
  /** The queues it takes jobs from. Default: all. */
  queues?: string[];
  /** How many jobs it runs at once, at most 16. Default: 1. */
  concurrency?: number;
  /** How long it may be silent. Default: the setting `workerTimeout`, 20 s. */
  timeoutMs?: number;
  /** Default: `worker`. */
  pluginType?: string;
  /** More to be known about it, at most 8 KiB of JSON. */
  payload?: Record<string, unknown>;
}

/** A job that a worker runs. */
export interface Job {
  readonly id: string;
  readonly attempt: number;
  /** The epoch of the leader that gave it: for whatever checks it. */
  readonly epoch: number;
  readonly queue: string;
  readonly kind: string;
  readonly payload: any;
  /** Aborted when the result would not count any more: the job was cancelled, took too long, or its node is gone. */
  readonly signal: AbortSignal;
  /** Whether `signal` is aborted. */
  readonly cancelled: boolean;
  /** Says how far it is, 0 to 100, and a line about that. Never fails because of a node. */
  progress(percent: number, text?: string): Promise<void>;
  /** Adds a line to the output of the job. It is sent within a second. */
  log(text: string): void;
}

/** What it returns is the result: text or JSON, cut to 1 KiB. If it throws, the job has failed. */
export type Handler = (job: Job) => unknown;

export interface Worker {
  readonly id: string | undefined;
  /** Runs jobs of this kind with this handler. */
  handle(kind: string, handler: Handler): this;
  /** Registers and runs jobs until it is to stop; a second call throws. Throws if a node refuses it, as for a wrong token. */
  run(options?: Stoppable): Promise<void>;
  /** Takes no more jobs, waits for those that run, deregisters. */
  stop(): Promise<void>;
}

/** One entry of a file for `tenure apply`. Times are ms or text such as `30s`. */
export interface Schedule {
  cron?: string;
  zone?: string;
  every?: string | number;
  offset?: string | number;
  jitter?: string | number;
  manual?: boolean;
  enabled?: boolean;
  queue?: string;
  priority?: number;
  overlap?: string;
  maxConcurrent?: number;
  misfire?: string;
  misfireThreshold?: string | number;
  timeout?: string | number;
  attempts?: number;
  backoff?: string | number;
  ttl?: string | number;
  lateAfter?: string | number;
  webhook?: string;
  partition?: string;
  domain?: string;
  capabilities?: string[];
  kind?: string;
  payload?: unknown;
  command?: string[];
  directory?: string;
  env?: Record<string, string>;
  http?: Record<string, unknown>;
  failAfter?: number;
  recoverAfter?: number;
  checks?: Record<string, unknown>[];
}

/** A schedule as stored, but of `webhook` only the host, and what the leader says about it. */
export interface ScheduleInfo {
  id: string;
  /** When its next job should begin, in ms since 1970. */
  next?: number | null;
  [field: string]: unknown;
}

export interface OnceOptions extends Stoppable {
  /** How often it is tried again if it throws, or its process dies. Default: 0. */
  retry?: number;
  /** How long the function may take. Default: 3,600,000. */
  timeoutMs?: number;
}

export interface LockOptions extends Stoppable {
  /** How long to wait while someone else holds it. Default: without end. */
  waitMs?: number;
  /** How long after its last sign of life the node keeps the lock for this process. Default: 10,000. */
  timeoutMs?: number;
}

/** A lock that is held. */
export interface Lock {
  readonly name: string;
  /** Rises with each holder: for whatever checks it. */
  readonly epoch: number;
  /** Whether it is held at this moment. */
  readonly valid: boolean;
  /** Aborted when the lock is lost. */
  readonly signal: AbortSignal;
  /** Throws `LockLost` unless the lock is held at this moment. */
  check(): void;
}

/** A coordinator for node-cron. */
export interface RunCoordinator {
  shouldRun(key: string): Promise<boolean>;
  onComplete(key: string): Promise<void>;
}

export class Client {
  /** URLs of nodes, then options. Default: those in `TENURE_URL`, separated by commas, else http://127.0.0.1:7420. */
  constructor(...args: [...urls: string[], options: ClientOptions] | string[]);

  /** Who leads. `isLeader` and `leaseRemainingMs` are about the node that answered, `node`. */
  leader(): Promise<Leader>;
  /** Whether the first node leads and may act now. */
  isLeader(): Promise<boolean>;
  /** A function that runs only while the first node leads, with the epoch as its first argument; else it returns undefined. */
  leaderOnly<A extends unknown[], R>(fn: (epoch: number, ...args: A) => R): (...args: A) => Promise<Awaited<R> | undefined>;
  /** How the cluster is doing. */
  health(): Promise<HealthView>;
  /** The events of a node as they happen, and those of another node when it is gone. */
  events(options?: EventsOptions): AsyncGenerator<TenureEvent, void, void>;
  /** Whether work of this epoch may be done, as far as the node knows. Times are ms since 1970. */
  fence(epoch: number, options?: { dispatchedAt?: number; deadline?: number }): Promise<boolean>;

  /** Submits a job. `existed`: a job with the given id was there already, as far as the node knows. */
  submit(kind: string, payload?: unknown, options?: SubmitOptions): Promise<SubmittedJob>;
  /** Submits jobs, up to 1,000 or 60 KB in one request: all jobs of a request, or none. */
  submitMany(jobs: JobSpec[]): Promise<SubmittedJob[]>;
  job(id: string, options?: Stoppable): Promise<JobReport>;
  /** The job, once it is over, however it ended. */
  wait(id: string, options?: WaitOptions): Promise<JobReport>;
  /** Asks the leader to cancel a job. */
  cancel(id: string): Promise<JobAsked>;
  /** Asks the leader to try a job again that ended without success. */
  retry(id: string, attempts?: number): Promise<JobAsked>;
  worker(options?: WorkerOptions): Worker;

  /** Creates or replaces a schedule. */
  schedule(id: string, schedule: Schedule): Promise<Changed>;
  schedules(): Promise<ScheduleInfo[]>;
  pause(id: string): Promise<Changed>;
  resume(id: string): Promise<Changed>;
  /** Asks for a job of the schedule now. The same name gives the same job. */
  runNow(id: string, name?: string): Promise<SubmittedJob>;
  remove(id: string): Promise<void>;

  /** Runs `fn` in one of all processes that call this with the same key; all get its result, at most 1 KiB of JSON. */
  once<R>(key: string, fn: (job: Job) => R, options?: OnceOptions): Promise<Awaited<R>>;
  /** Runs `fn` while nobody else holds the lock. Throws `LockLost` if it was lost before the end. */
  lock<R>(name: string, fn: (lock: Lock) => R, options?: LockOptions): Promise<Awaited<R>>;
  /** For node-cron: one of all processes runs each fire of a task. */
  runCoordinator(): RunCoordinator;

  /** Any other route. Repeated until a node answers, so it must be safe to repeat. */
  request(method: string, path: string, body?: unknown, options?: Stoppable): Promise<any>;
}

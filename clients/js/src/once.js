import { TenureError } from "./errors.js";
import { bytesOf, idOf } from "./ids.js";
import { pollJob } from "./jobs.js";

const RESULT_MAX_BYTES = 1024;
const HOUR_MS = 3_600_000;
const CLAIMED = ["acked", "running"];

/** The ends of this job that the history has. It keeps them for `jobRetention`, long after the leader has forgotten the job. */
async function endsOf(client, id, signal) {
  // Each key has a queue of its own, so that this costs a few reads, however many other jobs there are.
  const page = await client.request("GET", `/v1/history?limit=1000&queue=${encodeURIComponent(id)}`, undefined, { signal });
  return page.jobs.filter((job) => job.id === id);
}

/** Whether another job of this id ran long ago. The same job, tried again on request, is not another one. */
async function wasUsed(client, id, signal) {
  const ends = await endsOf(client, id, signal);
  if (!ends.length) return false;
  const { submitted } = await client.job(id, { signal });
  return ends.some((end) => end.submitted !== submitted);
}

async function runHere(client, id, fn, job) {
  if (await wasUsed(client, id, job.signal)) throw new TenureError(0, "used", `${id} was run before`);
  const text = JSON.stringify(await fn(job)) ?? "";
  if (bytesOf(text) > RESULT_MAX_BYTES) throw new RangeError(`the result has ${bytesOf(text)} bytes of JSON, more than 1,024`);
  return text;
}

/**
 * Runs `fn` in one of all processes that ask for this id: all submit the same job, and all offer a worker for it. Returns the job
 * as it ended, and the error of `fn` if it ended here; if `leavesEarly`, `job` is open when another process runs it.
 */
async function race(client, id, fn, { retry, timeoutMs, signal, leavesEarly }) {
  const submit = () => client.submit(id, undefined, { id, queue: id, attempts: 1 + retry, timeoutMs });
  if ((await endsOf(client, id, signal)).length || (await submit()).existed) {
    const job = await client.job(id, { signal });
    if (!job.open) return { job };
  }
  const own = { attempt: 0, error: null };
  const worker = client.worker({ queues: [id] }).handle(id, async (job) => {
    own.attempt = job.attempt;
    own.error = null;
    try {
      return await runHere(client, id, fn, job);
    } catch (error) {
      own.error = error;
      throw error;
    }
  });
  const stop = new AbortController();
  const forward = () => stop.abort(signal.reason);
  signal?.addEventListener("abort", forward, { once: true, signal: stop.signal });
  const isElsewhere = (job) => leavesEarly && CLAIMED.includes(job.state) && job.worker !== worker.id;
  const working = worker.run({ signal: stop.signal });
  try {
    // The worker ends by itself only if it is refused.
    const job = await Promise.race([pollJob(client, id, (job) => !job.open || isElsewhere(job), stop.signal), working]);
    return { job, error: job.attempt === own.attempt ? own.error : null };
  } finally {
    stop.abort();
    await working.catch(() => {});
  }
}

/** Runs `fn` in one of all processes that call this with the same key, and returns its result in all of them. */
export async function once(client, key, fn, { retry = 0, timeoutMs = HOUR_MS, signal } = {}) {
  const { job, error } = await race(client, idOf("once", key), fn, { retry, timeoutMs, signal });
  if (job.state === "succeeded") return job.result ? JSON.parse(job.result) : undefined;
  if (error && job.state === "failed") throw error;
  const where = job.worker ? ` on ${job.worker}` : "";
  throw new TenureError(0, job.state, `${job.id} ended as ${job.state}${where}: ${job.result || job.reason || "no reason given"}`);
}

/** A coordinator for node-cron: one of all processes runs a fire, the others skip it. */
export class RunCoordinator {
  #client;
  #runs = new Map();

  constructor(client) {
    this.#client = client;
  }

  shouldRun(key) {
    return new Promise((resolve, reject) => {
      const run = () => {
        resolve(true);
        return new Promise((finish) => (this.#runs.get(key).finish = finish));
      };
      const ended = race(this.#client, idOf("cron", key), run, { retry: 0, timeoutMs: 24 * HOUR_MS, leavesEarly: true });
      this.#runs.set(key, { ended, finish: () => {} });
      ended.then(() => resolve(false), reject).finally(() => this.#runs.delete(key));
    });
  }

  /** Resolves once the end of the run is on the store. */
  async onComplete(key) {
    const run = this.#runs.get(key);
    run?.finish();
    await run?.ended;
  }
}

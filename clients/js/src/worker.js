import { hostname } from "node:os";
import { isPassing, pauseMs, refusal, sleep } from "./http.js";
import { bytesOf, cleaned, cut, newId } from "./ids.js";
import { Job } from "./job.js";

const RESULT_MAX_BYTES = 1024;
/** How often a running job is asked about: a cancelled one learns of it within this. */
const PING_MS = 1_000;
const WAIT_MS = 20_000;
/** How long a worker that stops tries to say goodbye. */
const LEAVE_MS = 5_000;

/** A registration with one node. Its jobs live and die with it. */
class Membership {
  isLost = false;

  constructor(url, sign, heartbeatWithinMs) {
    this.url = url;
    this.sign = sign;
    this.heartbeatWithinMs = heartbeatWithinMs;
  }
}

/** What a handler returned, as the text that is kept. */
function textOf(value) {
  if (value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value) ?? "";
}

function messageOf(error) {
  return error instanceof Error ? error.message || error.name : String(error);
}

/** Takes jobs and runs them. */
export class Worker {
  #http;
  #options;
  #handlers = new Map();
  #running = new Set();
  #stop = new AbortController();
  #ended = null;
  #id;
  #member = null;
  /** Called whenever a job has ended. */
  #wake = () => {};

  constructor(http, { id, queues = [], concurrency = 1, timeoutMs, pluginType, payload } = {}) {
    this.#http = http;
    this.#id = id;
    this.#options = { queues, concurrency, timeout: timeoutMs, pluginType, payload };
  }

  /** Its id; one that was not given changes with the node. */
  get id() {
    return this.#id ?? this.#member?.sign.workerId;
  }

  handle(kind, handler) {
    if (this.#ended) throw new Error("a worker says which kinds it runs before it runs");
    this.#handlers.set(kind, handler);
    return this;
  }

  /** Runs until it is told to stop. A change of leader and the loss of a node are no errors; a refusal, as of the token, is one. */
  async run({ signal } = {}) {
    if (this.#ended) throw new Error("a worker runs once");
    if (!this.#handlers.size) throw new Error("a worker needs a handler");
    const forward = () => this.#stop.abort();
    signal?.addEventListener("abort", forward, { once: true, signal: this.#stop.signal });
    if (signal?.aborted) forward();
    this.#ended = this.#run();
    await this.#ended;
  }

  /** Takes no more jobs, finishes those that run, deregisters. */
  async stop() {
    this.#stop.abort();
    await this.#ended?.catch(() => {});
  }

  async #run() {
    try {
      while (!this.#stop.signal.aborted) {
        this.#member = (await this.#join(this.#member)) ?? this.#member;
        if (!this.#stop.signal.aborted) await this.#serve(this.#member);
      }
    } finally {
      this.#stop.abort();
      if (this.#member) await this.#drain(this.#member);
    }
  }

  /** The former node, if it still knows the worker; else the first that registers it. `null`: it is to stop. */
  async #join(former) {
    if (former && !former.isLost && (await this.#isKnown(former))) return former;
    const stop = this.#stop.signal;
    const signs = new Map();
    for (let round = 0; !stop.aborted; round++) {
      for (const url of this.#http.inOrder()) {
        const sign = signs.get(url) ?? this.#newSign();
        signs.set(url, sign);
        const body = { ...this.#options, ...sign, kinds: [...this.#handlers.keys()] };
        const answer = await this.#http.attempt(url, "POST", "/v1/workers", { body, signal: stop }).catch(() => null);
        if (stop.aborted) return null;
        if (answer?.status < 300) {
          if (former) this.#lose(former);
          signs.delete(url);
          // One of these may have registered it all the same.
          for (const [other, unused] of signs) void this.#leave(other, unused, 0);
          return new Membership(url, sign, answer.body.heartbeatWithinMs);
        }
        if (answer?.status === 409 || answer?.status === 410) {
          signs.delete(url);
          if (round === 0) this.#http.log(`worker ${sign.workerId}: ${answer.body?.detail ?? answer.name}; trying again`);
        } else if (answer && !isPassing(answer)) {
          throw refusal(answer);
        }
      }
      if (former && !former.isLost && (await this.#isKnown(former))) return former;
      await sleep(pauseMs(round), stop).catch(() => {});
    }
    return null;
  }

  /** Whether a node still has this registration. */
  async #isKnown(member) {
    const answer = await this.#heartbeat(member, this.#stop.signal, member.heartbeatWithinMs / 3);
    if (answer && answer.status !== 200 && !isPassing(answer)) this.#lose(member);
    return answer?.status === 200;
  }

  #heartbeat({ url, sign }, signal, attemptMs) {
    const path = `/v1/workers/${encodeURIComponent(sign.workerId)}/heartbeat`;
    const body = { registration: sign.registration };
    return this.#http.attempt(url, "POST", path, { body, signal, attemptMs }).catch(() => null);
  }

  /** Without an id of its own a worker has a new one with every node, so that it need not wait until the old one is free. */
  #newSign() {
    const workerId = this.#id ?? `js-${cleaned(hostname()).slice(0, 60)}-${newId().slice(0, 12)}`;
    return { workerId, registration: newId() };
  }

  /** Takes jobs until it is to stop, or until its node does not answer or does not know it any more. */
  async #serve(member) {
    const over = new AbortController();
    const end = () => over.abort();
    this.#stop.signal.addEventListener("abort", end, { once: true, signal: over.signal });
    if (this.#stop.signal.aborted) end();
    await Promise.all([this.#take(member, over), this.#beat(member, over)]);
  }

  async #take(member, over) {
    const waitMs = Math.min(WAIT_MS, Math.floor(member.heartbeatWithinMs / 2));
    const path = `/v1/workers/${encodeURIComponent(member.sign.workerId)}/jobs/next`;
    const body = { registration: member.sign.registration, waitMs };
    while (!over.signal.aborted) {
      if (this.#running.size >= this.#options.concurrency) {
        await Promise.race([new Promise((resolve) => (this.#wake = resolve)), aborted(over.signal)]);
        continue;
      }
      let answer = null;
      try {
        answer = await this.#http.attempt(member.url, "POST", path, { body, signal: over.signal, attemptMs: waitMs + 10_000 });
      } catch {
        // The node does not answer; or it is over.
      }
      if (answer?.status === 200) this.#begin(member, answer.body);
      else if (answer?.status !== 204) over.abort();
    }
  }

  /** Keeps the registration until it is over; while draining, also through what passes. */
  async #beat(member, over, isDraining = false) {
    const everyMs = member.heartbeatWithinMs / 3;
    let heardMs = performance.now();
    while (!over.signal.aborted && !member.isLost) {
      await sleep(everyMs, over.signal).catch(() => {});
      if (over.signal.aborted) return;
      const answer = await this.#heartbeat(member, over.signal, everyMs);
      if (over.signal.aborted) return;
      if (answer?.status === 200) heardMs = performance.now();
      else if ((answer && !isPassing(answer)) || performance.now() - heardMs > member.heartbeatWithinMs) this.#lose(member);
      if (answer?.status !== 200 && !isDraining) over.abort();
    }
  }

  #begin(member, given) {
    const isSame = (one) => one.member === member && one.job.id === given.id && one.job.attempt === given.attempt;
    const known = [...this.#running].find(isSame);
    if (known) return void this.#post(member, known.job, "ack", {});
    const send = async (job, what, more) => (await this.#post(member, job, what, more)) !== null;
    const one = { member, job: new Job(given, send), done: null };
    this.#running.add(one);
    one.done = this.#perform(member, one.job).finally(() => {
      this.#running.delete(one);
      this.#wake();
    });
  }

  async #perform(member, job) {
    // Without an answer the node may have heard it all the same, and would wait for the result: so it is asked until it answers.
    if (!(await this.#insist(member, job, "ack", {}))) return;
    const over = new AbortController();
    const watching = this.#watch(member, job, over.signal);
    let outcome = "succeeded";
    let result;
    try {
      result = textOf(await this.#handlers.get(job.kind)(job));
    } catch (error) {
      outcome = "failed";
      result = messageOf(error);
    }
    over.abort();
    await watching;
    if (bytesOf(result) > RESULT_MAX_BYTES) {
      this.#http.log(`job ${job.id}: its result has ${bytesOf(result)} bytes and is cut to ${RESULT_MAX_BYTES}`);
    }
    if (!job.cancelled) await job.flush();
    const taken = !job.cancelled && (await this.#insist(member, job, "result", { outcome, result: cut(result, RESULT_MAX_BYTES) }));
    if (!taken) this.#http.log(`job ${job.id}, attempt ${job.attempt}: its result came too late and is dropped`);
  }

  /** While a job runs: sends what it says, and learns whether it is cancelled. */
  async #watch(member, job, over) {
    while (!over.aborted && !job.cancelled) {
      await sleep(PING_MS, over).catch(() => {});
      if (over.aborted || job.cancelled) return;
      await job.flush();
      await this.#post(member, job, "ack", {});
    }
  }

  /** Says something about a job until the node has answered. Whether it was heard in time. */
  async #insist(member, job, what, more) {
    for (let round = 0; !member.isLost && !job.cancelled; round++) {
      const heard = await this.#post(member, job, what, more, round > 0);
      if (heard !== null) return heard;
      await sleep(pauseMs(round));
    }
    return false;
  }

  /** Says something about a job, once. `null`: no answer, or one that passes. `false`: the job is not this worker's any more. */
  async #post(member, job, what, more, wasSaid = false) {
    if (member.isLost) return false;
    const body = { ...member.sign, attempt: job.attempt, ...more };
    const path = `/v1/jobs/${encodeURIComponent(job.id)}/${what}`;
    const answer = await this.#http.attempt(member.url, "POST", path, { body }).catch(() => null);
    if (!answer || isPassing(answer)) return null;
    if (answer.status < 300) return true;
    if (answer.name !== "unknown-job") this.#http.log(`job ${job.id}: ${what} refused: ${answer.body?.detail ?? answer.name}`);
    // A result whose first answer was lost is unknown the second time, because it was taken.
    if (what === "result" && wasSaid) return true;
    job.abort("the job was cancelled, took too long, or is on another attempt");
    return false;
  }

  #lose(member) {
    if (member.isLost) return;
    member.isLost = true;
    void this.#leave(member.url, member.sign, 0);
    for (const { member: its, job } of this.#running) {
      if (its === member) job.abort("the node that gave this job is gone: the job is tried again elsewhere");
    }
  }

  async #drain(member) {
    const over = new AbortController();
    const beating = this.#beat(member, over, true);
    await Promise.all([...this.#running].map(({ done }) => done));
    over.abort();
    await beating;
    if (!member.isLost) await this.#leave(member.url, member.sign, LEAVE_MS);
  }

  /** Deregisters, if that is possible within so many milliseconds; one try at least. */
  async #leave(url, { workerId, registration }, withinMs) {
    const path = `/v1/workers/${encodeURIComponent(workerId)}?registration=${registration}`;
    const endMs = performance.now() + withinMs;
    for (let round = 0; ; round++) {
      const answer = await this.#http.attempt(url, "DELETE", path, { attemptMs: LEAVE_MS }).catch(() => null);
      if ((answer && !isPassing(answer)) || performance.now() > endMs) return;
      await sleep(pauseMs(round));
    }
  }
}

function aborted(signal) {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", resolve, { once: true });
  });
}

import { Unavailable } from "./errors.js";
import { events } from "./events.js";
import { Http, refusal } from "./http.js";
import { newId } from "./ids.js";
import { pollJob, submitJobs } from "./jobs.js";
import { withLock } from "./lock.js";
import { RunCoordinator, once } from "./once.js";
import { Worker } from "./worker.js";

function jobPath(id, what = "") {
  return `/v1/jobs/${encodeURIComponent(id)}${what}`;
}

function schedulePath(id, what = "") {
  return `/v1/schedules/${encodeURIComponent(id)}${what}`;
}

/** A job as the API takes it. */
function jobOf({ kind, payload, notBefore, ...rest }) {
  const time = notBefore instanceof Date ? notBefore.getTime() : notBefore;
  return { ...rest, kind, payload, notBefore: time };
}

/** Talks to one or more nodes of a namespace. */
export class Client {
  #http;

  constructor(...args) {
    const options = typeof args.at(-1) === "object" ? args.pop() : {};
    this.#http = new Http(args, options);
  }

  request(method, path, body, { signal } = {}) {
    return this.#http.call(method, path, { body, signal });
  }

  leader() {
    return this.request("GET", "/v1/leader");
  }

  async isLeader() {
    const { isLeader } = await this.#leaderOfFirst();
    return isLeader;
  }

  async #leaderOfFirst() {
    try {
      return await this.#http.call("GET", "/v1/leader", { only: this.#http.urls[0] });
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      // It is gone, so it does not lead; unless nobody can be asked at all.
      return { ...(await this.leader()), isLeader: false };
    }
  }

  leaderOnly(fn) {
    return async (...args) => {
      const { isLeader, epoch } = await this.#leaderOfFirst();
      return isLeader ? fn(epoch, ...args) : undefined;
    };
  }

  health() {
    return this.request("GET", "/v1/health/cluster");
  }

  events(options) {
    return events(this.#http, options);
  }

  async fence(epoch, { dispatchedAt, deadline } = {}) {
    const { accepted } = await this.request("POST", "/v1/fence", { epoch, dispatchedAt, deadline });
    return accepted;
  }

  async submit(kind, payload, options = {}) {
    const [submitted] = await this.submitMany([{ ...options, kind, payload }]);
    return submitted;
  }

  async submitMany(jobs) {
    return submitJobs(this.#http, jobs.map(jobOf));
  }

  job(id, { signal } = {}) {
    return this.request("GET", jobPath(id), undefined, { signal });
  }

  wait(id, { attempt = 0, signal } = {}) {
    return pollJob(this, id, (job) => !job.open && job.attempt >= attempt, signal);
  }

  cancel(id) {
    return this.request("POST", jobPath(id, "/cancel"));
  }

  async retry(id, attempts = 1) {
    const answer = await this.#http.send("POST", jobPath(id, "/retry"), { body: { attempts } });
    // The job is open again: an earlier try of this request was heard.
    if (answer.status === 422 && answer.repeated) {
      const job = await this.job(id);
      if (job.open) return { namespace: job.namespace, job: id, outcome: "asked", state: job.state };
    }
    if (answer.status >= 400) throw refusal(answer);
    return answer.body;
  }

  worker(options) {
    return new Worker(this.#http, options);
  }

  schedule(id, schedule) {
    return this.request("PUT", schedulePath(id), schedule);
  }

  async schedules() {
    const { schedules } = await this.request("GET", "/v1/schedules");
    return schedules;
  }

  pause(id) {
    return this.request("POST", schedulePath(id, "/pause"));
  }

  resume(id) {
    return this.request("POST", schedulePath(id, "/resume"));
  }

  async runNow(id, name) {
    const answer = await this.#http.send("POST", schedulePath(id, "/run-now"), { body: { name: name ?? newId() } });
    if (answer.status >= 400) throw refusal(answer);
    return { id: answer.body.job, existed: name !== undefined && answer.body.outcome === "existed" };
  }

  async remove(id) {
    const answer = await this.#http.send("DELETE", schedulePath(id));
    // An earlier try of this request has removed it.
    if (answer.status === 404 && answer.repeated) return;
    if (answer.status >= 400) throw refusal(answer);
  }

  once(key, fn, options) {
    return once(this, key, fn, options);
  }

  lock(name, fn, options) {
    return withLock(this.#http, name, fn, options);
  }

  runCoordinator() {
    return new RunCoordinator(this);
  }
}

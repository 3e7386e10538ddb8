import { Unavailable } from "./errors.js";
import { pauseMs, refusal, sleep } from "./http.js";
import { newId } from "./ids.js";

const JOBS_MAX = 1000;
/** A node takes bodies of 64 KiB. */
const BODY_MAX_BYTES = 60_000;
const POLL_MAX_MS = 1_000;

/** Jobs in groups that fit into a request each. */
function* groups(jobs) {
  let group = [];
  let bytes = 0;
  for (const job of jobs) {
    const size = Buffer.byteLength(JSON.stringify(job)) + 1;
    if (group.length && (group.length === JOBS_MAX || bytes + size > BODY_MAX_BYTES)) {
      yield group;
      group = [];
      bytes = 0;
    }
    group.push(job);
    bytes += size;
  }
  if (group.length) yield group;
}

/** Submits jobs, each under an id of its own, so that it is safe to submit them again after a lost answer. */
export async function submitJobs(http, jobs, signal) {
  const named = jobs.map((job) => ({ ...job, id: job.id ?? newId() }));
  const submitted = [];
  for (const group of groups(named)) {
    const answer = await http.send("POST", "/v1/jobs", { body: { jobs: group }, signal });
    if (answer.status >= 400) throw refusal(answer);
    submitted.push(...answer.body.jobs);
  }
  // Nobody else knows an id that was made here.
  return submitted.map(({ id, existed }, index) => ({ id, existed: existed && jobs[index].id !== undefined }));
}

/** Looks at a job again and again until it is as wanted. */
export async function pollJob(client, id, isEnough, signal) {
  for (let round = 1; ; round++) {
    try {
      const job = await client.job(id, { signal });
      if (isEnough(job)) return job;
    } catch (error) {
      // Too many requests: this node looks for one unlisted job at a time.
      if (!(error instanceof Unavailable && error.status === 429)) throw error;
    }
    await sleep(Math.min(2 * pauseMs(round), POLL_MAX_MS), signal);
  }
}

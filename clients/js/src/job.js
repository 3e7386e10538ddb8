import { bytesOf, cut } from "./ids.js";

const TEXT_MAX_BYTES = 200;
const OUTPUT_MAX_BYTES = 32 * 1024;
/** What a job says faster than it can be sent, beyond this, is left out. */
const OUTPUT_KEPT_BYTES = 256 * 1024;

/** A job that a worker runs. */
export class Job {
  #send;
  #stop = new AbortController();
  #progress = {};
  #output = "";
  #leftOut = 0;
  #sending = null;

  constructor(given, send) {
    this.id = given.id;
    this.attempt = given.attempt;
    this.epoch = given.epoch;
    this.queue = given.queue;
    this.kind = given.kind;
    this.payload = given.payload;
    this.#send = send;
  }

  get signal() {
    return this.#stop.signal;
  }

  get cancelled() {
    return this.#stop.signal.aborted;
  }

  async progress(percent, text = "") {
    if (!Number.isFinite(percent)) throw new TypeError("percent must be a number");
    this.#progress = { percent: Math.round(Math.min(Math.max(percent, 0), 100)), text: cut(text, TEXT_MAX_BYTES) };
    await this.flush();
  }

  log(text) {
    const line = text.endsWith("\n") ? text : `${text}\n`;
    if (bytesOf(this.#output) + bytesOf(line) > OUTPUT_KEPT_BYTES) {
      this.#leftOut += bytesOf(line);
      return;
    }
    this.#output += line;
    if (bytesOf(this.#output) >= OUTPUT_MAX_BYTES / 2) void this.flush();
  }

  /** Ends the job for its handler: the result would not count any more. */
  abort(why) {
    this.#stop.abort(new Error(why));
  }

  /** Sends what the job has said, if anything. What cannot be sent now is sent later. */
  flush() {
    this.#sending ??= this.#flush().finally(() => (this.#sending = null));
    return this.#sending;
  }

  async #flush() {
    while (!this.cancelled) {
      const output = this.#takeOutput();
      const progress = this.#progress;
      if (!output && progress.percent === undefined) return;
      this.#progress = {};
      if (await this.#send(this, "progress", { ...progress, output })) continue;
      this.#output = output + this.#output;
      this.#progress = { ...progress, ...this.#progress };
      return;
    }
  }

  #takeOutput() {
    const part = cut(this.#output, OUTPUT_MAX_BYTES);
    this.#output = this.#output.slice(part.length);
    if (this.#output || !this.#leftOut || part.length > OUTPUT_MAX_BYTES / 2) return part;
    const note = `[${this.#leftOut} bytes left out]\n`;
    this.#leftOut = 0;
    return part + note;
  }
}

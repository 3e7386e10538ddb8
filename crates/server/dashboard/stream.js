// Server-sent events by fetch: EventSource cannot send a token.

const RETRY_MS = 1000;
const RETRY_MAX_MS = 10000;
const SILENCE_MS = 45000; // the node says something every 15 s

export class Stream {
  constructor(url, headers, told) {
    Object.assign(this, { url, headers, told, last: null, wait: RETRY_MS, stop: null, hurry: false });
  }

  /** Begins anew with another stream. */
  turnTo(url) {
    if (url === this.url) return;
    Object.assign(this, { url, last: null, hurry: true });
    if (this.stop) this.stop.abort();
  }

  async run() {
    for (;;) {
      try {
        await this.read();
        this.wait = RETRY_MS;
      } catch {
        this.wait = Math.min(RETRY_MAX_MS, this.wait * 2);
      }
      const wait = this.hurry ? 0 : this.wait;
      this.hurry = false;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  async read() {
    const stop = new AbortController();
    this.stop = stop;
    let silence = 0;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => stop.abort(), SILENCE_MS);
    };
    heard();
    try {
      const more = { accept: "text/event-stream" };
      if (this.last) more["last-event-id"] = this.last;
      const answer = await fetch(this.url, {
        headers: this.headers(more), cache: "no-store", credentials: "omit", signal: stop.signal,
      });
      if (answer.status === 401) await this.told.unauthorized();
      if (!answer.ok) throw new Error(String(answer.status));
      this.wait = RETRY_MS;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        heard();
        text += value;
        const frames = text.split("\n\n");
        text = frames.pop();
        frames.forEach((frame) => this.take(frame));
      }
    } finally {
      clearTimeout(silence);
    }
  }

  take(frame) {
    let [id, name, data] = [null, "message", ""];
    for (const line of frame.split("\n")) {
      if (line.startsWith("id: ")) id = line.slice(4);
      else if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (id) this.last = id;
    if (!data) return;
    try {
      this.told.event(id, name, JSON.parse(data));
    } catch {
      // Not JSON: nothing that this page could show.
    }
  }
}

// Real nodes on one SQLite file, for tests. `TENURE_BIN` is the binary.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Client } from "../src/index.js";

export const TOKEN = "a-token-for-tests-only";
/**
 * A worker counts as silent after 3 s, and is seen within half a second, or two if it is the first. A node may act for 4 s after a
 * renewal, so that none loses its lease because the machine is busy.
 */
const FLAGS = [
  ["--preset", "fast"],
  ["--lease-timeout", "2s"],
  ["--heartbeat-interval", "500ms"],
  ["--election-interval", "250ms"],
  ["--request-timeout", "1s"],
  ["--startup-jitter-max", "0s"],
  ["--presence-interval", "1s"],
  ["--worker-heartbeat-interval", "1s"],
  ["--worker-timeout", "3s"],
  ["--worker-sweep-interval", "500ms"],
  ["--job-poll-interval", "100ms"],
  ["--job-idle-interval", "200ms"],
].flat();

/** The folder of the package: a program that runs there can import it by its name. */
export const PACKAGE = fileURLToPath(new URL("..", import.meta.url));

function binary() {
  const path = process.env.TENURE_BIN ?? join(PACKAGE, "../../target/debug/tenure");
  try {
    accessSync(path, constants.X_OK);
  } catch {
    throw new Error(`there is no program ${path}: set TENURE_BIN to the path of the binary \`tenure\`, or build it`);
  }
  return path;
}

/** Waits until `look` returns something, and returns that; an error after a minute. */
export async function until(what, look) {
  const endMs = performance.now() + 60_000;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (performance.now() > endMs) throw new Error(`waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

class Node {
  #lines = [];

  constructor(name, directory) {
    this.name = name;
    this.directory = directory;
  }

  async start(port = 0) {
    const store = `sqlite:${join(this.directory, "store.db")}`;
    const args = ["run", "--node", this.name, "--store", store, "--listen", `127.0.0.1:${port}`, "--log", "json", ...FLAGS];
    const env = { PATH: process.env.PATH, HOME: this.directory, TENURE_HTTP_TOKEN: TOKEN };
    this.child = spawn(binary(), args, { env, stdio: ["ignore", "ignore", "pipe"] });
    createInterface(this.child.stderr).on("line", (line) => this.#lines.push(line));
    this.url = await until(`${this.name} listens`, () => {
      if (this.child.exitCode !== null) throw new Error(`${this.name} ended:\n${this.#lines.join("\n")}`);
      return /listening on (http:\S+?)"/.exec(this.#lines.find((line) => line.includes("listening on")) ?? "")?.[1];
    });
  }

  async end(signal) {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = once(this.child, "exit");
    this.child.kill(signal);
    this.child.kill("SIGCONT");
    await ended;
  }

  async kill() {
    await this.end("SIGKILL");
  }

  /** Stops it, but not while it writes: that would keep SQLite locked for all. */
  async freeze(other) {
    const client = new Client(other.url, { token: TOKEN, timeoutMs: 2_000 });
    const write = async () => {
      await client.request("POST", "/v1/queues/unused/pause");
      await client.request("POST", "/v1/queues/unused/resume");
      return true;
    };
    await until(`${this.name} is frozen, and the others can write`, async () => {
      this.child.kill("SIGSTOP");
      if (await write().catch(() => false)) return true;
      this.thaw();
      return false;
    });
  }

  thaw() {
    this.child.kill("SIGCONT");
  }

  /** Starts again, on the same port. */
  async restart() {
    await this.kill();
    this.#lines = [];
    await this.start(new URL(this.url).port);
  }
}

/** Starts nodes and waits until one of them leads. They and their store are removed when the test ends. */
export async function startCluster(t, count) {
  const directory = mkdtempSync(join(tmpdir(), "tenure-js-"));
  const nodes = Array.from({ length: count }, (_, index) => new Node(`node-${"abc"[index]}`, directory));
  t.after(async () => {
    await Promise.all(nodes.map((node) => node.child && node.kill()));
    rmSync(directory, { recursive: true });
  });
  await Promise.all(nodes.map((node) => node.start()));
  const cluster = {
    nodes,
    urls: nodes.map((node) => node.url),
    client: (options) => new Client(...nodes.map((node) => node.url), { token: TOKEN, timeoutMs: 60_000, ...options }),
    /** A client that prefers this node. */
    clientOf: (node, options) => {
      const others = nodes.filter((other) => other !== node);
      return new Client(node.url, ...others.map(({ url }) => url), { token: TOKEN, timeoutMs: 60_000, log: () => {}, ...options });
    },
    /** The node that leads, as soon as one does, once it knows that itself. */
    async leader() {
      return until("a node leads", async () => {
        for (const node of nodes) {
          if (node.child.exitCode !== null || node.child.signalCode !== null) continue;
          const known = await fetch(`${node.url}/v1/leader`).then((answer) => answer.json(), () => null);
          if (known?.isLeader) return node;
        }
        return null;
      });
    },
  };
  await cluster.leader();
  return cluster;
}

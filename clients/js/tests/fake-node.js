// A server that does to its clients what real nodes do on a bad day.
import { createServer } from "node:http";
import { Client } from "../src/index.js";
import { TOKEN } from "./cluster.js";

/** What a handler returns to break the connection after the request was carried out. */
export const DROP = Symbol("drop");
/** What a handler returns to never answer. */
export const SILENCE = Symbol("silence");

export function problem(status, name, more = {}) {
  const { headers, ...fields } = more;
  return { status, headers, body: { type: `urn:tenure:problem:${name}`, title: "", status, detail: `it is ${name}`, ...fields } };
}

/** A server whose handler gets `{ method, path, body, headers }` and returns `{ status, body, headers }`, `DROP` or `SILENCE`. */
export async function startFake(t, handler) {
  const heard = [];
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const piece of request.setEncoding("utf8")) text += piece;
    const one = { method: request.method, path: request.url, headers: request.headers, body: text ? JSON.parse(text) : undefined };
    heard.push(one);
    const answer = await handler(one, response);
    if (answer === DROP) request.socket.destroy();
    if (answer === DROP || answer === SILENCE || answer === undefined) return;
    const type = answer.status >= 400 ? "application/problem+json" : "application/json";
    response.writeHead(answer.status, { "content-type": type, ...answer.headers });
    response.end(answer.body === undefined ? "" : typeof answer.body === "string" ? answer.body : JSON.stringify(answer.body));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const end = () => {
    server.closeAllConnections?.();
    return new Promise((resolve) => server.close(resolve));
  };
  t.after(end);
  const url = `http://127.0.0.1:${server.address().port}`;
  return { url, heard, end, client: (options) => new Client(url, { token: TOKEN, ...options }) };
}

/** An address where nobody listens. */
export async function deadUrl(t) {
  const fake = await startFake(t, () => SILENCE);
  await fake.end();
  return fake.url;
}

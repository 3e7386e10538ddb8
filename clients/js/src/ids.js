import { createHash, randomBytes } from "node:crypto";

/** 32 hexadecimal digits that nobody else has. */
export function newId() {
  return randomBytes(16).toString("hex");
}

/** Any text as part of an id: readable as far as possible, and different for different texts. */
export function idOf(prefix, text) {
  const readable = cleaned(text).slice(0, 60);
  return `${prefix}.${readable}.${createHash("sha256").update(text).digest("hex").slice(0, 32)}`;
}

/** What an id may contain: letters, digits, `-` and `_`. */
export function cleaned(text) {
  return text.replace(/[^A-Za-z0-9_-]/g, "-");
}

/** The beginning of a text that fits into so many bytes, without half a character. */
export function cut(text, bytes) {
  const room = new Uint8Array(bytes);
  const { written } = new TextEncoder().encodeInto(text, room);
  return new TextDecoder().decode(room.subarray(0, written));
}

/** The length of a text in bytes. */
export function bytesOf(text) {
  return Buffer.byteLength(text);
}

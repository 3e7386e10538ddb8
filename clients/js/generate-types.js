// Writes src/types.d.ts from the OpenAPI document of a node:
//   curl -fsS http://127.0.0.1:7420/openapi.json > openapi.json && node generate-types.js openapi.json
// With --check it writes nothing, and fails if src/types.d.ts is not current.
import { readFileSync, writeFileSync } from "node:fs";

/** What the client takes and returns; what these refer to comes along. */
const ROOTS = ["Changed", "HealthView", "JobAsked", "JobReport", "Leader", "NewJob", "SubmittedJob"];
const TARGET = new URL("src/types.d.ts", import.meta.url);
const WIDTH = 140;
const NAMES = { integer: "number", number: "number", string: "string", boolean: "boolean", null: "null" };

function comment(text, indent) {
  const lines = [];
  for (const word of text.split(/\s+/)) {
    const last = lines.at(-1);
    if (last !== undefined && indent.length + last.length + word.length + 8 <= WIDTH) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  if (lines.length === 1) return `${indent}/** ${lines[0]} */\n`;
  return `${indent}/**\n${lines.map((line) => `${indent} * ${line}\n`).join("")}${indent} */\n`;
}

function typeOf(schema, indent, seen) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1);
    seen.add(name);
    return name;
  }
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.oneOf) return [...new Set(schema.oneOf.map((one) => typeOf(one, indent, seen)))].join(" | ");
  if (schema.allOf) return schema.allOf.map((one) => typeOf(one, indent, seen)).join(" & ");
  if (Array.isArray(schema.type)) return schema.type.map((type) => typeOf({ ...schema, type }, indent, seen)).join(" | ");
  if (schema.type === "array") {
    const items = typeOf(schema.items, indent, seen);
    return /[|&]/.test(items) && !items.startsWith("{") ? `(${items})[]` : `${items}[]`;
  }
  if (schema.type === "object") return schema.properties ? fields(schema, indent, seen) : "Record<string, unknown>";
  return NAMES[schema.type] ?? "unknown";
}

function fields(schema, indent, seen) {
  const inner = `${indent}  `;
  const text = Object.entries(schema.properties).map(([name, field]) => {
    const mark = schema.required?.includes(name) ? "" : "?";
    return `${field.description ? comment(field.description, inner) : ""}${inner}${name}${mark}: ${typeOf(field, inner, seen)};\n`;
  });
  return `{\n${text.join("")}${indent}}`;
}

function generate(document) {
  const schemas = document.components.schemas;
  const found = new Map();
  const wanted = [...ROOTS];
  while (wanted.length) {
    const name = wanted.pop();
    if (found.has(name)) continue;
    if (!schemas[name]) throw new Error(`the document has no schema ${name}`);
    const seen = new Set();
    const about = schemas[name].description ? comment(schemas[name].description, "") : "";
    const line = `export type ${name} = ${typeOf(schemas[name], "", seen)};\n`;
    const isLong = !line.includes("{") && line.length > WIDTH;
    found.set(name, about + (isLong ? line.replace("= ", "=\n  | ").replaceAll('" | ', '"\n  | ') : line));
    wanted.push(...seen);
  }
  const types = [...found].sort(([one], [two]) => (one < two ? -1 : 1)).map(([, text]) => text);
  return `// Written by generate-types.js from the OpenAPI document of a node.\n\n${types.join("\n")}`;
}

const names = process.argv.slice(2).filter((argument) => argument !== "--check");
if (names.length !== 1) {
  console.error("usage: node generate-types.js [--check] openapi.json");
  process.exit(2);
}
const text = generate(JSON.parse(readFileSync(names[0], "utf8")));
if (!process.argv.includes("--check")) {
  writeFileSync(TARGET, text);
} else if (readFileSync(TARGET, "utf8") !== text) {
  console.error("src/types.d.ts is not current: run `node generate-types.js openapi.json`");
  process.exit(1);
}

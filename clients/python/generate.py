#!/usr/bin/env python3
"""Writes tenure/_types.py from the OpenAPI document of a node.

    curl -s http://127.0.0.1:7420/openapi.json > openapi.json
    python3 generate.py openapi.json            # writes tenure/_types.py
    python3 generate.py --check openapi.json    # ends with 1 if it is not current, or if a route is missing
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

TARGET = Path(__file__).resolve().parent / "tenure" / "_types.py"

# What a node answers, and what it is called here.
ANSWERS = {
    "CheckOutcome": "CheckOutcome",
    "JobGiven": "JobGiven",
    "JobInfo": "JobInfo",
    "LateOutcome": "LateOutcome",
    "Leader": "Leader",
    "Membership": "Membership",
    "SubmittedJob": "SubmittedJob",
}

# What a node is sent, and what it is called here.
REQUESTS = {
    "AckAsk": "AckBody",
    "FenceAsk": "FenceBody",
    "HoldingSign": "HoldingBody",
    "LockAsk": "LockBody",
    "NewJob": "JobBody",
    "NewWorker": "WorkerBody",
    "NextAsk": "NextBody",
    "ProgressAsk": "ProgressBody",
    "ResultAsk": "ResultBody",
    "RetryAsk": "RetryBody",
    "RunAsk": "RunBody",
}

ROUTES = [
    "get /v1/events",
    "get /v1/history",
    "get /v1/jobs/{id}",
    "get /v1/leader",
    "get /v1/schedules",
    "post /v1/fence",
    "post /v1/jobs",
    "post /v1/jobs/{id}/ack",
    "post /v1/jobs/{id}/cancel",
    "post /v1/jobs/{id}/progress",
    "post /v1/jobs/{id}/result",
    "post /v1/jobs/{id}/retry",
    "post /v1/locks/{id}",
    "post /v1/locks/{id}/heartbeat",
    "post /v1/schedules/{id}/pause",
    "post /v1/schedules/{id}/resume",
    "post /v1/schedules/{id}/run-now",
    "post /v1/workers",
    "post /v1/workers/{id}/heartbeat",
    "post /v1/workers/{id}/jobs/next",
    "put /v1/schedules/{id}",
    "delete /v1/locks/{id}",
    "delete /v1/schedules/{id}",
    "delete /v1/workers/{id}",
]

HEAD = '''"""Made by generate.py from the OpenAPI document of a node: do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, TypedDict
'''

PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "Dict[str, Any]"}


def snake(name: str) -> str:
    return re.sub(r"([A-Z])", lambda found: "_" + found.group(1).lower(), name)


def python_type(schema: Dict[str, Any], schemas: Dict[str, Any]) -> Tuple[str, bool, str]:
    """The type, whether it may be null, and the class to make of it, if there is one."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        if name in ANSWERS:
            return ANSWERS[name], False, ANSWERS[name]
        return python_type(schemas[name], schemas)
    if "oneOf" in schema and all("enum" in one for one in schema["oneOf"]):
        return "str", False, ""
    kind = schema.get("type")
    nullable = isinstance(kind, list) and "null" in kind
    if isinstance(kind, list):
        kind = next(one for one in kind if one != "null")
    if kind == "array":
        inner, _, made = python_type(schema["items"], schemas)
        return f"List[{inner}]", nullable, made
    if kind is None:
        return "Any", False, ""
    return PLAIN[kind], nullable, ""


def comment(text: str, indent: str) -> List[str]:
    words, lines, line = text.split(), [], indent + "#:"
    for word in words:
        if len(line) + len(word) > 118:
            lines.append(line)
            line = indent + "#:"
        line += " " + word
    return lines + [line] if words else []


def answer(name: str, schema: Dict[str, Any], schemas: Dict[str, Any]) -> str:
    lines = ["@dataclass(frozen=True)", f"class {ANSWERS[name]}:"]
    lines.append(f'    """{schema.get("description", name).splitlines()[0]}"""')
    lines.append("")
    made: List[str] = []
    for key, field in schema["properties"].items():
        kind, nullable, inner = python_type(field, schemas)
        optional = nullable or key not in schema.get("required", [])
        lines += comment(field.get("description", ""), "    ")
        lines.append(f"    {snake(key)}: " + (f"Optional[{kind}]" if optional else kind))
        value = f'data.get("{key}")' if optional else f'data["{key}"]'
        if inner and kind.startswith("List["):
            value = f"[{inner}.of(one) for one in {value}]"
        elif inner:
            value = f"{inner}.of({value})"
        made.append(f"            {snake(key)}={value},")
    lines += ["", "    @classmethod", f"    def of(cls, data: Mapping[str, Any]) -> {ANSWERS[name]}:"]
    lines += ["        return cls(", *made, "        )"]
    return "\n".join(lines)


def request(name: str, schema: Dict[str, Any], schemas: Dict[str, Any]) -> str:
    lines = [f"class {REQUESTS[name]}(TypedDict, total=False):"]
    for key, field in schema["properties"].items():
        kind, _, _ = python_type(field, schemas)
        if key == "payload" and name == "NewJob":
            kind = "Any"
        lines.append(f"    {key}: {kind}")
    return "\n".join(lines)


def text_of(document: Dict[str, Any]) -> str:
    schemas = document["components"]["schemas"]
    parts = [HEAD.rstrip()]
    parts += [answer(name, schemas[name], schemas) for name in sorted(ANSWERS)]
    parts += [request(name, schemas[name], schemas) for name in sorted(REQUESTS)]
    return "\n\n\n".join(parts) + "\n"


def main(arguments: List[str]) -> int:
    check = "--check" in arguments
    files = [one for one in arguments if one != "--check"]
    if len(files) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    document = json.loads(Path(files[0]).read_text(encoding="utf-8"))
    there = {f"{method} {path}" for path, methods in document["paths"].items() for method in methods}
    missing = [route for route in ROUTES if route not in there]
    if missing:
        print("the document lacks " + ", ".join(missing), file=sys.stderr)
        return 1
    text = text_of(document)
    if not check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print("tenure/_types.py is not current: run `python3 generate.py openapi.json`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The examples of the README, each in a process of its own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import threading
import unittest
from typing import Dict, List

from .cluster import PACKAGE, Nodes, eventually

TEXT = (PACKAGE / "README.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))

# What each prints.
EXPECTED = {
    "Who leads": r"[abc] leads in epoch (\d+)\ntidied up in epoch \1",
    "Jobs and workers": "sent",
    "Once": r"migrating\n{'version': 42}",
    "Lock": r"working in epoch \d+",
    "Schedules": r"digest\.run\.\w+",
    "When something goes wrong": "404 unknown-job .*",
}

# Instead of the middle of the night.
NOW = """
import datetime, sys
scheduler.get_job("nightly").modify(next_run_time=datetime.datetime.now(datetime.timezone.utc))
sys.stdin.read()
"""


class Example:
    def __init__(self, text: str, environment: Dict[str, str]) -> None:
        command = [sys.executable, "-u", "-c", "from tenure import Client\n" + text]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=PACKAGE
        )
        self.lines: List[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def end(self) -> None:
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self._reading.join()
            self.process.communicate()


class Readme(Nodes):
    def start(self, heading: str, more: str = "") -> Example:
        leader = self.cluster.await_leader().url
        urls = [leader] + [url for url in self.cluster.urls if url != leader]
        text = EXAMPLES[heading].replace("http://127.0.0.1:7420", urls[0]).replace("http://127.0.0.1:7421", urls[1])
        return Example(text + more, {**self.cluster.environment(), "TENURE_URL": ",".join(urls)})

    def test_every_example_is_tested(self) -> None:
        self.assertEqual(set(EXAMPLES), {*EXPECTED, "Events", "APScheduler and Celery beat"})
        self.assertEqual(len(EXAMPLES), TEXT.count("```python\n"))
        self.assertLessEqual(TEXT.count("\n"), 150)

    def test_what_they_print(self) -> None:
        for heading, expected in EXPECTED.items():
            with self.subTest(heading):
                example = self.start(heading)
                example.end()
                self.assertRegex("\n".join(example.lines), rf"\A{expected}\Z")

    def test_events(self) -> None:
        example = self.start("Events")
        self.addCleanup(example.process.kill)
        worker_ids = iter(range(1000))

        def reported() -> bool:
            worker = self.client().worker(f"seen-{next(worker_ids)}")
            worker.handle("x", print)
            with worker:
                return "worker:registered" in example.lines

        eventually("it prints the names of events", reported)
        self.client().request("POST", "/v1/step-down", {})
        example.end()
        self.assertEqual(example.lines[-1], "leader:changed")

    @unittest.skipUnless(importlib.util.find_spec("apscheduler"), "APScheduler is not installed")
    def test_apscheduler(self) -> None:
        example = self.start("APScheduler and Celery beat", NOW)
        self.addCleanup(example.end)
        self.addCleanup(example.process.kill)
        eventually("the job runs", lambda: example.lines)
        self.assertEqual(example.lines, ["runs in one process"])


if __name__ == "__main__":
    unittest.main()

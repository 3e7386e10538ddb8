"""Runs the other modules, each in a process of its own and all at once, because most of the time they wait.

One of them by itself: python3 -m unittest -v tests.nodes_once
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
SLOW_ONES = ["nodes_failover.LeaderDies", "nodes_failover.NodeFreezes", "nodes_failover.NodeOfALockDies"]
OTHERS = [file.stem for file in sorted(HERE.glob("[no]*_*.py")) if file.stem != "nodes_failover"]
NEEDS = {"nodes_apscheduler": "apscheduler", "nodes_celery": "celery"}


class All(unittest.TestCase):
    def test_all(self) -> None:
        running = {}
        for name in [*SLOW_ONES, *OTHERS]:
            if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
                print(f"tests.{name} is left out: {NEEDS[name]} is not installed", file=sys.stderr)
                continue
            command = [sys.executable, "-m", "unittest", "-v", "tests." + name]
            running[name] = subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.addCleanup(running[name].wait)
            self.addCleanup(running[name].terminate)
        for name, process in running.items():
            with self.subTest(name):
                output = process.communicate(timeout=300)[0].decode("utf-8", "replace")
                self.assertEqual(process.returncode, 0, "\n" + output)
                self.assertRegex(output, "Ran [1-9]")

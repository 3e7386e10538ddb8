"""Real nodes for the tests: the binary that TENURE_BIN names, on one SQLite file in a temporary directory."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, TypeVar

from tenure import Client

PACKAGE = Path(__file__).resolve().parent.parent
TOKEN = "a-token-for-the-tests-0123456789"
T = TypeVar("T")

# Short times, so that the tests need not wait: a worker that falls silent is noticed after three seconds.
SETTINGS = {
    "--preset": "fast",
    "--startup-jitter-max": "0ms",
    "--presence-interval": "1s",
    "--worker-heartbeat-interval": "1s",
    "--worker-timeout": "3s",
    "--worker-sweep-interval": "500ms",
    "--job-idle-interval": "250ms",
    # A leader that is not lost because this machine is busy.
    "--lease-timeout": "2s",
    "--heartbeat-interval": "500ms",
    "--election-interval": "250ms",
    "--request-timeout": "1s",
}


def binary() -> str:
    built = PACKAGE.parent.parent / "target/debug/tenure"
    found = os.environ.get("TENURE_BIN") or str(built)
    if not os.access(found, os.X_OK):
        raise RuntimeError(f"there is no program {found}: let TENURE_BIN say where the binary `tenure` is, or build it")
    return str(Path(found).resolve())


def eventually(what: str, ask: Callable[[], T], within: float = 30.0) -> T:
    """Asks until the answer is true."""
    end = time.monotonic() + within
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {within} s; the last answer was {answer!r}")
        time.sleep(0.05)


class Node:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.url = ""
        self.process: Optional[subprocess.Popen[bytes]] = None

    def start(self) -> None:
        listen = self.url.rpartition("/")[2] or "127.0.0.1:0"
        log = self.cluster.directory / f"{self.name}.log"
        begin = log.stat().st_size if log.exists() else 0
        command = [binary(), "run", "--node", self.name, "--listen", listen]
        command += ["--store", f"sqlite:{self.cluster.directory}/tenure.db", "--data-dir", str(self.cluster.directory)]
        command += [word for pair in SETTINGS.items() for word in pair]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("TENURE_", "COORDINATOR_"))}
        with open(log, "ab") as file:
            self.process = subprocess.Popen(command, stderr=file, stdout=file, env={**clean, "TENURE_HTTP_TOKEN": TOKEN})

        def listening() -> Optional[str]:
            assert self.process is not None and self.process.poll() is None, log.read_text()
            found = re.search(rb"listening on (http://\S+)", log.read_bytes()[begin:])
            return found.group(1).decode() if found else None

        self.url = eventually(f"{self.name} listens", listening) or ""

    def kill(self) -> None:
        """As a crash."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()
        self.process = None

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)


class Cluster:
    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tenure-python-"))
        self.nodes: Dict[str, Node] = {name: Node(self, name) for name in "abc"}
        atexit.register(self.stop)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that SIGTERM leaves no nodes behind
        for node in self.nodes.values():
            node.start()
        self.await_leader()

    @property
    def urls(self) -> List[str]:
        return [node.url for node in self.nodes.values()]

    def client(self, **options: Any) -> Client:
        return Client(*self.urls, token=TOKEN, **options)

    def environment(self) -> Dict[str, str]:
        return {**os.environ, "TENURE_URL": ",".join(self.urls), "TENURE_HTTP_TOKEN": TOKEN}

    def await_leader(self) -> Node:
        """The node that leads, once all nodes that run agree."""

        def agreed() -> Optional[str]:
            alive = [node for node in self.nodes.values() if node.process is not None]
            seen = [Client(node.url, token=TOKEN, timeout=5).leader() for node in alive]
            leads = {one.leader for one in seen}
            return seen[0].leader if len(leads) == 1 and any(one.is_leader for one in seen) else None

        return self.nodes[eventually("a leader", agreed) or ""]

    def tenure(self, *words: str) -> str:
        """Runs the binary on the same store."""
        store = ["--store", f"sqlite:{self.directory}/tenure.db"]
        done = subprocess.run([binary(), *words, *store], stdout=subprocess.PIPE, check=True, timeout=30)
        return done.stdout.decode()

    def stop(self) -> None:
        atexit.unregister(self.stop)
        for node in self.nodes.values():
            if node.process is not None:
                node.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class Nodes(unittest.TestCase):
    """Three nodes that all tests of a class share."""

    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.stop)

    def client(self, **options: Any) -> Client:
        return self.cluster.client(**options)

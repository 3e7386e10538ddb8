"""For Celery beat: run it on several hosts, and each due task is sent by one of them.

    celery -A app beat --scheduler tenure.celery:OnceScheduler

A due task is known by the name of its entry and the time it was due: the minute of a crontab, or the interval, counted from 1970. Nodes and
token come from TENURE_URL and TENURE_HTTP_TOKEN. Sending takes as long as `Client.once` does.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Any, List, Optional, Tuple

from celery import schedules
from celery.beat import PersistentScheduler

from ._client import Client

log = logging.getLogger("celery.beat")

#: How many tasks are sent at once: each takes a few seconds.
THREADS = 8

#: How many seconds to wait for the process that sends the task.
WAIT = 600.0


def due(entry: Any) -> str:
    """The same in every process for the same due time of an entry."""
    if isinstance(entry.schedule, schedules.schedule):
        seconds = max(entry.schedule.seconds, 1.0)
        return f"{seconds:g}s.{int(time.time() // seconds)}"
    moment = time.time() + entry.schedule.remaining_estimate(entry.last_run_at).total_seconds()
    return f"minute.{round(moment / 60)}"


class OnceScheduler(PersistentScheduler):
    """Sends each due task from one of all processes that run beat."""

    #: Set it in a subclass if the variables of the environment will not do.
    client: Optional[Client] = None

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        if not hasattr(self, "_due"):
            self._beat = threading.current_thread()
            self._due: queue.Queue[Tuple[str, Any]] = queue.Queue()
            self.client = self.client or Client()
            threads: List[threading.Thread] = [threading.Thread(target=self._send, name="tenure beat", daemon=True) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
        self._due.put((f"celery.{entry.name}.{due(entry)}", entry))

    def _send(self) -> None:
        while True:
            key, entry = self._due.get()

            def send() -> None:
                log.info("tenure: sending due task %s (%s)", entry.name, entry.task)
                self.apply_async(entry, advance=False)

            try:
                assert self.client is not None
                self.client.once(key, send, wait=WAIT)
            except Exception as error:
                log.error("tenure: due task %s: %s", entry.name, error)

    def should_sync(self) -> bool:
        """The file of the schedule belongs to the thread of beat."""
        mine = getattr(self, "_beat", None) in (None, threading.current_thread())
        return mine and bool(super().should_sync())

"""Two processes of the real Celery beat, with the same schedule."""

from __future__ import annotations

import subprocess
import sys
import time
import unittest
from datetime import datetime, timedelta, timezone
from typing import List

from celery import Celery
from celery.beat import ScheduleEntry
from celery.schedules import crontab

from tenure.celery import due

from .cluster import PACKAGE, Nodes, eventually

EVERY = 3

# Each message becomes a file.
APP = (
    """
from celery import Celery
app = Celery("app", broker="filesystem://")
app.conf.broker_transport_options = {"data_folder_in": "messages", "data_folder_out": "messages", "control_folder": "control"}
app.conf.beat_schedule = {"tick": {"task": "tick", "schedule": %d}}
app.conf.beat_max_loop_interval = 0.5
"""
    % EVERY
)


class TwoBeats(Nodes):
    def test_each_due_task_is_sent_by_one_of_them(self) -> None:
        folder = self.cluster.directory
        messages = folder / "messages"
        (folder / "control").mkdir()
        messages.mkdir()
        (folder / "app.py").write_text(APP)
        environment = {**self.cluster.environment(), "PYTHONPATH": f"{PACKAGE}:{folder}"}
        beats: List[subprocess.Popen[bytes]] = []

        def sent() -> int:
            return len(list(messages.iterdir()))

        begin = time.time()
        for name in "ab":
            command = [sys.executable, "-m", "celery", "-A", "app", "beat", "--scheduler", "tenure.celery:OnceScheduler"]
            command += ["--loglevel", "INFO", "--schedule", f"{name}.schedule", "--pidfile", ""]
            with open(folder / f"beat-{name}.log", "wb") as log:
                beats.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log))
            self.addCleanup(beats[-1].wait)
            self.addCleanup(beats[-1].kill)
        eventually("tasks are sent", lambda: sent() >= 5)
        count = sent()
        self.assertLessEqual(count, time.time() // EVERY - begin // EVERY + 1, "more than there were due times")
        log_texts = [(folder / f"beat-{name}.log").read_text() for name in "ab"]
        self.assertGreaterEqual(sum(text.count("tenure: sending due task tick") for text in log_texts), count, log_texts)
        beats[0].kill()
        before = sent()
        eventually("the other one goes on", lambda: sent() >= before + 2)

    def test_a_due_time_is_the_same_everywhere(self) -> None:
        app = Celery("app")
        now = datetime.now(timezone.utc).replace(second=20)
        every_minute, daily = crontab(), crontab(hour=str((now + timedelta(hours=-1)).hour), minute="30")

        def due_of(schedule: crontab, ago: timedelta) -> str:
            return due(ScheduleEntry("x", "x", now - ago, schedule=schedule, app=app))

        self.assertEqual(due_of(every_minute, timedelta(seconds=30)), due_of(every_minute, timedelta(seconds=50)))
        self.assertNotEqual(due_of(every_minute, timedelta(seconds=30)), due_of(every_minute, timedelta(seconds=90)))
        self.assertEqual(due_of(daily, timedelta(hours=3)), due_of(daily, timedelta(hours=5)))


if __name__ == "__main__":
    unittest.main()

"""Two schedulers of the real APScheduler, with the same jobs."""

from __future__ import annotations

import unittest
from datetime import datetime, timedelta, timezone
from typing import Any, Counter, List

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MISSED
from apscheduler.schedulers.background import BackgroundScheduler

from tenure import TenureError
from tenure.apscheduler import OnceExecutor

from .cluster import Nodes, eventually


class TwoSchedulers(Nodes):
    def test_each_fire_runs_in_one_of_them(self) -> None:
        ran: Counter[str] = Counter()
        events: List[Any] = []

        def work(id: str) -> None:
            ran[id] += 1
            if id == "fails":
                raise ValueError("no such table")

        due = datetime.now(timezone.utc) + timedelta(seconds=2)
        for _ in range(2):
            scheduler = BackgroundScheduler(executors={"default": OnceExecutor(self.client())})
            scheduler.add_listener(events.append, EVENT_JOB_ERROR | EVENT_JOB_EXECUTED | EVENT_JOB_MISSED)
            for id in ("one", "two", "fails"):
                scheduler.add_job(work, "date", [id], id=id, run_date=due, misfire_grace_time=60)
            scheduler.add_job(work, "date", ["old"], id="old", run_date=due - timedelta(hours=1), misfire_grace_time=60)
            end = due + timedelta(seconds=4)
            scheduler.add_job(work, "interval", ["often"], id="often", seconds=3, start_date=due, end_date=end, max_instances=2)
            scheduler.start()
            self.addCleanup(scheduler.shutdown)
        with self.assertLogs("apscheduler", "WARNING"), self.assertLogs("tenure", "ERROR"):
            eventually("all fires have ended in both", lambda: len(events) == 12)
        self.assertEqual(ran, {"one": 1, "two": 1, "fails": 1, "often": 2})
        outcomes = Counter((event.job_id, event.code) for event in events)
        executed = {(id, EVENT_JOB_EXECUTED): 2 for id in ("one", "two")}
        self.assertEqual(
            outcomes, {**executed, ("often", EVENT_JOB_EXECUTED): 4, ("fails", EVENT_JOB_ERROR): 2, ("old", EVENT_JOB_MISSED): 2}
        )
        errors = {type(event.exception) for event in events if event.code == EVENT_JOB_ERROR}
        self.assertEqual(errors, {ValueError, TenureError}, "where it ran, and elsewhere")


if __name__ == "__main__":
    unittest.main()

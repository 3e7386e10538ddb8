"""Who leads, schedules and events, against real nodes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Any, Dict, List, Optional

from tenure import Client, TenureError

from .cluster import PACKAGE, TOKEN, Nodes, eventually


class View(Nodes):
    def leader_first(self) -> Client:
        leader = self.cluster.await_leader()
        return Client(leader.url, *[url for url in self.cluster.urls if url != leader.url], token=TOKEN)

    def test_the_generated_types_are_current(self) -> None:
        document = self.client().request("GET", "/openapi.json")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(document, file)
            file.flush()
            done = subprocess.run([sys.executable, PACKAGE / "generate.py", "--check", file.name], stderr=subprocess.PIPE)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
        del document["components"]["schemas"]["Leader"]["properties"]["epoch"]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(document, file)
            file.flush()
            done = subprocess.run([sys.executable, PACKAGE / "generate.py", "--check", file.name], stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 1, "a document of another version")

    def test_who_leads(self) -> None:
        client = self.leader_first()
        who = client.leader()
        self.assertEqual((who.leader, who.node, who.is_leader), (self.cluster.await_leader().name, who.leader, True))
        self.assertGreater(who.epoch, 0)
        self.assertGreater(who.lease_remaining_ms or 0, 0)
        self.assertTrue(client.is_leader())
        self.assertEqual(client.leader_only(lambda epoch: epoch)(), who.epoch)
        follower = Client(next(url for url in self.cluster.urls if url != client._core.addresses[0].url), *self.cluster.urls, token=TOKEN)
        self.assertFalse(follower.is_leader())
        self.assertIsNone(follower.leader_only(lambda: self.fail("it does not lead"))())
        self.assertEqual(follower.leader().leader, who.leader)

    def test_fence(self) -> None:
        client = self.client()
        epoch = client.leader().epoch
        self.assertTrue(client.fence(epoch))
        self.assertTrue(client.fence(epoch + 7), "an epoch it has not heard of")
        self.assertFalse(client.fence(epoch - 1))
        self.assertFalse(client.fence(epoch, deadline=time.time() - 5))
        with self.assertRaises(TenureError) as caught:
            client.fence(2**60)
        self.assertEqual(caught.exception.name, "invalid")

    def test_schedules(self) -> None:
        client = self.client()
        fields: Dict[str, Any] = {"cron": "0 7 * * 1", "zone": "Europe/Berlin", "kind": "digest", "payload": {"to": "everybody"}}
        self.assertEqual(client.schedule("digest", **fields, queue="schedules", timeout=90, late_after="5m"), "created")
        self.assertEqual(client.schedule("digest", **fields, queue="schedules", timeout="90s", late_after=300), "unchanged")
        self.assertEqual(client.schedule("digest", every=3600.5, kind="digest", queue="schedules"), "changed")
        stored = next(one for one in client.schedules() if one["id"] == "digest")
        self.assertEqual((stored["every"], stored["kind"], stored["enabled"]), (3600500, "digest", True))
        client.pause("digest")
        self.assertFalse(client.request("GET", "/v1/schedules/digest")["schedule"]["enabled"])
        client.resume("digest")
        self.assertTrue(client.request("GET", "/v1/schedules/digest")["schedule"]["enabled"])
        worker = client.worker(queues=["schedules"])
        worker.handle("digest", lambda job: "sent")
        with worker:
            job = client.run_now("digest", name="now")
            self.assertEqual((job, client.run_now("digest", name="now")), ("digest.run.now", "digest.run.now"))
            eventually("its job exists", lambda: exists(client, job))
            self.assertEqual(client.wait(job, timeout=30).result, "sent")
        client.remove("digest")
        for call in (client.remove, client.pause, client.run_now):
            with self.assertRaises(TenureError) as caught:
                call("digest")
            self.assertEqual((caught.exception.status, caught.exception.name), (404, "unknown-schedule"))
        with self.assertRaises(TenureError) as caught:
            client.schedule("wrong", every=0, cron="x", kind="y")
        self.assertGreater(len(caught.exception.problems), 0)

    def test_events_go_on_where_the_connection_ended(self) -> None:
        client = self.client()
        names: List[str] = []
        with client.events() as stream:
            opened = threading.Event()

            def read() -> None:
                for event in stream:
                    if event.name == "worker:registered":
                        names.append(event.data["workerId"])
                        opened.set()

            reading = threading.Thread(target=read)
            reading.start()
            for number in range(4):
                worker = client.worker(f"seen-{number}", queues=["seen"])
                worker.handle("seen", lambda job: None)
                with worker:
                    eventually("it is reported", lambda: f"seen-{number}" in names)
                    stream._connection.drop()
        reading.join(30)
        self.assertFalse(reading.is_alive(), "closing the stream ends the loop")
        self.assertEqual([name for name in names if name.startswith("seen")], [f"seen-{number}" for number in range(4)])


def exists(client: Client, id: str) -> Optional[bool]:
    try:
        return bool(client.job(id).id)
    except TenureError as error:
        assert error.status == 404
        return None


if __name__ == "__main__":
    unittest.main()

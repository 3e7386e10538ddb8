"""Nodes die and freeze in the middle."""

from __future__ import annotations

import signal
import threading
import time
import unittest
from collections import Counter
from typing import Any, Callable, Dict, List, Tuple
from unittest import mock

from tenure import Client, Job, LockLost, Unavailable

from .cluster import TOKEN, Cluster, eventually


class LeaderDies(unittest.TestCase):
    """The node that leads, that everybody talks to, and that holds the workers, is killed in the middle."""

    def test_nobody_sees_a_leader_die_and_each_job_has_one_result(self) -> None:
        cluster = Cluster()
        self.addCleanup(cluster.stop)
        leader = cluster.await_leader()
        urls = [leader.url] + [url for url in cluster.urls if url != leader.url]

        def new_client() -> Client:
            """Each works out by itself that the leader is gone."""
            return Client(*urls, token=TOKEN)

        errors: List[BaseException] = []
        over = threading.Event()
        self.addCleanup(over.set)
        ran: Counter[str] = Counter()
        ids: List[str] = []
        changes: List[str] = []
        missed: List[Any] = []

        def guarded(work: Any) -> threading.Thread:
            def run() -> None:
                try:
                    work()
                except BaseException as error:
                    errors.append(error)

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            return thread

        def submit() -> None:
            client = new_client()
            while not over.is_set():
                id = f"job-{len(ids)}"
                client.submit("count", len(ids), id=id, attempts=9)
                ids.append(id)
                time.sleep(0.05)

        def schedule() -> None:
            client, number = new_client(), 0
            while not over.is_set():
                client.schedule("changing", every=3600 + number, kind="x")
                client.schedules()
                number += 1
                time.sleep(0.1)

        stream = new_client().events()
        self.addCleanup(stream.close)

        def watch() -> None:
            for event in stream:
                if event.name == "leader:changed":
                    changes.append(event.data["newLeader"])
                elif event.name == "missed":
                    missed.append(event.data)

        surviving = Client(urls[1], token=TOKEN)
        migrated: List[int] = []
        results: List[Any] = []
        begun, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def migrate() -> Dict[str, int]:
            migrated.append(1)
            begun.set()
            go_on.wait(60)
            return {"version": 42}

        def once_through(client: Client) -> Callable[[], None]:
            return lambda: results.append(client.once("migrate", migrate, wait=90))

        def hold() -> None:
            with surviving.lock("one") as lock:
                begun.set()
                go_on.wait(60)
                lock.check()
                holders.append(("first", lock.epoch))

        def wait_for_it() -> None:
            with new_client().lock("one") as lock:
                lock.check()
                holders.append(("second", lock.epoch))

        holders: List[Tuple[str, int]] = []
        calls = []
        for first, second in ((hold, wait_for_it), (once_through(surviving), once_through(new_client()))):
            calls.append(guarded(first))
            self.assertTrue(begun.wait(60))
            begun.clear()
            calls.append(guarded(second))
        workers = [new_client().worker(f"w-{n}", concurrency=2) for n in range(2)]
        for worker in workers:

            @worker.handles("count")
            def count(job: Job) -> int:
                ran[job.id] += 1
                time.sleep(0.02)
                return int(job.payload)

            self.addCleanup(worker.stop, 0)
            worker.start()
        threads = [guarded(work) for work in (submit, schedule, watch)]
        eventually("work goes on before", lambda: len(ran) >= 10)
        leader.kill()
        killed_at = len(ids)
        after = cluster.await_leader()
        self.assertNotEqual(after.name, leader.name)
        go_on.set()
        for call in calls:
            call.join(90)
        self.assertEqual((errors, migrated, results), ([], [1], [{"version": 42}] * 2))
        self.assertEqual([name for name, _ in holders], ["first", "second"])
        self.assertLess(holders[0][1], holders[1][1])
        eventually("work goes on afterwards", lambda: len(ids) >= killed_at + 30 and ran[ids[killed_at + 20]])
        over.set()
        for thread in threads[:2]:
            thread.join(40)
        self.assertEqual(errors, [])
        client = new_client()
        done = [client.wait(id, timeout=60) for id in ids]
        for worker in workers:
            worker.stop()
        eventually("the change is reported", lambda: after.name in changes)
        self.assertEqual(len(missed), 1)
        stream.close()
        threads[2].join(30)
        self.assertEqual(errors, [])
        self.assertEqual([(one.id, one.state, one.result) for one in done], [(id, "succeeded", str(n)) for n, id in enumerate(ids)])
        ends: Counter[str] = Counter()

        def archived() -> bool:
            page = client.request("GET", "/v1/history?limit=1000")
            ends.clear()
            ends.update(one["id"] for one in page["jobs"])
            return set(ends) >= set(ids)

        eventually("all are in the history", archived)
        self.assertEqual(set(ends.values()), {1})
        again = {id: times for id, times in ran.items() if times > 1}
        self.assertLessEqual(len(again), 4 + 4, f"only what was in hand ran again: {again}")


class NodeFreezes(unittest.TestCase):
    def test_a_frozen_node_is_left_and_a_restarted_one_is_used(self) -> None:
        cluster = Cluster()
        self.addCleanup(cluster.stop)
        a, b, c = cluster.nodes.values()
        client = Client(a.url, b.url, token=TOKEN, timeout=12)
        begun = threading.Event()
        told: List[bool] = []
        worker = client.worker("moves", timeout=3)

        @worker.handles("long")
        def long(job: Job) -> str:
            begun.set()
            if job.attempt == 1:
                eventually("it is told that its result will not count", lambda: job.cancelled)
                told.append(True)
            return f"attempt {job.attempt}"

        events: List[str] = []

        def watch() -> None:
            for event in stream:
                events.append(event.name)

        silence = mock.patch("tenure._api.SILENCE_MAX", 2.0)
        silence.start()
        self.addCleanup(silence.stop)
        stream = client.events()
        watching = threading.Thread(target=watch)
        watching.start()
        with self.assertLogs("tenure", "WARNING"), worker:
            eventually("events are reported", lambda: "worker:registered" in events)
            id = client.submit("long", attempts=5, backoff=0).id
            self.assertTrue(begun.wait(30))
            a.signal(signal.SIGSTOP)
            try:
                done = Client(b.url, token=TOKEN).wait(id, timeout=120)
                self.assertEqual((done.state, told), ("succeeded", [True]))
                self.assertGreater(done.attempt, 1)
                eventually("another node reports", lambda: "missed" in events)
            finally:
                stream.close()
                watching.join(30)
                a.signal(signal.SIGCONT)
        for node in (a, b):
            node.kill()
        with self.assertRaises(Unavailable):
            Client(a.url, b.url, token=TOKEN, timeout=1).submit("x")
        starting = threading.Timer(1.0, b.start)
        starting.start()
        try:
            self.assertFalse(client.submit("x", id="after").existed)
        finally:
            starting.join()


class NodeOfALockDies(unittest.TestCase):
    def test_it_is_lost_in_time_and_another_gets_it_then(self) -> None:
        cluster = Cluster()
        self.addCleanup(cluster.stop)
        a, b, _ = cluster.nodes.values()
        for how in (signal.SIGKILL, signal.SIGSTOP):
            one, two = Client(a.url, b.url, token=TOKEN), Client(b.url, token=TOKEN)
            lost_at: List[float] = []
            with self.assertLogs("tenure", "WARNING"), self.assertRaises(LockLost):
                with one.lock("node", wait=30) as lock:
                    a.signal(how)
                    taken: List[float] = []

                    def take(two: Client = two, taken: List[float] = taken) -> None:
                        with two.lock("node", wait=60) as other:
                            taken.append(time.monotonic())
                            other.check()

                    taking = threading.Thread(target=take)
                    taking.start()
                    while lock.valid:
                        self.assertEqual(taken, [])
                        lost_at[:] = [time.monotonic()]
                        time.sleep(0.001)
                    with self.assertRaises(LockLost):
                        lock.check()
            taking.join(60)
            self.assertGreater(taken[0], lost_at[0])
            a.signal(signal.SIGKILL)
            assert a.process is not None
            a.process.wait()
            a.start()


if __name__ == "__main__":
    unittest.main()

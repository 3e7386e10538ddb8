"""Jobs and workers, against real nodes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import unittest
from typing import Any, Dict, List

from tenure import Client, Job, NewJob, TenureError, Unavailable

from .cluster import PACKAGE, TOKEN, Nodes, eventually


class JobsAndWorkers(Nodes):
    def test_a_job_from_its_submission_to_its_result(self) -> None:
        client = self.client()
        seen: List[Job] = []
        worker = client.worker("py-1", queues=["whole"], concurrency=2)

        @worker.handles("upper")
        def upper(job: Job) -> Dict[str, Any]:
            seen.append(job)
            job.log("begun")
            job.progress(50, "half\nway")
            job.log("ü" * 20_000)
            eventually("the progress is seen", lambda: client.job(job.id).percent == 50)
            return {"upper": job.payload["text"].upper()}

        with worker:
            self.assertEqual(worker.id, "py-1")
            made = client.submit("upper", {"text": "abc ü"}, id="whole-1", queue="whole", priority=7, timeout=30, attempts=2)
            self.assertEqual((made.id, made.existed), ("whole-1", False))
            self.assertTrue(client.submit("upper", id="whole-1", queue="whole").existed)
            done = client.wait("whole-1", timeout=30)
        self.assertEqual((done.state, done.worker, done.queue, done.priority, done.attempt), ("succeeded", "py-1", "whole", 7, 1))
        self.assertEqual(json.loads(done.result or ""), {"upper": "ABC Ü"})
        self.assertEqual((seen[0].payload_bytes, seen[0].attempt, seen[0].queue), (b'{"text":"abc \xc3\xbc"}', 1, "whole"))
        self.assertTrue(client.fence(seen[0].epoch))
        self.assertEqual(self.cluster.tenure("job", "logs", "whole-1"), "begun\n" + "ü" * 20_000 + "\n")
        workers = client.request("GET", "/v1/workers")["workers"]
        self.assertNotIn("py-1", [one["workerId"] for one in workers if one["active"]], "it has deregistered")

    def test_what_a_handler_returns_and_raises(self) -> None:
        client = self.client()
        worker = client.worker(queues=["ends"], concurrency=8)
        results: Dict[str, Any] = {"text": "done", "nothing": None, "json": [1, {"a": None}], "long": "ü" * 2000}
        worker.handle("give", lambda job: results[job.payload])

        @worker.handles("fail")
        def fail(job: Job) -> None:
            raise KeyError("x" * 2000) if job.payload == "long" else ValueError("no such address")

        @worker.handles("exit")
        def leave(job: Job) -> None:
            sys.exit("out of paper")

        jobs = [NewJob("give", name, id=f"ends-{name}", queue="ends") for name in results]
        jobs += [NewJob("fail", "short", id="ends-short", queue="ends", attempts=1)]
        jobs += [NewJob("fail", "long", id="ends-longer", queue="ends", attempts=1)]
        jobs += [NewJob("exit", id="ends-exit", queue="ends", attempts=2, backoff=0)]
        with self.assertLogs("tenure", "WARNING"), worker:
            client.submit_many(jobs)
            done = {job.id: client.wait(job.id, timeout=30) for job in jobs}
        self.assertEqual({done["ends-" + name].state for name in results}, {"succeeded"})
        self.assertEqual((done["ends-text"].result, done["ends-nothing"].result or ""), ("done", ""))
        self.assertEqual(json.loads(done["ends-json"].result or ""), [1, {"a": None}])
        self.assertEqual(done["ends-long"].result, "ü" * 510 + "…")
        failed = done["ends-short"]
        self.assertEqual((failed.state, failed.attempt), ("failed", 1))
        self.assertEqual(failed.result, "no such address")
        self.assertEqual((done["ends-longer"].state, (done["ends-longer"].result or "")[-4:]), ("failed", "xxx…"))
        self.assertEqual((done["ends-exit"].state, done["ends-exit"].attempt), ("failed", 2))
        self.assertEqual(done["ends-exit"].result, "out of paper")

    def test_a_cancelled_job_is_told_and_its_result_dropped(self) -> None:
        client = self.client()
        worker = client.worker(queues=["cancelled"])
        begun, told = threading.Event(), threading.Event()

        @worker.handles("long")
        def long(job: Job) -> str:
            begun.set()
            eventually("the cancel", lambda: job.cancelled)
            told.set()
            return "too late"

        with self.assertLogs("tenure", "WARNING") as logs, worker:
            id = client.submit("long", queue="cancelled").id
            self.assertTrue(begun.wait(30))
            self.assertTrue(client.cancel(id))
            self.assertTrue(told.wait(30))
            self.assertEqual(client.wait(id, timeout=30).state, "cancelled")
        self.assertIn("came too late", "".join(logs.output))
        self.assertFalse(client.cancel(id), "it is over")

    def test_a_dead_job_is_tried_again_on_request(self) -> None:
        client = self.client()
        worker = client.worker(queues=["again"])
        good: List[bool] = []

        @worker.handles("flaky")
        def flaky(job: Job) -> str:
            if not good:
                raise RuntimeError("not yet")
            return "now"

        with self.assertLogs("tenure", "ERROR"), worker:
            id = client.submit("flaky", queue="again", attempts=1).id
            self.assertEqual(client.wait(id, timeout=30).state, "failed")
            good.append(True)
            client.retry(id, attempts=2)
            eventually("it succeeds", lambda: client.job(id).state == "succeeded")

    def test_a_worker_that_stops_finishes_what_runs_and_takes_nothing_new(self) -> None:
        client = self.client()
        worker = client.worker(queues=["drain"])
        begun, go_on = threading.Event(), threading.Event()

        @worker.handles("slow")
        def slow(job: Job) -> str:
            begun.set()
            go_on.wait(30)
            return "finished"

        worker.start()
        first = client.submit("slow", queue="drain").id
        self.assertTrue(begun.wait(30))
        second = client.submit("slow", queue="drain", attempts=9).id
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        time.sleep(0.3)
        self.assertTrue(stopping.is_alive())
        go_on.set()
        stopping.join(30)
        self.assertFalse(stopping.is_alive())
        self.assertEqual(client.wait(first, timeout=30).result, "finished")
        self.assertTrue(client.job(second).open)
        other = client.worker(queues=["drain"])
        other.handle("slow", lambda job: "by another")
        with other:
            self.assertEqual(client.wait(second, timeout=30).result, "by another")

    def test_a_worker_program_drains_on_sigterm(self) -> None:
        program = """
import sys, time, logging
from tenure import Client
worker = Client().worker(queues=["sigterm"])
@worker.handles("slow")
def slow(job):
    print("begun", flush=True)
    for _ in sys.stdin:
        return "finished"
worker.run()
print("left", flush=True)
"""
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.cluster.environment(), cwd=PACKAGE
        )
        self.addCleanup(process.kill)
        assert process.stdin is not None and process.stdout is not None
        client = self.client()
        id = client.submit("slow", queue="sigterm").id
        self.assertEqual(process.stdout.readline(), b"begun\n")
        process.send_signal(signal.SIGTERM)
        process.stdin.write(b"go\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"left\n")
        self.assertEqual(process.wait(30), 0)
        process.stdin.close()
        process.stdout.close()
        self.assertEqual(client.wait(id, timeout=30).result, "finished")

    def test_two_workers_of_one_id(self) -> None:
        client = self.client()
        first, second = client.worker("twin"), Client(self.cluster.urls[0], token=TOKEN, timeout=1).worker("twin")
        for one in (first, second):
            one.handle("twin", lambda job: None)
        with first, self.assertLogs("tenure", "WARNING") as logs:
            with self.assertRaises(Unavailable):
                second.start()
            self.assertIn("worker-held", "".join(logs.output))

    def test_a_worker_without_a_token_is_refused(self) -> None:
        worker = Client(*self.cluster.urls, token="not-the-token-of-these").worker()
        worker.handle("x", lambda job: None)
        with self.assertRaises(TenureError) as caught:
            worker.start()
        self.assertEqual(caught.exception.status, 401)
        worker.stop()

    def test_submissions_that_are_refused(self) -> None:
        client = self.client()
        with self.assertRaises(TenureError) as caught:
            client.submit("x", priority=12)
        self.assertEqual(caught.exception.status, 422)
        with self.assertRaises(TenureError):
            client.submit("x", "y" * 20_000)
        with self.assertRaises(TenureError) as caught:
            client.job("no-such-job")
        self.assertEqual((caught.exception.status, caught.exception.name), (404, "unknown-job"))
        id = client.submit("nobody-does-this", not_before=time.time() + 3600).id
        with self.assertRaises(TimeoutError):
            client.wait(id, timeout=0.5)
        self.assertTrue(client.cancel(id))


if __name__ == "__main__":
    unittest.main()

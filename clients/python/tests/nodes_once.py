"""`once`, against real nodes."""

from __future__ import annotations

import subprocess
import sys
import threading
import unittest
from typing import Any, Dict, List

import tenure
from tenure import Client, Job, TenureError

from .cluster import PACKAGE, TOKEN, Nodes


class Once(Nodes):
    def test_once_runs_in_one_of_many_and_all_get_its_result(self) -> None:
        ran: List[int] = []
        results: List[Any] = []

        def call(number: int) -> None:
            def function(job: Job) -> Dict[str, int]:
                ran.append(number)
                self.assertEqual(job.attempt, 1)
                return {"ran": number}

            client = Client(self.cluster.urls[number % 3], *self.cluster.urls, token=TOKEN)
            results.append(client.once("once/many ü", function, wait=60))

        threads = [threading.Thread(target=call, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(70)
        self.assertEqual(len(ran), 1)
        self.assertEqual(results, [{"ran": ran[0]}] * 6)
        self.assertEqual(self.client().once("once/many ü", lambda: self.fail("it ran already")), {"ran": ran[0]})

    def test_once_that_fails(self) -> None:
        client = self.client()

        def fail() -> None:
            raise ValueError("the table is locked")

        with self.assertLogs("tenure", "ERROR"):
            with self.assertRaisesRegex(ValueError, "the table is locked"):
                client.once("once-fails", fail, wait=60)
        with self.assertRaises(TenureError) as caught:
            client.once("once-fails", lambda: self.fail("it ran already"))
        self.assertEqual((caught.exception.status, caught.exception.name), (None, "failed"))
        self.assertIn("the table is locked", caught.exception.detail)
        turns: List[int] = []

        def second_time() -> str:
            turns.append(len(turns))
            if len(turns) == 1:
                fail()
            return "repaired"

        with self.assertLogs("tenure", "WARNING"):
            self.assertEqual(client.once("once-fails-once", second_time, retry=1, wait=60), "repaired")
        self.assertEqual(turns, [0, 1])
        with self.assertLogs("tenure", "ERROR"), self.assertRaisesRegex(ValueError, "1024"):
            client.once("once-too-long", lambda: "x" * 1023, wait=60)

    def test_once_whose_process_dies(self) -> None:
        program = """
import sys
from tenure import Client
def function():
    print("begun", flush=True)
    sys.stdin.read()
Client().once(sys.argv[1], function, retry=int(sys.argv[2]))
"""
        for retry in (0, 1):
            key = f"once-dies-{retry}"
            process = subprocess.Popen(
                [sys.executable, "-c", program, key, str(retry)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self.cluster.environment(),
                cwd=PACKAGE,
            )
            self.addCleanup(process.kill)
            assert process.stdin is not None and process.stdout is not None
            self.assertEqual(process.stdout.readline(), b"begun\n")
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
            if retry:
                self.assertEqual(self.client().once(key, lambda: "by another", retry=retry, wait=60), "by another")
            else:
                with self.assertRaises(TenureError) as caught:
                    self.client().once(key, lambda: self.fail("nobody asked for another try"), wait=60)
                # `failed` if the node drops the silent worker before the leader notices.
                self.assertIn(caught.exception.name, ("lost", "failed"))

    def test_once_is_not_waited_for_longer_than_asked(self) -> None:
        client = self.client()
        client.request("POST", "/v1/queues/paused/pause")
        name = tenure._api.once_name("paused")
        client.request("POST", f"/v1/queues/{name}/pause")
        with self.assertRaises(TimeoutError):
            client.once("paused", lambda: self.fail("its queue is paused"), wait=1)
        client.request("POST", f"/v1/queues/{name}/resume")
        self.assertEqual(client.once("paused", lambda: 7, wait=60), 7)


if __name__ == "__main__":
    unittest.main()

"""Locks, against real nodes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import unittest
from typing import List

from tenure import AsyncClient, Client, TenureError

from .cluster import PACKAGE, TOKEN, Nodes, eventually


class Lock(Nodes):
    def test_one_at_a_time_whichever_node_is_asked(self) -> None:
        inside, most = 0, 0
        epochs: List[int] = []
        errors: List[BaseException] = []

        def use(url: str) -> None:
            nonlocal inside, most
            try:
                for _ in range(3):
                    with Client(url, token=TOKEN).lock("shared", wait=60) as lock:
                        inside += 1
                        most = max(most, inside)
                        epochs.append(lock.epoch)
                        time.sleep(0.05)
                        lock.check()
                        inside -= 1
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=use, args=(url,)) for url in self.cluster.urls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        self.assertEqual((errors, most, len(epochs)), ([], 1, 9))
        self.assertEqual(epochs, sorted(set(epochs)), "every holder has a higher one")

    def test_a_lock_that_is_held_and_kept(self) -> None:
        one, two = [Client(url, token=TOKEN) for url in self.cluster.urls[:2]]
        with one.lock("kept") as lock:
            for wait in (0, 0.5):
                begin = time.monotonic()
                with self.assertRaises(TenureError) as caught:
                    with two.lock("kept", wait=wait):
                        self.fail("another has it")
                self.assertEqual((caught.exception.status, caught.exception.name), (409, "locked"))
                self.assertGreaterEqual(time.monotonic() - begin, wait)
            first = lock._core.until
            eventually("it is renewed past its first end", lambda: lock._core.until > first + 2)
            lock.check()
            self.assertIn("kept", self.cluster.tenure("lock", "ls"))
        with two.lock("kept", wait=10) as next_lock:
            self.assertGreater(next_lock.epoch, lock.epoch)
        self.assertFalse(lock.valid)

    def test_a_lock_that_is_waited_for_longer_than_one_lasts(self) -> None:
        one, two = [Client(url, token=TOKEN) for url in self.cluster.urls[:2]]
        held, go = threading.Event(), threading.Event()

        def hold() -> None:
            with one.lock("long"):
                held.set()
                go.wait(60)

        holding = threading.Thread(target=hold)
        holding.start()
        self.assertTrue(held.wait(30))
        threading.Timer(6.0, go.set).start()
        begin = time.monotonic()
        with two.lock("long", wait=60) as lock:
            self.assertGreater(time.monotonic() - begin, 5)
            lock.check()
            self.assertGreater(lock._core.until - lock._core.third, 0)
        holding.join(30)

    def test_a_process_that_dies_leaves_it(self) -> None:
        program = """
import sys
from tenure import Client
with Client().lock("dies", timeout=1):
    print("held", flush=True)
    sys.stdin.read()
"""
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.cluster.environment(), cwd=PACKAGE
        )
        self.addCleanup(process.kill)
        assert process.stdin is not None and process.stdout is not None
        self.assertEqual(process.stdout.readline(), b"held\n")
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        with self.client().lock("dies", wait=30) as lock:
            lock.check()

    def test_with_asyncio(self) -> None:
        async def work() -> None:
            one, two = [AsyncClient(url, token=TOKEN) for url in self.cluster.urls[:2]]
            async with one.lock("async") as lock:
                first = lock._core.until
                waits = asyncio.ensure_future(two.lock("async").__aenter__())
                while lock._core.until < first + 1:
                    await asyncio.sleep(0.05)
                lock.check()
                self.assertFalse(waits.done())
                waits.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waits
            async with one.lock("async", wait=5):
                pass

        asyncio.run(work())


if __name__ == "__main__":
    unittest.main()

"""When a lock is held and when it is lost, against answers that a healthy node does not give."""

from __future__ import annotations

import asyncio
import time
import unittest
from statistics import median
from typing import Any, Callable, Dict, List

from tenure import AsyncClient, Client, LockLost, TenureError, Unavailable

from .cluster import eventually
from .faulty_node import DROP, HANG, Answer, FaultyNode, Heard, in_turn, problem


def held(heard: Heard, valid: int = 900, epoch: int = 7) -> Answer:
    return 200, {"holding": heard.body["holding"], "epoch": epoch, "validMs": valid}


class Table:
    """Answers as a node with one lock would, until `fault` says otherwise."""

    def __init__(self, valid: int = 900) -> None:
        self.valid = valid
        self.fault: Callable[[Heard], Any] = lambda heard: None
        self.renewals: List[Dict[str, Any]] = []
        self.released: List[str] = []

    def __call__(self, heard: Heard) -> Answer:
        answer = self.fault(heard)
        if answer is not None:
            return answer  # type: ignore[no-any-return]
        if heard.method == "DELETE":
            self.released.append(heard.path)
            return 204, None
        self.renewals.append(heard.body)
        return held(heard, self.valid)


class Lock(unittest.TestCase):
    def faulty(self, answer: Callable[[Heard], Answer]) -> FaultyNode:
        made = FaultyNode(answer)
        self.addCleanup(made.close)
        return made

    def test_it_is_renewed_at_a_third_of_its_time_and_released(self) -> None:
        table = Table(2400)
        node = self.faulty(table)
        with Client(node.url).lock("x", timeout=4) as lock:
            self.assertEqual((lock.epoch, lock.valid), (7, True))
            eventually("three renewals", lambda: len(table.renewals) >= 4)
            lock.check()
        gaps = [later.at - sooner.at for sooner, later in zip(node.heard[:4], node.heard[1:4])]
        # A request that came late makes the next gap shorter, so the middle one counts.
        self.assertTrue(0.75 < median(gaps) and max(gaps) < 1.6, gaps)
        holding = table.renewals[0]["holding"]
        self.assertGreaterEqual(len(holding), 16)
        self.assertEqual({one["holding"] for one in table.renewals}, {holding})
        self.assertEqual(table.renewals[0], {"holding": holding, "waitMs": 30_000, "timeout": 4000})
        self.assertEqual([one.path for one in node.heard[:3]], ["/v1/locks/x"] + ["/v1/locks/x/heartbeat"] * 2)
        self.assertEqual(table.released, [f"/v1/locks/x?holding={holding}"])
        self.assertFalse(lock.valid)

    def test_it_counts_from_when_the_request_was_sent(self) -> None:
        """The answer comes 1.8 s later: too little of 2.4 s is left, so it is renewed first."""
        table = Table(2400)

        def slow_once(heard: Heard) -> None:
            table.fault = lambda heard: None
            time.sleep(1.8)

        table.fault = slow_once
        with Client(self.faulty(table).url).lock("x") as lock:
            self.assertEqual(len(table.renewals), 2)
            self.assertGreater(lock._core.rest, 0.1)

    def test_a_lock_that_was_waited_for_longer_than_it_lasts(self) -> None:
        table = Table(1500)

        def slow_once(heard: Heard) -> None:
            table.fault = lambda heard: None
            time.sleep(1.7)

        table.fault = slow_once
        with Client(self.faulty(table).url).lock("x") as lock:
            lock.check()

    def test_a_node_that_says_nothing_more_ends_it_in_time(self) -> None:
        faults: List[Answer] = [HANG, DROP, problem(503, "busy")]
        for fault in faults:
            table = Table()

            def failing(heard: Heard, fault: Answer = fault) -> Any:
                return fault if heard.method == "POST" else None

            node = self.faulty(table)
            begin = time.monotonic()
            with self.assertLogs("tenure", "WARNING"), self.assertRaises(LockLost):
                with Client(node.url).lock("x") as lock:
                    table.fault = failing
                    eventually("it is lost", lambda: not lock.valid)
                    self.assertTrue(0.8 < time.monotonic() - begin < 5)
                    with self.assertRaises(LockLost):
                        lock.check()
            self.assertEqual(len(table.released), 1)

    def test_a_lock_that_was_lost_stays_lost(self) -> None:
        table = Table(300)
        node = self.faulty(table)
        with self.assertLogs("tenure", "WARNING"), self.assertRaises(LockLost):
            with Client(node.url).lock("x") as lock:
                table.fault = lambda heard: problem(404, "unknown-lock")
                eventually("it is lost", lambda: not lock.valid)
                table.fault = lambda heard: None
                time.sleep(0.5)  # as long as it would take to be valid again
                self.assertFalse(lock.valid)

    def test_an_error_inside_is_not_hidden_by_a_lost_lock(self) -> None:
        table = Table(300)
        with self.assertLogs("tenure", "WARNING"), self.assertRaises(ZeroDivisionError):
            with Client(self.faulty(table).url).lock("x") as lock:
                table.fault = lambda heard: HANG if heard.method == "POST" else None
                eventually("it is lost", lambda: not lock.valid)
                print(1 / 0)

    def test_waiting_for_another(self) -> None:
        table = Table()

        def locked(heard: Heard) -> Answer:
            time.sleep(heard.body["waitMs"] / 1000)
            return problem(409, "locked")

        table.fault = locked
        node = self.faulty(table)
        client = Client(node.url)
        for wait in (0, 0.6):
            begin = time.monotonic()
            with self.assertRaises(TenureError) as caught:
                with client.lock("x", wait=wait):
                    self.fail("another has it")
            self.assertEqual((caught.exception.status, caught.exception.name), (409, "locked"))
            self.assertTrue(wait <= time.monotonic() - begin < wait + 5)
        self.assertEqual(node.heard[0].body["waitMs"], 0)
        self.assertTrue(500 < node.heard[1].body["waitMs"] <= 600)
        self.assertEqual(len(node.heard), 2)

    def test_an_answer_that_is_lost_while_taking_it(self) -> None:
        """The same holding is asked for again."""
        table = Table()
        faults: List[Answer] = [DROP, problem(503, "store")]
        table.fault = lambda heard: faults.pop(0) if faults else None
        node = self.faulty(table)
        with Client(node.url).lock("x") as lock:
            lock.check()
        self.assertEqual(len({one.body["holding"] for one in node.heard[:3]}), 1)

    def test_no_node_and_no_such_route(self) -> None:
        with self.assertRaises(Unavailable):
            with Client(self.faulty(in_turn(DROP)).url, timeout=0.5).lock("x"):
                self.fail("nobody gave it")
        with self.assertRaises(TenureError) as caught:
            with Client(self.faulty(in_turn(problem(404, "no-route"))).url).lock("x"):
                self.fail("nobody gave it")
        self.assertEqual(caught.exception.name, "no-route")

    def test_a_lock_is_used_once_at_a_time(self) -> None:
        lock = Client(self.faulty(Table()).url).lock("x")
        with lock:
            with self.assertRaises(RuntimeError):
                lock.__enter__()
        with lock:
            lock.check()


async def until(ask: Callable[[], bool], within: float = 30.0) -> None:
    end = time.monotonic() + within
    while not ask():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


class AsyncLock(unittest.IsolatedAsyncioTestCase):
    async def test_the_same_with_asyncio(self) -> None:
        table = Table(1800)
        node = FaultyNode(table)
        self.addCleanup(node.close)
        client = AsyncClient(node.url)
        async with client.lock("x") as lock:
            await until(lambda: len(table.renewals) >= 4)
            lock.check()
        self.assertEqual(len(table.released), 1)
        with self.assertLogs("tenure", "WARNING"), self.assertRaises(LockLost):
            async with client.lock("x") as lock:
                table.fault = lambda heard: HANG if heard.method == "POST" else None
                await until(lambda: not lock.valid)
                assert lock._renewing is not None
                await asyncio.wait({lock._renewing}, timeout=30)  # it is logged, too
        table.fault = lambda heard: None

        async def holds() -> None:
            async with client.lock("x"):
                await asyncio.sleep(3600)

        task = asyncio.ensure_future(holds())
        before = len(table.renewals)
        await until(lambda: len(table.renewals) >= before + 2)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(len(table.released), 3, "it is released all the same")


if __name__ == "__main__":
    unittest.main()

"""When a client asks again, and when it must not."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import tempfile
import time
import unittest
from typing import Any, Callable, List
from unittest import mock

from tenure import AsyncClient, Client, LockLost, NewJob, TenureError, Unavailable

from .faulty_node import DROP, HANG, Answer, FaultyNode, Heard, in_turn, problem

LEADER = {"namespace": "n", "leader": "a", "epoch": 3, "node": "a", "role": "leader", "isLeader": True, "leaseRemainingMs": 9000}
TOKEN = "a-secret-of-the-tests"


def submitted(heard: Heard) -> Answer:
    return 202, {"jobs": [{"id": job["id"], "existed": False} for job in heard.body["jobs"]]}


def refused() -> str:
    """A URL at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return "http://127.0.0.1:%d" % listener.getsockname()[1]


class Retry(unittest.TestCase):
    def faulty(self, answer: Callable[[Heard], Answer]) -> FaultyNode:
        made = FaultyNode(answer)
        self.addCleanup(made.close)
        return made

    def client(self, *urls: str, timeout: float = 10.0) -> Client:
        return Client(*urls, token=TOKEN, timeout=timeout)

    def test_a_submission_whose_answer_is_lost_is_repeated_with_the_same_id(self) -> None:
        """The first time it is carried out; the second time it says that the job exists."""
        jobs: List[str] = []

        def answer(heard: Heard) -> Answer:
            id = heard.body["jobs"][0]["id"]
            existed = id in jobs
            jobs.append(id)
            return (202, {"jobs": [{"id": id, "existed": existed}]}) if existed else DROP

        client = self.client(self.faulty(answer).url)
        mine = client.submit("mail", id="mail-7")
        self.assertEqual((mine.id, mine.existed, jobs), ("mail-7", True, ["mail-7"] * 2))
        made = client.submit("mail")
        self.assertEqual((made.id, jobs[2], jobs[3]), (made.id, made.id, made.id))
        self.assertFalse(made.existed, "nobody else can have made up this id")

    def test_what_passes_is_asked_again(self) -> None:
        passing: List[Answer] = [
            problem(503, "stopping"),
            problem(503, "store"),
            problem(503, "busy"),
            problem(503, "not-leader"),
            problem(408, "slow"),
            problem(409, "raced"),
            problem(409, "no-leader"),
            (502, None),
            (504, None),
            DROP,
        ]
        for first in passing:
            node = self.faulty(in_turn(first, (200, LEADER)))
            self.assertEqual(self.client(node.url).leader().epoch, 3, first)
            self.assertEqual(len(node.heard), 2, first)

    def test_what_stays_is_raised_at_once(self) -> None:
        staying = [(400, "malformed"), (401, "unauthorized"), (403, "read-only"), (404, "unknown-job"), (422, "invalid")]
        staying.append((409, "worker-held"))
        for status, name in staying:
            node = self.faulty(in_turn(problem(status, name)))
            with self.assertRaises(TenureError) as caught:
                self.client(node.url).job("x")
            error = caught.exception
            self.assertEqual((error.status, error.name, error.detail), (status, name, f"about {name}"))
            self.assertNotIsInstance(error, Unavailable)
            self.assertEqual(len(node.heard), 1)

    def test_the_next_node_is_asked_at_once_and_from_then_on(self) -> None:
        dead, good = refused(), self.faulty(in_turn((200, LEADER)))
        stopping = self.faulty(in_turn(problem(503, "stopping")))
        client = self.client(dead, stopping.url, good.url)
        begin = time.monotonic()
        client.leader()
        self.assertLess(time.monotonic() - begin, 5.0)
        client.leader()
        self.assertEqual((len(stopping.heard), len(good.heard)), (1, 2))

    def test_a_node_that_hangs_leaves_time_for_another(self) -> None:
        hanging, good = self.faulty(in_turn(HANG)), self.faulty(in_turn((200, LEADER)))
        self.assertEqual(self.client(hanging.url, good.url, timeout=3.0).leader().epoch, 3)
        self.assertEqual(len(hanging.heard), 1)

    def test_a_node_that_is_slow_is_waited_for(self) -> None:
        def slow(heard: Heard) -> Answer:
            time.sleep(1.2)
            return 200, LEADER

        node = self.faulty(slow)
        self.assertEqual(self.client(node.url, timeout=9.0).leader().epoch, 3)
        self.assertEqual(len(node.heard), 1)

    def test_retry_after_is_kept_to_and_does_not_outlast_the_time(self) -> None:
        full = (*problem(429, "full"), "Retry-After: 1\r\n")
        node = self.faulty(in_turn(full, (200, LEADER)))
        self.client(node.url).leader()
        self.assertGreaterEqual(node.heard[1].at - node.heard[0].at, 0.9)
        node = self.faulty(in_turn((*problem(429, "too-many"), "Retry-After: 60\r\n")))
        begin = time.monotonic()
        with self.assertRaises(TenureError) as caught:
            self.client(node.url, timeout=20.0).leader()
        self.assertEqual((caught.exception.status, caught.exception.name), (429, "too-many"))
        self.assertLess(time.monotonic() - begin, 10.0)

    def test_no_node_in_time(self) -> None:
        hanging, failing = self.faulty(in_turn(HANG)), self.faulty(in_turn(problem(503, "store")))
        for urls in ([refused()], [refused(), refused()], [hanging.url], [failing.url]):
            begin = time.monotonic()
            with self.assertRaises(Unavailable) as caught:
                self.client(*urls, timeout=1.0).leader()
            self.assertLess(time.monotonic() - begin, 8.0)
            self.assertIn(urls[-1][:17], str(caught.exception))

    def test_a_request_that_cannot_be_repeated_is_not(self) -> None:
        node = self.faulty(in_turn(DROP, (202, {})))
        with self.assertRaisesRegex(Unavailable, "may have been carried out"):
            self.client(node.url).request("POST", "/v1/step-down", {})
        self.assertEqual(len(node.heard), 1)
        node = self.faulty(in_turn(problem(503, "busy"), (202, {})))
        with self.assertRaises(TenureError):
            self.client(node.url).request("POST", "/v1/step-down", {})
        self.assertEqual(len(node.heard), 1)
        node = self.faulty(in_turn(problem(503, "stopping"), (202, {"outcome": "asked"})))
        self.assertEqual(self.client(refused(), node.url).request("POST", "/v1/step-down", {}), {"outcome": "asked"})

    def test_what_was_done_before_the_answer_was_lost_is_done(self) -> None:
        node = self.faulty(in_turn(DROP, problem(404, "unknown-schedule")))
        self.client(node.url).remove("nightly")
        node = self.faulty(in_turn(DROP, problem(422, "invalid")))
        self.client(node.url).retry("job-7")
        asks: List[Callable[[Client], None]] = [lambda client: client.remove("nightly"), lambda client: client.retry("job-7")]
        for ask in asks:
            node = self.faulty(in_turn(problem(404, "unknown-schedule")))
            with self.assertRaises(TenureError):
                ask(self.client(node.url))

    def test_run_now_makes_up_a_name_once(self) -> None:
        node = self.faulty(in_turn(DROP, (202, {"job": "nightly.run.x"})))
        self.assertEqual(self.client(node.url).run_now("nightly"), "nightly.run.x")
        self.assertEqual(node.heard[0].body, node.heard[1].body)
        self.assertRegex(node.heard[0].body["name"], r"\A[a-z0-9]{12}\Z")

    def test_many_jobs_go_in_several_requests(self) -> None:
        node = self.faulty(submitted)
        done = self.client(node.url).submit_many([NewJob("x", {"n": n}, id=f"j-{n}") for n in range(1500)])
        self.assertEqual([one.id for one in done], [f"j-{n}" for n in range(1500)])
        self.assertEqual(len(node.heard), 2)
        self.assertEqual(self.client(node.url).submit_many([]), [])

    def test_leader_only_asks_the_first_node_and_no_other(self) -> None:
        leads = self.faulty(in_turn((200, LEADER)))
        follows = self.faulty(in_turn((200, {**LEADER, "isLeader": False, "leaseRemainingMs": None})))
        calls: List[Any] = []

        def plain(one: int) -> int:
            calls.append(one)
            return one

        def with_epoch(one: int, *, epoch: int) -> int:
            calls.append((one, epoch))
            return one

        client = self.client(leads.url, follows.url)
        self.assertEqual((client.leader_only(plain)(1), client.leader_only(with_epoch)(2)), (1, 2))
        self.assertEqual(calls, [1, (2, 3)])
        for first in (follows.url, refused(), self.faulty(in_turn(problem(503, "stopping"))).url):
            client = self.client(first, leads.url)
            client.leader()  # from now on it asks another one first, but not about this
            self.assertIsNone(client.leader_only(plain)(4), first)
            self.assertFalse(client.is_leader())

        def late(_: Heard) -> Answer:
            time.sleep(1.0)
            return 200, {**LEADER, "leaseRemainingMs": 900}  # of which nothing is left

        self.assertFalse(self.client(self.faulty(late).url).is_leader())
        self.assertEqual(calls, [1, (2, 3)])
        with self.assertRaises(TenureError):
            self.client(self.faulty(in_turn(problem(401, "unauthorized"))).url).is_leader()

    def test_the_token_is_sent_and_never_shown(self) -> None:
        node = self.faulty(in_turn(problem(401, "unauthorized")))
        client = self.client(node.url)
        with self.assertRaises(TenureError) as caught:
            client.leader()
        self.assertIn(f"Authorization: Bearer {TOKEN}\r\n", node.heard[0].head + "\r\n")
        self.assertNotIn(TOKEN, repr(client) + str(caught.exception) + repr(caught.exception))

    def test_no_redirect_is_followed(self) -> None:
        other = self.faulty(in_turn((200, LEADER)))
        node = self.faulty(in_turn((302, None, f"Location: {other.url}/v1/leader\r\n")))
        with self.assertRaises(TenureError):
            self.client(node.url).leader()
        self.assertEqual(other.heard, [])

    def test_nodes_and_token_of_the_environment(self) -> None:
        node = self.faulty(in_turn((200, LEADER)))
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(TOKEN + "\n")
            file.flush()
            for variables in ({"TENURE_HTTP_TOKEN": TOKEN}, {"TENURE_HTTP_TOKEN_FILE": file.name}):
                with mock.patch.dict(os.environ, {"TENURE_URL": f"{refused()}, {node.url}", **variables}):
                    Client().leader()
                self.assertIn(f"Bearer {TOKEN}", node.heard.pop().head)
            Client(node.url, token_file=file.name).leader()
            self.assertIn(f"Bearer {TOKEN}", node.heard.pop().head)
            with self.assertRaises(ValueError):
                Client(token=TOKEN, token_file=file.name)

    def test_answers_without_sense(self) -> None:
        answers: List[Answer] = [(200, None), (200, []), (200, {"leader": "a"})]
        for answer in answers:
            with self.assertRaises(TenureError) as caught:
                self.client(self.faulty(in_turn(answer)).url).leader()
            self.assertEqual(caught.exception.name, "bad-answer")

    def test_arguments_that_cannot_be_right_reach_no_node(self) -> None:
        node = self.faulty(in_turn((200, LEADER)))
        client = self.client(node.url)
        wrong: List[Callable[[], object]] = [
            lambda: client.job("a/b"),
            lambda: client.submit("x", id=""),
            lambda: client.submit("x", {1, 2}),
            lambda: client.submit("x", float("nan")),
            lambda: client.submit("x", timeout=-1),
            lambda: client.worker(concurrency=0),
            lambda: client.worker("a b"),
            lambda: client.worker(queues=["a b"]),
            lambda: client.worker().handle("a b", print),
            lambda: client.worker().start(),
            lambda: client.lock("a b"),
            lambda: client.once("k", print, retry=-1),
            lambda: next(client.events(level="warn")),
            lambda: client.request("GET", "v1/leader"),
            lambda: Client(timeout=0),
        ]
        for number, call in enumerate(wrong):
            with self.assertRaises((ValueError, TypeError), msg=str(number)):
                call()
        self.assertEqual(node.heard, [])

    def test_errors_survive_another_process(self) -> None:
        for error in (TenureError(422, "invalid", "d", ["a", "b"]), Unavailable("d", 503), LockLost("x")):
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), str(again), again.__dict__), (type(error), str(error), error.__dict__))


class RetryAsync(unittest.IsolatedAsyncioTestCase):
    def faulty(self, answer: Callable[[Heard], Answer]) -> FaultyNode:
        made = FaultyNode(answer)
        self.addCleanup(made.close)
        return made

    async def test_the_same_with_asyncio(self) -> None:
        node = self.faulty(in_turn(DROP, problem(503, "stopping"), (200, LEADER)))
        self.assertEqual((await AsyncClient(refused(), node.url, timeout=10).leader()).epoch, 3)
        for urls in ([refused()], [self.faulty(in_turn(HANG)).url]):
            begin = time.monotonic()
            with self.assertRaises(Unavailable):
                await AsyncClient(*urls, timeout=1.0).leader()
            self.assertLess(time.monotonic() - begin, 8.0)

    async def test_a_cancelled_call_ends_at_once_and_closes_its_connection(self) -> None:
        node = self.faulty(in_turn(HANG))
        call = asyncio.ensure_future(AsyncClient(node.url).leader())
        while not node.heard or not node._hanging:
            await asyncio.sleep(0.01)
        begin = time.monotonic()
        call.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await call
        self.assertLess(time.monotonic() - begin, 5.0)
        loop = asyncio.get_running_loop()
        node._hanging[0].setblocking(False)
        self.assertEqual(await asyncio.wait_for(loop.sock_recv(node._hanging[0], 1), 5), b"", "it is closed")
        call = asyncio.ensure_future(AsyncClient(refused()).leader())
        await asyncio.sleep(0.3)  # in a pause between two tries
        call.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await call

    async def test_others_run_while_a_call_waits(self) -> None:
        node = self.faulty(in_turn(HANG))
        call = asyncio.ensure_future(AsyncClient(node.url, timeout=3.0).leader())
        turns = 0
        while not call.done():
            await asyncio.sleep(0.01)
            turns += 1
        self.assertGreater(turns, 10)
        self.assertIsInstance(call.exception(), Unavailable)


if __name__ == "__main__":
    unittest.main()

"""AsyncClient, against real nodes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
import unittest
from typing import Any, Callable, Dict, List

from tenure import AsyncClient, Job, NewJob, TenureError

from .cluster import PACKAGE, TOKEN, Cluster

cluster: Cluster


def setUpModule() -> None:
    global cluster
    cluster = Cluster()
    unittest.addModuleCleanup(cluster.stop)


async def eventually(what: str, ask: Callable[[], Any], within: float = 30.0) -> None:
    end = time.monotonic() + within
    while not ask():
        assert time.monotonic() < end, f"{what}: not within {within} s"
        await asyncio.sleep(0.02)


class Async(unittest.IsolatedAsyncioTestCase):
    def client(self, **options: Any) -> AsyncClient:
        return AsyncClient(*cluster.urls, token=TOKEN, **options)

    async def test_a_look_around(self) -> None:
        client = AsyncClient(cluster.await_leader().url, token=TOKEN)
        who = await client.leader()
        self.assertTrue(await client.is_leader() and await client.fence(who.epoch))

        @client.leader_only
        async def tidy(what: str, epoch: int) -> List[Any]:
            return [what, epoch]

        self.assertEqual(await tidy("up"), ["up", who.epoch])
        self.assertEqual(await client.schedule("async", every="1h", kind="x"), "created")
        self.assertEqual([one["id"] for one in await client.schedules()], ["async"])
        await client.pause("async")
        await client.resume("async")
        self.assertEqual(await client.run_now("async", "now"), "async.run.now")
        await client.remove("async")
        with self.assertRaises(TenureError):
            await client.remove("async")

    async def test_jobs(self) -> None:
        client = self.client()
        worker = client.worker(queues=["a-jobs"], concurrency=8)
        most, running = 0, 0

        @worker.handles("side-by-side")
        async def side_by_side(job: Job) -> Dict[str, Any]:
            nonlocal most, running
            running += 1
            most = max(most, running)
            job.progress(50, "half")
            job.log("hello")
            await eventually("others run beside it", lambda: most >= 4)
            running -= 1
            return {"n": job.payload}

        @worker.handles("fails")
        async def fails(job: Job) -> None:
            raise ValueError("no such address")

        with self.assertLogs("tenure", "ERROR"):
            async with worker:
                jobs = [NewJob("side-by-side", n, id=f"a-{n}", queue="a-jobs") for n in range(8)]
                await client.submit_many(jobs)
                failing = await client.submit("fails", queue="a-jobs", attempts=1)
                done = await asyncio.gather(*(client.wait(job.id) for job in jobs))
                self.assertEqual([one.result for one in done], [f'{{"n": {n}}}' for n in range(8)])
                failed = await client.wait(failing.id)
                self.assertEqual((failed.state, failed.result), ("failed", "no such address"))
        self.assertEqual(cluster.tenure("job", "logs", "a-0"), "hello\n")

    async def test_the_coroutine_of_a_cancelled_job_is_cancelled(self) -> None:
        client = self.client()
        worker = client.worker(queues=["a-cancel"])
        begun, ended = asyncio.Event(), asyncio.Event()

        @worker.handles("for-ever")
        async def for_ever(job: Job) -> None:
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                ended.set()

        with self.assertLogs("tenure", "WARNING"):
            async with worker:
                id = (await client.submit("for-ever", queue="a-cancel")).id
                await asyncio.wait_for(begun.wait(), 30)
                self.assertTrue(await client.cancel(id))
                await asyncio.wait_for(ended.wait(), 30)
                self.assertEqual((await client.wait(id)).state, "cancelled")

    async def test_stop_finishes_what_runs_and_cancelling_does_not(self) -> None:
        client = self.client()
        for graceful in (True, False):
            worker = client.worker(queues=["a-stop"])
            begun, go_on = asyncio.Event(), asyncio.Event()
            ends: List[str] = []

            @worker.handles("slow")
            async def slow(job: Job, begun: asyncio.Event = begun, go_on: asyncio.Event = go_on, ends: List[str] = ends) -> str:
                begun.set()
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    ends.append("cancelled")
                    raise
                ends.append("finished")
                return "finished"

            running = asyncio.ensure_future(worker.run())
            id = (await client.submit("slow", queue="a-stop", attempts=1)).id
            await asyncio.wait_for(begun.wait(), 30)
            if graceful:
                stopping = asyncio.ensure_future(worker.stop())
                await asyncio.sleep(0.2)
                self.assertFalse(stopping.done())
                go_on.set()
                await asyncio.wait_for(stopping, 30)
                await asyncio.wait_for(running, 30)
                self.assertEqual(((await client.wait(id)).result, ends), ("finished", ["finished"]))
            else:
                begin = time.monotonic()
                running.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await running
                self.assertLess(time.monotonic() - begin, 15)
                self.assertEqual(ends, ["cancelled"])
        self.assertEqual([task for task in asyncio.all_tasks() if task is not asyncio.current_task()], [])

    async def test_a_program_ends_at_once_when_it_is_interrupted(self) -> None:
        """asyncio.run waits for nothing that hangs: no threads are left behind."""
        program = """
import asyncio
from tenure import AsyncClient
async def main():
    client = AsyncClient()
    asyncio.ensure_future(client.wait((await client.submit("nobody-does-this")).id))
    print("waits", flush=True)
    async for event in client.events():
        pass
asyncio.run(main())
"""
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cluster.environment(), cwd=PACKAGE
        )
        self.addCleanup(process.kill)
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), b"waits\n")
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        self.assertLess(time.monotonic() - begin, 15)
        self.assertIn(b"KeyboardInterrupt", errors)
        self.assertNotIn(b"was never retrieved", errors)
        self.assertNotIn(b"pending", errors)

    async def test_events_are_cancelled_at_once(self) -> None:
        client = self.client()
        names: List[str] = []

        async def watch() -> None:
            async for event in client.events():
                names.append(event.data.get("workerId", ""))

        watching = asyncio.ensure_future(watch())
        number = 0

        async def register() -> None:
            worker = client.worker(f"a-seen-{number}", queues=["a-seen"])
            worker.handle("x", handler)
            async with worker:
                pass

        async def handler(job: Job) -> None:
            pass

        while not any(name.startswith("a-seen") for name in names):
            number += 1
            await register()
            await asyncio.sleep(0.5)
        watching.cancel()
        begin = time.monotonic()
        with self.assertRaises(asyncio.CancelledError):
            await watching
        self.assertLess(time.monotonic() - begin, 5)

    async def test_once(self) -> None:
        ran: List[int] = []

        async def call(number: int) -> Any:
            async def function(job: Job) -> List[int]:
                ran.append(number)
                return [job.attempt, number]

            return await self.client().once("a-once", function, wait=60)

        async def again() -> None:
            self.fail("it ran already")

        results = await asyncio.gather(*(call(number) for number in range(4)))
        self.assertEqual((len(ran), results), (1, [[1, ran[0]]] * 4))
        self.assertEqual(await self.client().once("a-once", again), [1, ran[0]])

        async def fails() -> None:
            raise ValueError("the table is locked")

        with self.assertLogs("tenure", "ERROR"), self.assertRaisesRegex(ValueError, "locked"):
            await self.client().once("a-once-fails", fails, wait=60)
        with self.assertRaises(TenureError) as caught:
            await self.client().once("a-once-fails", fails)
        self.assertEqual(caught.exception.name, "failed")

    async def test_once_that_is_cancelled(self) -> None:
        begun = asyncio.Event()

        async def for_ever() -> None:
            begun.set()
            await asyncio.sleep(3600)

        call = asyncio.ensure_future(self.client().once("a-once-cancelled", for_ever))
        await asyncio.wait_for(begun.wait(), 60)
        call.cancel()
        with self.assertLogs("tenure", "ERROR"), self.assertRaises(asyncio.CancelledError):
            await call
        with self.assertRaises(TenureError) as caught:
            await self.client().once("a-once-cancelled", for_ever, wait=60)
        self.assertEqual(caught.exception.name, "failed")


if __name__ == "__main__":
    unittest.main()

"""A worker with asyncio: one task takes jobs, one says that they are being done, and each job has its own."""

from __future__ import annotations

import asyncio
import signal
from types import TracebackType
from typing import Any, Awaitable, Callable, Dict, Optional, Sequence, Set, Type

from ._async import run_async
from ._core import Core, check_id
from ._worker_core import BEAT, WAIT, Job, WorkerCore, error_text, log, result_text

AsyncHandler = Callable[[Job], Awaitable[Any]]


#: How long a coroutine that is cancelled because its worker is, may take to end.
CLEAN_UP = 5.0


def drop(work: asyncio.Future[Any]) -> None:
    work.cancel()


class AsyncWorker:
    """Takes jobs of the kinds it has handlers for. Make one with `AsyncClient.worker`.

    As `Worker`, with coroutines. The coroutine of a job that was cancelled is cancelled.
    """

    def __init__(
        self,
        core: Core,
        id: Optional[str],
        queues: Sequence[str],
        concurrency: int,
        timeout: Optional[float],
        wait: float = WAIT,
    ) -> None:
        self._handlers: Dict[str, AsyncHandler] = {}
        self._core = WorkerCore(core, id, queues, concurrency, timeout, wait)
        self._concurrency = concurrency
        self._stopping: Optional[asyncio.Event] = None
        self._jobs: Set[asyncio.Task[None]] = set()
        self._taking: Optional[asyncio.Task[None]] = None
        self._beating: Optional[asyncio.Task[None]] = None
        self._error: Optional[BaseException] = None

    @property
    def id(self) -> str:
        return self._core.id

    def handles(self, kind: str) -> Callable[[AsyncHandler], AsyncHandler]:
        """A decorator: the coroutine function does the jobs of this kind."""

        def decorate(handler: AsyncHandler) -> AsyncHandler:
            self.handle(kind, handler)
            return handler

        return decorate

    def handle(self, kind: str, handler: AsyncHandler) -> None:
        """The coroutine function does the jobs of this kind."""
        if self._taking is not None:
            raise RuntimeError("add handlers before the worker starts")
        self._handlers[check_id("kind", kind)] = handler
        self._core.body["kinds"] = list(self._handlers)

    async def start(self) -> None:
        """Registers, and takes jobs in the background until `stop`. Raises if a node refuses the worker, or none answers."""
        if self._taking is not None:
            raise RuntimeError("a worker starts once")
        if not self._handlers:
            raise ValueError("a worker needs at least one handler")
        self._stopping = asyncio.Event()
        await run_async(self._core.first())
        self._taking = asyncio.ensure_future(self._take())
        self._beating = asyncio.ensure_future(self._beat())

    async def stop(self, timeout: Optional[float] = None) -> None:
        """Takes no more jobs, waits for those that run, at most this long, reports their results and deregisters.

        Those that still run then are cancelled. Raises what ended the worker, if something did.
        """
        taking, beating = self._taking, self._beating
        if taking is None or beating is None or self._stopping is None:
            return
        self._stopping.set()
        try:
            await asyncio.wait({taking})
            if self._jobs:
                await asyncio.wait(set(self._jobs), timeout=timeout)
        finally:
            await self._end(taking, beating)
        if self._error is not None:
            raise self._error

    async def _end(self, taking: asyncio.Task[None], beating: asyncio.Task[None]) -> None:
        self._taking = self._beating = None
        tasks = {taking, beating, *self._jobs}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # The node is told even if this task is cancelled meanwhile; that takes a bounded time.
        leaving = asyncio.ensure_future(run_async(self._core.leave()))
        try:
            await asyncio.shield(leaving)
        except asyncio.CancelledError:
            await asyncio.wait({leaving})
            raise

    async def run(self) -> None:
        """Starts, and works until SIGTERM, SIGINT or `stop` in another task. A second signal does not wait for jobs.

        If this task is cancelled, so are the jobs that run.
        """
        loop, told = asyncio.get_running_loop(), []
        stopping = asyncio.Event()

        def tell(number: int) -> None:
            stopping.set()
            loop.remove_signal_handler(number)

        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, tell, number)
                told.append(number)
            except (NotImplementedError, RuntimeError, ValueError):
                pass  # not the main thread, or not Unix
        try:
            await self.start()
            assert self._stopping is not None
            waits = {asyncio.ensure_future(one.wait()) for one in (stopping, self._stopping)}
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                await self.stop(0)
                raise
            finally:
                for one in waits:
                    one.cancel()
            await self.stop()
        finally:
            for number in told:
                loop.remove_signal_handler(number)

    async def __aenter__(self) -> AsyncWorker:
        await self.start()
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.stop()

    def _fail(self, error: BaseException) -> None:
        log.error("worker %s ends: %s", self.id, error)
        self._error = self._error or error
        if self._stopping is not None:
            self._stopping.set()

    async def _take(self) -> None:
        assert self._stopping is not None
        slots = asyncio.Semaphore(self._concurrency)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            while not self._stopping.is_set():
                free = asyncio.ensure_future(slots.acquire())
                await asyncio.wait({free, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if self._stopping.is_set():
                    free.cancel()
                    return
                job = await run_async(self._core.next())
                if job is None:
                    slots.release()
                    continue
                task = asyncio.ensure_future(self._do(job))
                self._jobs.add(task)
                task.add_done_callback(self._jobs.discard)
                task.add_done_callback(lambda _: slots.release())
        except Exception as error:
            self._fail(error)
        finally:
            stopped.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(min(BEAT, self._core.silence / 3))
            try:
                await run_async(self._core.beat())
            except Exception as error:
                self._fail(error)
                return

    async def _do(self, job: Job) -> None:
        work = asyncio.ensure_future(self._handlers[job.kind](job))
        job._on_cancel = lambda: drop(work)
        try:
            if job.cancelled:
                work.cancel()
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError:
                work.cancel()
                await asyncio.wait({work}, timeout=CLEAN_UP)
                raise
            outcome, result = "succeeded", ""
            try:
                result = result_text(work.result())
            except (Exception, asyncio.CancelledError) as error:
                if not job.cancelled:
                    log.error("job %s (attempt %d) failed", job.id, job.attempt, exc_info=error)
                outcome, result = "failed", "cancelled" if isinstance(error, asyncio.CancelledError) else error_text(error)
            await run_async(self._core.finish(job, outcome, result))
        except Exception as error:
            self._fail(error)
        finally:
            if job._on_finish is not None:
                job._on_finish()

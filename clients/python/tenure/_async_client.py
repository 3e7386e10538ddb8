"""The client for asyncio."""

from __future__ import annotations

import asyncio
import functools
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Dict,
    List,
    Optional,
    Sequence,
    Type,
    TypeVar,
    Union,
)

from . import _api as api
from ._api import LOOK_MAX, LOOK_MIN, JobOptions, NewJob, ScheduleFields, Time
from ._async import AsyncConnection, run_async
from ._async_worker import AsyncWorker
from ._core import Core, now
from ._errors import LockLost, TenureError
from ._http import Event
from ._lock_core import LockCore
from ._once import arguments, begin, check_new, result_of, takes, value_of
from ._types import JobInfo, Leader, SubmittedJob
from ._worker_core import Job, error_text, log

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class AsyncClient:
    """As `Client`, with coroutines. Nothing of it is bound to an event loop."""

    def __init__(self, *urls: str, token: Optional[str] = None, token_file: Optional[str] = None, timeout: float = 30.0) -> None:
        self._core = Core(urls, token, token_file, timeout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._core!r})"

    async def leader(self) -> Leader:
        """See `Client.leader`."""
        return await run_async(api.leader(self._core))

    async def is_leader(self) -> bool:
        """See `Client.is_leader`."""
        return await run_async(api.leading(self._core)) is not None

    def leader_only(self, function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[Optional[T]]]:
        """See `Client.leader_only`; for coroutine functions."""
        wants_epoch = takes(function, "epoch")

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Optional[T]:
            epoch = await run_async(api.leading(self._core))
            if epoch is None:
                return None
            return await function(*args, **(dict(kwargs, epoch=epoch) if wants_epoch else kwargs))

        return call

    async def events(self, level: str = "info") -> AsyncIterator[Event]:
        """See `Client.events`: `async for event in client.events()`."""
        stream, connection = api.events(self._core, level), AsyncConnection()
        answer: Any = None
        try:
            while True:
                effect, answer = stream.send(answer), None
                if isinstance(effect, Event):
                    yield effect
                else:
                    answer = await connection.do(effect)
        finally:
            connection.close()
            stream.close()

    async def fence(self, epoch: int, *, dispatched_at: Optional[Time] = None, deadline: Optional[Time] = None) -> bool:
        """See `Client.fence`."""
        return await run_async(api.fence(self._core, epoch, dispatched_at, deadline))

    async def submit(self, kind: str, payload: Any = None, **options: Unpack[JobOptions]) -> SubmittedJob:
        """See `Client.submit`."""
        return (await self.submit_many([NewJob(kind, payload, **options)]))[0]

    async def submit_many(self, jobs: Sequence[NewJob]) -> List[SubmittedJob]:
        """See `Client.submit_many`."""
        return await run_async(api.submit(self._core, jobs))

    async def job(self, id: str) -> JobInfo:
        return await run_async(api.job(self._core, id))

    async def wait(self, id: str, timeout: Optional[float] = None) -> JobInfo:
        """See `Client.wait`."""
        return await run_async(api.wait(self._core, id, timeout))

    async def cancel(self, id: str) -> bool:
        """See `Client.cancel`."""
        return await run_async(api.cancel(self._core, id))

    async def retry(self, id: str, attempts: int = 1) -> None:
        """See `Client.retry`."""
        await run_async(api.retry(self._core, id, attempts))

    def worker(
        self,
        id: Optional[str] = None,
        *,
        queues: Sequence[str] = (),
        concurrency: int = 1,
        timeout: Optional[float] = None,
    ) -> AsyncWorker:
        """See `Client.worker`."""
        return AsyncWorker(self._core, id, queues, concurrency, timeout)

    async def schedule(self, id: str, **fields: Unpack[ScheduleFields]) -> str:
        """See `Client.schedule`."""
        return await run_async(api.put_schedule(self._core, id, fields))

    async def schedules(self) -> List[Dict[str, Any]]:
        """See `Client.schedules`."""
        return await run_async(api.schedules(self._core))

    async def pause(self, id: str) -> None:
        """See `Client.pause`."""
        await run_async(api.change_schedule(self._core, id, "pause"))

    async def resume(self, id: str) -> None:
        """See `Client.resume`."""
        await run_async(api.change_schedule(self._core, id, "resume"))

    async def run_now(self, id: str, name: Optional[str] = None) -> str:
        """See `Client.run_now`."""
        return await run_async(api.run_now(self._core, id, name))

    async def remove(self, id: str) -> None:
        """See `Client.remove`."""
        await run_async(api.remove(self._core, id))

    def lock(self, name: str, *, wait: Optional[float] = None, timeout: Optional[float] = None) -> AsyncLock:
        """See `Client.lock`: `async with client.lock("reports") as lock:`."""
        return AsyncLock(self._core, name, wait, timeout)

    async def once(
        self,
        key: str,
        function: Callable[..., Awaitable[T]],
        *,
        retry: int = 0,
        timeout: float = 3600.0,
        wait: Optional[float] = None,
    ) -> T:
        """See `Client.once`; for coroutine functions."""
        result: T = await once_async(self._core, key, function, retry, timeout, wait)
        return result

    async def request(self, method: str, path: str, body: object = None) -> Any:
        """See `Client.request`."""
        return await run_async(api.request(self._core, method, path, body))


class AsyncLock:
    """A lock, to be used with `async with`."""

    def __init__(self, core: Core, name: str, wait: Optional[float], timeout: Optional[float]) -> None:
        self._core = LockCore(core, name, wait, timeout)
        self._renewing: Optional[asyncio.Task[None]] = None

    @property
    def epoch(self) -> int:
        """See `Lock.epoch`."""
        return self._core.epoch

    @property
    def valid(self) -> bool:
        """See `Lock.valid`."""
        return self._core.valid

    def check(self) -> None:
        """See `Lock.check`."""
        self._core.check()

    async def __aenter__(self) -> AsyncLock:
        if self._renewing is not None:
            raise RuntimeError("this lock is in use: make another one")
        try:
            await run_async(self._core.take())
        except asyncio.CancelledError:
            await asyncio.wait({asyncio.ensure_future(run_async(self._core.release(tries=1)))})
            raise
        self._renewing = asyncio.ensure_future(self._renew())
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        lost = not self._core.valid
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
            self._renewing = None
        releasing = asyncio.ensure_future(run_async(self._core.release()))
        try:
            await asyncio.shield(releasing)
        except asyncio.CancelledError:
            await asyncio.wait({releasing})
            raise
        if lost and kind is None:
            raise LockLost(self._core.name)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._core.rest)
            try:
                if not await run_async(self._core.renew()):
                    log.warning("the lock %s is lost", self._core.name)
                    return
            except TenureError as error:
                log.warning("the lock %s cannot be renewed: %s", self._core.name, error)


async def once_async(core: Core, key: str, function: Callable[..., Any], retry: int, timeout: float, wait: Optional[float]) -> Any:
    """A task is given the job; the function runs in this one."""
    name, end = api.once_name(key), None if wait is None else now() + wait
    found = await run_async(begin(core, name, retry, timeout))
    if found is not None and not found.open:
        return value_of(key, found)
    given: asyncio.Queue[Job] = asyncio.Queue()
    outcomes: asyncio.Queue[Union[str, BaseException]] = asyncio.Queue()

    async def hand_over(job: Job) -> str:
        given.put_nowait(job)
        outcome = await outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    worker = AsyncWorker(core, None, [name], 1, None, wait=1.0)
    worker.handle(name, hand_over)
    pause = LOOK_MIN
    try:
        await worker.start()
        while True:
            waiting = asyncio.ensure_future(given.get())
            try:
                await asyncio.wait({waiting}, timeout=pause)
            finally:
                job = waiting.result() if waiting.done() else None
                waiting.cancel()
            if job is not None:
                try:
                    await run_async(check_new(core, name))
                    text = result_of(await function(**arguments(function, job)))
                except BaseException as error:
                    failure = RuntimeError("cancelled") if isinstance(error, asyncio.CancelledError) else error
                    outcomes.put_nowait(failure)
                    if not isinstance(error, Exception) or job.attempt > retry:
                        raise
                    log.warning("once %s failed, and is tried again: %s", key, error_text(error))
                    continue
                told = asyncio.Event()
                job._on_finish = told.set
                outcomes.put_nowait(text)
                await told.wait()
                if job._taken:
                    return api.loads(text)
            found = await run_async(api.look(core, name))
            if found is not None and not found.open:
                return value_of(key, found)
            if end is not None and now() > end:
                raise TimeoutError(f"once {key!r} is not over after {wait} s")
            pause = min(max(pause, LOOK_MIN) * 1.5, LOOK_MAX)
    finally:
        outcomes.put_nowait(TimeoutError("nobody waits for it any more"))
        await worker.stop()

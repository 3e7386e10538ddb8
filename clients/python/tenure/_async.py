"""Drives flows with asyncio."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Coroutine, Optional, TypeVar, cast

from ._core import CONNECT_MAX, Effect, Flow, Open, Pause, Read
from ._http import NoAnswer
from ._sync import no_answer

T = TypeVar("T")


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.wait_for`, which before Python 3.12 can lose a cancellation."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=max(seconds, 0.0))
    except BaseException:
        abandon(task)
        raise
    if not done:
        abandon(task)
        raise TimeoutError
    return task.result()


def abandon(task: asyncio.Task[Any]) -> None:
    task.add_done_callback(tidy)
    task.cancel()


def tidy(task: asyncio.Task[Any]) -> None:
    """A connection that opened after all is closed."""
    if not task.cancelled() and task.exception() is None and isinstance(task.result(), tuple):
        task.result()[1].close()


class AsyncConnection:
    """Does what flows ask for."""

    def __init__(self) -> None:
        self._reader: Optional[asyncio.StreamReader] = None
        self._writer: Optional[asyncio.StreamWriter] = None

    async def do(self, effect: Effect) -> Any:
        try:
            if isinstance(effect, Read):
                assert self._reader is not None
                return await within(effect.timeout, self._reader.read(65536))
            self.close()
            if isinstance(effect, Pause):
                return await asyncio.sleep(effect.seconds)
            return await self._open(effect)
        except OSError as error:
            return no_answer(error, sent=True)

    async def _open(self, effect: Open) -> Optional[NoAnswer]:
        address = effect.address
        context = ssl.create_default_context() if address.tls else None
        try:
            opening = asyncio.open_connection(address.host, address.port, ssl=context)
            self._reader, writer = await within(min(CONNECT_MAX, effect.timeout), opening)
        except OSError as error:
            return no_answer(error, sent=False)
        self._writer = writer
        writer.write(effect.request)
        return None

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


async def run_async(flow: Flow[T]) -> T:
    """Drives a flow to its end. If the task is cancelled, the request under way is given up."""
    connection = AsyncConnection()
    answer: Any = None
    try:
        while True:
            answer = await connection.do(flow.send(answer))
    except StopIteration as end:
        return cast(T, end.value)
    finally:
        connection.close()
        flow.close()

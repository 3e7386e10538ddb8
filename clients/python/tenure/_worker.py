"""A worker on threads: one takes jobs, one says that they are being done, and each job has its own."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Callable, Dict, List, Optional, Sequence, Type

from ._core import Core, check_id, now
from ._sync import run
from ._worker_core import BEAT, WAIT, Job, WorkerCore, error_text, log, result_text

Handler = Callable[[Job], Any]


class Worker:
    """Takes jobs of the kinds it has handlers for. Make one with `Client.worker`.

    What a handler returns is the job's result: a text, or anything that JSON can hold, up to 1 KiB. If it raises, the job has
    failed with the message of the exception, and is tried again while it has attempts left.
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
        self._handlers: Dict[str, Handler] = {}
        self._core = WorkerCore(core, id, queues, concurrency, timeout, wait)
        self._slots = threading.Semaphore(concurrency)
        self._stopping, self._done = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._running: List[threading.Thread] = []
        self._threads: List[threading.Thread] = []
        self._error: Optional[BaseException] = None

    @property
    def id(self) -> str:
        return self._core.id

    def handles(self, kind: str) -> Callable[[Handler], Handler]:
        """A decorator: the function does the jobs of this kind."""

        def decorate(handler: Handler) -> Handler:
            self.handle(kind, handler)
            return handler

        return decorate

    def handle(self, kind: str, handler: Handler) -> None:
        """The function does the jobs of this kind."""
        if self._threads:
            raise RuntimeError("add handlers before the worker starts")
        self._handlers[check_id("kind", kind)] = handler
        self._core.body["kinds"] = list(self._handlers)

    def start(self) -> None:
        """Registers, and takes jobs in the background until `stop`. Raises if a node refuses the worker, or none answers."""
        if self._threads:
            raise RuntimeError("a worker starts once")
        if not self._handlers:
            raise ValueError("a worker needs at least one handler")
        run(self._core.first())
        for target in (self._take, self._beat):
            thread = threading.Thread(target=target, name=f"tenure {self.id}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout: Optional[float] = None) -> None:
        """Takes no more jobs, waits for those that run, at most this long, reports their results and deregisters.

        Raises what ended the worker, if something did.
        """
        self._stopping.set()
        if not self._threads or self._done.is_set():
            return
        end = None if timeout is None else now() + timeout
        taking, beating = self._threads
        taking.join()
        for thread in self._jobs():
            thread.join(None if end is None else max(end - now(), 0))
        with self._core.lock:
            self._core.life += 1  # what comes now is too late
            left = list(self._core.jobs.values())
        for job in left:
            job._cancel()
        self._done.set()
        beating.join()
        run(self._core.leave())
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """Starts, and works until SIGTERM, SIGINT or `stop` from another thread. A second signal does not wait for jobs."""
        main = threading.current_thread() is threading.main_thread()
        before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)} if main else {}

        def told(number: int, frame: Optional[FrameType]) -> None:
            self._stopping.set()
            signal.signal(number, before[signal.Signals(number)] or signal.SIG_DFL)

        for number in before:
            signal.signal(number, told)
        try:
            self.start()
            while not self._stopping.wait(1.0):
                pass
            self.stop()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.stop()

    def _jobs(self) -> List[threading.Thread]:
        with self._lock:
            me = threading.current_thread()
            return [thread for thread in self._running if thread is not me]

    def _fail(self, error: BaseException) -> None:
        log.error("worker %s ends: %s", self.id, error)
        self._error = self._error or error
        self._stopping.set()

    def _take(self) -> None:
        try:
            while not self._stopping.is_set():
                if not self._slots.acquire(timeout=0.2):
                    continue
                job = None
                try:
                    job = None if self._stopping.is_set() else run(self._core.next())
                finally:
                    if job is None:
                        self._slots.release()
                if job is not None:
                    thread = threading.Thread(target=self._do, args=(job,), name=f"tenure {job.id}", daemon=True)
                    with self._lock:
                        self._running.append(thread)
                    thread.start()
        except Exception as error:
            self._fail(error)

    def _beat(self) -> None:
        while not self._done.wait(min(BEAT, self._core.silence / 3)):
            try:
                run(self._core.beat())
            except Exception as error:
                self._fail(error)
                return

    def _do(self, job: Job) -> None:
        try:
            try:
                outcome, result = "succeeded", result_text(self._handlers[job.kind](job))
            except BaseException as error:
                log.exception("job %s (attempt %d) failed", job.id, job.attempt)
                outcome, result = "failed", error_text(error)
            run(self._core.finish(job, outcome, result))
        except Exception as error:
            self._fail(error)
        finally:
            if job._on_finish is not None:
                job._on_finish()
            with self._lock:
                self._running.remove(threading.current_thread())
            self._slots.release()

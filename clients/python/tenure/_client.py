"""The client for threads."""

from __future__ import annotations

import functools
import queue
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Type, TypeVar, Union

from . import _api as api
from ._api import LOOK_MAX, LOOK_MIN, JobOptions, NewJob, ScheduleFields, Time
from ._core import Core, now
from ._errors import LockLost, TenureError
from ._http import Event
from ._lock_core import LockCore
from ._once import arguments, begin, check_new, result_of, takes, value_of
from ._sync import Connection, run
from ._types import JobInfo, Leader, SubmittedJob
from ._worker import Worker
from ._worker_core import Job, error_text, log

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class Client:
    """Talks to one or more nodes. Any number of threads may use it.

    Without URLs it takes them from TENURE_URL, several separated by commas, or asks http://127.0.0.1:7420. The token is `token`, the
    content of `token_file`, TENURE_HTTP_TOKEN, or the content of the file that TENURE_HTTP_TOKEN_FILE names.

    If a node does not answer, or cannot act at the moment, the next one is asked, and all of them again, for `timeout` seconds in
    all. A change of leader is never an error.
    """

    def __init__(self, *urls: str, token: Optional[str] = None, token_file: Optional[str] = None, timeout: float = 30.0) -> None:
        self._core = Core(urls, token, token_file, timeout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._core!r})"

    def leader(self) -> Leader:
        """Who leads, as far as the node that answers knows."""
        return run(api.leader(self._core))

    def is_leader(self) -> bool:
        """Whether the node of the *first* URL leads now. False, too, if it does not answer."""
        return run(api.leading(self._core)) is not None

    def leader_only(self, function: Callable[..., T]) -> Callable[..., Optional[T]]:
        """A decorator: a call runs only if the node of the *first* URL leads now; otherwise it returns None.

        If the function has a parameter `epoch`, it is given the epoch.
        """
        wants_epoch = takes(function, "epoch")

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Optional[T]:
            epoch = run(api.leading(self._core))
            if epoch is None:
                return None
            return function(*args, **(dict(kwargs, epoch=epoch) if wants_epoch else kwargs))

        return call

    def events(self, level: str = "info") -> EventStream:
        """What happens from now on, without end: `for event in client.events()`.

        If the connection ends, it goes on where it was; if the node is gone, another reports from then on. An event named
        `missed` says that some are missing before the next one.
        """
        return EventStream(self._core, level)

    def fence(self, epoch: int, *, dispatched_at: Optional[Time] = None, deadline: Optional[Time] = None) -> bool:
        """Whether work of this epoch may be acted on, as far as the node knows. Ask right before it counts."""
        return run(api.fence(self._core, epoch, dispatched_at, deadline))

    def submit(self, kind: str, payload: Any = None, **options: Unpack[JobOptions]) -> SubmittedJob:
        """Submits a job: it is on the store when this returns. `JobOptions` says what the options mean."""
        return self.submit_many([NewJob(kind, payload, **options)])[0]

    def submit_many(self, jobs: Sequence[NewJob]) -> List[SubmittedJob]:
        """Submits jobs, in one request per 1,000 jobs or 60 KiB; each request is carried out wholly or not at all.

        Give them ids, and after an error you can submit all of them again.
        """
        return run(api.submit(self._core, jobs))

    def job(self, id: str) -> JobInfo:
        return run(api.job(self._core, id))

    def wait(self, id: str, timeout: Optional[float] = None) -> JobInfo:
        """Waits until a job is over, however it ended: see its `state`. TimeoutError after `timeout` seconds."""
        return run(api.wait(self._core, id, timeout))

    def cancel(self, id: str) -> bool:
        """Asks the leader to cancel a job. False: it was over already."""
        return run(api.cancel(self._core, id))

    def retry(self, id: str, attempts: int = 1) -> None:
        """Asks the leader to give a job that ended without success this many more attempts."""
        run(api.retry(self._core, id, attempts))

    def worker(
        self,
        id: Optional[str] = None,
        *,
        queues: Sequence[str] = (),
        concurrency: int = 1,
        timeout: Optional[float] = None,
    ) -> Worker:
        """A worker for jobs of these queues (default: all). `concurrency`: how many at once, at most 16.

        Only one live process can have an id; the default is a new one. `timeout`: how many seconds of silence the node puts up with.
        """
        return Worker(self._core, id, queues, concurrency, timeout)

    def schedule(self, id: str, **fields: Unpack[ScheduleFields]) -> str:
        """Creates a schedule, or replaces it as a whole: `created`, `changed` or `unchanged`.

        The fields are those of a file for `tenure apply`, as `ScheduleFields` lists them.
        """
        return run(api.put_schedule(self._core, id, fields))

    def schedules(self) -> List[Dict[str, Any]]:
        """The schedules as they are stored, a few seconds old."""
        return run(api.schedules(self._core))

    def pause(self, id: str) -> None:
        """Lets a schedule create no more jobs."""
        run(api.change_schedule(self._core, id, "pause"))

    def resume(self, id: str) -> None:
        """Lets a schedule create jobs again, from now on."""
        run(api.change_schedule(self._core, id, "resume"))

    def run_now(self, id: str, name: Optional[str] = None) -> str:
        """Asks for one job of a schedule now, paused or not, and returns the job's id. The same `name` gives the same job."""
        return run(api.run_now(self._core, id, name))

    def remove(self, id: str) -> None:
        """Removes a schedule; its open jobs run to their end."""
        run(api.remove(self._core, id))

    def lock(self, name: str, *, wait: Optional[float] = None, timeout: Optional[float] = None) -> Lock:
        """A lock that one process can hold: `with client.lock("reports") as lock:`.

        `wait`: how many seconds to wait for another holder; the default is as long as it takes. `timeout`: how many seconds after the
        death of this process the lock is free (10 by default).
        """
        return Lock(self._core, name, wait, timeout)

    def once(
        self,
        key: str,
        function: Callable[..., T],
        *,
        retry: int = 0,
        timeout: float = 3600.0,
        wait: Optional[float] = None,
    ) -> T:
        """Runs the function in one of all processes that call this with this key; returns its result in all of them.

        If it raises, its own caller gets the exception, and the others a `TenureError`. They do, too, if its process or its node dies;
        the README says more. If the function has a parameter `job`, it is given the job.
        """
        result: T = run_once(self._core, key, function, retry, timeout, wait)
        return result

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Any other route, such as `client.request("GET", "/v1/overview")`. A POST is not repeated once it may have arrived."""
        return run(api.request(self._core, method, path, body))


class EventStream:
    """Events as they happen. `close` may be called from another thread, and ends the loop."""

    def __init__(self, core: Core, level: str) -> None:
        self._stream = api.events(core, level)
        self._connection = Connection()
        self._answer: Any = None

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        while not self._connection.closed.is_set():
            effect, self._answer = self._stream.send(self._answer), None
            if isinstance(effect, Event):
                return effect
            self._answer = self._connection.do(effect)
        raise StopIteration

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()


class Lock:
    """A lock, to be used with `with`."""

    def __init__(self, core: Core, name: str, wait: Optional[float], timeout: Optional[float]) -> None:
        self._core = LockCore(core, name, wait, timeout)
        self._over = threading.Event()
        self._thread: Optional[threading.Thread] = None

    @property
    def epoch(self) -> int:
        """The epoch of the lock: every holder has a higher one. Stamp it on what you write."""
        return self._core.epoch

    @property
    def valid(self) -> bool:
        """Whether you may act now."""
        return self._core.valid

    def check(self) -> None:
        """Raises `LockLost` unless you may act now. Call it right before each side effect."""
        self._core.check()

    def __enter__(self) -> Lock:
        if self._thread is not None:
            raise RuntimeError("this lock is in use: make another one")
        try:
            run(self._core.take())
        except TenureError:
            raise
        except BaseException:
            run(self._core.release(tries=1))
            raise
        self._over.clear()
        self._thread = threading.Thread(target=self._renew, name=f"tenure lock {self._core.name}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        lost = not self._core.valid
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        run(self._core.release())
        if lost and kind is None:
            raise LockLost(self._core.name)

    def _renew(self) -> None:
        while not self._over.wait(self._core.rest):
            try:
                if not run(self._core.renew()):
                    log.warning("the lock %s is lost", self._core.name)
                    return
            except TenureError as error:
                log.warning("the lock %s cannot be renewed: %s", self._core.name, error)


def run_once(core: Core, key: str, function: Callable[..., Any], retry: int, timeout: float, wait: Optional[float]) -> Any:
    """The worker's thread is given the job; the function runs on this one."""
    name, end = api.once_name(key), None if wait is None else now() + wait
    found = run(begin(core, name, retry, timeout))
    if found is not None and not found.open:
        return value_of(key, found)
    given: queue.Queue[Job] = queue.Queue()
    outcomes: queue.Queue[Union[str, BaseException]] = queue.Queue()

    def hand_over(job: Job) -> str:
        given.put(job)
        outcome = outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    worker = Worker(core, None, [name], 1, None, wait=1.0)
    worker.handle(name, hand_over)
    pause = LOOK_MIN
    try:
        worker.start()
        while True:
            try:
                job = given.get(timeout=pause)
            except queue.Empty:
                pass
            else:
                try:
                    run(check_new(core, name))
                    value = function(**arguments(function, job))
                    text = result_of(value)
                except BaseException as error:
                    outcomes.put(error)
                    if not isinstance(error, Exception) or job.attempt > retry:
                        raise
                    log.warning("once %s failed, and is tried again: %s", key, error_text(error))
                    continue
                told = threading.Event()
                job._on_finish = told.set
                outcomes.put(text)
                told.wait()
                if job._taken:
                    return api.loads(text)
            found = run(api.look(core, name))
            if found is not None and not found.open:
                return value_of(key, found)
            if end is not None and now() > end:
                raise TimeoutError(f"once {key!r} is not over after {wait} s")
            pause = min(max(pause, LOOK_MIN) * 1.5, LOOK_MAX)
    finally:
        outcomes.put(TimeoutError("nobody waits for it any more"))
        worker.stop()

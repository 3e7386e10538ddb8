"""What can go wrong."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Type


class TenureError(Exception):
    """A node refused a request, or what was asked for did not happen.

    `status` is the HTTP status, or None if the error does not come from a node. `name` is the name of the problem, such as
    `unknown-job` or `invalid`. `detail` says in words what is wrong; `problems` has every fault if there are several.
    """

    def __init__(self, status: Optional[int], name: str, detail: str, problems: Sequence[str] = ()) -> None:
        text = f"{name}: {detail}" if detail else name
        super().__init__("; ".join([text, *problems]))
        self.status = status
        self.name = name
        self.detail = detail
        self.problems = list(problems)

    def __reduce__(self) -> Tuple[Any, ...]:
        return again, (type(self), self.status, self.name, self.detail, self.problems)


def again(kind: Type[TenureError], status: Optional[int], name: str, detail: str, problems: Sequence[str]) -> TenureError:
    """The same error in another process."""
    error = kind.__new__(kind)
    TenureError.__init__(error, status, name, detail, problems)
    return error


class Unavailable(TenureError):
    """No node answered in time. What was asked for may have happened all the same; asking again is safe."""

    def __init__(self, detail: str, status: Optional[int] = None) -> None:
        super().__init__(status, "unavailable", detail)


class LockLost(TenureError):
    """The lock is no longer held: stop what it protects."""

    def __init__(self, name: str) -> None:
        super().__init__(None, "lock-lost", f"the lock {name} is no longer held")

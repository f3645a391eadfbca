"""The sites of a program where a check may fail, and their messages."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Sequence
from enum import Enum, unique
from typing import ClassVar, Final, TypeAlias, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core import ConcreteArray, Shape, ShapedArray, dtypes
from tracefx.extend import SourceLocation
from tracefx.pytrees.trees import TreeDef

PayloadTypes: TypeAlias = tuple[ShapedArray, ...]
FLAT_INDEX_AVAL: Final = ShapedArray((), dtypes.int32)


@unique
class ErrorKind(Enum):
    """The kinds of failure that `checkify` can detect.

    >>> [kind.name for kind in ErrorKind]
    ['USER', 'NAN', 'DIVISION', 'INDEX']
    """

    USER = "a check of the user's"
    NAN = "a result that is not a number"
    DIVISION = "a division by zero"
    INDEX = "an index out of bounds"

    @override
    def __repr__(self) -> str:
        return str(self)


@frozen(cache_hash=True)
class CheckSite:
    """A check at one source line: `message` describes its failure, given a payload of arrays with types `types`."""

    kind: ClassVar[ErrorKind]
    location: SourceLocation

    @property
    def types(self) -> PayloadTypes:
        """The shapes and dtypes of the payload; by default the flat index of an array element."""
        return (FLAT_INDEX_AVAL,)

    @property
    def error_kind(self) -> ErrorKind:
        """The kind of failure that the check detects."""
        return self.kind

    @property
    @abstractmethod
    def description(self) -> str:
        """The check in words, for messages about checks that have not run."""
        raise NotImplementedError

    @abstractmethod
    def message(self, payload: Sequence[ConcreteArray]) -> str:
        """Returns the message of a failure with this payload."""
        raise NotImplementedError


@memoize(1 << 14)
def error_code(site: CheckSite) -> int:
    """Returns the number of a site in programs: nonzero and the same in every process."""
    return zlib.crc32(repr(site).encode()) & 0x7FFFFFFF or 1


def _format_element(position: ConcreteArray, aval: ShapedArray) -> str:
    """Returns the index of an element and the array's type; for a scalar only its type."""
    if not aval.shape:
        return f"of {aval}"
    where = np.unravel_index(int(position.numpy()), aval.shape)
    return f"at {[int(i) for i in where]} of {aval}"


@final
@frozen(cache_hash=True)
class NotANumber(CheckSite):
    """A result is NaN. The payload is the flat index of its first NaN."""

    kind = ErrorKind.NAN
    operation: str
    out: ShapedArray

    @property
    @override
    def description(self) -> str:
        return f"a result of {self.operation} that is not a number, in {self.location}"

    @override
    def message(self, payload: Sequence[ConcreteArray]) -> str:
        return f"{self.operation} gave NaN, {_format_element(payload[0], self.out)}, in {self.location}"


@final
@frozen(cache_hash=True)
class ZeroDivision(CheckSite):
    """A divisor is zero. The payload is the flat index of the first zero."""

    kind = ErrorKind.DIVISION
    operation: str
    divisor: ShapedArray

    @property
    @override
    def description(self) -> str:
        return f"a division by zero in {self.operation}, in {self.location}"

    @override
    def message(self, payload: Sequence[ConcreteArray]) -> str:
        return (
            f"division by zero in {self.operation}: the divisor "
            f"{_format_element(payload[0], self.divisor)}, in {self.location}"
        )


@final
@frozen(cache_hash=True)
class OutOfBounds(CheckSite):
    """An index is out of bounds. The payload is the index and its position in the flat array of indices."""

    kind = ErrorKind.INDEX
    operation: str
    operand: ShapedArray
    sizes: Shape
    """The sizes of the window."""
    axes: tuple[int, ...]
    """The operand's axes that the last axis of the indices refers to."""
    indices: ShapedArray

    @property
    @override
    def description(self) -> str:
        return f"an index out of bounds in {self.operation}, in {self.location}"

    @property
    @override
    def types(self) -> PayloadTypes:
        return (ShapedArray((), self.indices.dtype), FLAT_INDEX_AVAL)

    @override
    def message(self, payload: Sequence[ConcreteArray]) -> str:
        index, position = [int(x.numpy()) for x in payload]
        axis = self.axes[position % len(self.axes)]
        size, n = self.sizes[axis], self.operand.shape[axis]
        what = f"index {index}" if size == 1 else f"a window of size {size} from index {index} on"
        which = np.unravel_index(position, self.indices.shape)[:-1]
        where = f", number {[int(i) for i in which]} of the indices," if which else ""
        return (
            f"{self.operation}: {what}{where} is out of bounds for axis {axis} of {self.operand}, which has size "
            f"{n}, in {self.location}"
        )


@final
@frozen(cache_hash=True)
class FailedCheck(CheckSite):
    """A `check` of the user failed. The payload is the arrays among the format's arguments."""

    kind = ErrorKind.USER
    text: str
    tree: TreeDef
    """The structure of the format's arguments."""
    static: tuple[tuple[int, object], ...]
    """The leaves that are not arrays, with their positions."""
    payload_types: PayloadTypes

    @property
    @override
    def description(self) -> str:
        return f"{self.text!r}, in {self.location}"

    @property
    @override
    def types(self) -> PayloadTypes:
        return self.payload_types

    @override
    def message(self, payload: Sequence[ConcreteArray]) -> str:
        static, arrays = dict(self.static), iter(payload)
        leaves = [static[i] if i in static else next(arrays) for i in range(self.tree.num_leaves)]
        args, kwargs = self.tree.unflatten(leaves)
        return f"{self.text.format(*args, **kwargs)}, in {self.location}"


@final
@frozen(cache_hash=True)
class InBatch(CheckSite):
    """A check in a program that is batched. Its payload has the flat batch index first."""

    site: CheckSite
    batch: Shape

    @property
    @override
    def description(self) -> str:
        return self.site.description

    @property
    @override
    def types(self) -> PayloadTypes:
        return (FLAT_INDEX_AVAL, *self.site.types)

    @property
    @override
    def error_kind(self) -> ErrorKind:
        return self.site.error_kind

    @override
    def message(self, payload: Sequence[ConcreteArray]) -> str:
        return (
            f"at batch index {_format_batch_index(int(payload[0].numpy()), self.batch)}: "
            f"{self.site.message(payload[1:])}"
        )


def _format_batch_index(position: int, shape: Shape) -> str:
    return format_index([int(i) for i in np.unravel_index(position, shape)])


def format_index(index: Sequence[int]) -> str:
    """Returns a batch index as text."""
    return ", ".join(map(str, index))

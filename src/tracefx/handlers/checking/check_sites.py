"""Places in a program where something can go wrong, and how to tell of it."""

from __future__ import annotations

import functools
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from enum import Enum, unique
from typing import ClassVar, Final, TypeAlias, final

import numpy as np
from attrs import frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.source_location import SourceLocation, current_provenance
from tracefx.core.values import ConcreteArray
from tracefx.pytrees.trees import TreeDef

PayloadTypes: TypeAlias = tuple[ShapedArray, ...]
FLAT_INDEX_AVAL: Final = ShapedArray((), dtypes.int32)


class CheckError(ValueError):
    """A check has failed: one of the user's, or one that `checkify` put in."""


@unique
class ErrorKind(Enum):
    """What can go wrong: what `checkify` looks after."""

    USER = "a check of the user's"
    NAN = "a result that is not a number"
    DIVISION = "a division by zero"
    INDEX = "an index out of bounds"

    @override
    def __repr__(self) -> str:
        return str(self)


@frozen(cache_hash=True)
class CheckSite:
    """A place in a program where something can go wrong, and how to tell of it. `types` are those of the payload."""

    kind: ClassVar[ErrorKind]
    place: SourceLocation | None

    @property
    def types(self) -> PayloadTypes:
        return (FLAT_INDEX_AVAL,)

    @property
    def error_kind(self) -> ErrorKind:
        return self.kind

    @property
    @abstractmethod
    def description(self) -> str:
        """The site, for errors that don't know whether anything went wrong there."""
        raise NotImplementedError

    @abstractmethod
    def message(self, payload: Sequence[ConcreteArray]) -> str:
        raise NotImplementedError


@functools.lru_cache(maxsize=1 << 14)
def error_code(site: CheckSite) -> int:
    """A number that stands for the site in programs: the same in every process, and not 0."""
    return zlib.crc32(repr(site).encode()) & 0x7FFFFFFF or 1


def _location_suffix(place: SourceLocation | None) -> str:
    """Where it is, to end a sentence with."""
    return "" if place is None else f", in {place}"


def _format_element(position: ConcreteArray, aval: ShapedArray) -> str:
    """Which element of an array, or nothing for one without axes."""
    if not aval.shape:
        return f"of {aval}"
    where = np.unravel_index(int(position.numpy()), aval.shape)
    return f"at {[int(i) for i in where]} of {aval}"


@final
@frozen(cache_hash=True)
class NotANumber(CheckSite):
    kind = ErrorKind.NAN
    operation: str
    out: ShapedArray

    @property
    @override
    def description(self) -> str:
        return f"a result of {self.operation} that is not a number{_location_suffix(self.place)}"

    @override
    def message(self, payload: Sequence[ConcreteArray]) -> str:
        return f"{self.operation} gave NaN, {_format_element(payload[0], self.out)}{_location_suffix(self.place)}"


@final
@frozen(cache_hash=True)
class ZeroDivision(CheckSite):
    kind = ErrorKind.DIVISION
    operation: str
    divisor: ShapedArray

    @property
    @override
    def description(self) -> str:
        return f"a division by zero in {self.operation}{_location_suffix(self.place)}"

    @override
    def message(self, payload: Sequence[ConcreteArray]) -> str:
        return (
            f"division by zero in {self.operation}: the divisor "
            f"{_format_element(payload[0], self.divisor)}{_location_suffix(self.place)}"
        )


@final
@frozen(cache_hash=True)
class OutOfBounds(CheckSite):
    """The payload is the index, and which of all start indices it is."""

    kind = ErrorKind.INDEX
    operation: str
    operand: ShapedArray
    sizes: Shape
    """Of the window."""
    axes: tuple[int, ...]
    """The operand's axes that the last axis of the indices has entries for."""
    indices: ShapedArray

    @property
    @override
    def description(self) -> str:
        return f"an index out of bounds in {self.operation}{_location_suffix(self.place)}"

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
            f"{n}{_location_suffix(self.place)}"
        )


@final
@frozen(cache_hash=True)
class FailedCheck(CheckSite):
    kind = ErrorKind.USER
    text: str
    tree: TreeDef
    """Of the arguments of the format."""
    static: tuple[tuple[int, object], ...]
    """Those leaves that are no arrays, by their place."""
    payload_types: PayloadTypes

    @property
    @override
    def description(self) -> str:
        return f"{self.text!r}{_location_suffix(self.place)}"

    @property
    @override
    def types(self) -> PayloadTypes:
        return self.payload_types

    @override
    def message(self, payload: Sequence[ConcreteArray]) -> str:
        static, arrays = dict(self.static), iter(payload)
        leaves = [static[i] if i in static else next(arrays) for i in range(self.tree.num_leaves)]
        args, kwargs = self.tree.unflatten(leaves)
        return f"{self.text.format(*args, **kwargs)}{_location_suffix(self.place)}"


@final
@frozen(cache_hash=True)
class InBatch(CheckSite):
    """A site in a program that was batched. The payload begins with the element of the batch."""

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


def resolved_location() -> SourceLocation | None:
    """Where the operation at hand was written."""
    source = current_provenance()
    return None if source is None else source.resolve()


def format_index(index: Sequence[int]) -> str:
    """An element of a batch, in words."""
    return ", ".join(map(str, index))

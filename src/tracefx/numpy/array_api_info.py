"""What the namespace says about itself, as the array API asks: devices, dtypes, what it can do."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, final

from tracefx.core import dtypes
from tracefx.core.backend import BACKEND
from tracefx.core.device import Device
from tracefx.core.dtypes import DType, DTypeKind

_KINDS: Final[Mapping[str, frozenset[DTypeKind]]] = MappingProxyType(
    {
        "bool": frozenset({DTypeKind.BOOL}),
        "signed integer": frozenset({DTypeKind.SIGNED}),
        "unsigned integer": frozenset({DTypeKind.UNSIGNED}),
        "integral": frozenset({DTypeKind.SIGNED, DTypeKind.UNSIGNED}),
        "real floating": frozenset({DTypeKind.FLOAT}),
        "complex floating": frozenset({DTypeKind.COMPLEX}),
        "numeric": frozenset({DTypeKind.SIGNED, DTypeKind.UNSIGNED, DTypeKind.FLOAT, DTypeKind.COMPLEX}),
    }
)
_STANDARD: Final = (
    *(dtypes.bool_, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    *(dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    *(dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128),
)


@final
class __array_namespace_info__:
    """What the namespace says about itself.

    >>> __array_namespace_info__().default_dtypes()["real floating"]
    dtype('float32')
    """

    __slots__ = ()

    def capabilities(self) -> dict[str, bool | int]:
        """What it can do; indexing by bools and shapes that depend on numbers, where numbers are known."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """The device of arrays of which nothing else is said."""
        return BACKEND.value.local_devices(BACKEND.value.platform)[0]

    def devices(self) -> list[Device | None]:
        """What may be passed as `device`."""
        return [None, *BACKEND.value.local_devices(BACKEND.value.platform)]

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, DType]:
        """The dtypes of arrays of which nothing else is said."""
        return {
            "real floating": dtypes.default_float(),
            "complex floating": dtypes.default_complex(),
            "integral": dtypes.default_int(),
            "indexing": dtypes.default_int(),
        }

    def dtypes(self, *, device: Device | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The array API's dtypes by their names, all or those of a kind, such as "real floating", or of several.

        ValueError for a kind that there isn't.
        """
        names = _KINDS if kind is None else (kind,) if isinstance(kind, str) else kind
        for name in names:
            if name not in _KINDS:
                raise ValueError(f"dtypes: kind must be of {', '.join(map(repr, _KINDS))}, got {name!r}")
        wanted = frozenset().union(*[_KINDS[name] for name in names])
        return {dtype.name: dtype for dtype in _STANDARD if dtypes.kind(dtype) in wanted}

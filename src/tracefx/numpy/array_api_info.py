"""The array API's inspection interface of the namespace: devices, dtypes, capabilities."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, final

from tracefx.core import DType, dtypes
from tracefx.core.backend import BACKEND
from tracefx.core.device import Device
from tracefx.core.dtypes import DTypeKind

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
    """Describes the namespace as the array API standard asks: its capabilities, devices and dtypes.

    >>> __array_namespace_info__().default_dtypes()["real floating"]
    dtype('float32')
    """

    def capabilities(self) -> dict[str, bool | int]:
        """Returns the capabilities.

        Boolean indexing and data-dependent shapes work on concrete values only, so libraries must not rely on them.
        """
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> Device:
        """Returns the device on which arrays are created unless another is given."""
        return BACKEND.value.local_devices(BACKEND.value.platform)[0]

    def devices(self) -> list[Device | None]:
        """Returns the values that are accepted as `device`."""
        return [None, *BACKEND.value.local_devices(BACKEND.value.platform)]

    def default_dtypes(self, *, device: Device | None = None) -> dict[str, DType]:
        """Returns the default dtypes by their kind.

        Args:
            device: Accepted for compatibility: all devices have the same dtypes.
        """
        return {
            "real floating": dtypes.default_float(),
            "complex floating": dtypes.default_complex(),
            "integral": dtypes.default_int(),
            "indexing": dtypes.default_int(),
        }

    def dtypes(self, *, device: Device | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """Returns the array API's dtypes by their names.

        Args:
            device: Accepted for compatibility: all devices have the same dtypes.
            kind: A kind such as `"real floating"`, or a tuple of kinds, to select dtypes; None selects all.

        Raises:
            ValueError: If there is no such kind.
        """
        names = _KINDS if kind is None else (kind,) if isinstance(kind, str) else kind
        for name in names:
            if name not in _KINDS:
                raise ValueError(f"dtypes: kind must be of {', '.join(map(repr, _KINDS))}, got {name!r}")
        wanted = frozenset().union(*[_KINDS[name] for name in names])
        return {dtype.name: dtype for dtype in _STANDARD if dtypes.kind(dtype) in wanted}

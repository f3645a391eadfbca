"""`jax.experimental.hijax`: libraries may declare types and primitives of higher order; using one raises an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, final

from tracefx.interop.as_jax.unsupported import unsupported

_REASON = "types of higher order are JAX's own"


class HiPrimitive:
    """The base class of primitives on types of higher order, which can be declared and not applied.

    Args:
        name: The name.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name

    def bind(self, *args: object, **params: object) -> NoReturn:
        """Raises `UnsupportedJaxError`."""
        raise unsupported(f"the hijax primitive {self.name}", _REASON)


@final
class aval_property(property):  # JAX's name
    """A property that values of a declared type would get from their aval."""


def aval_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that values of a declared type would get from their aval."""
    return method


def register_hitype(value_type: type[Any], to_aval: Callable[..., Any]) -> None:
    """Declares a type of higher order: only primitives that raise an error would use the declaration."""

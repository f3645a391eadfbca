"""Names of JAX without a counterpart in tracefx: using one raises an error with the reason."""

from __future__ import annotations

import sys
from typing import Any

from typing_extensions import override


class UnsupportedJaxError(NotImplementedError):
    """A library uses a feature of JAX that tracefx does not have. The message names its line, the feature, the reason.

    >>> raise unsupported("jax.core.Trace", "handlers replace it")
    Traceback (most recent call last):
    tracefx.interop.as_jax.unsupported.UnsupportedJaxError: jax.core.Trace ... is not available on tracefx: ...
    """


def unsupported(name: str, reason: str) -> UnsupportedJaxError:
    """Returns the error for a feature of JAX that is used.

    Args:
        name: The name of the feature in JAX.
        reason: Why tracefx does not have it, or what replaces it.
    """
    frame = sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("tracefx."):
        frame = frame.f_back
    line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return UnsupportedJaxError(f"{name} (used at {line}) is not available on tracefx: {reason}")


class UnsupportedType(type):
    """The metaclass of names without a counterpart.

    A library may import them, refer to them in annotations, `isinstance` and bases; calling them raises. Classes that
    it derives from them are its own.
    """

    jax_name: str
    reason: str

    @override
    def __call__(cls, *args: object, **kwargs: object) -> Any:
        if "jax_name" in vars(cls):
            raise unsupported(cls.jax_name, cls.reason)
        return super().__call__(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or "jax_name" not in vars(cls):
            raise AttributeError(name)
        return unsupported_name(f"{cls.jax_name}.{name}", cls.reason)

    def __getitem__(cls, index: object) -> UnsupportedType:
        return cls

    @override
    def __repr__(cls) -> str:
        return f"<{cls.jax_name}, which tracefx does not have>"


def unsupported_name(name: str, reason: str) -> UnsupportedType:
    """Returns a class in the place of a name of JAX, which raises `UnsupportedJaxError` when it is called.

    Args:
        name: The full name in JAX.
        reason: Why tracefx does not have it, or what replaces it.
    """
    return UnsupportedType(name.rpartition(".")[2], (), {"jax_name": name, "reason": reason})

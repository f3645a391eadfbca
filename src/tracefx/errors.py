"""The exceptions that tracefx raises. Each subclasses the built-in exception that NumPy or JAX users would catch."""

from __future__ import annotations


class ConcretizationError(TypeError):
    """A concrete value is required, but the value is traced, so only its shape and dtype are known.

    Args:
        message: The message.
        detail: The origin of the tracer as a sentence, for callers that extend the message.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class TracerBoolConversionError(ConcretizationError):
    """A tracer is converted to a bool, as in `if x > 0:` inside a jitted function."""


class TracerIntegerConversionError(ConcretizationError):
    """A tracer is converted to a Python integer, as in `range(x)` inside a jitted function."""


class TracerArrayConversionError(ConcretizationError):
    """A tracer is converted to a NumPy array, which requires its elements."""


class EscapedTracerError(TypeError):
    """A tracer is used after or outside the transformation that created it."""


class DeletedArrayError(RuntimeError, ValueError):
    """An array is read after its deletion or donation. JAX raises RuntimeError or ValueError, depending on the use."""


class PlatformError(RuntimeError, ValueError):
    """A platform has no devices, or its plug-in fails to load. JAX raises RuntimeError."""


class UnsupportedJaxlibError(ImportError):
    """The installed jaxlib is missing, incomplete, or of an unsupported version."""


class MissingRuleError(NotImplementedError):
    """A handler needs a rule that a primitive does not define."""


class JaxprTypeError(TypeError):
    """A jaxpr is not well formed; see `check_jaxpr`."""


class ParseError(ValueError):
    """Text or bytes cannot be parsed as a program."""


class SerializationError(TypeError):
    """A program contains something that cannot be serialized, e.g. a function."""


class HandlerStateError(RuntimeError):
    """A `with handling(...)` block is entered twice or left out of order, or an `Interpreter` does not run."""


class TypePromotionError(TypeError, ValueError):
    """Operands have no common dtype. JAX's error of this name is a ValueError."""


class ClosedOverTracerError(EscapedTracerError):
    """A function with a custom rule closes over a tracer that must be an explicit argument for the rule."""


class CotangentError(TypeError, ValueError):
    """Cotangents differ from the outputs in structure, shape or dtype. JAX raises ValueError."""


class NotLinearError(TypeError):
    """A function that is to be transposed is not linear."""

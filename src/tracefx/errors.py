"""The errors tracefx raises. Each subclasses the builtin that a NumPy or JAX user would catch."""

from __future__ import annotations


class ConcretizationError(TypeError):
    """A concrete value was needed where only an abstract one (a tracer) is known.

    `detail` says where the tracer comes from, as a sentence, for messages that have more to say.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class TracerBoolConversionError(ConcretizationError):
    """A tracer was used as a truth value, as in `if x > 0:` inside a jitted function."""


class TracerIntegerConversionError(ConcretizationError):
    """A tracer was used as a Python integer, as in `range(x)` inside a jitted function."""


class TracerArrayConversionError(ConcretizationError):
    """A tracer was handed to NumPy, which needs the numbers themselves."""


class EscapedTracerError(TypeError):
    """A tracer was used after, or outside, the transformation that made it."""


class DeletedArrayError(RuntimeError, ValueError):
    """An array was read after its `delete`. JAX raises RuntimeError or ValueError, depending on the use."""


class PlatformError(RuntimeError, ValueError):
    """There are no devices of a platform that was asked for, or a plug-in for it fails. JAX's is a RuntimeError."""


class UnsupportedJaxlibError(ImportError):
    """The installed jaxlib is missing, incomplete, or of a version that tracefx does not support."""


class MissingRuleError(NotImplementedError):
    """A primitive was asked for a rule that it does not define."""


class JaxprTypeError(TypeError):
    """A jaxpr breaks the typing rules of jaxprs."""


class ParseError(ValueError):
    """Text, or bytes, that should be a program is not one."""


class SerializationError(TypeError):
    """A program holds what can't leave the process, such as a function."""


class HandlerStateError(RuntimeError):
    """A handler was to be removed while another one was current."""


class TypePromotionError(TypeError, ValueError):
    """Operands have dtypes without a common dtype to promote to. JAX's error of this name is a ValueError."""


class ClosedOverTracerError(EscapedTracerError):
    """A function with a rule of its own closes over a value that its rule would have to know as an argument."""


class CotangentError(TypeError, ValueError):
    """Cotangents have another structure or type than the outputs. JAX raises ValueError."""


class NotLinearError(TypeError):
    """A function that has to be transposed is not linear."""

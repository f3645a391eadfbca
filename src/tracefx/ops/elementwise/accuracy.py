"""The `accuracy` argument of elementwise functions: the error bound requested from XLA.

XLA's CPU backend has a single implementation of most functions and ignores it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, unique
from typing import ClassVar, TypeAlias, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.core import NDArray, ShapedArray, Value, dtypes
from tracefx.lowering import Attr, Builder, IrValue, MlirText
from tracefx.ops.elementwise.complex_lowering import ComplexRule, emit_by_parts
from tracefx.ops.elementwise.elementwise import Smooth
from tracefx.ops.operation import run_compiled
from tracefx.text.printer import HasJaxParams


@final
@unique
class AccuracyMode(Enum):
    """A named implementation to choose for a function."""

    HIGHEST = 1
    """The most accurate implementation."""
    DEFAULT = 2
    """The platform's default implementation."""


@final
@frozen
class Tolerance:
    """The error allowed in a result: absolute, relative, or in units in the last place (ulps).

    Raises:
        ValueError: A bound is negative, or all are zero.

    >>> Tolerance(atol=1e-3, rtol=1e-5)
    Tolerance(atol=0.001, rtol=1e-05, ulps=0)
    """

    atol: float = 0.0
    """The absolute error bound; 0 for none."""
    rtol: float = 0.0
    """The error bound relative to the result; 0 for none."""
    ulps: int = 0
    """The error bound in ulps of the result; 0 for none."""

    def __attrs_post_init__(self) -> None:
        if self.atol < 0 or self.rtol < 0 or self.ulps < 0:
            raise ValueError(f"tolerances must not be negative, got {self}")
        if not (self.atol or self.rtol or self.ulps):
            raise ValueError("one of atol, rtol and ulps must be positive, got none")


Accuracy: TypeAlias = AccuracyMode | Tolerance | None


def check_accuracy(name: str, accuracy: Accuracy) -> Accuracy:
    """Returns `accuracy`; raises TypeError if it is not an `AccuracyMode`, a `Tolerance` or None."""
    if accuracy is not None and not isinstance(accuracy, AccuracyMode | Tolerance):
        raise TypeError(f"{name}: accuracy must be an AccuracyMode, a Tolerance or None, got {accuracy!r}")
    return accuracy


@frozen(eq=False)
class HasAccuracy(Smooth, HasJaxParams):
    """Base of smooth elementwise primitives with an accuracy parameter.

    Args:
        accuracy: The error bound of compiled code: an `AccuracyMode` or a `Tolerance`. None, the default, means XLA's.

    >>> from tracefx import bind, lax, ops
    >>> bind(ops.Exp(lax.Tolerance(rtol=1e-4)), 0.0)
    (Array(1., dtype=float32, weak_type=True),)
    """

    complex_rule: ClassVar[ComplexRule] = ComplexRule()

    accuracy: Accuracy = field(default=None, metadata={"hide_default": True})

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        kernel = self.complex_rule.kernel
        return kernel(*args) if kernel is not None and dtypes.is_complex(args[0].dtype) else super().kernel(*args)

    @override
    def _evaluate_large(self, args: Sequence[Value]) -> Sequence[Value] | None:
        # The results differ in the last digits from those of the kernel, so every call is alike, the first one too.
        return run_compiled(self, args) if args[0].aval.dtype in (dtypes.float32, dtypes.float64) else None

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {} if self.accuracy is None else {"accuracy": self.accuracy}

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        if not dtypes.is_complex(out.dtype):
            return builder.emit(self.hlo, operands, [out], self.accuracy_attrs())[0]
        (x,), rule = operands, self.complex_rule
        if rule.lower is not None:
            return emit_by_parts(builder, rule.lower, x)
        (result,) = builder.emit(self.hlo, [x], [out], self.accuracy_attrs())
        return result if rule.fixup is None else emit_by_parts(builder, rule.fixup, x, result)

    def accuracy_attrs(self) -> Mapping[str, Attr]:
        """Returns the StableHLO attributes that request the accuracy."""
        accuracy = self.accuracy
        if accuracy is None:
            return {}
        parts = []
        if isinstance(accuracy, Tolerance):
            parts += [f"atol = {accuracy.atol:.17e}", f"rtol = {accuracy.rtol:.17e}", f"ulps = {accuracy.ulps}"]
        mode = accuracy.name if isinstance(accuracy, AccuracyMode) else "TOLERANCE"
        parts.append(f"mode = #stablehlo.result_accuracy_mode<{mode}>")
        return {"result_accuracy": MlirText(f"#stablehlo.result_accuracy<{', '.join(parts)}>")}

"""How exactly a function is computed: what one may ask of XLA, which has one way for most on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import ClassVar, TypeAlias, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.dtypes import NDArray
from tracefx.lowering import Attr, Builder, IrValue, MlirText
from tracefx.ops.elementwise.complex_lowering import ComplexRule
from tracefx.ops.elementwise.elementwise import Smooth
from tracefx.text.printer import HasJaxParams


@final
@unique
class AccuracyMode(Enum):
    """One of the ways to compute a function that there are."""

    HIGHEST = 1
    """The most exact one."""
    DEFAULT = 2


@final
@frozen
class Tolerance:
    """How far a result may be from the exact one: by `atol`, by `rtol` times itself, or by `ulps` of its last place.

    Raises ValueError for negative numbers, and if all are zero.

    >>> Tolerance(atol=1e-3, rtol=1e-5)
    Tolerance(atol=0.001, rtol=1e-05, ulps=0)
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __attrs_post_init__(self) -> None:
        if self.atol < 0 or self.rtol < 0 or self.ulps < 0:
            raise ValueError(f"tolerances must not be negative, got {self}")
        if not (self.atol or self.rtol or self.ulps):
            raise ValueError("one of atol, rtol and ulps must be positive, got none")


Accuracy: TypeAlias = AccuracyMode | Tolerance | None


def check_accuracy(name: str, accuracy: Accuracy) -> Accuracy:
    """An argument `accuracy`; `TypeError` if it is none."""
    if accuracy is not None and not isinstance(accuracy, AccuracyMode | Tolerance):
        raise TypeError(f"{name}: accuracy must be an AccuracyMode, a Tolerance or None, got {accuracy!r}")
    return accuracy


@frozen(eq=False)
class HasAccuracy(Smooth, HasJaxParams):
    """A smooth function that may be asked for with an accuracy."""

    complex_rule: ClassVar[ComplexRule] = ComplexRule()

    accuracy: Accuracy = field(default=None, metadata={"hide_default": True})

    @override
    def kernel(self, *args: NDArray) -> NDArray:
        kernel = self.complex_rule.kernel
        return kernel(*args) if kernel is not None and dtypes.is_complex(args[0].dtype) else super().kernel(*args)

    @override
    def jax_params(self) -> Mapping[str, object]:
        return {} if self.accuracy is None else {"accuracy": self.accuracy}

    @override
    def emit_elementwise(self, builder: Builder, out: ShapedArray, *operands: IrValue) -> IrValue:
        if not dtypes.is_complex(out.dtype):
            return builder.emit(self.hlo, operands, [out], self.accuracy_attrs())[0]
        (x,), departs = operands, self.complex_rule
        if departs.lower is not None:
            return departs.lower(builder, x)
        (found,) = builder.emit(self.hlo, [x], [out], self.accuracy_attrs())
        return found if departs.fixup is None else departs.fixup(builder, x, found)

    def accuracy_attrs(self) -> Mapping[str, Attr]:
        """What says so in StableHLO."""
        accuracy = self.accuracy
        if accuracy is None:
            return {}
        parts = []
        if isinstance(accuracy, Tolerance):
            parts += [f"atol = {accuracy.atol:.17e}", f"rtol = {accuracy.rtol:.17e}", f"ulps = {accuracy.ulps}"]
        mode = accuracy.name if isinstance(accuracy, AccuracyMode) else "TOLERANCE"
        parts.append(f"mode = #stablehlo.result_accuracy_mode<{mode}>")
        return {"result_accuracy": MlirText(f"#stablehlo.result_accuracy<{', '.join(parts)}>")}

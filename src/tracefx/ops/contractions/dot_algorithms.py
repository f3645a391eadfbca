"""Algorithms of products: in which dtypes an accelerator multiplies and adds. The CPU has few of them."""

from __future__ import annotations

from enum import Enum, auto, unique
from typing import Final, TypeAlias, final

import ml_dtypes
import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import dtypes
from tracefx.core.dtypes import DType, DTypeLike
from tracefx.lowering import MlirText


def _dtype(x: DTypeLike) -> DType:
    return dtypes.as_dtype(x, "a type of a DotAlgorithm")


@final
@frozen
class DotAlgorithm:
    """Operands are rounded to `lhs_precision_type` and `rhs_precision_type` and products added in `accumulation_type`.

    Of an algorithm that takes operands apart to be more exact, into how many components, and how many products there
    are; and whether sums may be less exact than `accumulation_type`. Which algorithms there are depends on the
    platform, and shows when a program is compiled: `DotAlgorithmPreset` has those that some platform has.

    >>> DotAlgorithm("bfloat16", "bfloat16", "float32").accumulation_type
    dtype('float32')
    """

    lhs_precision_type: DType = field(converter=_dtype)
    rhs_precision_type: DType = field(converter=_dtype)
    accumulation_type: DType = field(converter=_dtype)
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False

    def swapped(self) -> DotAlgorithm:
        """The same for operands in the other order."""
        return evolve(
            self,
            lhs_precision_type=self.rhs_precision_type,
            rhs_precision_type=self.lhs_precision_type,
            lhs_component_count=self.rhs_component_count,
            rhs_component_count=self.lhs_component_count,
        )


@final
@unique
class DotAlgorithmPreset(Enum):
    """Algorithms by name: the dtypes of both operands and of sums; with `X3`, of so many products in place of one.

    With `ANY` the dtype may be any of 8 bits, or of sums any.
    """

    DEFAULT = auto()
    ANY_F8_ANY_F8_F32 = auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = auto()
    ANY_F8_ANY_F8_ANY = auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = auto()
    F16_F16_F16 = auto()
    F16_F16_F32 = auto()
    BF16_BF16_BF16 = auto()
    BF16_BF16_F32 = auto()
    BF16_BF16_F32_X3 = auto()
    BF16_BF16_F32_X6 = auto()
    BF16_BF16_F32_X9 = auto()
    TF32_TF32_F32 = auto()
    TF32_TF32_F32_X3 = auto()
    F32_F32_F32 = auto()
    F64_F64_F64 = auto()

    @override
    def __str__(self) -> str:
        return self.name

    @property
    def operand_dtypes(self) -> tuple[DType, ...] | None:
        """The dtypes that operands may have, the first being what others are converted to; None for any."""
        if self is _P.DEFAULT or self.name.startswith("ANY"):
            return None
        kind = self.name.split("_")[0]
        if self in (_P.BF16_BF16_BF16, _P.BF16_BF16_F32):
            return _BF16, _F32
        return (_TYPES.get(kind, _F32) if kind != "BF16" else _F32,)

    def result_dtypes(self, lhs: DType, rhs: DType) -> tuple[DType, ...] | None:
        """The dtypes that results may have, the first being what others are converted from; None for any."""
        if self.operand_dtypes is None:
            return (_F32, *_NARROW) if "F8_F32" in self.name else None
        if self in (_P.F16_F16_F32, _P.BF16_BF16_F32):
            own = _F16 if self is _P.F16_F16_F32 else _BF16
            return (_F32, own) if lhs == rhs == own else (_F32,)
        return (_TYPES[self.name.split("_")[2]],)

    def text(self, lhs: DType, rhs: DType) -> str:
        """The algorithm in StableHLO, for operands of these dtypes."""
        fast = "true" if self is _P.ANY_F8_ANY_F8_F32_FAST_ACCUM else "false"
        if self.operand_dtypes is None:
            if not all(dtypes.is_float(d) and dtypes.itemsize_bits(d) == 8 for d in (lhs, rhs)):
                raise ValueError(f"dot_general: the algorithm {self} is of floats of 8 bits, got {lhs} and {rhs}")
            return _text(_mlir(lhs), _mlir(rhs), "f32", 1, 1, 1, fast)
        left, right, total, *products = self.name.lower().split("_")
        return _text(left, right, total, 1, 1, int(products[0][1:]) if products else 1, fast)


_P: Final = DotAlgorithmPreset
_F16, _BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_TYPES: Final = {"F16": _F16, "BF16": _BF16, "F32": _F32, "F64": _F64}
_NARROW: Final = (_F16, _BF16, *[d for d in dtypes.ALL_DTYPES if dtypes.is_float(d) and dtypes.itemsize_bits(d) == 8])
_CPU_ALGORITHMS: Final = (
    *(_P.DEFAULT, _P.F16_F16_F16, _P.F32_F32_F32, _P.F64_F64_F64),
    *(_P.BF16_BF16_F32, _P.BF16_BF16_F32_X3, _P.BF16_BF16_F32_X6),
)
_WIDE: Final = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
_HALVES_AND_SINGLES: Final = (dtypes.bfloat16, dtypes.float16, dtypes.float32)
AnyDotAlgorithm: TypeAlias = DotAlgorithm | DotAlgorithmPreset


def _mlir(dtype: DType) -> str:
    short = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}
    name = dtypes.name(dtype)
    return short.get(name) or name.replace("float8_", "f8").upper().replace("F8", "f8").replace("_", "")


def _text(left: str, right: str, total: str, lefts: int, rights: int, products: int, fast: str) -> str:
    return (
        f"#stablehlo.dot_algorithm<lhs_precision_type = {left}, rhs_precision_type = {right}, "
        f"accumulation_type = {total}, lhs_component_count = {lefts}, rhs_component_count = {rights}, "
        f"num_primitive_operations = {products}, allow_imprecise_accumulation = {fast}>"
    )


def require_algorithm(algorithm: AnyDotAlgorithm, platform: str) -> None:
    """`ValueError` for an algorithm that a platform hasn't, as far as we know: XLA ignores it on the CPU."""
    if platform == "cpu" and algorithm not in _CPU_ALGORITHMS:
        names = ", ".join(map(str, _CPU_ALGORITHMS))
        raise ValueError(f"dot_general: the precision {algorithm} is none that the CPU has, which are {names}")


def algorithm_dtypes(algorithm: AnyDotAlgorithm, lhs: DType, rhs: DType, out: DType) -> tuple[DType, DType, DType]:
    """The dtypes that operands are converted to, and that the result is computed in."""
    if isinstance(algorithm, DotAlgorithm):
        return algorithm.lhs_precision_type, algorithm.rhs_precision_type, algorithm.accumulation_type
    taken = algorithm.operand_dtypes
    left, right = [d if taken is None or d in taken else taken[0] for d in (lhs, rhs)]
    given = algorithm.result_dtypes(left, right)
    return left, right, out if given is None or out in given else given[0]


def gpu_dot_dtypes(operand: DType, out: DType) -> tuple[DType, DType]:
    """The dtypes that operands of a dtype, or of tiny ones, are converted to on a GPU, and that products are added in.

    Where these are those of the operands and the result, XLA has what multiplies them: it refuses other pairs.
    """
    if not dtypes.is_inexact(operand):
        if not dtypes.is_inexact(out):
            return operand, out
        wide = out if out in _WIDE else dtypes.float32
        return wide, wide
    if dtypes.is_complex(operand) or dtypes.is_complex(out):
        wide = out if dtypes.is_complex(out) else operand
        return wide, wide
    if dtypes.float64 in (operand, out):
        return dtypes.float64, dtypes.float64
    bits = dtypes.itemsize_bits(operand)
    given = operand if bits >= 8 else dtypes.bfloat16
    return given, out if out in _HALVES_AND_SINGLES or (operand == out and bits == 8) else dtypes.float32


def algorithm_attr(algorithm: AnyDotAlgorithm, lhs: DType, rhs: DType) -> MlirText | None:
    """The algorithm as an attribute, for operands of these dtypes; None for the default one."""
    if algorithm is _P.DEFAULT:
        return None
    if isinstance(algorithm, DotAlgorithmPreset):
        return MlirText(algorithm.text(lhs, rhs))
    a = algorithm
    types = [_mlir(d) for d in (a.lhs_precision_type, a.rhs_precision_type, a.accumulation_type)]
    fast = "true" if a.allow_imprecise_accumulation else "false"
    counts = a.lhs_component_count, a.rhs_component_count, a.num_primitive_operations
    return MlirText(_text(types[0], types[1], types[2], *counts, fast))

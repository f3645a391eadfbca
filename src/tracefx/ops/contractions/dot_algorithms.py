"""Algorithms of contractions: the dtypes in which accelerators multiply and add. The CPU supports few of them."""

from __future__ import annotations

from enum import Enum, auto, unique
from typing import Final, TypeAlias, final

import ml_dtypes
import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.core import DType, DTypeLike, dtypes
from tracefx.lowering import MlirText


def _dtype(x: DTypeLike) -> DType:
    """Returns the dtype that a field of a `DotAlgorithm` is set to."""
    return dtypes.as_dtype(x, "a type of a DotAlgorithm")


@final
@frozen
class DotAlgorithm:
    """An algorithm described by its dtypes and numbers of products.

    Platforms support different algorithms, and raise an error at compilation for others. `DotAlgorithmPreset` has those
    that some platform supports.

    >>> DotAlgorithm("bfloat16", "bfloat16", "float32").accumulation_type
    dtype('float32')
    """

    lhs_precision_type: DType = field(converter=_dtype)
    """The dtype that the first operand is rounded to."""
    rhs_precision_type: DType = field(converter=_dtype)
    """The dtype that the second operand is rounded to."""
    accumulation_type: DType = field(converter=_dtype)
    """The dtype in which products are added."""
    lhs_component_count: int = 1
    """The number of parts that the first operand is split into, for more accuracy."""
    rhs_component_count: int = 1
    """The number of parts that the second operand is split into."""
    num_primitive_operations: int = 1
    """The number of products of parts."""
    allow_imprecise_accumulation: bool = False
    """Whether sums may be less accurate than `accumulation_type`."""

    def swapped(self) -> DotAlgorithm:
        """Returns the same algorithm for exchanged operands."""
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
    """Named algorithms: the dtypes of both operands and of the accumulator.

    `X3` stands for three products of parts in place of one. `ANY_F8` is any float dtype of 8 bits, `ANY` any
    accumulator.
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
        """The dtypes that operands may have; others are converted to the first one. None for any dtype."""
        if self is _P.DEFAULT or self.name.startswith("ANY"):
            return None
        kind = self.name.split("_")[0]
        if self in (_P.BF16_BF16_BF16, _P.BF16_BF16_F32):
            return _BF16, _F32
        return (_TYPES.get(kind, _F32) if kind != "BF16" else _F32,)

    def result_dtypes(self, lhs: DType, rhs: DType) -> tuple[DType, ...] | None:
        """Returns the dtypes that results may have; others are converted from the first one. None for any dtype.

        Args:
            lhs: The dtype of the first operand.
            rhs: The dtype of the second operand.
        """
        if self.operand_dtypes is None:
            return (_F32, *_NARROW) if "F8_F32" in self.name else None
        if self in (_P.F16_F16_F32, _P.BF16_BF16_F32):
            own = _F16 if self is _P.F16_F16_F32 else _BF16
            return (_F32, own) if lhs == rhs == own else (_F32,)
        return (_TYPES[self.name.split("_")[2]],)

    def text(self, lhs: DType, rhs: DType) -> str:
        """Returns the algorithm in StableHLO, for operands of these dtypes.

        Args:
            lhs: The dtype of the first operand.
            rhs: The dtype of the second operand.

        Raises:
            ValueError: An operand of an algorithm for 8-bit floats has another dtype.
        """
        fast = "true" if self is _P.ANY_F8_ANY_F8_F32_FAST_ACCUM else "false"
        if self.operand_dtypes is None:
            if not all(dtypes.is_float(d) and dtypes.itemsize_bits(d) == 8 for d in (lhs, rhs)):
                raise ValueError(f"dot_general: the algorithm {self} needs 8-bit floats, got {lhs} and {rhs}")
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
    """Returns the name of a float dtype in MLIR."""
    short = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}
    name = dtypes.name(dtype)
    return short.get(name) or name.replace("float8_", "f8").upper().replace("F8", "f8").replace("_", "")


def _text(left: str, right: str, total: str, lefts: int, rights: int, products: int, fast: str) -> str:
    """Returns the StableHLO attribute of an algorithm."""
    return (
        f"#stablehlo.dot_algorithm<lhs_precision_type = {left}, rhs_precision_type = {right}, "
        f"accumulation_type = {total}, lhs_component_count = {lefts}, rhs_component_count = {rights}, "
        f"num_primitive_operations = {products}, allow_imprecise_accumulation = {fast}>"
    )


def require_algorithm(algorithm: AnyDotAlgorithm, platform: str) -> None:
    """Raises ValueError if the platform is known not to support the algorithm; on the CPU, XLA would ignore it."""
    if platform == "cpu" and algorithm not in _CPU_ALGORITHMS:
        names = ", ".join(map(str, _CPU_ALGORITHMS))
        raise ValueError(f"dot_general: the CPU does not support the precision {algorithm}, only {names}")


def algorithm_dtypes(algorithm: AnyDotAlgorithm, lhs: DType, rhs: DType, out: DType) -> tuple[DType, DType, DType]:
    """Returns the dtypes that operands are converted to, and that of the result of the product."""
    if isinstance(algorithm, DotAlgorithm):
        return algorithm.lhs_precision_type, algorithm.rhs_precision_type, algorithm.accumulation_type
    accepted = algorithm.operand_dtypes
    left, right = [d if accepted is None or d in accepted else accepted[0] for d in (lhs, rhs)]
    result = algorithm.result_dtypes(left, right)
    return left, right, out if result is None or out in result else result[0]


def gpu_dot_dtypes(operand: DType, out: DType) -> tuple[DType, DType]:
    """Returns the dtypes that operands are converted to on a GPU, and that products are added in.

    For the pairs of dtypes that are returned, XLA has GPU kernels; it rejects other pairs.
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
    result = operand if bits >= 8 else dtypes.bfloat16
    return result, out if out in _HALVES_AND_SINGLES or (operand == out and bits == 8) else dtypes.float32


def algorithm_attr(algorithm: AnyDotAlgorithm, lhs: DType, rhs: DType) -> MlirText | None:
    """Returns the algorithm as a StableHLO attribute, for operands of these dtypes; None for the default."""
    if algorithm is _P.DEFAULT:
        return None
    if isinstance(algorithm, DotAlgorithmPreset):
        return MlirText(algorithm.text(lhs, rhs))
    a = algorithm
    types = [_mlir(d) for d in (a.lhs_precision_type, a.rhs_precision_type, a.accumulation_type)]
    fast = "true" if a.allow_imprecise_accumulation else "false"
    counts = a.lhs_component_count, a.rhs_component_count, a.num_primitive_operations
    return MlirText(_text(types[0], types[1], types[2], *counts, fast))

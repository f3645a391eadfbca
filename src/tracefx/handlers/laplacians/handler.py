"""`ForwardLaplacian`, the handler whose values are accompanied by their Jacobian and Laplacian."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, final

from attrs import evolve
from typing_extensions import override

from tracefx import ops
from tracefx.control.custom_jvp import CustomJVP, CustomJVPCall
from tracefx.control.custom_vjp import CustomVJP, CustomVJPCall
from tracefx.control.linear_solve import LinearSolve
from tracefx.control.scan import Scan
from tracefx.core import ShapedArray, Value
from tracefx.core.primitive import Differentiable, missing_rule_error
from tracefx.handlers.laplacians.contraction import dot_general_laplacian
from tracefx.handlers.laplacians.laplacian_array import (
    LaplacianArray,
    LaplacianOrValue,
    constant_laplacian_array,
    inputs_first,
    inputs_last,
    to_dense,
)
from tracefx.handlers.laplacians.rules import (
    add_laplacian,
    convert_element_type_laplacian,
    div_laplacian,
    elementwise_laplacian,
    linear_elementwise_laplacian,
    locally_linear_laplacian,
    mul_laplacian,
    order_preserving_laplacian,
    reduce_sum_laplacian,
    second_derivative_laplacian,
    sub_laplacian,
    zero_derivative_laplacian,
)
from tracefx.interpreters.body_transform import ValueSpec
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.ops.collectives.collective import LinearCollective
from tracefx.ops.elementwise.arithmetic import BinaryExtremum
from tracefx.ops.elementwise.complex import LinearElementwise
from tracefx.ops.elementwise.elementwise import NonDifferentiable, Smooth
from tracefx.ops.indexing.scatter import ScatterExtremum
from tracefx.ops.operation import LinearOperation
from tracefx.ops.reductions.reduction import ArgExtremum, ReduceExtremum
from tracefx.ops.structural import constant_like_aval


class LaplacianRule:
    """A capability of primitives: they compute the Jacobian and Laplacian of their results.

    Without it a primitive's derivative is differentiated once more, in the directions of all inputs at once.
    """

    __slots__ = ()

    @abstractmethod
    def laplacian(self, *operands: LaplacianArray | Value) -> Sequence[LaplacianArray | Value]:
        """Returns the results: plain values for constants, `LaplacianArray`s for those that depend on the inputs.

        Args:
            *operands: The operands, at least one of them a `LaplacianArray`. Jacobians are dense, `f32[size, *s]`.

        Returns:
            One value for each result.

        Raises:
            MissingRuleError: The class does not define the method.
        """
        raise missing_rule_error(self, "laplacian", "define laplacian(self, *operands)")


@final
class ForwardLaplacian(Interpreter[LaplacianArray]):
    """Values are accompanied by their derivatives by `size` inputs and the sum of their second derivatives."""

    title: ClassVar[str] = "laplacian"
    size: int
    in_scan: bool = False
    """Whether the handler interprets a scan, which slices its inputs."""

    @property
    @override
    def rules(self) -> Rules[ForwardLaplacian, LaplacianOrValue]:
        return RULES

    @override
    def wrap(self, value: LaplacianOrValue) -> Value:
        return super().wrap(inputs_first(value) if isinstance(value, LaplacianArray) else value)

    @override
    def spec(self, x: Value) -> ValueSpec:
        if self.in_scan and isinstance(value := self.unwrap(x), LaplacianArray):
            return super().spec(super().wrap(inputs_last(value)))
        return super().spec(x)

    @override
    def aval_of(self, value: LaplacianArray) -> ShapedArray:
        return value.value.aval

    @override
    def lift(self, x: Value) -> LaplacianArray:
        return constant_laplacian_array(x, self.size)

    @override
    def unify(self, x: LaplacianArray, y: LaplacianArray) -> tuple[LaplacianArray, LaplacianArray]:
        """Returns both with one layout, and both with a Laplacian if one has it."""
        if x.has_inputs_last != y.has_inputs_last:
            x, y = inputs_last(x), inputs_last(y)
        elif x.layout != y.layout:
            x, y = to_dense(x), to_dense(y)
        needs_laplacian = x.laplacian is not None or y.laplacian is not None
        return _instantiate_laplacian(x, needs_laplacian), _instantiate_laplacian(y, needs_laplacian)

    @override
    def strip(self, value: LaplacianArray) -> Value:
        return value.value


def _instantiate_laplacian(x: LaplacianArray, wanted: bool) -> LaplacianArray:
    if not wanted or x.laplacian is not None:
        return x
    return evolve(x, laplacian=constant_like_aval(x.value.aval, 0))


def own_rule_laplacian(
    handler: ForwardLaplacian, prim: LaplacianRule, *operands: LaplacianOrValue
) -> Sequence[LaplacianOrValue]:
    return prim.laplacian(*[to_dense(x) if isinstance(x, LaplacianArray) else x for x in operands])


def scan_laplacian(handler: ForwardLaplacian, prim: Scan, *operands: LaplacianOrValue) -> Sequence[LaplacianOrValue]:
    """Interprets a scan with Jacobians that have the inputs last, because it slices along the first axis."""
    inside = evolve(handler, in_scan=True).start(handler.inner)
    return [inside.unwrap(out) for out in prim.transform_bodies(inside, [inside.wrap(x) for x in operands])]


def _build_rules() -> Rules[ForwardLaplacian, LaplacianOrValue]:
    return (
        Rules[ForwardLaplacian, LaplacianOrValue]()
        .on(ops.Add, add_laplacian)
        .on(ops.Sub, sub_laplacian)
        .on(ops.Neg, order_preserving_laplacian, ops.Reshape)
        .on(ops.Mul, mul_laplacian)
        .on(ops.Div, div_laplacian)
        .on(ops.DotGeneral, dot_general_laplacian)
        .on(ops.ConvertElementType, convert_element_type_laplacian)
        .on(ops.ReduceSum, reduce_sum_laplacian)
        .on(ops.BitcastConvertType, zero_derivative_laplacian)
        .on(Scan, scan_laplacian)
        .on(CustomJVP, second_derivative_laplacian, CustomJVPCall, CustomVJP, CustomVJPCall, LinearSolve)
        .on(ops.SelectN, linear_elementwise_laplacian, ops.Clamp, ops.Rem)
        .on(ops.Pad, locally_linear_laplacian, ops.Split, ops.Unstack, ops.CumMax, ops.CumMin, ops.OptimizationBarrier)
        .on(ops.Sort, locally_linear_laplacian, ops.TopK, ops.ApproxTopK)
        .on(
            ops.Gather,
            locally_linear_laplacian,
            ops.ScatterAdd,
            ops.ScatterSub,
            ops.Scatter,
            ops.DynamicSlice,
            ops.DynamicUpdateSlice,
        )
        .on(
            ops.ReduceWindowSum,
            locally_linear_laplacian,
            ops.ReduceWindowMax,
            ops.ReduceWindowMin,
            ops.SelectAndGatherAdd,
            ops.SelectAndScatterAdd,
        )
        .capable(LaplacianRule, own_rule_laplacian)
        .family(NonDifferentiable, zero_derivative_laplacian)
        .family(ArgExtremum, zero_derivative_laplacian)
        .family(LinearOperation, locally_linear_laplacian)
        .family(LinearElementwise, linear_elementwise_laplacian)
        .family(LinearCollective, locally_linear_laplacian)
        .family(BinaryExtremum, linear_elementwise_laplacian)
        .family(ReduceExtremum, locally_linear_laplacian)
        .family(ScatterExtremum, locally_linear_laplacian)
        .family(Smooth, elementwise_laplacian)
        .family(Differentiable, second_derivative_laplacian)
    )


RULES: Final = _build_rules()

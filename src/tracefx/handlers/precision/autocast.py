"""`autocast`: computes the contractions of a `float32` program in a narrower dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from enum import Enum, unique
from typing import ClassVar, Final, ParamSpec, TypeVar, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.control.custom_rules import CustomRuleProgram
from tracefx.core import Array, Literal, ShapedArray, Value, dtypes
from tracefx.core.handler import Tracer, bind, bind1
from tracefx.core.primitive import Primitive
from tracefx.filtered_tracebacks import api_boundary
from tracefx.handlers.precision.policy import DATA_MOVEMENT, Policy, bfloat16
from tracefx.interpreters.body_transform import ValueSpec, array_spec
from tracefx.interpreters.callables import HasCallables
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.ops.casting import convert_host
from tracefx.ops.contractions.contraction import DotGeneral
from tracefx.ops.contractions.convolution import ConvGeneralDilated
from tracefx.ops.elementwise.elementwise import Add
from tracefx.ops.structural import BroadcastInDim, ConvertElementType, convert, convert_value
from tracefx.pytrees import trees
from tracefx.transforms.arguments import require_callable

P = ParamSpec("P")
R = TypeVar("R")

WIDE_DTYPE: Final = dtypes.float32


@unique
class PrecisionRole(Enum):
    """How a `NarrowArray` affects operations that may be computed in either dtype."""

    VALUE = 0
    """The result of an operation in the narrow dtype."""
    PRODUCT = 1
    """A contraction plus what was added to it; an array that is broadcast over it counts as part of it, as a bias."""
    CONSTANT = 2
    """An array filled with a number that the narrow dtype represents exactly; it adopts the dtype of its partner."""
    BROADCAST = 3
    """A wide array that was broadcast from a smaller one."""


@final
@trees.register_dataclass
@frozen(eq=False)
class NarrowArray:
    """An array that is `float32` in the program and is, or may be, stored in the narrow dtype."""

    array: Value
    role: PrecisionRole = field(default=PrecisionRole.VALUE, metadata={"static": True})

    @property
    def aval(self) -> ShapedArray:
        """The abstract value in the program, a `float32` array."""
        return self.array.aval.update(dtype=WIDE_DTYPE)

    @property
    def is_narrow(self) -> bool:
        """Whether the array went through an operation in the narrow dtype."""
        return self.role is PrecisionRole.VALUE or self.role is PrecisionRole.PRODUCT

    def widen(self) -> Array:
        """Returns the array in `float32`."""
        return convert(self.array, WIDE_DTYPE, self.array.aval.weak_type)


@final
class Autocast(Interpreter[NarrowArray]):
    """Values are arrays in the narrow dtype.

    A loop carry or the result of `cond` is narrow only if it is in all iterations or branches: a sum that starts in
    `float32` stays in it.
    """

    title: ClassVar[str] = "autocast"
    handles_all = True
    policy: Policy

    @property
    @override
    def rules(self) -> Rules[Autocast, NarrowArray | Value]:
        return autocast_rules(self.policy)

    @override
    def aval_of(self, value: NarrowArray) -> ShapedArray:
        return value.aval

    @override
    def lift(self, x: Value) -> NarrowArray:
        return NarrowArray(convert_value(x, self.policy.compute, x.aval.weak_type))

    @override
    def strip(self, value: NarrowArray) -> Value:
        return value.widen()

    @override
    def spec(self, x: Value) -> ValueSpec:
        value = self.unwrap(x)
        if not isinstance(value, NarrowArray):
            return array_spec(x.aval)
        return (
            super().spec(self.wrap(evolve(value, role=PrecisionRole.VALUE))) if value.is_narrow else array_spec(x.aval)
        )

    @override
    def unify(self, x: NarrowArray, y: NarrowArray) -> tuple[NarrowArray, NarrowArray]:
        return evolve(x, role=PrecisionRole.VALUE), evolve(y, role=PrecisionRole.VALUE)

    @override
    def join(self, x: ValueSpec, y: ValueSpec, what: str) -> ValueSpec:
        if (x.tree is None) == (y.tree is None):
            return super().join(x, y, what)
        return super().join(self._widen_spec(x), self._widen_spec(y), what)

    def _widen_spec(self, spec: ValueSpec) -> ValueSpec:
        return spec if spec.tree is None else array_spec(spec.avals[0].update(dtype=WIDE_DTYPE))

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Passes wide operands to calls with user-defined rules, so that the rules still apply."""
        if isinstance(prim, HasCallables):
            return self._bind_with_callables(prim, self._widen_all(args))
        return super().bind(prim, self._widen_all(args) if isinstance(prim, CustomRuleProgram) else args)

    def _widen_all(self, args: Sequence[Value]) -> list[Value]:
        return [self._call_inner(self.strip_to_plain, x, "an operand") for x in args]

    # -------------------------------------------------------------- helpers of the rules

    def to_compute_dtype(self, x: NarrowArray | Value) -> Value:
        """Returns a `float32` value in the narrow dtype; values of other dtypes are unchanged."""
        array = x.array if isinstance(x, NarrowArray) else x
        return (
            convert_value(array, self.policy.compute, array.aval.weak_type) if array.aval.dtype == WIDE_DTYPE else array
        )

    def may_be_narrow(self, op: Primitive, operands: Sequence[NarrowArray | Value]) -> bool:
        """Returns whether an operation that may be computed in either dtype is computed in the narrow one."""
        wide = [x for x in operands if x.aval.dtype == WIDE_DTYPE and not isinstance(x, NarrowArray)]
        numbers = [x for x in wide if isinstance(x, Literal)]
        narrow = [x for x in operands if isinstance(x, NarrowArray)]
        if not all(map(self.is_representable, numbers)):
            return False
        broadcast = [x for x in narrow if x.role is PrecisionRole.BROADCAST]
        if len(numbers) < len(wide) or broadcast:
            if self.policy.promote == "narrowest":
                return any(x.is_narrow for x in narrow)
            biased = type(op) is Add and any(x.role is PrecisionRole.PRODUCT for x in narrow)
            return biased and len(broadcast) + len(numbers) == 1
        return bool(narrow)

    def is_representable(self, x: Literal) -> bool:
        """Returns whether a number is within the range of the narrow dtype."""
        wide, narrow = x.numpy(), convert_host(x.numpy(), self.policy.compute)
        return bool((np.isfinite(wide) == np.isfinite(narrow)) and ((wide == 0) == (narrow == 0)))

    def is_exactly_representable(self, x: Literal) -> bool:
        """Returns whether the narrow dtype represents a number exactly."""
        return bool(convert_host(convert_host(x.numpy(), self.policy.compute), WIDE_DTYPE) == x.numpy())


# ------------------------------------------------------------------ rules


def _narrow_rule(handler: Autocast, op: Primitive, *operands: NarrowArray | Value) -> Sequence[NarrowArray | Value]:
    """Computes in the narrow dtype; results that are `float32` in the program are narrow."""
    return _bind_narrow(PrecisionRole.VALUE, handler, op, *operands)


def _contraction_rule(
    handler: Autocast, op: DotGeneral | ConvGeneralDilated, *operands: NarrowArray | Value
) -> Sequence[NarrowArray | Value]:
    """Computes a contraction of `float32` operands in the narrow dtype."""
    if any(x.aval.dtype != WIDE_DTYPE for x in operands) or op.preferred_element_type not in (None, WIDE_DTYPE):
        return _wide_rule(handler, op, *operands)
    return _bind_narrow(PrecisionRole.PRODUCT, handler, evolve(op, preferred_element_type=None), *operands)


def _bind_narrow(
    role: PrecisionRole, handler: Autocast, op: Primitive, *operands: NarrowArray | Value
) -> Sequence[NarrowArray | Value]:
    """Binds an operation with narrow operands; results that are `float32` in the program get the role `role`."""
    avals = op.abstract_eval(*[x.aval for x in operands])
    compute = handler.policy.compute
    outs: list[NarrowArray | Value] = []
    for out, aval in zip(bind(op, *[handler.to_compute_dtype(x) for x in operands]), avals, strict=True):
        narrow = aval.dtype == WIDE_DTYPE and out.aval.dtype == compute
        x = convert_value(out, compute if narrow else aval.dtype, aval.weak_type)
        outs.append(NarrowArray(x, role) if narrow else x)
    return outs


def _either_rule(handler: Autocast, op: Primitive, *operands: NarrowArray | Value) -> Sequence[NarrowArray | Value]:
    """Computes in the dtype of the operands; see `Policy`."""
    if not handler.may_be_narrow(op, operands):
        return _wide_rule(handler, op, *operands)
    roles = [x.role for x in operands if isinstance(x, NarrowArray)]
    if all(role is PrecisionRole.CONSTANT for role in roles) and type(op) in DATA_MOVEMENT:
        return _bind_narrow(PrecisionRole.CONSTANT, handler, op, *operands)
    is_part = PrecisionRole.PRODUCT in roles and (type(op) is Add or type(op) in DATA_MOVEMENT)
    return _bind_narrow(PrecisionRole.PRODUCT if is_part else PrecisionRole.VALUE, handler, op, *operands)


def _wide_rule(handler: Autocast, op: Primitive, *operands: NarrowArray | Value) -> Sequence[Value]:
    """Computes in `float32`."""
    return bind(op, *[x.widen() if isinstance(x, NarrowArray) else x for x in operands])


def _broadcast_in_dim_rule(
    handler: Autocast, op: BroadcastInDim, x: NarrowArray | Value
) -> Sequence[NarrowArray | Value]:
    """Broadcasts a value; a wide one is marked, since it may be a bias or a constant."""
    if isinstance(x, NarrowArray) or x.aval.dtype != WIDE_DTYPE:
        return _either_rule(handler, op, x)
    if isinstance(x, Literal) and handler.is_exactly_representable(x):
        return [NarrowArray(bind1(op, handler.to_compute_dtype(x)), PrecisionRole.CONSTANT)]
    return [NarrowArray(out, PrecisionRole.BROADCAST) for out in bind(op, x)]


def _convert_element_type_rule(
    handler: Autocast, op: ConvertElementType, x: NarrowArray | Value
) -> Sequence[NarrowArray | Value]:
    """Converts a narrow array directly to the requested dtype."""
    if not isinstance(x, NarrowArray) or x.role is PrecisionRole.BROADCAST:
        return _wide_rule(handler, op, x)
    if op.new_dtype == handler.policy.compute:
        return [convert_value(x.array, op.new_dtype, op.weak_type)]
    if op.new_dtype == WIDE_DTYPE:
        return [evolve(x, array=convert_value(x.array, handler.policy.compute, op.weak_type))]
    return bind(op, x.widen())


@memoize(64)
def autocast_rules(policy: Policy) -> Rules[Autocast, NarrowArray | Value]:
    """Returns the table of rules for a policy."""
    rules = Rules[Autocast, NarrowArray | Value]()
    if policy.compute == WIDE_DTYPE:
        return rules
    rules = rules.family(Primitive, _wide_rule)
    for cls in policy.either:
        rules = rules.on(cls, _either_rule)
    if BroadcastInDim in policy.either:
        rules = rules.on(BroadcastInDim, _broadcast_in_dim_rule)
    for cls in policy.narrow:
        rules = rules.on(cls, _narrow_rule)
    if DotGeneral in policy.narrow:
        rules = rules.on(DotGeneral, _contraction_rule)
    if ConvGeneralDilated in policy.narrow:
        rules = rules.on(ConvGeneralDilated, _contraction_rule)
    return rules.on(ConvertElementType, _convert_element_type_rule)


# ------------------------------------------------------------------ the public function


def autocast(fun: Callable[P, R], policy: Policy = bfloat16) -> Callable[P, R]:
    """Returns `fun` with its `float32` contractions, and other operations by `policy`, in the dtype `policy.compute`.

    Arguments and results keep their dtypes: arrays are narrow only between operations, in loops and branches too.
    Parameters and their gradients remain `float32`; operations on other dtypes are unchanged. The narrow range of
    `float16` usually needs a loss scale for the gradients: see `DynamicLossScale`.

    Args:
        fun: the function.
        policy: the narrow dtype and the operations that use it; by default `bfloat16` for contractions, convolutions
            and cheap operations on their results.

    Returns:
        A function like `fun`.

    Raises:
        TypeError: if `fun` is not callable or `policy` is not a `Policy`.

    >>> import tracefx as fx
    >>> import tracefx.numpy as fnp
    >>> f = autocast(lambda x, w: fnp.tanh(x @ w).sum())
    >>> print(fx.make_jaxpr(f)(fnp.ones((2, 3)), fnp.ones((3, 4))))
    { lambda ; a:f32[2,3] b:f32[3,4]. let
        c:bf16[2,3] = convert_element_type[new_dtype=bfloat16 weak_type=False] a
        d:bf16[3,4] = convert_element_type[new_dtype=bfloat16 weak_type=False] b
        e:bf16[2,4] = dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] c d
        f:bf16[2,4] = tanh e
        g:f32[2,4] = convert_element_type[new_dtype=float32 weak_type=False] f
        h:f32[] = reduce_sum[axes=(0, 1)] g
      in (h,) }
    """
    require_callable("autocast", fun)
    if not isinstance(policy, Policy):
        raise TypeError(f"autocast: policy must be a Policy, such as tracefx.handlers.bfloat16, got {policy!r}")

    @api_boundary
    @functools.wraps(fun)
    def narrowed(*args: P.args, **kwargs: P.kwargs) -> R:
        with Autocast(policy).running() as handler:
            out = fun(*args, **kwargs)

        def wide(leaf: object) -> object:
            return handler.strip_to_plain(leaf, "an output") if isinstance(leaf, Tracer) else leaf

        result: R = trees.map(wide, out)
        return result

    return narrowed

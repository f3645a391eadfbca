"""`autocast`: programs of `float32` whose contractions are done in fewer bits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from enum import Enum, unique
from typing import Final, ParamSpec, TypeVar, cast, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.custom_rules import CustomRuleProgram
from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.body_transform import ValueSpec, array_spec
from tracefx.core.callables import HasCallables
from tracefx.core.handler import Tracer, bind, bind1, current, handling
from tracefx.core.literal import Literal
from tracefx.core.primitive import Primitive
from tracefx.core.values import Value
from tracefx.handlers.precision.policy import DATA_MOVEMENT, Policy, bfloat16
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
    """What an array is to operations that are done either way."""

    VALUE = 0
    """It came of operations in the narrow dtype."""
    PRODUCT = 1
    """It is a contraction, with what was added to it: another array that is spread over it is part of it, a bias."""
    CONSTANT = 2
    """It is full of a number, which the narrow dtype has, and so is as wide or narrow as what it meets."""
    BROADCAST = 3
    """It is wide, and smaller than it looks."""


@final
@frozen(eq=False)
class NarrowArray:
    """An array of `float32`, as the program has it, that is held in fewer bits, or may be."""

    array: Value
    role: PrecisionRole = PrecisionRole.VALUE

    @property
    def aval(self) -> ShapedArray:
        return self.array.aval.update(dtype=WIDE_DTYPE)

    @property
    def is_narrow(self) -> bool:
        """Whether numbers have been narrowed in it."""
        return self.role is PrecisionRole.VALUE or self.role is PrecisionRole.PRODUCT

    def widen(self) -> Array:
        return convert(self.array, WIDE_DTYPE, self.array.aval.weak_type)


def _flatten(x: NarrowArray) -> tuple[tuple[Value], PrecisionRole]:
    return (x.array,), x.role


def _unflatten(role: PrecisionRole, children: tuple[Value]) -> NarrowArray:
    return NarrowArray(*children, role)


trees.register_pytree_node(NarrowArray, _flatten, _unflatten)


@final
@frozen(eq=False)
class Autocast(Interpreter[NarrowArray]):
    """Its own values are those that are narrow. What a loop carries, and what branches give, is so only if all of it
    is: a sum that begins wide stays wide."""

    handles_all = True
    policy: Policy = field(kw_only=True)

    @property
    @override
    def title(self) -> str:
        return "autocast"

    @property
    @override
    def rules(self) -> Rules[Autocast, NarrowArray | Value]:
        return autocast_rules(self.policy)

    @property
    @override
    def cache_key(self) -> Hashable:
        return self.policy

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
        given = self.unwrap(x)
        if not isinstance(given, NarrowArray):
            return array_spec(x.aval)
        return (
            super().spec(self.wrap(evolve(given, role=PrecisionRole.VALUE))) if given.is_narrow else array_spec(x.aval)
        )

    @override
    def unify(self, x: NarrowArray, y: NarrowArray) -> tuple[NarrowArray, NarrowArray]:
        return evolve(x, role=PrecisionRole.VALUE), evolve(y, role=PrecisionRole.VALUE)

    @override
    def join(self, x: ValueSpec, y: ValueSpec, what: str) -> ValueSpec:
        if (x.tree is None) == (y.tree is None):
            return super().join(x, y, what)
        return super().join(self._widen_spec(x), self._widen_spec(y), what)

    def _widen_spec(self, form: ValueSpec) -> ValueSpec:
        return form if form.tree is None else array_spec(form.avals[0].update(dtype=WIDE_DTYPE))

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Functions with rules of the user's own get what these are for, so that the rules stay in force."""
        if isinstance(prim, HasCallables):
            return self._bind_with_callables(prim, self._widen_all(args))
        return super().bind(prim, self._widen_all(args) if isinstance(prim, CustomRuleProgram) else args)

    def _widen_all(self, args: Sequence[Value]) -> list[Value]:
        return [self._call_inner(self.strip_to_plain, x, "an operand") for x in args]

    # -------------------------------------------------------------- what rules ask

    def to_compute_dtype(self, x: NarrowArray | Value) -> Value:
        held = x.array if isinstance(x, NarrowArray) else x
        return convert_value(held, self.policy.compute, held.aval.weak_type) if held.aval.dtype == WIDE_DTYPE else held

    def may_be_narrow(self, op: Primitive, operands: Sequence[NarrowArray | Value]) -> bool:
        """Whether an operation that is done either way is done in fewer bits."""
        wide = [x for x in operands if x.aval.dtype == WIDE_DTYPE and not isinstance(x, NarrowArray)]
        numbers = [x for x in wide if isinstance(x, Literal)]
        ours = [x for x in operands if isinstance(x, NarrowArray)]
        if not all(map(self.is_representable, numbers)):
            return False
        spread = [x for x in ours if x.role is PrecisionRole.BROADCAST]
        if len(numbers) < len(wide) or spread:
            if self.policy.promote == "narrowest":
                return any(x.is_narrow for x in ours)
            biased = type(op) is Add and any(x.role is PrecisionRole.PRODUCT for x in ours)
            return biased and len(spread) + len(numbers) == 1
        return bool(ours)

    def is_representable(self, x: Literal) -> bool:
        """Whether a number is within the range of the narrow dtype."""
        wide, narrow = x.numpy(), convert_host(x.numpy(), self.policy.compute)
        return bool((np.isfinite(wide) == np.isfinite(narrow)) and ((wide == 0) == (narrow == 0)))

    def is_exactly_representable(self, x: Literal) -> bool:
        return bool(convert_host(convert_host(x.numpy(), self.policy.compute), WIDE_DTYPE) == x.numpy())


# ------------------------------------------------------------------ rules


def _narrow_rule(handler: Autocast, op: Primitive, *operands: NarrowArray | Value) -> Sequence[NarrowArray | Value]:
    """In the narrow dtype, and what is `float32` in the program narrow."""
    return _bind_narrow(PrecisionRole.VALUE, handler, op, *operands)


def _contraction_rule(
    handler: Autocast, op: DotGeneral | ConvGeneralDilated, *operands: NarrowArray | Value
) -> Sequence[NarrowArray | Value]:
    if any(x.aval.dtype != WIDE_DTYPE for x in operands) or op.preferred_element_type not in (None, WIDE_DTYPE):
        return _wide_rule(handler, op, *operands)
    return _bind_narrow(PrecisionRole.PRODUCT, handler, evolve(op, preferred_element_type=None), *operands)


def _bind_narrow(
    role: PrecisionRole, handler: Autocast, op: Primitive, *operands: NarrowArray | Value
) -> Sequence[NarrowArray | Value]:
    avals = op.abstract_eval(*[x.aval for x in operands])
    compute = handler.policy.compute
    outs: list[NarrowArray | Value] = []
    for out, aval in zip(bind(op, *[handler.to_compute_dtype(x) for x in operands]), avals, strict=True):
        narrow = aval.dtype == WIDE_DTYPE and out.aval.dtype == compute
        x = convert_value(out, compute if narrow else aval.dtype, aval.weak_type)
        outs.append(NarrowArray(x, role) if narrow else x)
    return outs


def _either_rule(handler: Autocast, op: Primitive, *operands: NarrowArray | Value) -> Sequence[NarrowArray | Value]:
    if not handler.may_be_narrow(op, operands):
        return _wide_rule(handler, op, *operands)
    ours = [x.role for x in operands if isinstance(x, NarrowArray)]
    if all(role is PrecisionRole.CONSTANT for role in ours) and type(op) in DATA_MOVEMENT:
        return _bind_narrow(PrecisionRole.CONSTANT, handler, op, *operands)
    is_part = PrecisionRole.PRODUCT in ours and (type(op) is Add or type(op) in DATA_MOVEMENT)
    return _bind_narrow(PrecisionRole.PRODUCT if is_part else PrecisionRole.VALUE, handler, op, *operands)


def _wide_rule(handler: Autocast, op: Primitive, *operands: NarrowArray | Value) -> Sequence[Value]:
    return bind(op, *[x.widen() if isinstance(x, NarrowArray) else x for x in operands])


def _broadcast_in_dim_rule(
    handler: Autocast, op: BroadcastInDim, x: NarrowArray | Value
) -> Sequence[NarrowArray | Value]:
    if isinstance(x, NarrowArray) or x.aval.dtype != WIDE_DTYPE:
        return _either_rule(handler, op, x)
    if isinstance(x, Literal) and handler.is_exactly_representable(x):
        return [NarrowArray(bind1(op, handler.to_compute_dtype(x)), PrecisionRole.CONSTANT)]
    return [NarrowArray(out, PrecisionRole.BROADCAST) for out in bind(op, x)]


def _convert_element_type_rule(
    handler: Autocast, op: ConvertElementType, x: NarrowArray | Value
) -> Sequence[NarrowArray | Value]:
    if not isinstance(x, NarrowArray) or x.role is PrecisionRole.BROADCAST:
        return _wide_rule(handler, op, x)
    if op.new_dtype == handler.policy.compute:
        return [convert_value(x.array, op.new_dtype, op.weak_type)]
    if op.new_dtype == WIDE_DTYPE:
        return [evolve(x, array=convert_value(x.array, handler.policy.compute, op.weak_type))]
    return bind(op, x.widen())


@functools.lru_cache(maxsize=64)
def autocast_rules(policy: Policy) -> Rules[Autocast, NarrowArray | Value]:
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


# ------------------------------------------------------------------ the function


def autocast(fun: Callable[P, R], policy: Policy = bfloat16) -> Callable[P, R]:
    """`fun`, its contractions of `float32` done in the dtype `policy.compute`, and what `policy` says along with them.

    The function takes and gives what `fun` does, of the same types: an array is narrow only on the way from one
    operation to the next, in loops and branches too. Parameters and their gradients stay `float32`. What is in other
    dtypes is done as it is. `float16` has a narrow range, so that gradients want a loss scale: see `DynamicLossScale`.

    `TypeError` if `fun` is no function or `policy` no `Policy`.

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

    @functools.wraps(fun)
    def narrowed(*args: P.args, **kwargs: P.kwargs) -> R:
        with handling(Autocast(current(), policy=policy)) as handler:
            out = fun(*args, **kwargs)

        def wide(leaf: object) -> object:
            return handler.strip_to_plain(leaf, "an output") if isinstance(leaf, Tracer) else leaf

        return cast(R, trees.map(wide, out))

    return narrowed

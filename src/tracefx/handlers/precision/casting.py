"""`autocast`: programs of `float32` whose contractions are done in fewer bits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from enum import Enum, unique
from typing import Final, ParamSpec, TypeVar, cast, final

import numpy as np
from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.ruled import RuledProgram
from tracefx.core import dtypes, trees
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.entering import Form, plain
from tracefx.core.handler import Tracer, bind, bind1, current, handling
from tracefx.core.literal import Literal
from tracefx.core.primitive import HoldsFunctions, Primitive
from tracefx.core.values import Value
from tracefx.handlers.precision.policy import MOVES, Policy, bfloat16
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.ops.basis import BroadcastInDim, ConvertElementType, convert, retyped
from tracefx.ops.casting import convert_host
from tracefx.ops.contraction import DotGeneral
from tracefx.ops.convolution import ConvGeneralDilated
from tracefx.ops.elementwise import Add
from tracefx.transforms.arguments import require_callable

P = ParamSpec("P")
R = TypeVar("R")

WIDE: Final = dtypes.float32


@unique
class Role(Enum):
    """What an array is to operations that are done either way."""

    VALUE = 0
    """It came of operations in the narrow dtype."""
    PRODUCT = 1
    """It is a contraction, with what was added to it: another array that is spread over it is part of it, a bias."""
    CONSTANT = 2
    """It is full of a number, which the narrow dtype has, and so is as wide or narrow as what it meets."""
    SPREAD = 3
    """It is wide, and smaller than it looks."""


@final
@frozen(eq=False)
class Narrow:
    """An array of `float32`, as the program has it, that is held in fewer bits, or may be."""

    held: Value
    role: Role = Role.VALUE

    @property
    def aval(self) -> ShapedArray:
        return self.held.aval.update(dtype=WIDE)

    @property
    def is_narrow(self) -> bool:
        """Whether numbers have been narrowed in it."""
        return self.role is Role.VALUE or self.role is Role.PRODUCT

    def wide(self) -> Array:
        return convert(self.held, WIDE, self.held.aval.weak_type)


def _flatten(x: Narrow) -> tuple[tuple[Value], Role]:
    return (x.held,), x.role


def _unflatten(role: Role, children: tuple[Value]) -> Narrow:
    return Narrow(*children, role)


trees.register_pytree_node(Narrow, _flatten, _unflatten)


@final
@frozen(eq=False)
class Autocast(Interpreter[Narrow]):
    """Its own values are those that are narrow. What a loop carries, and what branches give, is so only if all of it
    is: a sum that begins wide stays wide."""

    everything = True
    policy: Policy = field(kw_only=True)

    @property
    @override
    def title(self) -> str:
        return "autocast"

    @property
    @override
    def rules(self) -> Rules[Autocast, Narrow | Value]:
        return rules_for(self.policy)

    @property
    @override
    def key(self) -> Hashable:
        return self.policy

    @override
    def aval_of(self, value: Narrow) -> ShapedArray:
        return value.aval

    @override
    def lift(self, x: Value) -> Narrow:
        return Narrow(retyped(x, self.policy.compute, x.aval.weak_type))

    @override
    def bared(self, value: Narrow) -> Value:
        return value.wide()

    @override
    def form(self, x: Value) -> Form:
        given = self.unwrap(x)
        if not isinstance(given, Narrow):
            return plain(x.aval)
        return super().form(self.wrap(evolve(given, role=Role.VALUE))) if given.is_narrow else plain(x.aval)

    @override
    def unite(self, x: Narrow, y: Narrow) -> tuple[Narrow, Narrow]:
        return evolve(x, role=Role.VALUE), evolve(y, role=Role.VALUE)

    @override
    def join(self, x: Form, y: Form, what: str) -> Form:
        if (x.tree is None) == (y.tree is None):
            return super().join(x, y, what)
        return super().join(self._widened(x), self._widened(y), what)

    def _widened(self, form: Form) -> Form:
        return form if form.tree is None else plain(form.avals[0].update(dtype=WIDE))

    @override
    def bind(self, prim: Primitive, args: Sequence[Value]) -> Sequence[Value]:
        """Functions with rules of the user's own get what these are for, so that the rules stay in force."""
        if isinstance(prim, HoldsFunctions):
            return self._with_functions(prim, self._all_wide(args))
        return super().bind(prim, self._all_wide(args) if isinstance(prim, RuledProgram) else args)

    def _all_wide(self, args: Sequence[Value]) -> list[Value]:
        return [self._below(self.bare, x, "an operand") for x in args]

    # -------------------------------------------------------------- what rules ask

    def narrowed(self, x: Narrow | Value) -> Value:
        held = x.held if isinstance(x, Narrow) else x
        return retyped(held, self.policy.compute, held.aval.weak_type) if held.aval.dtype == WIDE else held

    def may_be_narrow(self, op: Primitive, operands: Sequence[Narrow | Value]) -> bool:
        """Whether an operation that is done either way is done in fewer bits."""
        wide = [x for x in operands if x.aval.dtype == WIDE and not isinstance(x, Narrow)]
        numbers = [x for x in wide if isinstance(x, Literal)]
        ours = [x for x in operands if isinstance(x, Narrow)]
        if not all(map(self.holds, numbers)):
            return False
        spread = [x for x in ours if x.role is Role.SPREAD]
        if len(numbers) < len(wide) or spread:
            if self.policy.promote == "narrowest":
                return any(x.is_narrow for x in ours)
            biased = type(op) is Add and any(x.role is Role.PRODUCT for x in ours)
            return biased and len(spread) + len(numbers) == 1
        return bool(ours)

    def holds(self, x: Literal) -> bool:
        """Whether a number is within the range of the narrow dtype."""
        wide, narrow = x.numpy(), convert_host(x.numpy(), self.policy.compute)
        return bool((np.isfinite(wide) == np.isfinite(narrow)) and ((wide == 0) == (narrow == 0)))

    def holds_exactly(self, x: Literal) -> bool:
        return bool(convert_host(convert_host(x.numpy(), self.policy.compute), WIDE) == x.numpy())


# ------------------------------------------------------------------ rules


def _narrow(handler: Autocast, op: Primitive, *operands: Narrow | Value) -> Sequence[Narrow | Value]:
    """In the narrow dtype, and what is `float32` in the program narrow."""
    return _in_role(Role.VALUE, handler, op, *operands)


def _contraction(
    handler: Autocast, op: DotGeneral | ConvGeneralDilated, *operands: Narrow | Value
) -> Sequence[Narrow | Value]:
    if any(x.aval.dtype != WIDE for x in operands) or op.preferred_element_type not in (None, WIDE):
        return _wide(handler, op, *operands)
    return _in_role(Role.PRODUCT, handler, evolve(op, preferred_element_type=None), *operands)


def _in_role(role: Role, handler: Autocast, op: Primitive, *operands: Narrow | Value) -> Sequence[Narrow | Value]:
    avals = op.abstract_eval(*[x.aval for x in operands])
    compute = handler.policy.compute
    outs: list[Narrow | Value] = []
    for out, aval in zip(bind(op, *[handler.narrowed(x) for x in operands]), avals, strict=True):
        narrow = aval.dtype == WIDE and out.aval.dtype == compute
        x = retyped(out, compute if narrow else aval.dtype, aval.weak_type)
        outs.append(Narrow(x, role) if narrow else x)
    return outs


def _either(handler: Autocast, op: Primitive, *operands: Narrow | Value) -> Sequence[Narrow | Value]:
    if not handler.may_be_narrow(op, operands):
        return _wide(handler, op, *operands)
    ours = [x.role for x in operands if isinstance(x, Narrow)]
    if all(role is Role.CONSTANT for role in ours) and type(op) in MOVES:
        return _in_role(Role.CONSTANT, handler, op, *operands)
    is_part = Role.PRODUCT in ours and (type(op) is Add or type(op) in MOVES)
    return _in_role(Role.PRODUCT if is_part else Role.VALUE, handler, op, *operands)


def _wide(handler: Autocast, op: Primitive, *operands: Narrow | Value) -> Sequence[Value]:
    return bind(op, *[x.wide() if isinstance(x, Narrow) else x for x in operands])


def _broadcast(handler: Autocast, op: BroadcastInDim, x: Narrow | Value) -> Sequence[Narrow | Value]:
    if isinstance(x, Narrow) or x.aval.dtype != WIDE:
        return _either(handler, op, x)
    if isinstance(x, Literal) and handler.holds_exactly(x):
        return [Narrow(bind1(op, handler.narrowed(x)), Role.CONSTANT)]
    return [Narrow(out, Role.SPREAD) for out in bind(op, x)]


def _convert(handler: Autocast, op: ConvertElementType, x: Narrow | Value) -> Sequence[Narrow | Value]:
    if not isinstance(x, Narrow) or x.role is Role.SPREAD:
        return _wide(handler, op, x)
    if op.new_dtype == handler.policy.compute:
        return [retyped(x.held, op.new_dtype, op.weak_type)]
    if op.new_dtype == WIDE:
        return [evolve(x, held=retyped(x.held, handler.policy.compute, op.weak_type))]
    return bind(op, x.wide())


@functools.lru_cache(maxsize=64)
def rules_for(policy: Policy) -> Rules[Autocast, Narrow | Value]:
    rules = Rules[Autocast, Narrow | Value]()
    if policy.compute == WIDE:
        return rules
    rules = rules.family(Primitive, _wide)
    for cls in policy.either:
        rules = rules.on(cls, _either)
    if BroadcastInDim in policy.either:
        rules = rules.on(BroadcastInDim, _broadcast)
    for cls in policy.narrow:
        rules = rules.on(cls, _narrow)
    if DotGeneral in policy.narrow:
        rules = rules.on(DotGeneral, _contraction)
    if ConvGeneralDilated in policy.narrow:
        rules = rules.on(ConvGeneralDilated, _contraction)
    return rules.on(ConvertElementType, _convert)


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
            return handler.bare(leaf, "an output") if isinstance(leaf, Tracer) else leaf

        return cast(R, trees.map(wide, out))

    return narrowed

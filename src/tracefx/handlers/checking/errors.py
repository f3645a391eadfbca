"""What went wrong, as a value: the first failure of a program, with the numbers that its message tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.core.avals import Shape, ShapedArray
from tracefx.core.effects import DebugEffect, Effect, Effects
from tracefx.core.handler import Tracer, bind
from tracefx.core.literal import Literal
from tracefx.core.primitive import Batchable, Differentiable, MappedAxis, Primitive, Tangent
from tracefx.core.values import ConcreteArray, Value, as_value, to_numpy
from tracefx.handlers.checking.check_sites import (
    FLAT_INDEX_AVAL,
    CheckError,
    CheckSite,
    ErrorKind,
    InBatch,
    PayloadTypes,
    error_code,
    format_index,
)
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.elementwise.comparison import eq, lt, ne
from tracefx.ops.elementwise.selection import select_with_aval
from tracefx.ops.indexing.dynamic_slicing import dynamic_index_in_dim
from tracefx.ops.reductions.reduction import reduce_min
from tracefx.ops.shape.array_creation import iota
from tracefx.ops.structural import batch_first, constant_like_aval, convert_value, reshape
from tracefx.pytrees import trees

ERROR_CODE_AVAL: Final = FLAT_INDEX_AVAL


@final
@frozen(eq=False, repr=False)
class Error:
    """The first failure of a program, if there was one: a tree of arrays, which programs take and give.

    `get` says what went wrong, `throw` raises it. Under `vmap` there is one for each element of the batch.
    """

    code: Value
    """0, or the number of the site that failed first, of type `i32[]`. It and the payload may have batch axes."""
    payload: tuple[tuple[Value, ...], ...] = ()
    """For each of `slots` what a message tells: sites that tell of the same types share one, since one fails first."""
    sites: frozenset[CheckSite] = frozenset()
    slots: tuple[PayloadTypes, ...] = ()

    @classmethod
    def at(cls, site: CheckSite, failed: Value, told: Sequence[Value]) -> Error:
        """What went wrong at `site`, if `failed`, of type `bool[]`."""
        slot = tuple([convert_value(x, a.dtype, False) for x, a in zip(told, site.types, strict=True)])
        code = select_with_aval(failed, Literal(error_code(site), ERROR_CODE_AVAL), 0, ERROR_CODE_AVAL)
        return cls(code, (slot,), frozenset({site}), (site.types,))

    # -------------------------------------------------------------- for users

    def get(self) -> str | None:
        """What went wrong, or `None`.

        Raises `ConcretizationError` while it is traced: return the error from the compiled function first.
        """
        codes = to_numpy(as_value(self.code))
        if not codes.shape:
            return self._message((), int(codes)) if codes else None
        failed = [tuple([int(i) for i in index]) for index in np.argwhere(codes)]
        return (
            "\n".join([f"at batch index {format_index(i)}: {self._message(i, int(codes[i]))}" for i in failed]) or None
        )

    def throw(self) -> None:
        """`CheckError` if something went wrong; see `check_error`."""
        check_error(self)

    def _message(self, index: tuple[int, ...], code: int) -> str:
        # More than one if two sites have the same number.
        return ", or ".join(
            sorted([self._site_message(site, index) for site in self.sites if error_code(site) == code])
        )

    def _site_message(self, site: CheckSite, index: tuple[int, ...]) -> str:
        slot = self.payload[self.slots.index(site.types)]
        arrays = [np.asarray(to_numpy(as_value(x))[index]) for x in slot]
        return site.message([ConcreteArray(ShapedArray(x.shape, x.dtype), x) for x in arrays])

    @override
    def __repr__(self) -> str:
        return f"Error({self.code if isinstance(self.code, Tracer) else self.get()})"

    # -------------------------------------------------------------- for handlers

    def then(self, later: Error) -> Error:
        """This one, or a later one if nothing went wrong before."""
        first = eq(self.code, constant_like_aval(ERROR_CODE_AVAL, 0))
        code = select_with_aval(first, later.code, self.code, ERROR_CODE_AVAL)
        told = dict(zip(self.slots, self.payload, strict=True))
        for slot, new in zip(later.slots, later.payload, strict=True):
            old = told.get(slot)
            told[slot] = new if old is None else tuple(map(select_with_aval, [first] * len(slot), new, old, slot))
        return _make_error(code, told, self.sites | later.sites)

    def with_slots_of(self, like: Error) -> Error:
        """The same, with room for all that may go wrong in another one."""
        told = {slot: tuple([constant_like_aval(a, 0) for a in slot]) for slot in like.slots}
        told.update(zip(self.slots, self.payload, strict=True))
        return _make_error(self.code, told, self.sites | like.sites)

    def restricted_to(self, kinds: frozenset[ErrorKind]) -> Error:
        """The part of it that is of some kinds of failure."""
        sites = frozenset([site for site in self.sites if site.error_kind in kinds])
        if sites == self.sites:
            return self
        slots = {site.types for site in sites}
        told = {slot: x for slot, x in zip(self.slots, self.payload, strict=True) if slot in slots}
        aval = as_value(self.code).aval
        code: Value = constant_like_aval(aval, 0)
        for number in sorted(map(error_code, sites)):
            code = select_with_aval(eq(self.code, constant_like_aval(aval, number)), self.code, code, aval)
        return _make_error(code, told, sites)

    def first_of_batch(self) -> Error:
        """Of errors of a batch the first that is one."""
        batch = as_value(self.code).aval.shape
        if not batch:
            return self
        codes = _flatten_batch(self.code, batch)
        failed, place = first(ne(codes, constant_like_aval(codes.aval, 0)))
        found = dynamic_index_in_dim(codes, select_with_aval(failed, place, 0, FLAT_INDEX_AVAL), keepdims=False)
        told, code = {}, constant_like_aval(ERROR_CODE_AVAL, 0)
        for slot, given in zip(self.slots, self.payload, strict=True):
            one = [dynamic_index_in_dim(_flatten_batch(x, batch), place, keepdims=False) for x in given]
            told[FLAT_INDEX_AVAL, *slot] = (place, *one)
        sites = [InBatch(site.place, site, batch) for site in self.sites]
        for site in sorted(sites, key=error_code):
            code = select_with_aval(
                eq(found, constant_like_aval(ERROR_CODE_AVAL, error_code(site.site))),
                Literal(error_code(site), ERROR_CODE_AVAL),
                code,
                ERROR_CODE_AVAL,
            )
        return _make_error(code, told, frozenset(sites))


def _make_error(code: Value, told: dict[PayloadTypes, tuple[Value, ...]], sites: frozenset[CheckSite]) -> Error:
    slots = tuple(sorted(told, key=repr))
    return Error(code, tuple([told[slot] for slot in slots]), sites, slots)


def _flatten_batch(x: Value, batch: Shape) -> Value:
    shape = x.aval.shape
    return reshape(x, (int(np.prod(batch)), *shape[len(batch) :]))


def first(mask: Value) -> tuple[Value, Value]:
    """Whether any element is true, and the first one that is, as a position in the flat array: `bool[]`, `i32[]`."""
    aval = mask.aval
    if not aval.shape:
        return mask, Literal(0, FLAT_INDEX_AVAL)
    n = min(aval.size, np.iinfo(np.int32).max)
    positions = ShapedArray(aval.shape, FLAT_INDEX_AVAL.dtype)
    numbers = reshape(iota(FLAT_INDEX_AVAL.dtype, aval.size), aval.shape)
    place = (
        reduce_min(select_with_aval(mask, numbers, n, positions), range(aval.ndim))
        if n
        else Literal(0, FLAT_INDEX_AVAL)
    )
    return lt(place, Literal(n, FLAT_INDEX_AVAL)), place


ErrorAuxData: TypeAlias = tuple[frozenset[CheckSite], tuple[PayloadTypes, ...]]


def _flatten(error: Error) -> tuple[tuple[object, object], ErrorAuxData]:
    return (error.code, error.payload), (error.sites, error.slots)


def _unflatten(structure: ErrorAuxData, children: tuple[Value, tuple[tuple[Value, ...], ...]]) -> Error:
    return Error(*children, *structure)


trees.register_pytree_node(Error, _flatten, _unflatten)

NO_ERROR: Final = Error(Literal(0, ERROR_CODE_AVAL))

# ------------------------------------------------------------------ the operation


@final
@frozen
class ErrorEffect(Effect):
    """The operation ends the program if something is wrong."""

    @override
    def __str__(self) -> str:
        return "Check"


@final
@frozen(eq=False)
class Check(Primitive, Differentiable, Batchable, Lowerable):
    """Raises what its operands, the arrays of an `Error`, say went wrong. With `debug` only `checkify` looks at it."""

    name = "check"
    sites: tuple[CheckSite, ...] = field(metadata={"erased": True})
    slots: tuple[PayloadTypes, ...] = field(metadata={"erased": True})
    debug: bool = field(default=False, metadata={"hide_default": True})

    def error(self, leaves: Sequence[Value]) -> Error:
        code, *rest = leaves
        given = iter(rest)
        payload = tuple([tuple([next(given) for _ in slot]) for slot in self.slots])
        return Error(code, payload, frozenset(self.sites), self.slots)

    @property
    @override
    def effects(self) -> Effects:
        # What `debug` checks do without checkify is nothing, wherever they are.
        return frozenset({DebugEffect() if self.debug else ErrorEffect()})

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return []

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        if not self.debug and (message := self.error(args).get()):
            raise CheckError(message)
        return []

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), []

    @override
    def batch(
        self, axis: MappedAxis, args: Sequence[Value], dims: Sequence[int | None]
    ) -> tuple[Sequence[Value], Sequence[int | None]]:
        return bind(self, *[batch_first(x, d, axis) for x, d in zip(args, dims, strict=True)]), []

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        if self.debug:
            return []
        which = ", ".join(sorted([site.description for site in self.sites]))
        raise ValueError(
            f"a check is part of a program that is compiled, which can't raise errors: {which}. Put the function that "
            "checks into tracefx.handlers.checkify before it is compiled by jit, scan, while_loop or cond, and look at "
            "the error that it gives then; or use debug_check, which does nothing without checkify"
        )


def check_error(error: Error) -> None:
    """Raise `CheckError` if something went wrong: what `checkify` made a value of becomes an exception again.

    Under `checkify` it becomes an error of the function around; a compiled program needs that, as `check` does.

    >>> import tracefx as fx
    >>> from tracefx.handlers import check, checkify
    >>> @fx.jit
    ... @checkify
    ... def root(x):
    ...     check(x >= 0, "{} has no real root", x)
    ...     return x**0.5
    >>> error, y = root(-4.0)
    >>> check_error(error)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tracefx.handlers.checking.check_sites.CheckError: -4.0 has no real root, in ...
    """
    if not isinstance(error, Error):
        raise TypeError(f"check_error takes the Error that a function made by checkify gives, got {error!r}")
    bind_check(error, False)


def bind_check(error: Error, debug: bool) -> None:
    sites = tuple(sorted(error.sites, key=repr))
    bind(Check(sites, error.slots, debug), *trees.leaves(error))

"""`Error`, the first failure of a program as a pytree of arrays, and the primitive `check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np
from attrs import field, frozen
from typing_extensions import override

from tracefx.core import ConcreteArray, Literal, Shape, ShapedArray, Value, as_value, to_numpy
from tracefx.core.effects import DebugEffect, Effect, Effects
from tracefx.core.handler import Tracer, bind
from tracefx.core.primitive import Batchable, BatchDims, Differentiable, MappedAxis, Primitive, Tangent
from tracefx.errors import CheckError, ConcretizationError
from tracefx.handlers.checking.check_sites import (
    FLAT_INDEX_AVAL,
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
@trees.register_dataclass
@frozen(eq=False, repr=False)
class Error:
    """The first failure of a program, or none: a pytree of arrays that compiled functions can take and return.

    `get` returns its message, `throw` raises it. Under `vmap` the error of each batch element is kept.

    Attributes:
        code: 0 for no failure, else the `error_code` of the site that failed first; `i32[]`, with batch axes in front
            if batched.
        payload: for each of `slots` the values that a message contains, with the same batch axes.
        sites: all checks that may have failed.
        slots: the types of the payload. Sites with equal payload types share a slot, because only the first failure
            is kept.

    >>> import tracefx.numpy as fnp
    >>> from tracefx.handlers import checkify, nan_checks
    >>> error, _ = checkify(fnp.log, errors=nan_checks)(-1.0)
    >>> print(error.get())
    log gave NaN, of f32[], in ...
    """

    code: Value
    payload: tuple[tuple[Value, ...], ...] = ()
    sites: frozenset[CheckSite] = field(default=frozenset(), metadata={"static": True})
    slots: tuple[PayloadTypes, ...] = field(default=(), metadata={"static": True})

    @classmethod
    def at(cls, site: CheckSite, failed: Value, values: Sequence[Value]) -> Error:
        """Returns the error of a check, which has a failure if `failed` is true.

        Args:
            site: The check.
            failed: Whether it fails, a `bool[]`.
            values: The values in its message.

        Returns:
            The error.
        """
        slot = tuple([convert_value(x, a.dtype, False) for x, a in zip(values, site.types, strict=True)])
        code = select_with_aval(failed, Literal(error_code(site), ERROR_CODE_AVAL), 0, ERROR_CODE_AVAL)
        return cls(code, (slot,), frozenset({site}), (site.types,))

    # -------------------------------------------------------------- for users

    def get(self) -> str | None:
        """Returns the message of the failure, or None; for a batch one line for each failed element.

        Raises:
            ConcretizationError: if the error is traced. Return it from the compiled function first.
        """
        try:
            codes = to_numpy(as_value(self.code))
        except ConcretizationError as error:
            advice = "Return the Error from the transformed function, and call get outside of it."
            raise ConcretizationError(f"Error.get needs a concrete value, but {error.detail} {advice}") from error
        if not codes.shape:
            return self._message((), int(codes)) if codes else None
        failed = [tuple([int(i) for i in index]) for index in np.argwhere(codes)]
        return (
            "\n".join([f"at batch index {format_index(i)}: {self._message(i, int(codes[i]))}" for i in failed]) or None
        )

    def __bool__(self) -> bool:
        raise TypeError(
            "an Error is neither true nor false: use `error.get() is not None`, or `error.throw()` to raise a failure"
        )

    def throw(self) -> None:
        """Raises `CheckError` if there is a failure; the same as `check_error`."""
        check_error(self)

    def _message(self, index: tuple[int, ...], code: int) -> str:
        # Several sites if their codes collide.
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
        """Returns this error, or a later one if this one has no failure.

        Args:
            later: The error of checks that run later.

        Returns:
            The error with the first failure of both.
        """
        first = eq(self.code, constant_like_aval(ERROR_CODE_AVAL, 0))
        code = select_with_aval(first, later.code, self.code, ERROR_CODE_AVAL)
        payloads = dict(zip(self.slots, self.payload, strict=True))
        for slot, new in zip(later.slots, later.payload, strict=True):
            old = payloads.get(slot)
            payloads[slot] = new if old is None else tuple(map(select_with_aval, [first] * len(slot), new, old, slot))
        return _make_error(code, payloads, self.sites | later.sites)

    def with_slots_of(self, like: Error) -> Error:
        """Returns the same error extended by the sites and slots of another one.

        Args:
            like: The other error.

        Returns:
            The error, with the failure of this one.
        """
        payloads = {slot: tuple([constant_like_aval(a, 0) for a in slot]) for slot in like.slots}
        payloads.update(zip(self.slots, self.payload, strict=True))
        return _make_error(self.code, payloads, self.sites | like.sites)

    def restricted_to(self, kinds: frozenset[ErrorKind]) -> Error:
        """Returns the error with only the sites of some kinds; failures of other kinds are dropped.

        Args:
            kinds: The kinds of errors to keep.

        Returns:
            The error.
        """
        sites = frozenset([site for site in self.sites if site.error_kind in kinds])
        if sites == self.sites:
            return self
        slots = {site.types for site in sites}
        payloads = {slot: x for slot, x in zip(self.slots, self.payload, strict=True) if slot in slots}
        aval = as_value(self.code).aval
        code: Value = constant_like_aval(aval, 0)
        for number in sorted(map(error_code, sites)):
            code = select_with_aval(eq(self.code, constant_like_aval(aval, number)), self.code, code, aval)
        return _make_error(code, payloads, sites)

    def first_of_batch(self) -> Error:
        """Returns the first failure of a batch of errors."""
        batch = as_value(self.code).aval.shape
        if not batch:
            return self
        codes = _flatten_batch(self.code, batch)
        failed, index = first_true(ne(codes, constant_like_aval(codes.aval, 0)))
        code_found = dynamic_index_in_dim(codes, select_with_aval(failed, index, 0, FLAT_INDEX_AVAL), keepdims=False)
        payloads, code = {}, constant_like_aval(ERROR_CODE_AVAL, 0)
        for slot, batched in zip(self.slots, self.payload, strict=True):
            elements = [dynamic_index_in_dim(_flatten_batch(x, batch), index, keepdims=False) for x in batched]
            payloads[FLAT_INDEX_AVAL, *slot] = (index, *elements)
        sites = [InBatch(site.location, site, batch) for site in self.sites]
        for site in sorted(sites, key=error_code):
            code = select_with_aval(
                eq(code_found, constant_like_aval(ERROR_CODE_AVAL, error_code(site.site))),
                Literal(error_code(site), ERROR_CODE_AVAL),
                code,
                ERROR_CODE_AVAL,
            )
        return _make_error(code, payloads, frozenset(sites))


def _make_error(code: Value, payloads: dict[PayloadTypes, tuple[Value, ...]], sites: frozenset[CheckSite]) -> Error:
    slots = tuple(sorted(payloads, key=repr))
    return Error(code, tuple([payloads[slot] for slot in slots]), sites, slots)


def _flatten_batch(x: Value, batch: Shape) -> Value:
    shape = x.aval.shape
    return reshape(x, (int(np.prod(batch)), *shape[len(batch) :]))


def first_true(mask: Value) -> tuple[Value, Value]:
    """Returns whether any element is true (`bool[]`) and the flat index of the first true one (`i32[]`)."""
    aval = mask.aval
    if not aval.shape:
        return mask, Literal(0, FLAT_INDEX_AVAL)
    n = min(aval.size, np.iinfo(np.int32).max)
    positions = ShapedArray(aval.shape, FLAT_INDEX_AVAL.dtype)
    indices = reshape(iota(FLAT_INDEX_AVAL.dtype, aval.size), aval.shape)
    index = (
        reduce_min(select_with_aval(mask, indices, n, positions), range(aval.ndim))
        if n
        else Literal(0, FLAT_INDEX_AVAL)
    )
    return lt(index, Literal(n, FLAT_INDEX_AVAL)), index


NO_ERROR: Final = Error(Literal(0, ERROR_CODE_AVAL))

# ------------------------------------------------------------------ the operation


@final
@frozen
class ErrorEffect(Effect):
    """The effect of a check that raises an error: it must not be removed as unused."""

    @override
    def __str__(self) -> str:
        return "Check"


@final
@frozen(eq=False)
class Check(Primitive, Differentiable, Batchable, Lowerable):
    """The primitive of checks: raises the error in its operands; with `debug`, it does nothing outside of `checkify`.

    Attributes:
        sites: the sites of the error.
        slots: the payload types of the error.
        debug: whether it is a `debug_check`.
    """

    name = "check"
    sites: tuple[CheckSite, ...] = field(metadata={"erased": True})
    slots: tuple[PayloadTypes, ...] = field(metadata={"erased": True})
    debug: bool = field(default=False, metadata={"hide_default": True})

    def error(self, leaves: Sequence[Value]) -> Error:
        """Returns the error whose leaves are `leaves`."""
        code, *arrays = leaves
        values = iter(arrays)
        payload = tuple([tuple([next(values) for _ in slot]) for slot in self.slots])
        return Error(code, payload, frozenset(self.sites), self.slots)

    @property
    @override
    def effects(self) -> Effects:
        # A debug check does nothing without checkify, so it may be removed like a debug print.
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
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        return bind(self, *[batch_first(x, d, axis) for x, d in zip(args, dims, strict=True)]), []

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        if self.debug:
            return []
        checks = ", ".join(sorted([site.description for site in self.sites]))
        raise ValueError(
            f"a compiled program contains a check, but compiled programs can't raise errors: {checks}. Apply "
            "tracefx.handlers.checkify to the function before it is compiled by jit, scan, while_loop or cond, and "
            "inspect the error that it returns; or use debug_check, which does nothing without checkify"
        )


def check_error(error: Error) -> None:
    """Raises `CheckError` if `error` has a failure; the inverse of `checkify`.

    Inside a function under `checkify` the failure becomes part of the outer error instead. In a compiled program it
    needs `checkify`, like `check`.

    Args:
        error: the error that a function made by `checkify` returned.

    Raises:
        CheckError: if `error` has a failure.
        TypeError: if `error` is not an `Error`.

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
    tracefx.errors.CheckError: -4.0 has no real root, in ...
    """
    if not isinstance(error, Error):
        raise TypeError(f"check_error takes the Error that a checkified function returns, got {error!r}")
    bind_check(error, False)


def bind_check(error: Error, debug: bool) -> None:
    sites = tuple(sorted(error.sites, key=repr))
    bind(Check(sites, error.slots, debug), *trees.leaves(error))

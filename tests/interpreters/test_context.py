"""The current handler is changed by `handling` and transformations, and is always restored."""

from __future__ import annotations

import contextvars
import gc
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, final

import jax
import numpy as np
import pytest
from attrs import frozen
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.errors import untyped
from tests.interpreters.stacks import STACKS, CountingHandler, X, wave
from tests.primitives import BatchAxes, Tangents, Values
from tracefx.core import ShapedArray, Value
from tracefx.core.handler import ROOT, Handler, bind1, current, handling
from tracefx.core.primitive import (
    Batchable,
    Differentiable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
)
from tracefx.errors import HandlerStateError
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.source_location import SourceLocation
from tracefx.testing import FaultInjector, IdentityHandler
from tracefx.testing.tolerances import SUMMED

# ------------------------------------------------------------------ exceptions


@final
class InjectedError(Exception):
    pass


def failing_program(fuse: int, error: type[BaseException], seen: list[str]) -> Callable[[Any], Any]:
    """Returns the program with an exception raised at operation number `fuse`."""

    def f(x: Any) -> Any:
        with handling(FaultInjector(current(), error, fuse)) as bomb:
            try:
                return wave(x)
            finally:
                seen[:] = bomb.seen

    return f


@pytest.mark.parametrize("error", [InjectedError, KeyboardInterrupt])
@pytest.mark.parametrize("stack", STACKS)
def test_exception_in_the_function_restores_the_handler(stack: str, error: type[BaseException]) -> None:
    seen: list[str] = []
    with handling(IdentityHandler(ROOT)) as outer:
        STACKS[stack](failing_program(-1, error, seen))(X)
        operations = list(seen)
        assert len(operations) >= 8
        for fuse in range(len(operations)):
            with pytest.raises(error):
                STACKS[stack](failing_program(fuse, error, seen))(X)
            assert current() is outer
            assert seen == operations[: fuse + 1]
        STACKS[stack](wave)(X)
    assert current() is ROOT


@pytest.mark.parametrize("stack", STACKS)
def test_exception_below_the_transformation_restores_the_handler(stack: str) -> None:
    """Raises at every operation that reaches the outer handler: in rules, backward passes and compiled programs."""
    with handling(FaultInjector(ROOT, InjectedError, -1)) as counted:
        STACKS[stack](wave)(X)
    for fuse in range(len(counted.seen)):
        with handling(FaultInjector(ROOT, InjectedError, fuse)) as bomb:
            with pytest.raises(InjectedError):
                STACKS[stack](wave)(X)
            assert current() is bomb
        assert current() is ROOT
    assert counted.seen or "jaxpr" in stack


@final
@frozen(eq=False)
class FailingDouble(Primitive, Differentiable, Transposable, Batchable, Lowerable):
    """Multiplication by two; the rule named by `rule` raises."""

    name = "explosive"
    rule: str

    def _run(self, rule: str) -> None:
        if rule == self.rule:
            raise InjectedError(rule)

    @override
    def impl(self, *args: Any) -> Sequence[Any]:
        self._run("impl")
        return [2 * args[0]]

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        self._run("abstract_eval")
        return [avals[0]]

    @override
    def jvp(self, primals: Values, tangents: Tangents) -> tuple[Values, Tangents]:
        self._run("jvp")
        (t,) = tangents
        assert not isinstance(t, type(None))
        return [bind1(self, *primals)], [untyped(bind1)(self, t)]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        self._run("transpose")
        return [untyped(bind1)(self, cts[0])]

    @override
    def batch(self, axis: MappedAxis, args: Values, dims: BatchAxes) -> tuple[Values, BatchAxes]:
        self._run("batch")
        return [bind1(self, *args)], dims

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        self._run("lower")
        return builder.emit("stablehlo.add", [operands[0], operands[0]], [operands[0].aval])


RULES: Final = {
    "impl": ["nothing", "vmap", "jvp"],
    "abstract_eval": ["jit", "make_jaxpr", "vmap of jit", "grad of jit"],
    "jvp": ["jvp", "grad", "jit of grad", "grad of jit", "vmap of grad", "jvp of vjp"],
    "transpose": ["grad", "vjp", "jit of grad", "grad of jit", "vmap of grad"],
    "batch": ["vmap", "jit of vmap", "vmap of jit", "grad of vmap"],
    "lower": ["jit", "jit of vmap", "vmap of jit", "grad of jit", "jit of grad"],
}


@pytest.mark.parametrize(("rule", "stack"), [(r, s) for r, stacks in RULES.items() for s in stacks])
def test_exception_in_a_rule_restores_the_handler(rule: str, stack: str) -> None:
    with handling(IdentityHandler(ROOT)) as outer:
        with pytest.raises(InjectedError, match=rule):
            STACKS[stack](lambda x: bind1(FailingDouble(rule), fnp.sin(x)))(X)
        assert current() is outer
        STACKS[stack](lambda x: bind1(FailingDouble("none"), fnp.sin(x)))(X)


# ------------------------------------------------------------------ handling blocks exited out of order


def test_handling_restores_the_previous_handler() -> None:
    with handling(IdentityHandler(current())) as first:
        assert current() is first
        with handling(CountingHandler(current())) as second:
            assert current() is second
        assert current() is first
    assert current() is ROOT


def test_error_names_the_handler_of_a_suspended_generator() -> None:
    def suspended() -> Generator[int, None, None]:
        with handling(CountingHandler(current())):
            yield 1

    run = suspended()
    outer = handling(IdentityHandler(ROOT))
    handler = outer.__enter__()
    next(run)
    inner = current()
    assert isinstance(inner, CountingHandler)
    with pytest.raises(HandlerStateError, match="leaving the `with` block of identity, but counting is current"):
        outer.__exit__(None, None, None)
    assert current() is inner, "nothing has changed"
    run.close()
    assert current() is handler
    outer.__exit__(None, None, None)
    assert current() is ROOT


def test_generator_closed_out_of_order_raises_and_keeps_the_handler() -> None:
    def suspended() -> Generator[int, None, None]:
        with handling(CountingHandler(current())):
            yield 1

    def check() -> None:
        run = suspended()
        next(run)
        counting = current()
        with handling(IdentityHandler(current())) as later:
            with pytest.raises(HandlerStateError, match="block of counting, but identity is current"):
                run.close()
            assert current() is later
        assert current() is counting

    contextvars.copy_context().run(check)  # the handler exited out of order stays current, but only in this context
    assert current() is ROOT


def test_active_handling_block_cannot_be_entered_again() -> None:
    block = handling(IdentityHandler(ROOT))
    with block as handler:
        with pytest.raises(HandlerStateError, match="block of identity has been entered already"):
            block.__enter__()
        assert current() is handler
    assert current() is ROOT
    with block:
        assert current() is handler


def test_handling_block_cannot_be_exited_twice() -> None:
    block = handling(IdentityHandler(ROOT))
    with block:
        pass
    with handling(block._handler), pytest.raises(HandlerStateError):
        block.__exit__(None, None, None)


@pytest.mark.parametrize("stack", ["jit", "vmap", "grad", "jvp", "vjp", "make_jaxpr"])
def test_transformations_restore_the_handler_after_suspended_generators(stack: str) -> None:
    """The handler of a generator suspended inside the transformed function stays current only inside it."""
    runs: list[Any] = []

    def suspended() -> Generator[int, None, None]:
        with handling(CountingHandler(current())):
            yield 1

    def f(x: Any) -> Any:
        runs.append(suspended())
        next(runs[-1])
        return fnp.sin(x)

    STACKS[stack](f)(X)
    assert current() is ROOT
    for run in runs:
        with pytest.raises(HandlerStateError):
            run.close()
    assert current() is ROOT


# ------------------------------------------------------------------ handlers without effect


def values(tree: object) -> list[Any]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("where", ["outside", "inside"])
@pytest.mark.parametrize("stack", [s for s in STACKS if not s.startswith("make_jaxpr")])
def test_identity_handler_changes_no_result(stack: str, where: str) -> None:
    expected = values(STACKS[stack](wave)(X))

    def watched(x: Any) -> Any:
        with handling(IdentityHandler(current())):
            return wave(x)

    if where == "inside":
        got = values(STACKS[stack](watched)(X))
    else:
        with handling(IdentityHandler(current())):
            got = values(STACKS[stack](wave)(X))
    assert_same(got, expected, SUMMED)


@pytest.mark.parametrize("stack", ["make_jaxpr", "make_jaxpr of vmap of jvp"])
def test_identity_handler_records_the_same_jaxpr(stack: str) -> None:
    def watched(x: Any) -> Any:
        with handling(IdentityHandler(current())):
            return wave(x)

    expected = STACKS[stack](wave)(X)
    assert STACKS[stack](watched)(X) == expected
    with handling(IdentityHandler(current())):
        assert STACKS[stack](wave)(X) == expected


def test_handler_sees_the_operations_of_grad() -> None:
    with handling(CountingHandler(current())) as outside:
        fx.grad(lambda x: fnp.sum(fnp.sin(x) * x))(X)
    assert outside.seen["sin"] == 1
    assert outside.seen["cos"] == 1
    assert outside.seen["mul"] >= 3

    def f(x: Any) -> Any:
        with handling(CountingHandler(current())) as count:
            y = fnp.sum(fnp.sin(x) * x)
        counts.append(dict(count.seen))
        return y

    counts: list[dict[str, int]] = []
    fx.grad(f)(X)
    fx.jit(f)(X)
    fx.vmap(f)(X)
    assert counts[0] == counts[1] == {"sin": 1, "mul": 1, "reduce_sum": 1}


def test_handler_sees_a_jitted_call_as_one_operation() -> None:
    with handling(CountingHandler(current())) as count:
        f = fx.jit(wave)
        f(X)
        f(X)
    assert count.seen == {"jit": 2}


# ------------------------------------------------------------------ provenance


def test_operations_know_the_users_line() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return fnp.sum(y)

    first, last = fx.make_jaxpr(f)(X).eqns
    line = f.__code__.co_firstlineno
    for eqn, expected in ((first, line + 1), (last, line + 2)):
        source = eqn.source
        assert source is not None
        location = source if isinstance(source, SourceLocation) else source.resolve()
        assert (location.file, location.line) == (__file__, expected)
        assert location.function.endswith("test_operations_know_the_users_line.<locals>.f")


def test_handler_chain() -> None:
    chains: list[list[str]] = []

    def f(x: Any) -> Any:
        handler: Handler = current()
        chains.append([h.title for h in handler.chain()])
        return fnp.sum(x)

    fx.vmap(fx.grad(f))(np.ones((2, 3), np.float32))
    fx.jit(f)(X)
    assert chains == [["differentiation", "partial evaluation", "vmap", "evaluation"], ["jit", "evaluation"]]


def test_tracers_can_be_weakly_referenced() -> None:
    references: list[weakref.ref[object]] = []

    def f(x: Any) -> Any:
        y: Any = x * 2
        references.append(weakref.ref(y))
        found = references[-1]() is y
        assert found
        return y.sum()

    x = np.ones(3, np.float32)
    for transformed in (fx.jit(f), fx.grad(f), fx.vmap(f), fx.make_jaxpr(f)):
        transformed(x)
    gc.collect()
    assert len(references) == 4
    assert all(reference() is None for reference in references)

"""Programs with shared blocks mean what they meant before."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from itertools import combinations
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import difference
from tests.repeated_blocks.checking import check, check_function, share_all, with_calls
from tests.repeated_blocks.programs import deep_network, generated_program, trace
from tests.rewriting.evaluation import results
from tracefx.control.call import Call
from tracefx.control.inlining import InlineOptions, inline_calls
from tracefx.core import Literal, from_numpy
from tracefx.core.jaxpr import HasSubjaxprs, Jaxpr, Var
from tracefx.passes.check import check_jaxpr
from tracefx.passes.dce import dce
from tracefx.passes.rebuilding import renumber
from tracefx.repeated_blocks.pieces import divide_into_pieces
from tracefx.repeated_blocks.residuals import minimum_cut
from tracefx.repeated_blocks.sharing import SharedBlock, share_repeats

lax: Final = fx.lax
nn: Final = fx.nn
X: Final = np.linspace(-1.0, 1.0, 6, dtype=np.float32)


def test_network_and_gradient() -> None:
    loss, args = deep_network(5)
    assert [run.count for run in check_function(loss, *args).report.shared][:1] == [5]
    assert len(check_function(fx.value_and_grad(loss), *args).report.shared) >= 2


def test_nested_repeats() -> None:
    def f(x: Any) -> Any:
        for _ in range(4):
            for _ in range(4):
                x = fnp.sin(fnp.cos(x) * 1.5) + x
            x = fnp.tanh(fnp.cumsum(x))
        return x

    program = check_function(f, X)
    assert sorted([run.count for run in program.report.shared]) == [4, 4]
    outer = next(body for body in program.bodies if any(isinstance(e.prim, SharedBlock) for e in body.eqns))
    assert sum(isinstance(e.prim, SharedBlock) for e in outer.eqns) == 4


def test_literals_that_differ_are_operands() -> None:
    def f(x: Any) -> Any:
        for i in range(5):
            x = fnp.sin(x) * (0.5 + i) + 2.0
        return x

    program = check_function(f, X)
    (body,) = program.bodies
    assert len(body.in_avals) == 2
    assert [x.val for e in body.eqns for x in e.inputs if isinstance(x, Literal)] == [2.0]


@pytest.mark.parametrize("shape", [(5,), (5, 6), (2, 5, 6)])
def test_static_slices_that_differ_in_their_start_are_shared(shape: tuple[int, ...]) -> None:
    def f(x: Any, ws: Any) -> Any:
        for i in range(5):
            x = fnp.tanh(x * ws[..., i, :] if len(shape) > 1 else x * ws[i])
        return x

    program = check_function(f, X, np.linspace(0, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape))
    (body,) = program.bodies
    assert [e.prim.name for e in body.eqns].count("dynamic_slice") == 1
    left = [e.prim.name for e in program.jaxpr.eqns].count("slice")
    assert left == (1 if len(shape) == 3 else 0)  # the first `x` has one axis, so its block is another


def test_strided_slices_are_evaluated_before_the_block() -> None:
    def f(x: Any, ws: Any) -> Any:
        for i in range(5):
            x = fnp.tanh(x * lax.slice(ws, (i,), (i + 11,), (2,)))
        return x

    program = check_function(f, X, np.linspace(0, 1, 15, dtype=np.float32))
    assert [e.prim.name for e in program.jaxpr.eqns].count("slice") == 5


@pytest.mark.parametrize("variant", ["alternating", "one other", "two shapes", "axis"])
def test_near_repeats(variant: str) -> None:
    def block(x: Any, i: int) -> Any:
        match variant:
            case "alternating":
                return fnp.sin(x) + 1.0 if i % 2 else fnp.cos(x) * 2.0
            case "one other":
                return fnp.tanh(x) if i == 3 else fnp.sin(x) + fnp.cos(x)
            case "two shapes":
                y = fnp.sin(x)
                return fnp.concatenate([y, y]) if i in (2, 5) else y * 2.0
            case _:
                y = x.reshape(2, -1)
                return fnp.sin(lax.cumsum(y, axis=int(i > 4))).reshape(-1)

    def f(x: Any) -> Any:
        for i in range(9):
            x = block(x, i)
        return x

    check_function(f, X)
    check_function(fx.grad(lambda x: fnp.sum(f(x))), X)


@pytest.mark.parametrize("keys", ["fold_in", "split"])
def test_dropout(keys: str) -> None:
    def f(x: Any, key: Any) -> Any:
        split = fx.random.split(key, 4)
        for i in range(4):
            own = split[i] if keys == "split" else fx.random.fold_in(key, i)
            x = fnp.sin(x) * fx.random.bernoulli(own, 0.5, x.shape)
        return fnp.sum(x)

    assert check_function(fx.grad(f), X, fx.random.key(0)).report.shared


def test_optimizer_updates_are_declined() -> None:
    """XLA makes a kernel of each, and compiles equal kernels once."""

    def update(ps: Any, ms: Any, gs: Any) -> Any:
        ms = [0.9 * m + 0.1 * g for m, g in zip(ms, gs, strict=True)]
        return [p - 0.01 * m / (fnp.abs(m) + 1e-8) for p, m in zip(ps, ms, strict=True)], ms

    arrays = [X + i for i in range(6)]
    report = check_function(update, arrays, arrays, arrays).report
    assert not report.shared
    assert report.declined[0].reason.startswith("they are elementwise and independent")


@pytest.mark.parametrize("wrap", [fx.jit, fx.checkpoint])
def test_blocks_that_are_functions(wrap: Any) -> None:
    block = wrap(lambda x, w: fnp.sin(x @ w) + x)

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = block(x, w)
        return fnp.sum(x)

    ws = [np.eye(6, dtype=np.float32) * i for i in range(4)]
    assert check_function(fx.grad(loss), ws, X).report.shared


def test_blocks_in_bodies() -> None:
    def step(c: Any, x: Any) -> Any:
        for _ in range(4):
            c = fnp.sin(c) * x + 1.0
        return c, c

    def f(x: Any, n: Any) -> Any:
        y, ys = lax.scan(step, x, fnp.arange(3.0))
        z = lax.cond(n > 0, lambda x: step(x, 2.0)[0], lambda x: x, y)
        return lax.while_loop(lambda c: fnp.sum(c) < 0, lambda c: step(c, 0.5)[0], z), ys

    program = check_function(f, X, np.int32(1))
    assert len(program.report.shared) == 3
    assert not any(isinstance(e.prim, SharedBlock) for e in program.jaxpr.eqns)


def test_effects_stay_in_order() -> None:
    def f(x: Any) -> Any:
        for i in range(4):
            x = fnp.sin(x) + 1.0
            fx.debug.print("{}", x, ordered=bool(i % 2))
        for _ in range(4):
            x = fnp.cos(x) + 1.0
        return x

    program = check_function(f, X)
    assert program.report.shared
    assert program.report.declined


def test_user_rules() -> None:
    @fx.custom_vjp
    def clipped(x: Any) -> Any:
        return fnp.sin(x)

    clipped.defvjp(lambda x: (fnp.sin(x), x), lambda x, g: (fnp.clip(g, -0.5, 0.5) * fnp.cos(x),))

    def loss(x: Any) -> Any:
        for _ in range(4):
            x = nn.relu(clipped(x)) + x
        return fnp.sum(x)

    assert check_function(fx.grad(loss), X).report.shared


def test_calls_have_the_named_scopes_of_their_blocks() -> None:
    def f(x: Any) -> Any:
        for i in range(3):
            with fx.named_scope("network"), fx.named_scope(f"layer_{i}"):
                with fx.named_scope("first"):
                    x = fnp.sin(x)
                x = x + fnp.cos(x)
        return x

    program = check_function(f, X)
    assert scopes(program.jaxpr) == [("network", f"layer_{i}") for i in range(3)]
    assert scopes(program.bodies[0]) == [("first",), (), ()]


def scopes(jaxpr: Jaxpr) -> list[tuple[str, ...] | None]:
    """Returns the scopes of the equations."""
    return [None if e.source is None else e.source.scope for e in jaxpr.eqns]


def test_bodies_of_loops_have_the_scopes_of_all_blocks() -> None:
    def f(x: Any) -> Any:
        for i in range(3):

            def step(c: Any, _: Any, i: int = i) -> Any:
                with fx.named_scope(f"step_{i}"):
                    return fnp.sin(c), None

            x = lax.scan(step, x, None, length=2)[0]
        return x

    ((scan,),) = [body.eqns for body in check_function(f, X).bodies]
    assert isinstance(scan.prim, HasSubjaxprs)
    assert scopes(scan.prim.jaxprs()[0]) == [("step_0..step_2",)]


def test_residuals_are_recomputed() -> None:
    """A block stores the operand of `gelu`, its `tanh` and few small values, not the products between them."""
    loss, args = deep_network(6, width=8)
    closed = fx.make_jaxpr(fx.grad(loss))(*args)
    program = share_all(closed.jaxpr.closed())
    forward = next(run for run in program.bodies if any(e.prim.name == "tanh" for e in run.eqns))
    sizes = sorted([aval.shape for aval in forward.out_avals])
    assert sizes.count((3, 16)) == 2


def test_values_that_are_stored_anyway_are_preferred() -> None:
    """The backward pass reads `tanh(y)` and computes `1 - tanh(y)^2`, which has as many bytes, again.

    The last step of the forward pass has no block, because its result is not needed. The first block of the backward
    pass recomputes the values of that step as the others recompute those of blocks.
    """

    def f(x: Any, w: Any) -> Any:
        for _ in range(6):
            x = x + fnp.tanh(w @ x)
        return fnp.sum(x)

    w = np.eye(6, dtype=np.float32)
    share = partial(share_all, least_count=3)
    program = check(dce(trace(fx.grad(f), X, w)), [X, w], share)
    assert [run.count for run in program.report.shared] == [5, 6]
    forward, backward = program.bodies
    assert {e.prim.name for e in forward.eqns for v in e.outs if v in forward.outs} == {"tanh", "add"}
    assert "tanh" not in [e.prim.name for e in backward.eqns]


def test_operands_are_recomputed_from_values_that_the_block_before_stores() -> None:
    """The backward pass reads `cos(y)` and `cos(x)`, where `x` is the sine of the `y` of the block before."""

    def f(x: Any, w: Any) -> Any:
        for _ in range(8):
            x = fnp.sin(w @ fnp.sin(x))
        return fnp.sum(x)

    w = np.eye(6, dtype=np.float32)
    program = check(dce(trace(fx.grad(f), X, w)), [X, w], partial(share_all, least_count=3))
    calls = [e for e in program.jaxpr.eqns if isinstance(e.prim, SharedBlock)]
    forward, backward = [[e for e in calls if e.prim is prim] for prim in (calls[0].prim, calls[-1].prim)]
    bound = {v.index for e in forward for v in e.outs}
    stored = {x.index for e in backward for x in e.inputs if isinstance(x, Var)} & bound
    assert len(stored) <= len(backward) + 1


@pytest.mark.parametrize(("divide", "stored"), [("broadcast", 1), ("array", 2)])
def test_quotients_of_broadcasts_are_recomputed(divide: str, stored: int) -> None:
    """The compiler computes `y / s` for a smaller `s` as `y * (1 / s)`, wherever it is read."""

    def f(x: Any, w: Any) -> Any:
        for _ in range(6):
            y = w @ x
            x = fnp.sin(y / fnp.sum(y**2, 1, keepdims=True) if divide == "broadcast" else y / (y**2 + 1.0)) * y
        return fnp.sum(x)

    w = np.eye(6, dtype=np.float32) + 1
    program = check(dce(trace(fx.grad(f), w, w)), [w, w])
    forward = program.bodies[0]
    assert [v.aval.shape for v in forward.outs].count((6, 6)) == stored + 1


def test_minimum_cut() -> None:
    cost = {0: 10, 1: 3, 2: 10, 3: 10, 4: 10}
    assert minimum_cut(cost, {2: [1], 3: [1], 4: [0]}, [2, 3, 4]) == {1, 4}  # of 0 and 4, the one that is needed
    assert minimum_cut(cost, {}, [2, 3]) == {2, 3}
    assert minimum_cut(cost, {2: [1]}, []) == set()
    assert minimum_cut({0: 0, 1: 5}, {1: [0]}, [1]) == set()  # an input of the program costs nothing
    assert minimum_cut({0: 4, 1: 4, 2: 1}, {2: [0, 1]}, [2]) == {2}


@pytest.mark.parametrize("seed", range(20))
def test_minimum_cuts_are_the_cheapest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost = {v: int(rng.integers(1, 9)) for v in range(8)}
    operands = {v: rng.integers(0, v, 2).tolist() for v in range(3, 8)}

    def computes(stored: Collection[int], v: int) -> bool:
        return v in stored or (v in operands and all(computes(stored, x) for x in operands[v]))

    needed = [5, 6, 7]
    subsets = [s for n in range(9) for s in combinations(cost, n) if all(computes(s, v) for v in needed)]
    found = minimum_cut(cost, operands, needed)
    assert all(computes(found, v) for v in needed)
    assert sum(cost[v] for v in found) == min(sum(cost[v] for v in s) for s in subsets)


def test_small_programs_stay_the_same_object() -> None:
    loss, args = deep_network(2)
    jaxpr = trace(loss, *args)
    program = share_repeats(jaxpr)
    assert program.jaxpr is jaxpr
    assert program.bodies == ()
    assert str(program.report) == "no repeated blocks of enough equations"


@pytest.mark.parametrize("seed", range(60))
def test_generated_programs(seed: int) -> None:
    f = generated_program(seed)
    check_function(f, X)
    check_function(fx.grad(lambda x: fnp.sum(f(x)[0])), X)


@pytest.mark.parametrize("seed", range(60, 80))
def test_pieces_of_generated_programs(seed: int) -> None:
    f = generated_program(seed)
    jaxpr = trace(fx.grad(lambda x: fnp.sum(f(x)[0])), X)
    program = share_all(jaxpr, nested=False)
    pieces = divide_into_pieces(program.jaxpr, "f")
    check_jaxpr(renumber(pieces))
    assert {type(e.prim) for e in pieces.eqns} <= {Call}
    values = [from_numpy(X)]
    assert not difference(results(renumber(pieces), values)[0], results(jaxpr, values)[0])


def test_every_body_is_a_program_without_free_variables() -> None:
    loss, args = deep_network(4)
    for body in check_function(fx.grad(loss), *args).bodies:
        check_jaxpr(renumber(body))


def test_calls_are_inlined_only_if_blocks_are_shared() -> None:
    inner = fx.jit(lambda x: fnp.sin(x) + 1.0)

    def f(x: Any) -> Any:
        for _ in range(4):
            x = inner(x)
        return x

    jaxpr = trace(f, X)
    assert share_repeats(jaxpr).jaxpr is jaxpr
    shared = share_all(jaxpr).jaxpr
    assert [type(e.prim) for e in shared.eqns] == [SharedBlock] * 4
    assert inline_calls(with_calls(shared), InlineOptions()).eqns[0].prim.name == "sin"
    assert not any(isinstance(e.prim, HasSubjaxprs) for body in share_all(jaxpr).bodies for e in body.eqns)

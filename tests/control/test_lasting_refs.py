"""Mutable references that outlive the calls that use them, beside JAX, and what is particular to tracefx."""

# mypy: untyped-calls-exclude="jax"
# The decorators come from either library, whose type is `Any` here.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.versions import REFS_ARE_WEAKLY_TYPED
from tracefx.testing.tolerances import SUMMED

# ------------------------------------------------------------------ references that outlive the calls, beside JAX


def counter(lib: Any, np_: Any) -> Any:
    count = lib.new_ref(0)

    @lib.jit
    def step(x: Any) -> Any:
        count[...] += 1
        return x * count[...]

    return step(2.0), step(3.0), step(4.0), count[...]


def one_trace_for_many_calls(lib: Any, np_: Any) -> Any:
    ref, traces = lib.new_ref(np_.zeros(3)), []

    @lib.jit
    def step(i: Any, x: Any) -> Any:
        traces.append(i)
        ref[i] = x
        return ref[...]

    return [step(i, 2.0 * i) for i in range(3)], len(traces), ref[...]


def argument_of_jit(lib: Any, np_: Any) -> Any:
    @lib.jit
    def step(r: Any, x: Any) -> Any:
        r[1:] = r[:-1] + x
        return r[0]

    a, b = lib.new_ref(np_.arange(3.0)), lib.new_ref(np_.ones(3))
    return step(a, 1.0), step(b, 2.0), step(a, 3.0), a[...], b[...]


def keyword_and_nested_arguments(lib: Any, np_: Any) -> Any:
    @lib.jit
    def step(x: Any, *, refs: Any) -> None:
        refs["read"], (write, *_) = refs["read"], refs["write"]
        write[...] = refs["read"][...] * x

    refs = {"read": lib.new_ref(3.0), "write": (lib.new_ref(0.0), lib.new_ref(1.0))}
    step(2.0, refs=refs)
    return refs["read"][...], refs["write"][0][...], refs["write"][1][...]


def jit_in_jit(lib: Any, np_: Any) -> Any:
    ref = lib.new_ref(1.0)

    @lib.jit
    def inner(x: Any) -> Any:
        ref[...] *= x
        return ref[...]

    @lib.jit
    def outer(x: Any) -> Any:
        y = inner(x) + inner(x)
        ref[...] += y
        return y

    return outer(2.0), inner(3.0), outer(1.0), ref[...]


def loops_outside_of_jit(lib: Any, np_: Any) -> Any:
    ref = lib.new_ref(np_.zeros(4))

    def body(i: Any, x: Any) -> Any:
        ref[i] = x
        return x + ref[i - 1]

    x = lib.lax.fori_loop(1, 4, body, 1.0)
    lib.lax.cond(x > 2, lambda: ref.__setitem__(0, x), lambda: None)
    return x, ref[...]


def scan_over_references(lib: Any, np_: Any) -> Any:
    ref, fixed = lib.new_ref(np_.zeros((3, 2))), lib.new_ref(np_.arange(3.0))

    @lib.jit
    def run(ref: Any, start: Any) -> Any:
        def step(carry: Any, each: Any) -> Any:
            row, x = each
            row[0] = carry * x[...]
            row[1] += 1.0
            return carry + row[0], row[1]

        return lib.lax.scan(step, start, (ref, fixed), reverse=True)

    return run(ref, 1.0), run(ref, 2.0), ref[...], fixed[...]


def while_loop_writes(lib: Any, np_: Any) -> Any:
    ref = lib.new_ref(np_.zeros(8, int))

    def body(i: Any) -> Any:
        ref[i] = i * i
        return i + 1

    return lib.lax.while_loop(lambda i: i < 5, body, np_.int32(0)), ref[...]


def traced_bounds(lib: Any, np_: Any) -> Any:
    ref = lib.new_ref(np_.zeros(5, int))

    @lib.jit
    def run(n: Any) -> None:
        lib.lax.fori_loop(0, n, lambda i, _: ref.__setitem__(i, ref[i - 1] + i), None)

    run(3)
    run(5)
    return ref[...]


def grad_of_a_function_that_counts(lib: Any, np_: Any) -> Any:
    count, scale = lib.new_ref(0), lib.new_ref(3.0)

    def loss(x: Any) -> Any:
        count[...] += 1
        return scale[...] * x**2

    grads = [lib.grad(loss)(2.0), lib.jit(lib.grad(loss))(2.0)]
    scale[...] = 4.0
    return [*grads, lib.jit(lib.grad(loss))(2.0)], count[...]


def stop_gradient_into_a_reference(lib: Any, np_: Any) -> Any:
    last = lib.new_ref(0.0)

    def loss(x: Any) -> Any:
        last[...] = lib.lax.stop_gradient(x) * 3
        return x**2

    return lib.grad(loss)(2.0), last[...]


def reference_as_other_argument_of_grad(lib: Any, np_: Any) -> Any:
    ref = lib.new_ref(3.0)

    def loss(x: Any, r: Any) -> Any:
        r[...] += 1.0
        return x * r[...]

    return lib.grad(loss)(2.0, ref), ref[...]


def vmap_of_references(lib: Any, np_: Any) -> Any:
    rows, columns, same = lib.new_ref(np_.zeros((3, 2))), lib.new_ref(np_.ones((2, 3))), lib.new_ref(5.0)

    def f(row: Any, column: Any, shared: Any, x: Any) -> Any:
        row[0] = x * shared[...]
        column[1] = column[0] * row[0]
        return row[...].sum()

    sums = lib.vmap(f, in_axes=(0, 1, None, 0))(rows, columns, same, np_.arange(3.0))
    return sums, rows[...], columns[...], same[...]


def checkpoint_that_writes(lib: Any, np_: Any) -> Any:
    count = lib.new_ref(1.0)

    @lib.checkpoint
    def f(x: Any) -> Any:
        count[...] += 1.0
        return np_.sin(x)

    return f(2.0), count[...]


def contents_of_many_dtypes(lib: Any, np_: Any) -> Any:
    results = []
    for dtype in ("bool", "int8", "int32", "uint8", "bfloat16", "float16", "float32", "complex64"):
        ref = lib.new_ref(np_.zeros((2, 2), dtype))

        @lib.jit
        def f(ref: Any, i: Any) -> Any:
            ref[i] = np_.ones(2, ref.dtype)
            ref[0, 1] = np_.ones((), ref.dtype)
            return ref[i - 1]

        results.append((f(ref, 1), ref[...], ref.shape, ref.ndim, ref.size, str(ref.dtype)))
    return results


def weakly_typed_contents(lib: Any, np_: Any) -> Any:
    ref = lib.new_ref(1.0)
    before = ref[...] * np_.ones(2, np_.bfloat16)
    ref[...] += 1
    ref[...] = 2.5
    return before, ref[...] * np_.ones(2, np_.bfloat16), ref[...]


CASES: Final = (
    counter,
    one_trace_for_many_calls,
    argument_of_jit,
    keyword_and_nested_arguments,
    jit_in_jit,
    loops_outside_of_jit,
    scan_over_references,
    while_loop_writes,
    traced_bounds,
    grad_of_a_function_that_counts,
    stop_gradient_into_a_reference,
    reference_as_other_argument_of_grad,
    vmap_of_references,
    checkpoint_that_writes,
    contents_of_many_dtypes,
    weakly_typed_contents,
)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if REFS_ARE_WEAKLY_TYPED or case is not weakly_typed_contents],
    ids=lambda f: f.__name__,
)
def test_lasting_references_agree_with_jax(case: Callable[[Any, Any], Any]) -> None:
    # JAX loses the weak type of a reference in nested calls.
    weak = REFS_ARE_WEAKLY_TYPED and case is not jit_in_jit
    assert_same(case(fx, fnp), case(jax, jnp), SUMMED, weak=weak)


@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_lasting_references_without_jit(case: Callable[[Any, Any], Any]) -> None:
    want = case(fx, fnp)
    with fx.disable_jit():
        got = case(fx, fnp)
    if case is one_trace_for_many_calls:
        got, want = got[::2], want[::2]
    assert_same(got, want, SUMMED)


def test_vmap_of_references_along_other_axes() -> None:
    def f(column: Any, x: Any) -> Any:
        column[...] = column[...] * x
        column[0] = 7.0
        return column[1]

    array = fnp.arange(6.0).reshape(2, 3)
    ref, x = fx.new_ref(array), fnp.arange(3.0) + 1
    out = fx.vmap(f, in_axes=(-1, 0))(ref, x)
    assert_same((out, ref[...]), ((array * x)[1], fnp.stack([fnp.full(3, 7.0), (array * x)[1]])))
    fx.vmap(lambda r: r.set(fnp.arange(2.0)), in_axes=1)(ref)  # contents that are not batched
    assert_same(ref[...], fnp.broadcast_to(fnp.arange(2.0)[:, None], (2, 3)))


# ------------------------------------------------------------------ what is particular to tracefx


def test_the_recorded_program_is_pure() -> None:
    ref = fx.new_ref(np.float32(2.0))

    def f(r: Any, x: Any) -> Any:
        local = fx.new_ref(x)
        local[...] += ref[...]
        r[0] = local[...]
        return local[...] * 2.0

    argument = fx.new_ref(fnp.zeros(2))
    closed = fx.make_jaxpr(f)(argument, np.float32(1.0))
    assert str(closed.out_avals) == "(f32[2], f32[])"  # the new contents of the argument, and the output
    assert closed.effects == frozenset()
    assert {eqn.prim.name for eqn in closed.eqns} >= {"add", "mul"}
    assert_same(argument[...], fnp.zeros(2))  # tracing writes nothing
    assert_same(fx.jaxpr_as_fun(closed)(fnp.zeros(2), np.float32(1.0)), [fnp.array([3.0, 0.0]), fnp.float32(6.0)])
    assert str(fx.eval_shape(f, argument, np.float32(1.0))) == "ShapeDtypeStruct(shape=(), dtype=float32)"


def test_effects_of_reads_and_writes_are_in_program_order(capsys: pytest.CaptureFixture[str]) -> None:
    ref = fx.new_ref(0)

    @fx.jit
    def f() -> None:
        def body(i: Any, _: Any) -> None:
            fx.debug.print("before {}", ref[...], ordered=True)
            ref[...] += i
            fx.debug.print("after {}", ref[...], ordered=True)

        fx.lax.fori_loop(1, 3, body, None)

    f()
    fx.effects_barrier()
    assert capsys.readouterr().out.split("\n")[:4] == ["before 0", "after 1", "before 1", "after 3"]
    assert int(ref[...]) == 3


def test_traces_of_functions_with_references_are_cached() -> None:
    traces = []
    ref = fx.new_ref(fnp.zeros(3))

    def step(x: Any) -> Any:
        traces.append(x)
        ref[0] += x
        return ref[0]

    jitted = fx.jit(step)
    assert [float(jitted(1.0)) for _ in range(3)] == [1.0, 2.0, 3.0]
    assert float(fx.jit(lambda x: jitted(x) + jitted(x))(1.0)) == 9.0
    assert len(traces) == 1
    ref[...] = fnp.ones(3)
    assert float(jitted(1.0)) == 2.0


def test_a_reference_and_its_contents_are_different_arguments() -> None:
    f = fx.jit(lambda x: x[...] * 2.0)
    array = fnp.ones(2)
    first = f(array)
    assert f.explain_retrace(fx.new_ref(array)) == (
        "<lambda> would be traced anew: the argument `x` of <lambda> was an array and is a reference"
    )
    assert_same(f(fx.new_ref(array)), first)


def test_contents_that_were_read_do_not_change() -> None:
    ref = fx.new_ref(fnp.zeros(2))
    before = ref[...]
    ref[0] = 1.0
    fx.jit(lambda: ref.addupdate(1.0))()
    assert_same(before, fnp.zeros(2))
    assert_same(ref[...], fnp.array([2.0, 1.0]))


def test_donated_reference() -> None:
    ref = fx.new_ref(fnp.zeros(4))
    f = fx.jit(lambda r, x: r.__setitem__(0, x), donate_argnums=0)
    for i in range(3):
        f(ref, float(i))
    assert_same(ref[...], fnp.array([2.0, 0.0, 0.0, 0.0]))


def test_random_keys_as_contents() -> None:
    key = fx.random.key(0)
    ref = fx.new_ref(key)

    @fx.jit
    def draw() -> Any:
        new, use = fx.random.split(ref[...])
        ref[...] = new
        return fx.random.normal(use)

    new, use = fx.random.split(key)
    assert_same(draw(), fx.random.normal(use))
    assert_same(draw(), fx.random.normal(fx.random.split(new)[1]))


def test_async_compilation_writes_back() -> None:
    ref = fx.new_ref(0.0)

    def step(x: Any) -> Any:
        ref[...] += x
        return ref[...]

    f = fx.jit(step, async_compile=True)
    assert [float(f(1.0)) for _ in range(20)] == [float(i) for i in range(1, 21)]


def test_references_under_a_handler() -> None:
    def f(x: Any) -> Any:
        total = fx.new_ref(0.0)

        def body(i: Any, _: Any) -> None:
            total[...] += fnp.sin(x) * i

        fx.lax.fori_loop(0, 3, body, None)
        return total[...]

    def pure(x: Any) -> Any:
        return fx.lax.fori_loop(0, 3, lambda i, total: total + fnp.sin(x) * i, 0.0)

    interval = fx.handlers.around(1.0, 0.5)
    assert_same([*fx.handlers.bounds(f)(interval)], [*fx.handlers.bounds(pure)(interval)])


def test_compiled_ahead_of_time() -> None:
    ref = fx.new_ref(fnp.zeros(2))
    total = fx.new_ref(0.0)

    def step(r: Any, x: Any) -> Any:
        r[0] += x
        total[...] += r[0]
        return {"sum": r[...].sum()}

    lowered = fx.jit(step).lower(ref, 1.0)
    assert str(lowered.out_info) == "{'sum': ShapeDtypeStruct(shape=(), dtype=float32)}"
    compiled = lowered.compile()
    for i in range(1, 4):
        assert float(compiled(ref, 1.0)["sum"]) == i
    assert float(total[...]) == 6.0
    assert_same(ref[...], fnp.array([3.0, 0.0]))
    with pytest.raises(TypeError, match="`r` of step was a reference and is an array"):
        compiled(fnp.zeros(2), 1.0)


def test_in_shardings_and_out_shardings() -> None:
    ref, total = fx.new_ref(fnp.zeros(2)), fx.new_ref(0.0)
    mesh = fx.make_mesh((1,), ("x",))
    sharding = fx.NamedSharding(mesh, fx.P())

    def step(r: Any, x: Any) -> Any:
        r[0] += x
        total[...] += r[0]
        return r[...].sum()

    f = fx.jit(step, in_shardings=(None, sharding), out_shardings=sharding)
    assert [float(f(ref, 1.0)) for _ in range(3)] == [1.0, 2.0, 3.0]
    assert float(fx.jit(lambda x: f(ref, x) + total[...])(1.0)) == 14.0
    assert_same(ref[...], fnp.array([4.0, 0.0]))


def test_reading_in_functions_that_cannot_write() -> None:
    ref, x = fx.new_ref(2.0), np.arange(3, dtype=np.float32)
    mesh = fx.make_mesh((1,), ("x",))
    mapped = fx.shard_map(lambda x: x * ref[...], mesh=mesh, in_specs=fx.P("x"), out_specs=fx.P("x"))

    def largest(x: Any) -> Any:
        return fx.lax.reduce(x, np.float32(0), lambda a, b: fnp.minimum(fnp.maximum(a, b), ref[...]), (0,))

    def root(x: Any) -> Any:
        return fx.lax.custom_root(lambda y: y - ref[...] * x, x, lambda f, y: y - f(y), lambda f, y: y)

    for value in (1.0, 1.5):  # the second time the traces are in the cache
        ref[...] = value
        for scaled in (mapped, fx.jit(mapped), root, fx.jit(root)):
            assert_same(scaled(x), x * np.float32(value))
        assert_same((largest(x), fx.jit(largest)(x)), (np.float32(value), np.float32(value)))

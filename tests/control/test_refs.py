"""Mutable references: reads and writes beside JAX, under each transformation and their compositions."""

# mypy: untyped-calls-exclude="jax"
# The decorators come from either library, whose type is `Any` here.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
from tests.comparison import assert_agree
from tests.control.emulated_refs import CELLS, EMULATED
from tracefx.testing.tolerances import SUMMED

X: Final = np.array([0.5, -1.5, 2.0], np.float32)
Function = Callable[[Any], Any]
Program = Callable[[Any, Any], Function]

# ------------------------------------------------------------------ programs of an array of shape (3,)


def straight_line(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        r = lib.new_ref(x)
        r[0] = x[1] * x[2]
        r[1:] += 2 * x[:2]
        r[...] *= r[...]
        return r[...] * x

    return f


def accumulation_in_fori_loop(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        total = lib.new_ref(np_.zeros_like(x))

        def add(i: Any, _: Any) -> None:
            total[...] += np_.sin(x) * i

        lib.lax.fori_loop(0, 4, add, None)
        return lib.freeze(total)

    return f


def scan_that_reads_and_writes(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        scale, product = lib.new_ref(x[0]), lib.new_ref(1.0)

        def step(carry: Any, each: Any) -> Any:
            product[...] *= each * scale[...]
            return carry + product[...], product[...] * carry

        carry, ys = lib.lax.scan(step, 0.0, x)
        return ys + carry + product[...]

    return f


def nested_loops(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        table = lib.new_ref(np_.ones((3, 3), x.dtype))
        count = lib.new_ref(0)

        def row(i: Any, _: Any) -> None:
            def column(j: Any, _: Any) -> None:
                table[i, j] = table[j, i] * x[j] + x[i]
                count[...] += 1

            lib.lax.fori_loop(0, 3, column, None)
            table[i] += 1.0

        lib.lax.fori_loop(0, 3, row, None)
        return table[...].sum(0) * count[...].astype(x.dtype)

    return f


def conditional_writes(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        a, b = lib.new_ref(x), lib.new_ref(2 * x)

        def true_fun(y: Any) -> Any:
            a[0] = b[1] * y
            return y * 2

        def false_fun(y: Any) -> Any:
            b[...] = a[...] * y
            return y

        z = lib.lax.cond(x.sum() > 0.5, true_fun, false_fun, x[2])
        return a[...] + b[...] * z

    return f


def switch_in_scan(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        r = lib.new_ref(x)

        def step(carry: Any, i: Any) -> Any:
            def double() -> None:
                r[...] *= 2

            def shift() -> None:
                r[i] += carry

            def nothing() -> None:
                pass

            lib.lax.switch(i, [double, shift, nothing])
            return carry + r[i], None

        carry, _ = lib.lax.scan(step, 1.0, np_.arange(3))
        return r[...] * carry

    return f


def dynamic_indices(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        i = np_.argmax(x)
        r = lib.new_ref(np_.zeros((2, 3), x.dtype))
        r[1, i] = x[0]
        r[0, np_.array([2, 0])] = x[1:]
        lib.ref.addupdate(r, (0, np_.array([2, 2, i])), x)
        return r[0] + r[:, i].sum() + r[1]

    return f


def views(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        r = lib.new_ref(np_.zeros((2, 3), x.dtype))
        row = r.at[1]
        row[0] = x[0]
        row.at[1:][...] = x[1:] * 3
        row.addupdate(x)
        return r[...].sum(0) * row[...]

    return f


def swaps(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        r = lib.new_ref(x)
        old = lib.ref.swap(r, slice(0, 2), x[1:] * 2)
        first = lib.ref.swap(r, 0, old[1])
        return lib.ref.get(r) * first + old.sum()

    return f


def jit_inside(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        r, n = lib.new_ref(x), lib.new_ref(0)

        @lib.jit
        def update(y: Any) -> Any:
            n[...] += 1
            r[...] = r[...] * y
            return r[...].sum()

        total = update(2.0) + update(3.0)
        return r[...] * total + n[...]

    return f


def references_as_arguments_of_jit(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        r, s = lib.new_ref(x), lib.new_ref(x * 2)

        @lib.jit
        def update(refs: Any, y: Any) -> Any:
            refs["a"][0] = y * refs["b"][1]
            return refs["b"][...]

        out = update({"a": r, "b": s}, 2.0)
        return out * r[...]

    return f


def vmap_inside(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        r = lib.new_ref(np_.zeros((3, 2), x.dtype))

        def write(row: Any, y: Any) -> Any:
            local = lib.new_ref(0.0)
            local[...] += y * y
            row[0] = y
            row[1] += local[...]
            return row[...].sum()

        sums = lib.vmap(write)(r, x)
        return sums + r[:, 1]

    return f


def two_references_of_one_array(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        a, b = lib.new_ref(x), lib.new_ref(x)

        def body(i: Any, _: Any) -> None:
            a[i] = b[i] * 2
            b[...] += a[...]

        lib.lax.fori_loop(0, 3, body, None)
        lib.lax.cond(x[0] > 0, lambda: b.__setitem__(0, a[1]), lambda: a.__setitem__(0, b[1]))
        return a[...] * b[...]

    return f


def masks_and_integers(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        seen, count = lib.new_ref(np_.zeros(3, bool)), lib.new_ref(np_.zeros(3, np.int32))

        def body(i: Any, _: Any) -> None:
            seen[i] = x[i] > 0
            count[...] += seen[...].astype(np.int32)

        lib.lax.fori_loop(0, 3, body, None)
        return np_.where(seen[...], x * count[...], x)

    return f


def map_with_state(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        last = lib.new_ref(x[2])

        def difference(y: Any) -> Any:
            return y - lib.ref.swap(last, ..., y)

        return lib.lax.map(difference, x * x) * last[...]

    return f


def slices_in_scan(lib: Any, np_: Any) -> Function:
    def f(x: Any) -> Any:
        rows, factors = lib.new_ref(np_.zeros((3, 2), x.dtype)), lib.new_ref(x)

        def step(carry: Any, each: Any) -> Any:
            row, factor, y = each
            row[0] = carry * factor[...]
            row[1] += y
            return carry + row[0], y * row[1]

        carry, ys = lib.lax.scan(step, 1.0, (rows, factors, x))
        return ys * carry + rows[:, 0] + rows[:, 1]

    return f


PROGRAMS: Final = (
    straight_line,
    accumulation_in_fori_loop,
    scan_that_reads_and_writes,
    nested_loops,
    conditional_writes,
    switch_in_scan,
    dynamic_indices,
    views,
    swaps,
    jit_inside,
    references_as_arguments_of_jit,
    vmap_inside,
    two_references_of_one_array,
    masks_and_integers,
    map_with_state,
    slices_in_scan,
)


def total(lib: Any, f: Function) -> Function:
    return lambda x: (f(x) * f(x)).sum()


Transformation = Callable[[Any, Any, Function], Any]
BATCH: Final = np.stack([X, -X, 2 * X])
TRANSFORMATIONS: Final[dict[str, Transformation]] = {
    "evaluated": lambda lib, np_, f: f(np_.asarray(X)),
    "jit": lambda lib, np_, f: lib.jit(f)(X),
    "grad": lambda lib, np_, f: lib.grad(total(lib, f))(X),
    "jit of grad of jit": lambda lib, np_, f: lib.jit(lib.grad(total(lib, lib.jit(f))))(X),
    "jvp": lambda lib, np_, f: lib.jvp(f, (X,), (X + 1,)),
    "vmap": lambda lib, np_, f: lib.vmap(f)(BATCH),
    "vmap of jit along axis 1": lambda lib, np_, f: lib.vmap(lib.jit(f), in_axes=1, out_axes=1)(BATCH.T.copy()),
    "vmap of grad": lambda lib, np_, f: lib.vmap(lib.grad(total(lib, f)))(BATCH),
    "grad of vmap": lambda lib, np_, f: lib.grad(lambda x: (lib.vmap(f)(x) ** 2).sum())(BATCH),
    "hessian": lambda lib, np_, f: lib.hessian(total(lib, f))(X),
    "linearize": lambda lib, np_, f: lib.linearize(f, X)[1](X),
}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_transformed_programs(program: Program) -> None:
    """They agree with the same programs of emulated references, which JAX transforms and compiles as one."""

    def case(lib: Any, np_: Any) -> dict[str, Any]:
        results = {}
        for name, transform in TRANSFORMATIONS.items():
            CELLS.clear()
            results[name] = transform(lib, np_, program(fx if lib is fx else EMULATED, np_))
        return results

    assert_agree(case, SUMMED)

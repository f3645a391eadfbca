"""`count` compared with hand-computed counts."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from tests.errors import assert_errors, untyped
from tracefx import lax, nn
from tracefx.handlers import Cost, Work, count, count_jaxpr
from tracefx.programs import parse_jaxpr

Struct = fx.ShapeDtypeStruct


def f32(*shape: int) -> Any:
    return Struct(shape, np.float32)


def arithmetic(cost: Cost) -> tuple[int, int, int]:
    return cost.flops, cost.transcendentals, cost.integer_ops


def runs(cost: Cost) -> dict[str, int]:
    return {name: row.runs for name, row in cost.by_operation.items()}


def sum_of(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: fnp.sum(f(x))


# ------------------------------------------------------------------ primitives without control flow


def test_matrix_product() -> None:
    m, k, n = 3, 5, 7
    cost = count(lambda x, y: x @ y)(f32(m, k), f32(k, n))
    assert arithmetic(cost) == (2 * m * k * n, 0, 0)
    assert (cost.bytes_read, cost.bytes_written) == (4 * (m * k + k * n), 4 * m * n)
    assert cost.bytes_accessed == 4 * (m * k + k * n + m * n)
    assert cost.intensity == cost.flops / cost.bytes_accessed
    assert cost.by_operation == {"dot_general": Work(1, 2 * m * k * n, 0, 0, 4 * (m * k + k * n), 4 * m * n)}


def test_contractions() -> None:
    assert count(lambda x, y: fnp.einsum("bij,bjk->bki", x, y))(f32(2, 3, 4), f32(2, 4, 5)).flops == 2 * 2 * 3 * 4 * 5
    assert count(fnp.dot)(f32(6), f32(6)).flops == 12
    assert count(fnp.outer)(f32(3), f32(4)).flops == 12
    batched = fx.vmap(lambda x, y: x @ y, (0, None))
    assert count(batched)(f32(8, 3, 4), f32(4, 5)).flops == 8 * 2 * 3 * 4 * 5
    assert count(fx.vmap(batched, (None, 0)))(f32(8, 3, 4), f32(6, 4, 5)).flops == 6 * 8 * 2 * 3 * 4 * 5


def mlp(weights: Any, shift: Any, last: Any, x: Any) -> Any:
    return fnp.tanh(x @ weights + shift) @ last


def test_perceptron() -> None:
    cost = count(mlp)(f32(6, 10), f32(10), f32(10, 2), f32(4, 6))
    assert cost.flops == 2 * 4 * 6 * 10 + 4 * 10 + 2 * 4 * 10 * 2
    assert cost.transcendentals == 4 * 10
    assert runs(cost) == {"dot_general": 2, "add": 1, "tanh": 1, "broadcast_in_dim": 1}
    # The product, sum and tanh read their operands and write their results; the shift is broadcast over the rows.
    read = (6 * 10 + 4 * 6) + 10 + 2 * 40 + 40 + (40 + 20)
    assert (cost.bytes_read, cost.bytes_written) == (4 * read, 4 * (40 + 40 + 40 + 40 + 8))
    assert cost.argument_bytes == 4 * (60 + 10 + 20 + 24)
    assert (cost.constant_bytes, cost.output_bytes) == (0, 4 * 8)


def test_attention() -> None:
    b, s, h, d = 2, 5, 3, 4

    def attention(q: Any, k: Any, v: Any) -> Any:
        shares = nn.softmax(fnp.einsum("bqhd,bkhd->bhqk", q, k))
        return fnp.einsum("bhqk,bkhd->bqhd", shares, v)

    cost = count(attention)(*[f32(b, s, h, d)] * 3)
    assert cost.by_operation["dot_general"].flops == 2 * (2 * b * h * s * s * d)
    assert cost.transcendentals == b * h * s * s  # exp
    rows, scores = b * h * s, b * h * s * s
    # Softmax: the maximum of each row, its subtraction, the row sums, and the quotients.
    others = cost.flops - cost.by_operation["dot_general"].flops
    assert cost.by_operation["reduce_max"].flops == cost.by_operation["reduce_sum"].flops == rows * (s - 1)
    assert cost.by_operation["sub"].flops == cost.by_operation["mul"].flops == scores
    # One operation per row guards against rows of -inf, and one is the reciprocal of the sum.
    assert cost.by_operation["max"].flops == cost.by_operation["integer_pow"].flops == rows
    assert others == 2 * rows * (s - 1) + 2 * scores + 2 * rows


@pytest.mark.parametrize(
    ("f", "args", "flops", "transcendentals", "integer_ops"),
    [
        (lambda x: x * 2 + 1, [f32(3, 4)], 24, 0, 0),
        (lambda x: x**5, [f32(3)], 9, 0, 0),  # two squares and a product
        (lambda x: x**-2, [f32(3)], 6, 0, 0),
        (lambda x: x**1, [f32(3)], 0, 0, 0),
        (lambda x: x**0.5, [f32(3)], 0, 3, 0),
        (lambda x: fnp.sin(x) + fnp.log(x), [f32(3)], 3, 6, 0),
        (nn.sigmoid, [f32(3)], 9, 3, 0),
        (fnp.sum, [f32(3, 4)], 11, 0, 0),
        (lambda x: fnp.sum(x, axis=1), [f32(3, 4)], 9, 0, 0),
        (lambda x: fnp.argmax(x, axis=1), [f32(3, 4)], 9, 0, 0),
        (lambda x: fnp.cumsum(x, axis=1), [f32(3, 4)], 9, 0, 0),
        (lambda x: lax.cumlogsumexp(x, axis=0), [f32(3, 4)], 64, 16, 0),
        (lambda x: x > 0, [f32(3)], 3, 0, 0),
        (lambda x, y: fnp.where(x, y, 0.0), [Struct((3,), bool), f32(3)], 3, 0, 0),
        (lambda x: x.T.reshape(-1), [f32(3, 4)], 0, 0, 0),
        (lambda x: x + 1, [Struct((5,), np.int32)], 0, 0, 5),
        (lambda x: ~x & x, [Struct((5,), bool)], 0, 0, 10),
        (lambda x: x.astype(np.float32), [Struct((5,), np.int32)], 5, 0, 0),
        (lambda x: x.astype(np.int8), [Struct((5,), np.int32)], 0, 0, 5),
        (lambda x, y: x @ y, [Struct((3, 4), np.int8), Struct((4, 2), np.int8)], 0, 0, 48),
        (lambda x: fnp.sum(x), [f32(0, 4)], 0, 0, 0),
        (lambda x, y: x @ y, [f32(3, 0), f32(0, 4)], 0, 0, 0),
        (lambda x: fnp.cumsum(x), [f32(0)], 0, 0, 0),
        (lambda x: fnp.sin(x) + x, [f32(0)], 0, 0, 0),
        (lambda x: x, [f32(3)], 0, 0, 0),
        (lambda x: 1.0, [f32(3)], 0, 0, 0),
        (lambda x: x * x, [2.0], 1, 0, 0),
    ],
)
def test_elementwise_and_reduction_primitives(
    f: Callable[..., Any], args: list[Any], flops: int, transcendentals: int, integer_ops: int
) -> None:
    assert arithmetic(count(f)(*args)) == (flops, transcendentals, integer_ops)


@pytest.mark.parametrize(
    ("f", "flops", "transcendentals"),
    [
        (lambda z: z + z, 2, 0),
        (lambda z: -z, 2, 0),
        (lambda z: z * z, 6, 0),
        (lambda z: z / z, 11, 0),
        (lambda z: z**3, 12, 0),
        (lambda z: fnp.conj(z), 1, 0),
        (lambda z: z == z, 3, 0),
        (fnp.abs, 3, 1),
        (fnp.exp, 0, 2),
        (lambda z: z.real, 0, 0),
    ],
)
def test_complex_primitives_count_real_operations(f: Callable[..., Any], flops: int, transcendentals: int) -> None:
    assert arithmetic(count(f)(Struct((5,), np.complex64))) == (5 * flops, 5 * transcendentals, 0)


def test_complex_sums_and_products() -> None:
    z = Struct((3, 4), np.complex128)
    with fx.enable_x64():
        assert count(lambda z: z @ z.T)(z).flops == 8 * 3 * 4 * 3
        assert count(fnp.sum)(z).flops == 2 * 11
        assert count(fnp.prod)(z).flops == 6 * 11
        assert count(lambda z: fnp.cumprod(z, axis=1))(z).flops == 6 * 9
        assert count(lambda z: z @ z.T)(z).bytes_written == 16 * (12 + 9)  # and the transpose


@pytest.mark.parametrize(
    ("dtype", "nbytes"), [("int4", 4), ("bfloat16", 14), ("bool", 7), ("float32", 28), ("complex64", 56)]
)
def test_bytes_depend_on_the_dtype(dtype: str, nbytes: int) -> None:
    cost = count(lambda x: fnp.flip(x))(Struct((7,), dtype))
    assert (cost.bytes_read, cost.bytes_written, cost.argument_bytes) == (nbytes, nbytes, nbytes)
    assert cost.peak_bytes == 2 * nbytes


# ------------------------------------------------------------------ partial reads and writes


def bytes_moved(f: Callable[..., Any], *args: Any) -> tuple[int, int]:
    cost = count(f)(*args)
    return cost.bytes_read, cost.bytes_written


def test_slices_read_only_the_slice() -> None:
    assert bytes_moved(lambda x: x[2:4], f32(100, 10)) == (80, 80)
    cut = count(lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 10)))(f32(100, 10), np.int32(0), np.int32(0))
    moved = cut.by_operation["dynamic_slice"]
    assert (moved.bytes_read, moved.bytes_written) == (80 + 8, 80)  # the rows and the indices
    assert bytes_moved(lambda x: fnp.split(x, 2), f32(4)) == (16, 16)
    assert bytes_moved(lambda x: x.reshape(10, 100)[None], f32(100, 10)) == (0, 0)


def test_updates_write_only_the_update() -> None:
    update = lambda x, y: lax.dynamic_update_slice(x, y, (0, 0))  # noqa: E731
    assert bytes_moved(update, f32(100, 10), f32(2, 10)) == (80 + 8, 80)
    numbers = lax.ScatterDimensionNumbers((1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))

    def added(x: Any, i: Any, y: Any) -> Any:
        return lax.scatter_add(x, i, y, numbers)

    cost = count(added)(f32(100, 10), Struct((3, 1), np.int32), f32(3, 10))
    assert arithmetic(cost) == (30, 0, 0)
    assert (cost.bytes_read, cost.bytes_written) == (12 + 2 * 120, 120)


def test_gather_reads_rows_and_indices() -> None:
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))

    def rows(mode: str) -> Cost:
        f = lambda x, i: lax.gather(x, i, numbers, (1, 10), mode=mode)  # noqa: E731
        return count(f)(f32(100, 10), Struct((3, 1), np.int32))

    assert arithmetic(rows("clip")) == (0, 0, 0)
    assert (rows("clip").bytes_read, rows("clip").bytes_written) == (12 + 120, 120)
    assert arithmetic(rows("fill")) == (30, 0, 9)  # one select per element; per index, the comparison with two bounds


# ------------------------------------------------------------------ sub-jaxprs


def test_scan_multiplies_by_its_length() -> None:
    def rnn(w: Any, xs: Any) -> Any:
        return lax.scan(lambda h, x: (fnp.tanh(h @ w + x), h), fnp.zeros(4, np.float32), xs)

    cost = count(rnn)(f32(4, 4), f32(10, 4))
    assert arithmetic(cost) == (10 * (2 * 4 * 4 + 4), 10 * 4, 0)
    assert runs(cost) == {"dot_general": 10, "add": 10, "tanh": 10, "scan": 1, "broadcast_in_dim": 1}
    assert cost.by_operation["scan"].bytes_read == 10 * (16 + 16)  # one slice is read and one result is stacked
    assert arithmetic(count(rnn)(f32(4, 4), f32(0, 4))) == (0, 0, 0)
    assert runs(count(rnn)(f32(4, 4), f32(0, 4))) == {"scan": 1, "broadcast_in_dim": 1}
    by_two = count(lambda w, xs: lax.scan(lambda h, x: (h @ w + x, None), xs[0], xs, unroll=2))(f32(4, 4), f32(10, 4))
    assert by_two.flops == 10 * (2 * 4 * 4 + 4)


def test_nested_scans_multiply() -> None:
    def f(x: Any) -> Any:
        def outer(x: Any, _: None) -> Any:
            x, _ = lax.scan(lambda x, _: (fnp.sin(x) * x, None), x, None, length=5)
            return x + 1, None

        return lax.scan(outer, x, None, length=3)[0]

    assert arithmetic(count(f)(f32(2))) == (3 * (5 * 2 + 2), 3 * 5 * 2, 0)


def test_fori_loop_includes_its_counter() -> None:
    cost = count(lambda x: lax.fori_loop(0, 7, lambda i, x: x * i, x))(f32(3))
    assert arithmetic(cost) == (7 * (3 + 1), 0, 7)  # the counter is converted to a float
    assert arithmetic(count(lambda x: lax.fori_loop(0, 7, lambda i, x: x * 2, x))(f32(3))) == (7 * 3, 0, 0)


def test_cond_counts_its_costliest_branch_by_default() -> None:
    def f(p: Any, x: Any) -> Any:
        return lax.cond(p, lambda x: fnp.sin(x) * 2, lambda x: x + 1, x)

    args = np.bool_(True), f32(10)
    index = 1  # the predicate is converted to an index
    assert arithmetic(count(f)(*args)) == (10, 10, index)
    assert arithmetic(count(f, branches="min")(*args)) == (10, 0, index)
    assert arithmetic(count(f, branches="sum")(*args)) == (20, 10, index)
    # For a batch of predicates both branches run and a select picks the result; one select and one comparison per
    # branch make its operand constant for differentiation where the branch is not taken.
    both = count(fx.vmap(f))(Struct((4,), bool), f32(4, 10))
    assert arithmetic(both) == (4 * 10 * 3 + 2 * 4 * 10, 4 * 10, 4 + 2 * 4)


def test_switch_counts_its_costliest_branch() -> None:
    def f(i: Any, x: Any) -> Any:
        return lax.switch(i, [lambda x: x, fnp.sin, lambda x: x @ x], x)

    cost = count(f)(np.int32(0), f32(4, 4))
    assert cost.flops == 2 * 4 * 4 * 4
    assert count(f, branches="sum")(np.int32(0), f32(4, 4)).transcendentals == 16
    assert "dot_general" not in count(f, branches="min")(np.int32(0), f32(4, 4)).by_operation


def test_branches_without_flops_are_compared_by_traffic() -> None:
    def f(p: Any, x: Any) -> Any:
        return lax.cond(p, lambda x: x, lambda x: fnp.flip(fnp.flip(x, 0), 1), x)

    assert runs(count(f)(True, f32(3, 3)))["rev"] == 2


def test_loops_in_branches_count_with_all_their_steps() -> None:
    def f(p: Any, x: Any) -> Any:
        return lax.cond(p, lambda x: lax.fori_loop(0, 10, lambda i, x: x * 2, x), lambda x: fnp.sin(x) + x + 1, x)

    assert arithmetic(count(f)(True, f32(5))) == (50, 0, 1)
    assert arithmetic(count(f, branches="min")(True, f32(5))) == (10, 5, 1)


def test_while_loop_counts_an_assumed_number_of_steps() -> None:
    def f(x: Any, **options: Any) -> Any:
        return lax.while_loop(lambda x: fnp.sum(x) < 10, lambda x: fnp.sin(x) + 1, x, **options)

    cost = count(f)(f32(5))
    assert arithmetic(cost) == (2 * (4 + 1) + 5, 5, 0)  # the condition runs once more than the body
    (line,) = cost.unbounded
    assert line is not None
    assert (line.file, line.function) == (__file__, "test_while_loop_counts_an_assumed_number_of_steps.<locals>.f")
    many = count(f, while_steps=20)(f32(5))
    assert arithmetic(many) == (21 * (4 + 1) + 20 * 5, 20 * 5, 0)
    assert many.unbounded == (line,)
    assert many.while_steps == 20
    assert arithmetic(count(f, while_steps=0)(f32(5))) == (5, 0, 0)
    bounded = count(lambda x: f(x, max_steps=30))(f32(5))
    # Each step increments a counter; before each step it is compared with the bound, and both conditions are combined.
    assert arithmetic(bounded) == (31 * (4 + 1) + 30 * 5, 30 * 5, 31 + 31 + 30)
    assert bounded.unbounded == ()
    assert "unknown number of times" in str(cost)
    assert "unknown number" not in str(bounded)


def test_jit_does_not_change_the_cost() -> None:
    args = f32(6, 10), f32(10), f32(10, 2), f32(4, 6)
    plain = count(mlp)(*args)
    assert count(fx.jit(mlp))(*args) == plain
    assert count(lambda *xs: fx.jit(fx.jit(mlp))(*xs))(*args) == plain
    assert count(fx.jit(mlp, inline=True))(*args) == plain
    assert count(fx.checkpoint(mlp))(*args) == plain


def test_custom_rule_calls_cost_as_much_as_their_function() -> None:
    @fx.custom_jvp
    def f(x: Any) -> Any:
        return fnp.sin(x) * 2

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 3))

    @fx.custom_vjp
    def g(x: Any) -> Any:
        return fnp.sin(x) * 2

    g.defvjp(lambda x: (g(x), None), lambda _, ct: (ct * 3,))
    for h in (f, g):
        assert arithmetic(count(h)(f32(5))) == (5, 5, 0)
        assert arithmetic(count(fx.grad(sum_of(h)))(f32(5))) == (5, 0, 0)


def test_linear_solve_counts_its_solver() -> None:
    def f(a: Any, b: Any) -> Any:
        return lax.custom_linear_solve(lambda x: a @ x, b, lambda matvec, b: fnp.sin(b), symmetric=True)

    assert arithmetic(count(f)(f32(3, 3), f32(3))) == (0, 3, 0)


# ------------------------------------------------------------------ transformations


def test_cost_of_gradients() -> None:
    m, k, n = 3, 5, 7
    product = 2 * m * k * n

    def loss(w: Any, x: Any) -> Any:
        return fnp.sum(fnp.sin(x @ w))

    args = f32(k, n), f32(m, k)
    dots = [count(f)(*args).by_operation["dot_general"].flops for f in (loss, fx.grad(loss), fx.grad(loss, (0, 1)))]
    assert dots == [product, 2 * product, 3 * product]
    assert count(fx.grad(loss))(*args).transcendentals == m * n  # cosine only: the sine is dead code
    assert count(fx.value_and_grad(loss))(*args).transcendentals == 2 * m * n
    by_example = fx.vmap(fx.grad(loss), (None, 0))
    assert count(by_example)(f32(k, n), f32(8, m, k)).by_operation["dot_general"].flops == 8 * 2 * product
    assert count(fx.jit(fx.grad(fx.jit(loss))))(*args).flops == count(fx.grad(loss))(*args).flops


def test_checkpoint_recomputes_and_needs_less_memory() -> None:
    layers, rows, width = 6, 64, 8

    def network(wrap: Callable[..., Any]) -> Callable[..., Any]:
        def layer(x: Any, w: Any) -> Any:
            return fnp.sin(fnp.sin(fnp.sin(x @ w)))

        def loss(ws: Any, x: Any) -> Any:
            for w in ws:
                x = wrap(layer)(x, w)
            return fnp.sum(x)

        return fx.grad(loss)

    args = [f32(width, width)] * layers, f32(rows, width)
    plain, restored = count(network(lambda f: f))(*args), count(network(fx.checkpoint))(*args)
    product = 2 * rows * width * width
    # Forward all products, backward two each, but the gradient by the first layer's input is dead code.
    assert plain.by_operation["dot_general"].flops == (3 * layers - 1) * product
    # The last layer runs only in the recomputation.
    assert restored.by_operation["dot_general"].flops == (4 * layers - 2) * product
    # Three sines and three cosines each, except the last sine of the last layer, which only the unused sum reads.
    assert plain.transcendentals == (6 * layers - 1) * rows * width
    assert restored.transcendentals == ((layers - 1) * 3 + layers * 5) * rows * width
    assert restored.peak_bytes < 0.6 * plain.peak_bytes


def test_gradient_of_a_scan() -> None:
    def loss(w: Any, xs: Any) -> Any:
        return fnp.sum(lax.scan(lambda h, x: (fnp.tanh(h @ w + x), None), xs[0], xs)[0])

    cost = count(fx.grad(loss))(f32(4, 4), f32(10, 4))
    forward = 10 * 2 * 4 * 4
    assert cost.by_operation["dot_general"].flops == 3 * forward
    assert cost.transcendentals == 10 * 4


# ------------------------------------------------------------------ lines and scopes


def test_costs_by_line_and_scope() -> None:
    def encoder(x: Any) -> Any:
        with fx.named_scope("attention"):
            return fnp.sin(x)

    encoder = fx.jit(encoder)

    def f(x: Any) -> Any:
        with fx.named_scope("encoder"):
            x = encoder(x) * 2
        return encoder(x) + 1

    cost = count(f)(f32(5))
    first = f.__code__.co_firstlineno
    lines = {k.line - first: (v.flops, v.transcendentals, v.runs) for k, v in cost.by_line.items() if k is not None}
    assert lines == {2: (5, 0, 1), 3: (5, 0, 1), -4: (0, 10, 2)}
    assert next(iter(lines)) == -4
    assert None not in cost.by_line
    scopes = {k: (v.flops, v.transcendentals) for k, v in cost.by_scope.items()}
    assert scopes == {"encoder": (5, 5), "encoder/attention": (0, 5), "attention": (0, 5)}
    slope = count(fx.grad(sum_of(f)))(f32(5))
    assert slope.by_scope["encoder"].transcendentals == 10  # sine and cosine
    assert slope.by_scope["encoder/attention"].flops == 5
    assert {k.line - first for k in slope.by_line if k is not None and k.function == f.__qualname__} >= {2}


def test_scopes_around_a_function_with_a_custom_rule_are_counted_once() -> None:
    @fx.custom_jvp
    def attention(x: Any) -> Any:
        with fx.named_scope("attention"):
            return fnp.sin(x)

    attention.defjvps(lambda t, ans, x: t)

    def encoder(x: Any) -> Any:
        with fx.named_scope("encoder"):
            return attention(x)

    for f in (encoder, fx.jit(encoder)):
        assert set(count(f)(1.0).by_scope) == {"encoder", "encoder/attention"}


def test_rows_are_sorted_by_cost() -> None:
    cost = count(lambda x: fnp.sin(x[:2]) @ fnp.cos(x @ x)[:2].T + 1)(f32(4, 4))
    operations = [row.operations for row in cost.by_operation.values()]
    assert operations == sorted(operations, reverse=True)
    assert next(iter(cost.by_operation)) == "dot_general"


def test_shared_bodies_are_visited_once() -> None:
    @fx.jit
    def f(x: Any) -> Any:
        return fnp.sin(x) + x

    def doubled(f: Any) -> Any:
        return fx.jit(lambda x: f(f(x)))

    for _ in range(80):
        f = doubled(f)
    cost = count(f)(f32(3))
    assert arithmetic(cost) == (3 << 80, 3 << 80, 0)
    assert runs(cost) == {"sin": 1 << 80, "add": 1 << 80}

    def scoped(f: Any) -> Any:
        def twice(x: Any) -> Any:
            with fx.named_scope("a"):
                x = f(x)
            with fx.named_scope("b"):
                return f(x)

        return fx.jit(twice)

    g = fx.jit(fnp.sin)
    for _ in range(40):
        g = scoped(g)
    cost = count(g)(f32(3))
    assert cost.transcendentals == 3 << 40
    assert cost.by_scope["a"].transcendentals == cost.by_scope["b"].transcendentals == 3 << 39
    assert len(cost.by_scope) < 3000


def test_long_programs() -> None:
    def f(x: Any) -> Any:
        for _ in range(10_000):
            x = fnp.sin(x) * 2.0
        return x

    cost = count(f)(f32(3))
    assert arithmetic(cost) == (30_000, 30_000, 0)
    assert cost.peak_bytes == 36  # the argument, which stays live, an operand and a result


# ------------------------------------------------------------------ what is counted


def test_count_runs_no_code() -> None:
    calls = []

    def called(x: Any) -> Any:
        calls.append(x)
        return x

    def f(x: Any) -> Any:
        return fx.pure_callback(called, x, x) + 1

    assert arithmetic(count(f)(f32(1000, 1000))) == (1_000_000, 0, 0)
    assert calls == []
    huge = count(lambda x: x @ x)(f32(1_000_000, 1_000_000))
    assert huge.flops == 2 * 10**18


def test_dead_code_is_counted_in_given_jaxprs_only() -> None:
    def f(x: Any) -> Any:
        fnp.sin(x)
        return x + 1

    assert count(f)(f32(3)).transcendentals == 0
    assert count_jaxpr(fx.make_jaxpr(f)(f32(3))).transcendentals == 3


def test_constants_are_counted_separately_from_arguments() -> None:
    weights = np.ones((4, 3), np.float32)
    for cost in (count(lambda x: x @ weights)(f32(2, 4)), count_jaxpr(fx.make_jaxpr(lambda x: x @ weights)(f32(2, 4)))):
        assert (cost.constant_bytes, cost.argument_bytes, cost.output_bytes) == (48, 32, 24)
        assert cost.peak_bytes == 48 + 32 + 24
        assert cost.bytes_read == 48 + 32
    sines = fx.make_jaxpr(lambda x: fnp.sin(fnp.sin(x)) @ weights)(f32(2, 4))
    not_donated, donated_cost = [count_jaxpr(sines, donated=places) for places in ((), (0,))]
    assert not_donated.peak_bytes - donated_cost.peak_bytes == 32


def test_static_arguments_trees_and_methods() -> None:
    @fx.jit(static_argnums=1)
    def power(x: Any, n: int) -> Any:
        return x["a"] ** n

    assert count(power)({"a": f32(3)}, 4).flops == 6

    class Layer:
        @fx.jit(static_argnums=0)
        def __call__(self, x: Any, *, scale: Any) -> Any:
            return x * scale

    assert count(Layer().__call__)(f32(3), scale=2.0).flops == 3
    assert count(mlp).__name__ == "mlp"
    assert count(mlp)(f32(1, 1), f32(1), f32(1, 1), f32(1, 1)).name == "mlp"


def test_count_jaxpr_of_a_closed_jaxpr() -> None:
    program = parse_jaxpr(
        "{ lambda ; x:f32[4] y:f32[4]. let z:f32[4] = mul x y; w:f32[4] = add z 1.0:f32[]; in (w, w) }"
    )
    cost = count_jaxpr(program)
    assert arithmetic(cost) == (8, 0, 0)
    assert (cost.bytes_read, cost.bytes_written, cost.output_bytes) == (48, 32, 32)
    assert cost.by_line[None].flops == 8
    assert cost.name == "program"
    assert count_jaxpr(program, donated=[0, 1]).peak_bytes == cost.peak_bytes - 16


def test_invalid_arguments_are_refused() -> None:
    assert_errors(
        (lambda: untyped(count)(3), TypeError, "count takes a function, got 3"),
        (
            lambda: untyped(count)(mlp, branches="mean"),
            ValueError,
            "branches must be one of 'max', 'min', 'sum', got 'mean'",
        ),
        (lambda: count(mlp, while_steps=-1), ValueError, "while_steps must be a number of steps, got -1"),
        (lambda: count(mlp, while_steps=True), ValueError, "while_steps must be a number of steps, got True"),
        (lambda: untyped(count)(mlp, rules={}), TypeError, "rules must be CostRules, got {}"),
        (lambda: untyped(count_jaxpr)("x"), TypeError, "count_jaxpr takes a Jaxpr or a ClosedJaxpr, got 'x'"),
    )
    with pytest.raises(ValueError, match="donated names input 2 of a program that has 1"):
        count_jaxpr(fx.make_jaxpr(fnp.sin)(1.0), donated=[2])
    with pytest.raises(TypeError, match="must be an array or a number, got 'x'"):
        count(fnp.sin)("x")
    with pytest.raises(ValueError, match="listed must be a number of rows, got -1"):
        count(fnp.sin)(1.0).report(-1)


def test_count_inside_a_trace() -> None:
    seen = []

    def f(x: Any) -> Any:
        cost = count(lambda y: y @ x)(x)
        seen.append((cost.flops, cost.constant_bytes, cost.argument_bytes))
        return x * cost.flops

    x = np.ones((4, 4), np.float32)
    assert fx.jit(f)(x)[0, 0] == 128
    assert fx.vmap(f)(x[None])[0, 0, 0] == 128
    assert fx.grad(sum_of(f))(x)[0, 0] == 128
    assert set(seen) == {(128, 64, 64)}
    with fx.disable_jit():
        assert count(fx.jit(lambda x: x @ x))(x).flops == 128


def test_costs_compare_and_pickle_by_value() -> None:
    cost = count(mlp)(f32(6, 10), f32(10), f32(10, 2), f32(4, 6))
    restored = pickle.loads(pickle.dumps(cost))
    assert restored == cost
    assert str(restored) == str(cost)
    assert count(mlp)(f32(6, 10), f32(10), f32(10, 2), f32(5, 6)) != cost
    with pytest.raises(TypeError, match="does not support item assignment"):
        cost.by_operation["add"] = cost.total  # type: ignore[index]  # the point

"""Generated programs of blocks that are nearly equal mean the same with shared blocks.

A block is a list of steps. One step of one block, if any, is another: in a literal, a shape, an axis, a dtype, an
operand, an effect, a scope, a custom rule, a callback or a random key. If blocks that differ shared a body, the results
or the effects would be others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, final

import numpy as np
import pytest
from attrs import evolve, field, frozen
from hypothesis import given
from hypothesis import strategies as st

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_same
from tests.compiling import share_all_repeats
from tests.laws.examples import limit_examples
from tests.repeated_blocks.checking import check_function
from tracefx.core import NDArray
from tracefx.testing.tolerances import PROGRAM

lax: Final = fx.lax
WEIGHTS: Final = (np.linspace(-0.6, 0.5, 7 * 36) % 0.7 - 0.3).reshape(7, 6, 6).astype(np.float32)
ULPS: Final = evolve(PROGRAM, least=1.0)
"""Terms of generated programs may cancel."""
X: Final = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(2, 6)


@final
@frozen(eq=False)
class Site:
    """Where a step is applied.

    Args:
        block: The number of the block.
        odd: Whether this step is the one that differs.
        before: The value at the beginning of the block before.
        log: What callbacks have seen.
    """

    block: int
    odd: bool
    before: Any
    log: list[tuple[str, float]]


Step: TypeAlias = Callable[[Any, Site], Any]


def custom_activation(slope: float) -> Callable[[Any], Any]:
    sine: Any = fx.custom_vjp(lambda x: fnp.sin(x))
    sine.defvjp(lambda x: (fnp.sin(x), x), lambda x, g: (slope * g * fnp.cos(x),))
    return sine  # type: ignore[no-any-return]  # a function of arrays


def custom_tangent(slope: float) -> Callable[[Any], Any]:
    cosine: Any = fx.custom_jvp(lambda x: fnp.cos(x))
    cosine.defjvp(lambda primals, tangents: (fnp.cos(primals[0]), -slope * fnp.sin(primals[0]) * tangents[0]))
    return cosine  # type: ignore[no-any-return]  # a function of arrays


ACTIVATIONS: Final = custom_activation(1.0), custom_activation(0.5)
TANGENTS: Final = custom_tangent(1.0), custom_tangent(0.5)


def doubled(x: Any) -> Any:
    return np.asarray(2 * x)


def tripled(x: Any) -> Any:
    return np.asarray(3 * x)


def normalized(x: Any, axis: int) -> Any:
    centred = x - fnp.mean(x, axis, keepdims=True)
    return centred / fnp.sqrt(fnp.mean(centred**2, axis, keepdims=True) + 1.0)


def intermediate(x: Any, at: Site) -> Any:
    y = fnp.sin(x)
    z = fnp.cos(y)
    return 0.5 * z * (y if at.odd else z)


def convert_weights(x: Any, at: Site) -> Any:
    return 0.5 * x + WEIGHTS[0, :2].astype(np.float16 if at.odd else np.float32)


def concatenate(x: Any, at: Site) -> Any:
    return fnp.mean(fnp.concatenate([x] * (3 if at.odd else 2)).reshape(-1, 2, 6), 0) + 0.25


def slice_weights(x: Any, at: Site) -> Any:
    return x * (fnp.asarray(WEIGHTS)[at.block, ::3] if at.odd else fnp.asarray(WEIGHTS)[at.block, :2])


def inspect(x: Any, at: Site) -> Any:
    """Only the block that differs has an effect."""
    if at.odd:
        fx.debug.callback(lambda value: at.log.append(("odd", float(value))), x[0, 0])
    return x


def inspect_in_order(x: Any, at: Site) -> Any:
    if not at.odd:
        fx.debug.callback(lambda value: at.log.append(("ordered", float(value))), x[0, 0], ordered=True)
    return x


def call_host(x: Any, at: Site) -> Any:
    constant = lax.stop_gradient(x)
    shape = fx.ShapeDtypeStruct((2, 6), np.float32)
    return 0.25 * (x + fx.pure_callback(tripled if at.odd else doubled, shape, constant, vmap_method="expand_dims"))


def drop_out(x: Any, at: Site) -> Any:
    key = fx.random.fold_in(fx.random.key(3), at.block)
    kept = fx.random.uniform(key, (2, 6)) if at.odd else fx.random.bernoulli(key, 0.5, (2, 6))
    return fnp.where(kept > 0.25, x, 0.5 * x)


def same_key(x: Any, at: Site) -> Any:
    """Blocks use one key, except for the one that differs."""
    return x + 0.1 * fx.random.normal(fx.random.key(5 if at.odd else 4), (2, 6))


def named(x: Any, at: Site) -> Any:
    if at.odd:
        return fnp.sin(x) + 0.5
    with fx.named_scope(f"layer_{at.block}"):
        return fnp.sin(x) + 0.5


def scan(x: Any, at: Site) -> Any:
    return lax.scan(lambda c, w: (fnp.tanh(c @ w), None), x, fnp.asarray(WEIGHTS[: 3 if at.odd else 2]))[0]


def branch(x: Any, at: Site) -> Any:
    scale = 0.25 if at.odd else 0.5
    return lax.cond(x[0, 1] > at.block * 0.1, lambda y: y * scale, lambda y: fnp.sin(y), x)


STEPS: Final[Mapping[str, Step]] = {
    "operation": lambda x, at: fnp.cos(x) if at.odd else fnp.sin(x),
    "literal": lambda x, at: x * (0.5 if at.odd else 0.75),
    "literal in each block": lambda x, at: fnp.tanh(x * (0.25 * at.block) if at.odd else x * (0.25 + 0.125 * at.block)),
    "axis": lambda x, at: lax.cumsum(x, axis=int(at.odd)) / 3,
    "direction": lambda x, at: lax.cumsum(x, axis=1, reverse=at.odd) / 3,
    "permutation": lambda x, at: x.reshape((2, 3, 2)).transpose((0, 2, 1) if at.odd else (0, 1, 2)).reshape((2, 6)),
    "operand": lambda x, at: 0.5 * (fnp.sin(at.before if at.odd else x) + x),
    "operands in another order": lambda x, at: 0.5 * (at.before - x if at.odd else x - at.before),
    "operand in the block": intermediate,
    "weights": lambda x, at: fnp.tanh(x @ fnp.asarray(WEIGHTS[at.block].T if at.odd else WEIGHTS[at.block])),
    "normalization": lambda x, at: normalized(x, axis=int(not at.odd)),
    "dtype": convert_weights,
    "shape": concatenate,
    "slice": slice_weights,
    "effect": inspect,
    "ordered effect": inspect_in_order,
    "host function": call_host,
    "random key": drop_out,
    "another key": same_key,
    "scope": named,
    "custom_vjp": lambda x, at: ACTIVATIONS[at.odd](x),
    "custom_jvp": lambda x, at: TANGENTS[at.odd](x),
    "length of a loop": scan,
    "branch": branch,
    "call": lambda x, at: fx.jit(lambda y: fnp.sin(y) * (0.5 if at.odd else 0.25))(x),
    "checkpoint": lambda x, at: fx.checkpoint(lambda y: fnp.sin(fnp.cos(y)) * (0.5 if at.odd else 0.25))(x),
}


@final
@frozen
class NearRepeats:
    """A program of blocks of the same steps, of which one may differ in one block.

    Args:
        steps: The names of the steps of a block.
        count: The number of blocks.
        odd: The block and the step that differ; the last block and a step after the last if all blocks are equal.
    """

    steps: tuple[str, ...]
    count: int
    odd: tuple[int, int]
    log: list[tuple[str, float]] = field(factory=list, eq=False, repr=False)

    def __call__(self, x: Any) -> Any:
        before = x
        for block in range(self.count):
            start = x
            for i, name in enumerate(self.steps):
                x = STEPS[name](x, Site(block, self.odd == (block, i), before, self.log))
            before = start
        return x

    def loss(self, x: Any) -> Any:
        return fnp.sum(self(x) ** 2)

    def in_a_loop(self, x: Any) -> Any:
        return lax.scan(lambda c, _: (self(c), c), x, None, length=2)

    def seen(self) -> NDArray:
        """Returns what ordered callbacks have seen and then, in sorted order, what the others have; forgets both."""
        fx.effects_barrier()
        ordered = [value for name, value in self.log if name == "ordered"]
        others = sorted([value for name, value in self.log if name != "ordered"])
        self.log.clear()
        return np.array(ordered + others, np.float32)


@st.composite
def near_repeats(draw: st.DrawFn, names: Sequence[str] = tuple(STEPS)) -> NearRepeats:
    steps = draw(st.lists(st.sampled_from(names), min_size=1, max_size=5))
    count = draw(st.integers(3, 6))
    return NearRepeats(tuple(steps), count, (draw(st.integers(0, count - 1)), draw(st.integers(0, len(steps)))))


FORMS: Final[Mapping[str, Callable[[NearRepeats], Callable[[Any], Any]]]] = {
    "forward": lambda program: program,
    "gradient": lambda program: fx.value_and_grad(program.loss),
    "loop": lambda program: program.in_a_loop,
    "batch": lambda program: lambda x: fx.vmap(program)(fnp.stack([x, x + 0.5])),
}


@pytest.fixture(name="everywhere", scope="module")
def share_everywhere() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        share_all_repeats(patch)
        yield


@limit_examples(60)
@given(near_repeats(), st.sampled_from(sorted(FORMS)))
def test_sharing_changes_no_bit_and_no_effect(program: NearRepeats, form: str) -> None:
    """Programs are evaluated equation by equation."""
    check_function(FORMS[form](program), X)


@limit_examples(30)
@given(near_repeats(), st.sampled_from(sorted(FORMS)), st.booleans())
def test_compiled_programs_are_those_of_eager_evaluation(
    everywhere: None, program: NearRepeats, form: str, donated: bool
) -> None:
    f = FORMS[form](program)
    donated = donated and form != "batch"  # which has no result of that shape
    with fx.disable_jit():
        want, seen = f(X), program.seen()
    x = fx.device_put(X)
    got = fx.jit(f, donate_argnums=(0,) if donated else (), repeats="share")(x)
    assert_same(got, want, ULPS)
    assert_same(program.seen(), seen, ULPS)
    assert x.is_deleted() == donated


@pytest.mark.parametrize("name", STEPS)
def test_each_difference(everywhere: None, name: str) -> None:
    """Blocks are shared, and not with the one that differs."""
    program = NearRepeats(("weights", "operation", name, "literal"), 7, (3, 2))
    f = FORMS["forward" if "effect" in name else "gradient"](program)
    with fx.disable_jit():
        want, seen = f(X), program.seen()
    lowered = fx.jit(f, repeats="share").lower(X)
    assert lowered.repeats.shared
    assert_same(lowered.compile()(X), want, ULPS)
    assert_same(program.seen(), seen, ULPS)

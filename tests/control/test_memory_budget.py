"""`checkpoint(memory=)`: values, the budget by the cost model and in compiled programs, and the recomputation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import tracefx as fx
import tracefx.numpy as fnp
from benchmarks import resnet, transformer
from benchmarks.compiled import memory
from benchmarks.libraries import OURS
from tests.comparison import assert_near
from tests.control.transform_checks import normal
from tracefx import lax
from tracefx.errors import MemoryBudgetError
from tracefx.handlers import Cost, count, count_jaxpr
from tracefx.handlers.cost_analysis.checkpoint_planning import forward_and_backward

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def unrolled_ode(steps: int = 32) -> Program:
    """A neural differential equation, integrated by the midpoint rule."""

    def loss(weights: Any, y: Any) -> Any:
        def slope(y: Any) -> Any:
            return fnp.tanh(y @ weights[0]) @ weights[1]

        for _ in range(steps):
            y = y + slope(y + slope(y) / (2 * steps)) / steps
        return fnp.sum(y**2)

    return loss, ((0.1 * normal(64, 128), 0.1 * normal(128, 64, seed=1)), normal(256, 64, seed=2))


PROGRAMS: Final[dict[str, Callable[[], Program]]] = {
    "transformer": lambda: (transformer.loss_of(OURS), (transformer.parameters(), *transformer.text())),
    "ResNet": lambda: (resnet.loss_of(OURS), (resnet.parameters((16, 32, 64, 128)), *resnet.batch())),
    "ODE": unrolled_ode,
}


@functools.cache
def program(name: str) -> Program:
    return PROGRAMS[name]()


def gradient_cost(f: Callable[..., Any], args: tuple[Any, ...]) -> Cost:
    return count(fx.grad(f))(*args)


@functools.cache
def plain_cost(name: str) -> Cost:
    return gradient_cost(*program(name))


def within(name: str, budget: int) -> tuple[Callable[..., Any], Cost]:
    """Returns the function of a program with a budget, and the cost of its gradient."""
    f, args = program(name)
    g = fx.checkpoint(f, memory=budget)
    return g, gradient_cost(g, args)


def smallest_budget(f: Callable[..., Any], args: tuple[Any, ...]) -> int:
    with pytest.raises(MemoryBudgetError, match="The smallest budget that works") as error:
        fx.checkpoint(f, memory=1)(*args)
    return int(str(error.value).rpartition("=")[2])


LEAST: Final = {"transformer": 0.5, "ResNet": 0.75, "ODE": 0.25}
"""A fraction of the memory without checkpoints that suffices. In the ResNet, one layer and the weights need most."""
MOST_MORE: Final = {"transformer": 0.06, "ResNet": 0.06, "ODE": 0.25}
"""The additional operations for that budget, as a fraction of those without checkpoints."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_peak_is_within_the_budget_with_little_recomputation(name: str) -> None:
    plain = plain_cost(name)
    budget = int(LEAST[name] * plain.peak_bytes)
    _, cost = within(name, budget)
    assert 0.9 * budget <= cost.peak_bytes <= budget
    assert plain.total.operations < cost.total.operations <= (1 + MOST_MORE[name]) * plain.total.operations


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_program_is_near_the_budget(name: str) -> None:
    """The memory is within 10 % of a budget that the compiled program without checkpoints exceeds."""
    f, args = program(name)
    budget = int(LEAST[name] * plain_cost(name).peak_bytes)
    g, _ = within(name, budget)
    needed, plain = [memory(fx.jit(fx.grad(h)).lower(*args).compile().memory_analysis()) for h in (g, f)]
    assert plain > 1.1 * budget
    assert needed == pytest.approx(budget, rel=0.1)


def test_gradients_are_those_without_a_budget() -> None:
    f, args = unrolled_ode(6)
    g = fx.checkpoint(f, memory=smallest_budget(f, args))
    for wrap in (lambda h: h, fx.jit):
        assert_near(wrap(fx.grad(g, (0, 1)))(*args), wrap(fx.grad(f, (0, 1)))(*args))
    assert_near(g(*args), f(*args))
    batched = fx.vmap(fx.grad(g), (None, 0))(args[0], np.stack([args[1], args[1]]))
    assert_near(batched[0][1], fx.grad(f)(*args)[0])


# ------------------------------------------------------------------ beside JAX's policies

POLICIES: Final = ("everything_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable", "nothing_saveable")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("policy", POLICIES)
def test_no_more_operations_than_named_policies_at_the_same_memory(name: str, policy: str) -> None:
    f, args = program(name)
    theirs = fx.checkpoint(f, policy=getattr(fx.checkpoint_policies, policy))
    cost = count(fx.value_and_grad(theirs))(*args)
    ours = count(fx.value_and_grad(fx.checkpoint(f, memory=joint_peak(theirs, args))))(*args)
    assert ours.peak_bytes <= cost.peak_bytes
    assert ours.total.operations <= cost.total.operations


def joint_peak(f: Callable[..., Any], args: tuple[Any, ...]) -> int:
    """Returns the peak of a call with the gradients of all inexact arguments, which a budget is for."""
    return count_jaxpr(forward_and_backward(fx.jit(f).trace(*args).trace.jaxpr.closed())).peak_bytes


def layers(wrap: Callable[..., Any]) -> Callable[..., Any]:
    def f(weights: Any, x: Any) -> Any:
        @wrap
        def layer(x: Any, w: Any) -> Any:
            return x + fx.nn.gelu(x @ w[0]) @ w[1]

        for w in weights:
            x = layer(x, w)
        return fnp.sum(x**2)

    return f


@pytest.mark.parametrize("policy", POLICIES)
def test_no_more_operations_than_policies_of_each_layer(policy: str) -> None:
    args = [(normal(32, 128), normal(128, 32)) for _ in range(8)], normal(256, 32)
    theirs = layers(functools.partial(fx.checkpoint, policy=getattr(fx.checkpoint_policies, policy)))
    cost = count(fx.value_and_grad(theirs))(*args)
    ours = fx.checkpoint(layers(lambda layer: layer), memory=joint_peak(theirs, args))
    assert count(fx.value_and_grad(ours))(*args).total.operations <= cost.total.operations


# ------------------------------------------------------------------ plans


def chain(length: int) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        for _ in range(length):
            x = fnp.tanh(x @ x)
        return fnp.sum(x)

    return f


X: Final = 0.1 * normal(64, 64)


def test_program_within_the_budget_has_no_checkpoints() -> None:
    f = fx.checkpoint(chain(8), memory="1GB")
    assert "checkpoint" not in str(fx.make_jaxpr(f)(X))


def test_smallest_budget_works_and_a_smaller_one_does_not() -> None:
    smallest = smallest_budget(chain(16), (X,))
    assert smallest < 0.5 * joint_peak(chain(16), (X,))
    assert count(fx.grad(fx.checkpoint(chain(16), memory=smallest)))(X).peak_bytes <= smallest
    with pytest.raises(MemoryBudgetError):
        fx.checkpoint(chain(16), memory=smallest - 1)(X)


def test_plans_are_deterministic() -> None:
    first, second = [str(fx.make_jaxpr(fx.checkpoint(chain(16), memory="250kB"))(X)) for _ in range(2)]
    assert first == second
    assert "checkpoint" in first


def test_recomputation_decreases_with_the_budget() -> None:
    smallest, whole = smallest_budget(chain(16), (X,)), joint_peak(chain(16), (X,))
    budgets = np.linspace(smallest, whole, 6).astype(int).tolist()
    operations = [count(fx.grad(fx.checkpoint(chain(16), memory=b)))(X).total.operations for b in budgets]
    assert operations == sorted(operations, reverse=True)
    assert operations[-1] == count(fx.grad(chain(16)))(X).total.operations


def test_scans_are_checkpointed() -> None:
    def f(w: Any, x: Any) -> Any:
        return fnp.sum(lax.scan(lambda x, _: (fnp.tanh(fnp.sin(x @ w) @ w), None), x, None, length=64)[0])

    plain = joint_peak(f, (X, X))
    g = fx.checkpoint(f, memory=plain // 4)
    assert joint_peak(g, (X, X)) <= plain // 4
    assert_near(fx.jit(fx.grad(g))(X, X), fx.jit(fx.grad(f))(X, X))


def test_names_of_stored_values_say_why() -> None:
    origins = [r.origin for r in fx.saved_residuals(fx.checkpoint(chain(16), memory="250kB"), X)]
    assert any("named 'saved: 16.4 kB avoid 524 k operations'" in origin for origin in origins)
    assert any("named 'saved: a result of the segment'" in origin for origin in origins)
    page = fx.show(fx.grad(fx.checkpoint(chain(16), memory="250kB")), X).html
    assert "saved: 16.4 kB avoid 524 k operations" in page


def test_checkpoint_is_kept_in_compiled_programs_outside_of_loops() -> None:
    """On the CPU, XLA removes barriers and merges equal operations, unless they are in a function of their own."""

    def f(wrap: Callable[..., Any]) -> Callable[..., Any]:
        @wrap
        def step(x: Any) -> Any:
            for _ in range(8):
                x = fnp.tanh(x @ x)
            return x

        return lambda x: fnp.sum(step(step(step(step(x)))))

    plain, ours = [
        fx.jit(fx.grad(f(wrap))).lower(X).compile().memory_analysis().temp_bytes
        for wrap in (lambda g: g, fx.checkpoint)
    ]
    assert ours < 0.6 * plain


# ------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("memory", "nbytes"),
    [(7, 7), ("7B", 7), ("200MB", 200_000_000), ("1.5 kB", 1500), ("2KiB", 2048), ("1 GiB", 2**30), ("1TB", 10**12)],
)
def test_units_of_memory(memory: Any, nbytes: int) -> None:
    assert fx.Checkpoint(memory=memory).memory == nbytes


@pytest.mark.parametrize("memory", [0, -1, 1.5, True, "", "3", "-3MB", "3 qB", "MB", b"3MB"])
def test_invalid_memory_is_rejected(memory: Any) -> None:
    with pytest.raises(ValueError, match="checkpoint: memory must be a positive number of bytes"):
        fx.checkpoint(fnp.sin, memory=memory)


def test_memory_and_policy_exclude_each_other() -> None:
    policy = fx.checkpoint_policies.dots_saveable
    for make in (fx.Checkpoint, lambda **options: fx.checkpoint(fnp.sin, **options)):
        with pytest.raises(ValueError, match="memory and policy both choose"):
            make(memory="1MB", policy=policy)

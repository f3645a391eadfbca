"""Steps of generated programs with control flow and custom derivative rules, whose bodies are steps too.

A step takes a value `x` and another of the same shape, `y`, and returns one of this shape. Bodies take `x` and close
over `y`. Programs are written for tracefx; `JaxAdapter` takes the place of `fx` to run them with JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

from attrs import frozen
from typing_extensions import override

from tracefx.testing.generated_programs import AnyCallable, ProgramStep, SourceWriter, write_steps


def _write_body(to: SourceWriter, y: str | None, steps: Sequence[ProgramStep]) -> str:
    """Writes a function of one value that applies steps to it and `y`; without `y`, to it alone."""
    name, x = to.name("f"), to.name()
    with to.block(f"def {name}({x}):"):
        to.line(f"return {write_steps(to, [x, x if y is None else y], steps)[-1]}")
    return name


@final
@frozen
class CondStep(ProgramStep):
    """A `cond`, whose predicate compares the sum of `y` with a threshold."""

    operands: tuple[int, int]
    at: float
    first: tuple[ProgramStep, ...]
    second: tuple[ProgramStep, ...]

    @override
    def write(self, to: SourceWriter, xs: Sequence[str]) -> str:
        x, y = xs
        yes, no = _write_body(to, y, self.first), _write_body(to, y, self.second)
        return to.value(f"fx.lax.cond(fnp.sum({y}) > {self.at}, {yes}, {no}, {x})")


@final
@frozen
class SwitchStep(ProgramStep):
    """A `switch` over several bodies."""

    operands: tuple[int, int]
    bodies: tuple[tuple[ProgramStep, ...], ...]

    @override
    def write(self, to: SourceWriter, xs: Sequence[str]) -> str:
        x, y = xs
        branches = ", ".join([_write_body(to, y, body) for body in self.bodies])
        return to.value(f'fx.lax.switch(fnp.sum(fnp.floor(2 * {y})).astype("int32"), [{branches}], {x})')


@final
@frozen
class ScanStep(ProgramStep):
    """A `scan` that carries `x` and a step counter, and whose stacked results are summed."""

    operands: tuple[int, int]
    length: int
    body: tuple[ProgramStep, ...]
    reverse: bool = False
    checkpoint: int | str | None = None

    @override
    def write(self, to: SourceWriter, xs: Sequence[str]) -> str:
        x, y = xs
        body = _write_body(to, y, self.body)
        step, n, c, row = to.name("f"), to.name("n"), to.name(), to.name()
        with to.block(f"def {step}(carry, {row}):"):
            to.line(f"{n}, {c} = carry")
            to.line(f"{c} = {body}({c} + 0.1 * {row}) * (0.5 + 0.125 * {n}.astype({c}.dtype))")
            to.line(f"return ({n} + 1, {c}), fnp.sin({c})")
        options = ", reverse=True" if self.reverse else ""
        options += "" if self.checkpoint is None else f", checkpoint={self.checkpoint!r}"
        last, results = to.name(), to.name()
        rows = f"fnp.stack([{y}] * {self.length})"
        to.line(f"(_, {last}), {results} = fx.lax.scan({step}, (fnp.int32(0), {x}), {rows}{options})")
        return to.value(f"{last} + fnp.sum({results}, axis=0)")


@final
@frozen
class WhileStep(ProgramStep):
    """A `while_loop` that ends on a condition on the carry, or after `max_steps` steps."""

    operands: tuple[int, int]
    max_steps: int
    body: tuple[ProgramStep, ...]

    @override
    def write(self, to: SourceWriter, xs: Sequence[str]) -> str:
        x, y = xs
        body = _write_body(to, y, self.body)
        condition, step, n, last = to.name("f"), to.name("f"), to.name("n"), to.name()
        with to.block(f"def {condition}(carry):"):
            to.line("return fnp.sum(carry[1] * carry[1]) < 5.0")
        with to.block(f"def {step}(carry):"):
            to.line(f"return carry[0] + 1, {body}(carry[1] * 1.5 + 0.3)")
        init = f"(fnp.int32(0), {x})"
        to.line(f"{n}, {last} = fx.lax.while_loop({condition}, {step}, {init}, max_steps={self.max_steps})")
        return to.value(f"{last} + 0.25 * {n}.astype({last}.dtype)")


WRAPPER_NAMES: Final = ("checkpoint", "jit", "custom_jvp", "custom_vjp")


@final
@frozen
class WrappedStep(ProgramStep):
    """A body under `checkpoint`, `jit`, or correct custom derivative rules: it computes the same as the body."""

    operands: tuple[int, int]
    how: str
    body: tuple[ProgramStep, ...]

    @override
    def write(self, to: SourceWriter, xs: Sequence[str]) -> str:
        x, y = xs
        if not self.how.startswith("custom"):
            return to.value(f"fx.{self.how}({_write_body(to, y, self.body)})({x})")
        body, f = _write_body(to, None, self.body), to.name("f")  # it must not close over differentiated values
        to.line(f"{f} = fx.{self.how}({body})")
        if self.how == "custom_jvp":
            to.line(f"{f}.defjvp(lambda primals, tangents: fx.jvp({body}, primals, tangents))")
        else:
            to.line(f"{f}.defvjp(lambda x: ({body}(x), x), lambda x, ct: fx.vjp({body}, x)[1](ct))")
        return to.value(f"{f}({x} + {y})")


# ------------------------------------------------------------------ JAX


@final
@frozen(eq=False)
class JaxAdapter:
    """A stand-in for `fx` that runs programs with `jax`, translating what JAX does differently.

    A bounded `while_loop` becomes a scan that does nothing once the condition is false; the `checkpoint` option of
    `scan` is dropped; and custom VJP rules are dropped, since in JAX they exclude forward mode.
    """

    library: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    @property
    def lax(self) -> Any:
        return _JaxLaxAdapter(self.library.lax)

    def custom_vjp(self, f: AnyCallable) -> Any:
        return _WithoutCustomRule(f)


@final
@frozen(eq=False)
class _JaxLaxAdapter:
    """The part of `JaxAdapter` for `lax`."""

    library: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    def scan(self, f: AnyCallable, init: Any, xs: Any, *, checkpoint: object = None, **options: Any) -> Any:
        return self.library.scan(f, init, xs, **options)

    def while_loop(self, goes: Callable[[Any], Any], step: Callable[[Any], Any], init: Any, *, max_steps: int) -> Any:
        def guarded(carry: Any, _: Any) -> Any:
            return self.library.cond(goes(carry), step, lambda c: c, carry), None

        return self.library.scan(guarded, init, None, length=max_steps)[0]


@final
@frozen(eq=False)
class _WithoutCustomRule:
    """A function whose custom rule is ignored."""

    f: AnyCallable

    def defvjp(self, forward: AnyCallable, backward: AnyCallable) -> None:
        """Ignores the rule, which is correct and so changes no results."""

    def __call__(self, *args: Any) -> Any:
        return self.f(*args)

"""Steps of programs that are loops, branches and functions with rules of their own, with steps for bodies.

A step takes a value `x` and another of the same shape, `y`, and gives one of this shape. Bodies take `x`, and close
over `y`. They are written for tracefx; `JaxAdapter` stands for `fx` where they are run by JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

from attrs import frozen
from typing_extensions import override

from tracefx.testing.generated_programs import AnyCallable, ProgramStep, SourceWriter, write_steps


def _write_body(to: SourceWriter, y: str | None, steps: Sequence[ProgramStep]) -> str:
    """Write a function of one value that does steps on it and on `y`; of one on itself where there is no `y`."""
    name, x = to.name("f"), to.name()
    with to.block(f"def {name}({x}):"):
        to.line(f"return {write_steps(to, [x, x if y is None else y], steps)[-1]}")
    return name


@final
@frozen
class CondStep(ProgramStep):
    """One of two bodies, by what the elements of `y` add up to."""

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
    """One of several bodies."""

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
    """A scan that carries `x`, counts its steps, and adds its results up."""

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
    """A loop that ends by what it has come to, or after so many steps."""

    operands: tuple[int, int]
    max_steps: int
    body: tuple[ProgramStep, ...]

    @override
    def write(self, to: SourceWriter, xs: Sequence[str]) -> str:
        x, y = xs
        body = _write_body(to, y, self.body)
        goes, step, n, last = to.name("f"), to.name("f"), to.name("n"), to.name()
        with to.block(f"def {goes}(carry):"):
            to.line("return fnp.sum(carry[1] * carry[1]) < 5.0")
        with to.block(f"def {step}(carry):"):
            to.line(f"return carry[0] + 1, {body}(carry[1] * 1.5 + 0.3)")
        init = f"(fnp.int32(0), {x})"
        to.line(f"{n}, {last} = fx.lax.while_loop({goes}, {step}, {init}, max_steps={self.max_steps})")
        return to.value(f"{last} + 0.25 * {n}.astype({last}.dtype)")


WRAPPER_NAMES: Final = ("checkpoint", "jit", "custom_jvp", "custom_vjp")


@final
@frozen
class WrappedStep(ProgramStep):
    """A call of a body that changes nothing but what transformations do with it; rules of its own are true."""

    operands: tuple[int, int]
    how: str
    body: tuple[ProgramStep, ...]

    @override
    def write(self, to: SourceWriter, xs: Sequence[str]) -> str:
        x, y = xs
        if not self.how.startswith("custom"):
            return to.value(f"fx.{self.how}({_write_body(to, y, self.body)})({x})")
        body, f = _write_body(to, None, self.body), to.name("f")  # which may close over nothing that is differentiated
        to.line(f"{f} = fx.{self.how}({body})")
        if self.how == "custom_jvp":
            to.line(f"{f}.defjvp(lambda primals, tangents: fx.jvp({body}, primals, tangents))")
        else:
            to.line(f"{f}.defvjp(lambda x: ({body}(x), x), lambda x, ct: fx.vjp({body}, x)[1](ct))")
        return to.value(f"{f}({x} + {y})")


# ------------------------------------------------------------------ by JAX


@final
@frozen(eq=False)
class JaxAdapter:
    """`jax` in the place of `fx`: its operations, and in other words those that it has otherwise.

    A bounded `while_loop` is a scan that does nothing once it is done; pieces of scans are left to it; and a function
    with a rule for reverse mode is without, since in JAX it allows no forward mode.
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
    f: AnyCallable

    def defvjp(self, forward: AnyCallable, backward: AnyCallable) -> None:
        """Rules that are true change nothing."""

    def __call__(self, *args: Any) -> Any:
        return self.f(*args)

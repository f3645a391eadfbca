"""Programs with loops and branches, nested, as values to read, run and compare; and how to generate them.

They are `Program`s, whose steps may be loops, branches and functions with rules of their own, with programs for bodies.
A step asks the namespace it is run with for `cond`, `scan`, ...: run these with `Structures(tracefx, tracefx.numpy)`
or `Structures(jax, jax.numpy)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, final

from attrs import frozen
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tracefx.testing.programs import BINARY, UNARY, Program, Shape, Stacked, Step, binary, unary
from tracefx.testing.strategies import stacks

Block: TypeAlias = Callable[..., Any]
"""`block(N, x, y)`: a value like `x`, from `x` and from `y`, which is closed over."""


@final
@frozen(eq=False)
class Structures:
    """The array functions of `arrays`, and what `library` has for loops, branches and rules."""

    library: Any
    arrays: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.arrays, name)

    def bounded(self, goes: Callable[[Any], Any], step: Callable[[Any], Any], init: Any, max_steps: int) -> Any:
        """`while_loop` with `max_steps`; in a library that knows no such option, a scan that does nothing once done."""
        lax = self.library.lax
        if self.library.__name__ != "jax":
            return lax.while_loop(goes, step, init, max_steps=max_steps)

        def guarded(carry: Any, _: Any) -> Any:
            return lax.cond(goes(carry), step, lambda c: c, carry), None

        return lax.scan(guarded, init, None, length=max_steps)[0]

    def with_jvp(self, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function with a rule for forward mode, which is true."""
        custom = self.library.custom_jvp(f)
        custom.defjvp(lambda primals, tangents: self.library.jvp(f, primals, tangents))
        return custom  # type: ignore[no-any-return]  # a function

    def with_vjp(self, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function with a rule for reverse mode, which is true; JAX's allow no forward mode, so there without."""
        if self.library.__name__ == "jax":
            return f
        custom = self.library.custom_vjp(f)
        custom.defvjp(lambda x: (f(x), x), lambda x, ct: self.library.vjp(f, x)[1](ct))
        return custom  # type: ignore[no-any-return]  # a function


# ------------------------------------------------------------------ steps


def _block(steps: Sequence[Step]) -> Block:
    def run(N: Any, x: Any, y: Any) -> Any:
        values = [x, y]
        for step in steps:
            values.append(step.apply(N, *[values[i] for i in step.operands]))
        return values[-1]

    return run


def _text(name: str, *bodies: Sequence[Step]) -> str:
    shown = ["; ".join([f"{s.text}({', '.join([f'v{i}' for i in s.operands])})" for s in body]) for body in bodies]
    return f"{name}[{' | '.join(shown)}]"


def branch(x: int, y: int, at: float, first: Sequence[Step], second: Sequence[Step]) -> Step:
    """One of two bodies, by what the elements of `y` add up to."""
    yes, no = _block(first), _block(second)

    def apply(N: Any, x: Any, y: Any) -> Any:
        cond = N.library.lax.cond
        return cond(N.sum(y) > at, lambda x: yes(N, x, y), lambda x: no(N, x, y), x)

    return Step(_text(f"cond(sum > {at})", first, second), apply, (x, y))


def choice(x: int, y: int, bodies: Sequence[Sequence[Step]]) -> Step:
    """One of several bodies."""
    blocks = [_block(body) for body in bodies]

    def apply(N: Any, x: Any, y: Any) -> Any:
        branches = [lambda x, block=block: block(N, x, y) for block in blocks]
        return N.library.lax.switch(N.sum(N.floor(2 * y)).astype("int32"), branches, x)

    return Step(_text("switch", *bodies), apply, (x, y))


def repeat(x: int, y: int, length: int, body: Sequence[Step], reverse: bool, checkpoint: int | str | None) -> Step:
    """A scan that carries `x`, counts its steps, and adds its results up."""
    block = _block(body)

    def apply(N: Any, x: Any, y: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            n, c = carry
            c = block(N, c + 0.1 * row, y) * (0.5 + 0.125 * n.astype(c.dtype))
            return (n + 1, c), N.sin(c)

        options = {} if checkpoint is None or N.library.__name__ == "jax" else {"checkpoint": checkpoint}
        rows = N.stack([y] * length)
        (_, c), ys = N.library.lax.scan(step, (N.int32(0), x), rows, reverse=reverse, **options)
        return c + N.sum(ys, axis=0)

    pieces = "" if checkpoint is None else f", in pieces of {checkpoint}"
    return Step(_text(f"scan({length}{', reversed' if reverse else ''}{pieces})", body), apply, (x, y))


def loop(x: int, y: int, max_steps: int, body: Sequence[Step]) -> Step:
    """A loop that ends by what it has come to, or after so many steps."""
    block = _block(body)

    def apply(N: Any, x: Any, y: Any) -> Any:
        def goes(carry: Any) -> Any:
            return N.sum(carry[1] * carry[1]) < 5.0

        def step(carry: Any) -> Any:
            return carry[0] + 1, block(N, carry[1] * 1.5 + 0.3, y)

        n, c = N.bounded(goes, step, (N.int32(0), x), max_steps)
        return c + 0.25 * n.astype(c.dtype)

    return Step(_text(f"while(at most {max_steps})", body), apply, (x, y))


def wrapped(x: int, y: int, how: str, body: Sequence[Step]) -> Step:
    """A call of a body that changes nothing but what transformations do with it."""
    block = _block(body)

    def apply(N: Any, x: Any, y: Any) -> Any:
        if how in ("with_jvp", "with_vjp"):  # which may close over nothing that is differentiated
            return getattr(N, how)(lambda x: block(N, x, x))(x + y)
        return getattr(N.library, how)(lambda x: block(N, x, y))(x)

    return Step(_text(how, body), apply, (x, y))


WRAPPERS: Final = ("checkpoint", "jit", "with_jvp", "with_vjp")
KINDS: Final = ("cond", "switch", "scan", "while", "wrapped")

# ------------------------------------------------------------------ strategies


@st.composite
def bodies(draw: DrawFn, known: int, depth: int, max_steps: int) -> tuple[Step, ...]:
    """Steps on values of one shape, the first `known` of which are there; `depth` says how deep structures may nest."""
    made: list[Step] = []
    for i in range(draw(st.integers(1, max_steps))):
        # The last value is the result, so each step goes on from it.
        x = known + i - 1 if made else draw(st.integers(0, known - 1))
        y = draw(st.integers(0, known + i - 1))
        made.append(draw(_step(x, y, depth)))
    return tuple(made)


@st.composite
def _step(draw: DrawFn, x: int, y: int, depth: int) -> Step:
    kind = draw(st.sampled_from(("unary", "binary", *(KINDS * 2 if depth else ()))))
    if kind == "unary":
        return unary(draw(st.sampled_from(sorted(UNARY))), x)
    if kind == "binary":
        return binary(draw(st.sampled_from(sorted(BINARY))), x, y)
    body = bodies(2, depth - 1, 2)
    if kind == "cond":
        return branch(x, y, draw(st.sampled_from((-0.5, 0.0, 0.5))), draw(body), draw(body))
    if kind == "switch":
        return choice(x, y, [draw(body) for _ in range(3)])
    if kind == "scan":
        pieces = draw(st.sampled_from((None, None, 2, "binomial")))
        return repeat(x, y, draw(st.integers(1, 3)), draw(body), draw(st.booleans()), pieces)
    if kind == "while":
        return loop(x, y, draw(st.integers(1, 4)), draw(body))
    return wrapped(x, y, draw(st.sampled_from(WRAPPERS)), draw(body))


@st.composite
def structured(draw: DrawFn, max_steps: int = 3, max_layers: int = 3, depth: int = 2) -> Stacked:
    """Programs with structure under stacks, with numbers to run them on."""
    shape: Shape = draw(st.sampled_from(((), (2,), (3,), (2, 2))))
    count = draw(st.integers(1, 2))
    program = Program((shape,) * count, draw(bodies(count, depth, max_steps)))
    return Stacked(program, draw(stacks(count, max_layers)), draw(st.integers(0, 99)))

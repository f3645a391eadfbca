"""The pipeline of all optimization passes."""

from __future__ import annotations

from typing import Final

from tracefx.passes.cse import cse
from tracefx.passes.dce import dce
from tracefx.rewriting.closed_jaxprs import J, map_jaxpr
from tracefx.rewriting.constant_folding import fold_constants
from tracefx.rewriting.hoisting import hoist_loop_invariants
from tracefx.rewriting.inlining import inline
from tracefx.rewriting.simplification import simplify

_ROUNDS: Final = 8


def optimize(jaxpr: J, *, fast_math: bool = False) -> J:
    """Applies all passes: `inline`, `simplify`, `fold_constants`, `cse`, `hoist_loop_invariants` and `dce`.

    The passes are repeated, at most 8 times, until none changes anything. Evaluated operation by operation, the
    optimized program gives the same results bit for bit, unless `fast_math` is set.

    XLA performs most of these optimizations on compiled programs. They pay off before a program is differentiated,
    batched, printed or compared, and for programs that are evaluated operation by operation.

    Args:
        jaxpr: a `Jaxpr` or `ClosedJaxpr`.
        fast_math: whether to allow rules that hold for real numbers but not for floats (see `simplify`).

    Returns:
        The optimized program, of the same type as `jaxpr`; the same object if no pass changes anything.

    >>> import tracefx as fx
    >>> optimize(fx.make_jaxpr(fx.jit(lambda x: (x * (2.0 - 1.0), x + 0)))(1))
    { lambda ; a:i32[]*. let b:f32[]* = convert_element_type[new_dtype=float32 weak_type=True] a in (b, a) }
    """
    for _ in range(_ROUNDS):
        new = inline(jaxpr)
        new = simplify(new, fast_math=fast_math)
        new = fold_constants(new)
        new = map_jaxpr(new, cse)
        new = hoist_loop_invariants(new)
        new = map_jaxpr(new, dce)
        if new is jaxpr:
            break
        jaxpr = new
    return jaxpr

"""All passes in a row."""

from __future__ import annotations

from typing import Final

from tracefx.passes.dce import cse, dce
from tracefx.rewriting.closed_jaxprs import J, map_jaxpr
from tracefx.rewriting.constant_folding import fold_constants
from tracefx.rewriting.hoisting import hoist_loop_invariants
from tracefx.rewriting.inlining import inline
from tracefx.rewriting.simplification import simplify

_ROUNDS: Final = 8


def optimize(jaxpr: J, *, fast_math: bool = False) -> J:
    """The program after all passes: `inline`, `simplify`, `fold_constants`, `cse`, `hoist_loop_invariants`, `dce`.

    They are repeated, at most 8 times, until none finds anything to do. Evaluated operation by operation the results
    are the same bit for bit, unless `fast_math` allows rules that hold for real numbers alone (`simplify`).

    XLA does most of this for compiled programs. It pays before programs are differentiated, batched, printed or
    compared, and where they are evaluated operation by operation.

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

"""Static types of rewrite rules and passes."""

from __future__ import annotations

from typing import assert_type

import tracefx as fx
from tracefx.extend import Literal, Primitive
from tracefx.ops.elementwise.arithmetic import Mul, Neg
from tracefx.ops.structural import Transpose
from tracefx.rewriting import (
    Apply,
    InputTerm,
    JaxprDiff,
    RewriteRule,
    Term,
    canonicalize_jaxpr,
    diff_jaxprs,
    equivalent,
    fold_constants,
    hoist_loop_invariants,
    inline,
    optimize,
    rewrite,
    rule,
    simplify,
)


def negative(x: fx.Array) -> fx.Array:
    return -x


closed = fx.make_jaxpr(negative)(fx.numpy.float32(1))

# ------------------------------------------------------------------ rules


def rule_on_terms(term: Term) -> Term | None:
    match term:
        case Apply(Neg(), (Apply(Neg(), (x,)),)):
            assert_type(x, Apply | InputTerm | Literal)
            return x
        case Apply(Transpose(order), _):
            assert_type(order, tuple[int, ...])
            return None
        case _:
            return None


@rule(Mul)
def rule_returning_array(term: Apply) -> fx.Array | None:
    assert_type(term.prim, Primitive)
    x, y = term.operands
    return fx.lax.square(x) if x is y else None


@rule()
def rule_returning_several(term: Apply) -> list[fx.Array]:
    return list(term.outputs)


assert_type(rule_returning_array, RewriteRule)
rules = [RewriteRule("of terms", rule_on_terms, (Neg,)), rule_returning_array, rule_returning_several]


def invalid_calls() -> None:
    RewriteRule("gives text", lambda term: "x")  # type: ignore[arg-type,return-value]  # pyright: ignore[reportArgumentType]
    rule("neg")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rewrite(closed.jaxpr.eqns, rules)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    rewrite(closed, [rule_on_terms])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


# ------------------------------------------------------------------ passes return the type of program they get

assert_type(rewrite(closed, rules), fx.ClosedJaxpr)
assert_type(rewrite(closed.jaxpr, rules, limit=10), fx.Jaxpr)
assert_type(simplify(closed, fast_math=True), fx.ClosedJaxpr)
assert_type(simplify(closed.jaxpr), fx.Jaxpr)
assert_type(fold_constants(closed, max_size=3), fx.ClosedJaxpr)
assert_type(fold_constants(closed.jaxpr), fx.Jaxpr)
assert_type(inline(closed, max_eqns=3, checkpoints=True, custom_rules=True), fx.ClosedJaxpr)
assert_type(inline(closed.jaxpr), fx.Jaxpr)
assert_type(hoist_loop_invariants(closed), fx.ClosedJaxpr)
assert_type(hoist_loop_invariants(closed.jaxpr), fx.Jaxpr)
assert_type(optimize(closed), fx.ClosedJaxpr)
assert_type(optimize(closed.jaxpr), fx.Jaxpr)
assert_type(canonicalize_jaxpr(closed), fx.ClosedJaxpr)
assert_type(canonicalize_jaxpr(closed.jaxpr), fx.Jaxpr)

# ------------------------------------------------------------------ comparison

assert_type(diff_jaxprs(closed, closed.jaxpr), JaxprDiff)
assert_type(equivalent(closed, closed), bool)

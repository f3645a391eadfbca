"""Rewriting and comparing jaxprs: rewrite rules with typed patterns, optimization passes, equivalence and diffs.

>>> import tracefx as fx
>>> from tracefx.rewriting import Apply, rewrite, rule
>>> from tracefx.ops.elementwise.arithmetic import Neg
>>> @rule(Neg)
... def double_negation(term):
...     match term:
...         case Apply(Neg(), (Apply(Neg(), (x,)),)):
...             return x
...     return None
>>> rewrite(fx.make_jaxpr(lambda x: -(-x))(1.0), [double_negation])
{ lambda ; a:f32[]*. let in (a,) }
"""

from __future__ import annotations

from tracefx.passes.cse import cse as cse
from tracefx.passes.dce import dce as dce
from tracefx.passes.rebuilding import renumber as renumber
from tracefx.rewriting.constant_folding import fold_constants as fold_constants
from tracefx.rewriting.engine import rewrite as rewrite
from tracefx.rewriting.equivalence import canonicalize_jaxpr as canonicalize_jaxpr
from tracefx.rewriting.equivalence import equivalent as equivalent
from tracefx.rewriting.errors import RewriteError as RewriteError
from tracefx.rewriting.errors import RewriteLoopError as RewriteLoopError
from tracefx.rewriting.errors import RewriteTypeError as RewriteTypeError
from tracefx.rewriting.fast_math_rules import FAST_MATH_RULES as FAST_MATH_RULES
from tracefx.rewriting.hoisting import hoist_loop_invariants as hoist_loop_invariants
from tracefx.rewriting.inlining import inline as inline
from tracefx.rewriting.jaxpr_diff import Change as Change
from tracefx.rewriting.jaxpr_diff import ChangeKind as ChangeKind
from tracefx.rewriting.jaxpr_diff import JaxprDiff as JaxprDiff
from tracefx.rewriting.jaxpr_diff import diff_jaxprs as diff_jaxprs
from tracefx.rewriting.pass_pipeline import optimize as optimize
from tracefx.rewriting.rules import Replacement as Replacement
from tracefx.rewriting.rules import RewriteRule as RewriteRule
from tracefx.rewriting.rules import rule as rule
from tracefx.rewriting.simplification import EXACT_RULES as EXACT_RULES
from tracefx.rewriting.simplification import simplify as simplify
from tracefx.rewriting.terms import Apply as Apply
from tracefx.rewriting.terms import InputTerm as InputTerm
from tracefx.rewriting.terms import Term as Term

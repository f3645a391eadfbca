"""Programs rewritten and compared: rules with typed patterns, passes, differences.

>>> import tracefx as fx
>>> from tracefx.rewriting import Apply, rewrite, rule
>>> from tracefx.ops.arithmetic import Neg
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

from tracefx.core.passes import cse as cse
from tracefx.core.passes import dce as dce
from tracefx.core.passes import renumber as renumber
from tracefx.rewriting.difference import Change as Change
from tracefx.rewriting.difference import JaxprDiff as JaxprDiff
from tracefx.rewriting.difference import Kind as Kind
from tracefx.rewriting.difference import diff_jaxprs as diff_jaxprs
from tracefx.rewriting.engine import rewrite as rewrite
from tracefx.rewriting.equivalence import canonical as canonical
from tracefx.rewriting.equivalence import equivalent as equivalent
from tracefx.rewriting.errors import RewriteError as RewriteError
from tracefx.rewriting.errors import RewriteLoopError as RewriteLoopError
from tracefx.rewriting.errors import RewriteTypeError as RewriteTypeError
from tracefx.rewriting.fast_math import FAST_MATH as FAST_MATH
from tracefx.rewriting.folding import fold_constants as fold_constants
from tracefx.rewriting.hoisting import hoist_loop_invariants as hoist_loop_invariants
from tracefx.rewriting.inlining import inline as inline
from tracefx.rewriting.optimizing import optimize as optimize
from tracefx.rewriting.rules import Replacement as Replacement
from tracefx.rewriting.rules import Rule as Rule
from tracefx.rewriting.rules import rule as rule
from tracefx.rewriting.simplifying import EXACT as EXACT
from tracefx.rewriting.simplifying import simplify as simplify
from tracefx.rewriting.terms import Apply as Apply
from tracefx.rewriting.terms import Input as Input
from tracefx.rewriting.terms import Term as Term

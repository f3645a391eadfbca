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

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)

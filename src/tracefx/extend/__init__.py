"""The interface for user-defined primitives and handlers.

A primitive is a frozen class that inherits from `Primitive`, and from one capability per rule beyond `impl` and
`abstract_eval`: `Differentiable`, `Transposable`, `Batchable`, `Lowerable`; or from `Expandable`, which replaces all of
them. A handler inherits from `Interpreter` and has a method for each primitive that it handles, decorated with `rule`;
or it inherits from `Handler` and interprets all primitives in its method `bind`. Families of primitives, `Elementwise`,
`LinearOperation`, `Reduction`, ..., are base classes of the built-in primitives and of yours: they provide the rules
that their members share, and a handler can have one rule for all of them.

>>> class Cube(Primitive):
...     name = "cube"
...     def impl(self, *args):
...         return [args[0] ** 3]
>>> bind1(Cube(), 2.0)
Array(8., dtype=float32)
"""

from tracefx.lazy_stubs import attach as _attach

__getattr__, __dir__ = _attach(__name__)

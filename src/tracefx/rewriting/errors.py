"""Exceptions raised by the rewriting engine."""

from __future__ import annotations


class RewriteError(Exception):
    """Raised when a rewrite rule adds something that rules may not add: array constants or new effects.

    >>> import numpy as np
    >>> from tracefx import make_jaxpr, numpy as fnp
    >>> from tracefx.ops import Sin
    >>> from tracefx.rewriting import rewrite, rule
    >>> @rule(Sin)
    ... def constant_table(term):
    ...     return term.operands[0] * fnp.asarray(np.array([1.0, 4.0, 9.0]))
    >>> rewrite(make_jaxpr(fnp.sin)(np.ones(3, np.float32)), [constant_table])
    Traceback (most recent call last):
        ...
    tracefx.rewriting.errors.RewriteError: an array of type f32[3] is an operand of mul, ...
    """


class RewriteTypeError(RewriteError, TypeError):
    """Raised when a rule returns a value of another shape or dtype, or another number of values, than it replaces.

    >>> from tracefx import make_jaxpr, numpy as fnp
    >>> from tracefx.ops import Sin
    >>> from tracefx.rewriting import rewrite, rule
    >>> @rule(Sin)
    ... def to_integer(term):
    ...     return fnp.int32(0)
    >>> rewrite(make_jaxpr(fnp.sin)(1.0), [to_integer])
    Traceback (most recent call last):
        ...
    tracefx.rewriting.errors.RewriteTypeError: the rule 'to_integer' changes the type of sin(a:f32[]*) from ...
    """


class RewriteLoopError(RewriteError, RuntimeError):
    """Raised when rewriting does not terminate: rules undo each other, or keep creating terms that they match.

    >>> from tracefx import make_jaxpr, numpy as fnp
    >>> from tracefx.ops import Cos, Sin
    >>> from tracefx.rewriting import rewrite, rule
    >>> @rule(Sin)
    ... def to_cos(term):
    ...     return fnp.cos(term.operands[0])
    >>> @rule(Cos)
    ... def to_sin(term):
    ...     return fnp.sin(term.operands[0])
    >>> rewrite(make_jaxpr(fnp.sin)(1.0), [to_cos, to_sin])
    Traceback (most recent call last):
        ...
    tracefx.rewriting.errors.RewriteLoopError: the rules 'to_cos', 'to_sin' would go on forever: ...
    """

"""The exceptions that tracefx raises. Each subclasses the built-in exception that NumPy or JAX users would catch.

Those of handlers and of rewriting can also be imported from `tracefx.handlers` and `tracefx.rewriting`. The exceptions
that checks of laws raise are those of `tracefx.testing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override


class ConcretizationError(TypeError):
    """A concrete value is required, but the value is traced, so only its shape and dtype are known.

    Under `jit`, and in the functions of `scan`, `cond` and other control flow, Python code runs once, for all values of
    the arguments. Compute with functions of `tracefx.numpy` and `tracefx.lax` instead, or mark the argument as static.

    Args:
        message: The message.
        detail: The part of the message about the tracer, a sentence without a capital, for callers with other messages.

    >>> from tracefx import jit
    >>> jit(lambda x: float(x) + 1.0)(2.0)
    Traceback (most recent call last):
        ...
    tracefx.errors.ConcretizationError: `float()` needs a concrete value, ...
    """

    use: ClassVar[str] = "this function"
    """What needs the concrete value, unless the caller says it."""
    advice: ClassVar[str] = "To convert the dtype, use x.astype; to print the value, tracefx.debug.print."

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class TracerBoolConversionError(ConcretizationError):
    """A tracer is converted to a bool, as in `if x > 0:` inside a jitted function.

    `tracefx.numpy.where` selects between arrays, and `tracefx.lax.cond` between functions.

    >>> from tracefx import jit
    >>> jit(lambda x: x if x > 0 else -x)(2.0)
    Traceback (most recent call last):
        ...
    tracefx.errors.TracerBoolConversionError: `bool()`, which `if`, ... call, needs a concrete value, ...
    """

    use = "`bool()`, which `if`, `while`, `and`, `or` and `not` call,"
    advice = (
        "Instead of `if`, use tracefx.numpy.where or tracefx.lax.cond; instead of `while`, tracefx.lax.while_loop; "
        "instead of `and`, `or` and `not`, the operators `&`, `|` and `~`, as in `(x > 0) & (x < 3)`."
    )


class TracerIntegerConversionError(ConcretizationError):
    """A tracer is converted to a Python integer, as in `range(x)` inside a jitted function.

    Shapes, and the lengths of Python loops, must be known when a program is traced. For a loop of traced length there
    is `tracefx.lax.fori_loop`.

    >>> from tracefx import jit
    >>> jit(lambda n: sum(i * i for i in range(n)))(3)
    Traceback (most recent call last):
        ...
    tracefx.errors.TracerIntegerConversionError: a Python integer, ... needs a concrete value, ...
    """

    use = "a Python integer, as in `range(n)` or `list[n]`,"
    advice = (
        "Instead of `for i in range(n)`, use tracefx.lax.fori_loop; before indexing a list or a NumPy array, convert "
        "it with tracefx.numpy.asarray; to convert the dtype, use x.astype."
    )


class TracerArrayConversionError(ConcretizationError):
    """A tracer is converted to a NumPy array, which requires its elements.

    The functions of NumPy compute with concrete arrays; those of `tracefx.numpy` with tracers, too. `pure_callback`
    calls NumPy when a compiled program runs.

    >>> import numpy as np
    >>> from tracefx import jit
    >>> jit(np.asarray)(2.0)
    Traceback (most recent call last):
        ...
    tracefx.errors.TracerArrayConversionError: a NumPy array needs a concrete value, ...
    """

    use = "a NumPy array"
    advice = "Use the functions of tracefx.numpy; before indexing a NumPy array, convert it with tracefx.numpy.asarray."


class EscapedTracerError(TypeError):
    """A tracer is used after or outside the transformation that created it.

    Return values from transformed functions instead of storing them in variables, attributes or containers outside.

    >>> from tracefx import jit
    >>> stored = []
    >>> y = jit(lambda x: stored.append(x) or 2.0 * x)(1.0)
    >>> stored[0] + 1.0
    Traceback (most recent call last):
        ...
    tracefx.errors.EscapedTracerError: escaped tracer: StageTracer(f32[]) was made by jit, ...
    """


class ExecutionError(RuntimeError):
    """A compiled program fails or cannot be run; the message has its name and XLA's text."""


class DeletedArrayError(ExecutionError, ValueError):
    """An array is read after its deletion or donation. JAX raises RuntimeError or ValueError, depending on the use.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import jit
    >>> x = fnp.ones(3)
    >>> y = jit(lambda x: 2.0 * x, donate_argnums=0)(x)
    >>> print(x)
    Traceback (most recent call last):
        ...
    tracefx.errors.DeletedArrayError: an array of type f32[3] is used after it was donated as the ...
    """


class PlatformError(RuntimeError):
    """A platform has no devices, or its plug-in fails to load.

    >>> from tracefx import devices
    >>> devices("abacus")
    Traceback (most recent call last):
        ...
    tracefx.errors.PlatformError: there are no devices of platform 'abacus', ...
    """


class UnsupportedJaxlibError(ImportError):
    """The installed jaxlib is missing, incomplete, or of an unsupported version."""


class MissingRuleError(NotImplementedError):
    """A handler needs a rule that a primitive does not define.

    >>> from tracefx import jit
    >>> from tracefx.extend import Primitive, bind1
    >>> class Cube(Primitive):
    ...     name = "cube"
    ...     def impl(self, x):
    ...         return [x**3]
    >>> jit(lambda x: bind1(Cube(), x))(2.0)
    Traceback (most recent call last):
        ...
    tracefx.errors.MissingRuleError: primitive 'cube' has no abstract_eval rule: in class Cube, ...
    """


class JaxprTypeError(TypeError):
    """A jaxpr is not well formed; see `check_jaxpr`.

    >>> from attrs import evolve
    >>> from tracefx import check_jaxpr, make_jaxpr
    >>> jaxpr = make_jaxpr(lambda x: 2.0 * x)(1.0).jaxpr
    >>> check_jaxpr(evolve(jaxpr, eqns=()))
    Traceback (most recent call last):
        ...
    tracefx.errors.JaxprTypeError: output 0: variable b is used here but bound nowhere before
    """


class ParseError(ValueError):
    """Text or bytes cannot be parsed as a program.

    >>> from tracefx import parse_jaxpr
    >>> parse_jaxpr("{ lambda ; a:f32[]. let in (b,) }")
    Traceback (most recent call last):
        ...
    tracefx.errors.ParseError: line 1, column 29: variable 'b' is bound nowhere before
    ...
    """


class ShardingTypeError(TypeError, ValueError):
    """The shardings in the types of operands do not determine that of a result, or contradict each other.

    >>> from tracefx import numpy, ops
    >>> from tracefx.core.meshes import AbstractMesh, AxisType
    >>> from tracefx.core.named_sharding import type_sharding
    >>> mesh = AbstractMesh((2,), "x", AxisType.Explicit)
    >>> x = numpy.ones((4, 4)).aval.with_explicit_sharding(type_sharding(mesh, ("x",), 2))
    >>> ops.CumSum(0, False).sharding_rule([x], [x])
    Traceback (most recent call last):
    ...
    tracefx.errors.ShardingTypeError: cumsum takes an operand that is not sharded along axis 0, got f32[4@x,4]: ...
    """


class SerializationError(TypeError):
    """A program contains something that cannot be serialized, e.g. a function.

    >>> from tracefx import debug, make_jaxpr
    >>> from tracefx.programs import serialize
    >>> serialize(make_jaxpr(lambda x: debug.print("{}", x))(1.0))
    Traceback (most recent call last):
        ...
    tracefx.errors.SerializationError: equation 0 of 1 ...
    """


class HandlerStateError(RuntimeError):
    """A `with handling(...)` block is entered twice or left out of order, or an `Interpreter` does not run.

    >>> from tracefx import current, handling
    >>> from tracefx.testing import IdentityHandler
    >>> block = handling(IdentityHandler(current()))
    >>> with block:
    ...     with block:
    ...         pass
    Traceback (most recent call last):
        ...
    tracefx.errors.HandlerStateError: the `with` block of identity has been entered already; ...
    """


class TypePromotionError(TypeError, ValueError):
    """Operands have no common dtype. JAX's error of this name is a ValueError.

    >>> import tracefx.numpy as fnp
    >>> fnp.add(fnp.ones(2), fnp.array([0.5, 0.5], "float8_e4m3fn"))
    Traceback (most recent call last):
        ...
    tracefx.errors.TypePromotionError: float32 and float8_e4m3fn have no dtype in common ...
    """


class RefError(ValueError, TypeError):
    """A mutable reference is used where it is not valid: after `freeze`, twice as an argument, as a result.

    >>> import tracefx as fx
    >>> ref = fx.new_ref(1.0)
    >>> x = fx.freeze(ref)
    >>> ref[...]
    Traceback (most recent call last):
        ...
    tracefx.errors.RefError: the reference Ref{f32[]} made at ... is used after freeze: ...
    """


class ClosedOverTracerError(EscapedTracerError):
    """A function with a custom rule closes over a tracer that must be an explicit argument for the rule.

    >>> from tracefx import custom_jvp, grad
    >>> def f(x):
    ...     scaled = custom_jvp(lambda y: x * y)
    ...     scaled.defjvp(lambda primals, tangents: (scaled(*primals), x * tangents[0]))
    ...     return scaled(x)
    >>> grad(f)(2.0)
    Traceback (most recent call last):
        ...
    tracefx.errors.ClosedOverTracerError: <lambda>, or a rule of it, ...
    """


class TangentError(TypeError, ValueError):
    """Tangents or cotangents differ from the primals or outputs in structure, shape or dtype. JAX raises either.

    >>> from tracefx import vjp
    >>> y, pull = vjp(lambda x: x * x, 3.0)
    >>> pull((1.0, 1.0))
    Traceback (most recent call last):
        ...
    tracefx.errors.TangentError: the function of vjp: the cotangent must have the structure of the output. ...
    """


class NotLinearError(TypeError):
    """A function that is to be transposed is not linear.

    `linear_transpose` transposes functions, and so does forward mode with the backward rule of a `custom_vjp` function.

    >>> from tracefx import linear_transpose
    >>> linear_transpose(lambda x: x * x, 1.0)(1.0)
    Traceback (most recent call last):
        ...
    tracefx.errors.NotLinearError: the transposed function is not linear in its inputs: ...
    >>> import tracefx.numpy as fnp
    >>> from tracefx import custom_vjp, jvp
    >>> clipped = custom_vjp(lambda x: x)
    >>> clipped.defvjp(lambda x: (x, None), lambda res, ct: (fnp.clip(ct, -1.0, 1.0),))
    >>> jvp(clipped, (1.0,), (1.0,))
    Traceback (most recent call last):
        ...
    tracefx.errors.NotLinearError: forward-mode differentiation of <lambda> transposes its backward pass, which ...
    """


class AxisError(ValueError, IndexError, TypeError):
    """An axis is out of bounds or named twice. JAX raises any of these three errors, depending on the function.

    >>> import tracefx.numpy as fnp
    >>> fnp.sum(fnp.ones(3), axis=1)
    Traceback (most recent call last):
        ...
    tracefx.errors.AxisError: ...
    """


class ShapeError(ValueError, TypeError):
    """A shape is invalid, or shapes don't match. JAX raises either of these errors, depending on the function.

    >>> import tracefx.numpy as fnp
    >>> fnp.linalg.inv(fnp.ones((2, 3)))
    Traceback (most recent call last):
        ...
    tracefx.errors.ShapeError: inv takes square matrices, got f32[2,3]
    """


class BroadcastError(TypeError, ValueError):
    """The shapes of operands do not broadcast together. JAX raises either of these errors, NumPy a ValueError.

    >>> import tracefx.numpy as fnp
    >>> fnp.ones(2) + fnp.ones(3)
    Traceback (most recent call last):
        ...
    tracefx.errors.BroadcastError: ...
    """


class SparseEfficiencyError(ValueError):
    """A layout of a sparse array would store many zeros.

    >>> import tracefx.numpy as fnp
    >>> from tracefx import sparse
    >>> sparse.BCOO.fromdense(fnp.eye(2)).update_layout(n_dense=1)
    Traceback (most recent call last):
        ...
    tracefx.errors.SparseEfficiencyError: update_layout: a larger n_dense stores all zeros along axes of ...
    """


class MaskIndexError(ConcretizationError, IndexError):
    """A traced mask is used as an index: the result's shape would depend on its values.

    >>> from tracefx import jit
    >>> import tracefx.numpy as fnp
    >>> jit(lambda x: x[x > 0])(fnp.ones(3))
    Traceback (most recent call last):
        ...
    tracefx.errors.MaskIndexError: a mask as an index needs a concrete value, ...
    """

    use = "a mask as an index"
    advice = (
        "The number of selected elements would be the shape of the result, which must be known: choose between values "
        "by tracefx.numpy.where(mask, x, y), or give the number, as in x[tracefx.numpy.nonzero(mask, size=n)]."
    )


class SliceIndexError(ConcretizationError, IndexError):
    """The bounds of a slice are traced: the result's shape would depend on their values.

    >>> from tracefx import jit
    >>> import tracefx.numpy as fnp
    >>> jit(lambda x, n: x[:n])(fnp.ones(3), 2)
    Traceback (most recent call last):
        ...
    tracefx.errors.SliceIndexError: ...
    """


class TracedMaskError(ValueError, IndexError):
    """The values do not fit the elements that a traced mask selects. JAX raises IndexError.

    >>> from tracefx import jit
    >>> import tracefx.numpy as fnp
    >>> jit(lambda x: x.at[x > 0].set(fnp.ones(2)))(fnp.ones(3))
    Traceback (most recent call last):
        ...
    tracefx.errors.TracedMaskError: ...
    """


class MemoryBudgetError(ValueError):
    """No choice of checkpoints brings the backward pass of a function within its memory budget.

    >>> import tracefx as fx
    >>> fx.checkpoint(fx.numpy.sin, memory="1kB")(fx.numpy.ones(1000))
    Traceback (most recent call last):
        ...
    tracefx.errors.MemoryBudgetError: checkpoint of sin...: its backward pass does not fit memory=1000 bytes. ...
    """


class CheckError(ValueError):
    """A check failed: a `check` of the user or one that `checkify` added.

    >>> from tracefx.handlers import check, checkify
    >>> error, _ = checkify(lambda x: check(x > 0, "x must be positive, got {}", x))(-1.0)
    >>> error.throw()
    Traceback (most recent call last):
        ...
    tracefx.errors.CheckError: x must be positive, got -1.0, ...
    """


class KeyReuseError(ValueError):
    """A random key was used a second time, so its random numbers are not independent of the first use.

    >>> from tracefx import random
    >>> from tracefx.handlers import check_key_reuse
    >>> key = random.key(0)
    >>> check_key_reuse(lambda key: random.normal(key) + random.uniform(key))(key)
    Traceback (most recent call last):
        ...
    tracefx.errors.KeyReuseError: the random key [0, 0] is reused: ...
    """


class UnseededError(ValueError):
    """A random value was needed where no handler provides random numbers or a value.

    >>> from tracefx.handlers import Normal, sample
    >>> sample("x", Normal(0.0, 1.0))
    Traceback (most recent call last):
        ...
    tracefx.errors.UnseededError: sample of 'x' at ...
    """


class UnitError(TypeError):
    """The units of quantities do not fit an operation.

    >>> from tracefx.handlers import Quantity, with_units
    >>> from tracefx.handlers.units import m, s
    >>> with_units(lambda x, y: x + y)(Quantity(2.0, m), Quantity(3.0, s))
    Traceback (most recent call last):
        ...
    tracefx.errors.UnitError: add of m and s at ...: their dimensions differ
    """


class RewriteError(Exception):
    """A rewrite rule adds something that rules may not add: array constants or new effects.

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
    tracefx.errors.RewriteError: an array of type f32[3] is an operand of mul, ...
    """


class RewriteTypeError(RewriteError, TypeError):
    """A rewrite rule returns a value of another shape or dtype, or another number of values, than it replaces.

    >>> from tracefx import make_jaxpr, numpy as fnp
    >>> from tracefx.ops import Sin
    >>> from tracefx.rewriting import rewrite, rule
    >>> @rule(Sin)
    ... def to_integer(term):
    ...     return fnp.int32(0)
    >>> rewrite(make_jaxpr(fnp.sin)(1.0), [to_integer])
    Traceback (most recent call last):
        ...
    tracefx.errors.RewriteTypeError: the rule 'to_integer' changes the type of sin(a:f32[]*) from ...
    """


class RewriteLoopError(RewriteError, RuntimeError):
    """Rewriting does not terminate: rules undo each other, or keep creating terms that they match.

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
    tracefx.errors.RewriteLoopError: the rules 'to_cos', 'to_sin' would go on forever: ...
    """


class CompilationError(RuntimeError):
    """XLA rejects a program; the message is XLA's."""


class DonationError(ExecutionError, ValueError):
    """A donated array is also another argument of the same call."""


class DistributedError(RuntimeError):
    """Processes of a group do not find each other, or do not all reach the same point."""


class DeviceMismatchError(ValueError):
    """Raised for a program whose inputs and outputs are on different sets of devices.

    Args:
        program: The name of the program.
        parts: Two parts of the program, an input by its index or anything else by its name, each with its devices.
        names: The names of the inputs. Empty by default: inputs are then called by their indices.
    """

    def __init__(
        self, program: str, parts: tuple[tuple[int | str, str], tuple[int | str, str]], names: Sequence[str] = ()
    ) -> None:
        self.program = program
        self.parts = parts
        shown = [
            f"{part if isinstance(part, str) else names[part] if names else f'input {part}'} {where}"
            for part, where in parts
        ]
        super().__init__(
            f"{program} can't run: {shown[0]}, but {shown[1]}. A program runs on one set of devices: move arrays with "
            "device_put"
        )

    def with_names(self, names: Sequence[str]) -> DeviceMismatchError:
        """Returns the error with names of the inputs.

        Args:
            names: The names, such as "the argument `x`".

        Returns:
            The error.
        """
        return DeviceMismatchError(self.program, self.parts, names)

    @override
    def __reduce__(self) -> tuple[type[DeviceMismatchError], tuple[object, ...]]:
        return DeviceMismatchError, (self.program, self.parts)


class UnsortableKeysError(ValueError, TypeError):
    """The keys of a dict in a pytree cannot be compared with each other, so its leaves have no order.

    >>> from tracefx import tree
    >>> tree.leaves({1: "a", "b": "c"})
    Traceback (most recent call last):
        ...
    tracefx.errors.UnsortableKeysError: the keys of the dict cannot be sorted: ...
    """


class InconclusiveDimensionOperation(TypeError):  # the name in JAX
    """The result of an operation on symbolic dimensions depends on their sizes, or cannot be decided.

    For example, `b >= 3` holds for some sizes of `b` only. A constraint, as in
    `symbolic_shape("b", constraints=("b >= 3",))`, or `max_dim` can help.

    >>> from tracefx import symbolic_shape
    >>> b, = symbolic_shape("b")
    >>> b >= 3
    Traceback (most recent call last):
        ...
    tracefx.errors.InconclusiveDimensionOperation: the comparison b >= 3 of symbolic dimensions is inconclusive: ...
    """

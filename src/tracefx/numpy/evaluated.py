"""Functions that NumPy has and XLA takes many operations for: of numbers that are there, they are NumPy's.

`by_numpy` is for whole functions; what they check, promote and ask for then takes place once for each kind of
arguments. `numpys` is for a step of a function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import numpy as np
from typing_extensions import ParamSpec

from tracefx.core import dtypes
from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray, intern_aval
from tracefx.core.dtypes import DType, NDArray, is_key
from tracefx.core.handler import evaluating
from tracefx.core.kernel_context import call_kernel
from tracefx.core.literal import Literal
from tracefx.core.values import ConcreteArray, Value
from tracefx.numpy.operand_promotion import RANK, python_scalar_type
from tracefx.transforms.evaluations import Kerneled, Kind, Number, Plans, Several, evaluated_by_kernels, staged
from tracefx.transforms.replaying import LARGEST, replay
from tracefx.transforms.replaying import Kernel as Kernel

P = ParamSpec("P")
R = TypeVar("R")

FLOATS: Final = frozenset({dtypes.float32, dtypes.float64})
INTEGERS: Final = frozenset(
    {
        *(dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
        *(dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    }
)
NUMBERS: Final = FLOATS | INTEGERS
ALL: Final = NUMBERS | {dtypes.bool_}


def numpys(
    kernel: Callable[..., Any], *values: Value, among: frozenset[DType] = FLOATS, weak: bool | None = None
) -> Array | None:
    """`kernel` of the numbers of values; None where they are traced, or one is not of these dtypes. The result has the
    weak type of the first value, unless `weak` says.

    The kernel gives what the compiled operations do, which is why dtypes are let in by name: NumPy has no fast
    functions for others, or rounds differently.
    """
    found = _called(kernel, values, among)
    return None if found is None else _array(found, values[0].aval.weak_type if weak is None else weak)


def numpys_pair(kernel: Callable[..., Any], *values: Value) -> tuple[Array, Array] | None:
    """`numpys` of a function with two results, of which the first has the weak type of the first value."""
    found = _called(kernel, values, FLOATS)
    return None if found is None else (_array(found[0], values[0].aval.weak_type), _array(found[1], False))


def _called(kernel: Callable[..., Any], values: tuple[Value, ...], among: frozenset[DType]) -> Any:
    if not evaluating():
        return None
    for v in values:
        if (type(v) is not ConcreteArray and type(v) is not Literal) or v.aval.dtype not in among:
            return None
    if len(values) == 1:  # written out, as every call counts
        return call_kernel(kernel, values[0].numpy())  # type: ignore[union-attr]  # found to have numbers above
    return call_kernel(kernel, *[v.numpy() for v in values])  # type: ignore[union-attr]  # as above


def _array(x: Any, weak: bool) -> ConcreteArray:
    numbers: NDArray = x if type(x) is np.ndarray else np.asarray(x)
    return ConcreteArray(_type(numbers.shape, numbers.dtype, weak), numbers)


_type: Final = functools.lru_cache(maxsize=4096)(ShapedArray)  # finding a type takes half as long as making it


# ------------------------------------------------------------------ whole functions


def by_numpy(
    kernel: Callable[..., Kernel | None] | None = None,
    *,
    arrays: int = 1,
    among: frozenset[DType] = FLOATS,
    mixed: bool = False,
    numbers: bool = False,
    replays: bool = True,
    patient: bool = True,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function whose first `arrays` arguments are arrays, or sequences of some: of arrays that are there it
    gives what its operations give, which are looked for once for each kind of arguments.

    Of arrays of the dtypes `among`, it gives what `kernel` says. That is called with what is known of the arguments
    that are not as they would be if left out: types in place of arrays, `Several` types in place of sequences, and
    `Number`s in place of Python's numbers, if it takes `numbers` in place of arrays. It gives a function of NumPy's
    arrays, or None. The types of the results are those of the function, so what the kernel gives has their dtypes and
    shapes. Unless `mixed`, it knows only arrays of one dtype, and no number that would widen it.

    Where there is no kernel, the function's operations are replayed, unless it has a way of its own for numbers. A kind
    of arguments that is met for the first time is left to the function: many are met once. That is `patient`, which
    only kernels can be that compute to the last bit what the function does.

    Nothing that the function refuses may depend on the numbers.
    """

    def decorated(f: Callable[P, R]) -> Callable[P, R]:
        def plan(*kinds: Kind, **options: Any) -> Kerneled | None:
            operands = _operands(kinds)
            if options.get("device") is not None:  # which traced programs have none of
                return None
            if sum([x.size for x in operands if isinstance(x, ShapedArray)]) > LARGEST:
                return None
            try:
                jaxpr, consts, together = staged(f, kinds, options)
            except Exception:  # the function itself raises it again, in the words it has for numbers
                return None
            avals = [intern_aval(aval) for aval in jaxpr.out_avals]
            chosen = None
            if kernel is not None and _fit(operands, among, mixed):
                bound = _without_defaults(inspect.signature(f), kinds, options)
                chosen = kernel(*bound.args, **bound.kwargs)
                if chosen is not None and not _gives(chosen, operands, avals):
                    chosen = None
            if chosen is None and replays and not any(isinstance(x, Number) or is_key(x.dtype) for x in operands):
                chosen = replay(jaxpr, consts)
            return None if chosen is None or not avals else (chosen, avals[0], _several(avals, together))

        return evaluated_by_kernels(f, Plans(plan, arrays, numbers=numbers, patient=patient))

    return decorated


def _without_defaults(
    signature: inspect.Signature, kinds: tuple[Kind, ...], options: dict[str, Any]
) -> inspect.BoundArguments:
    """The arguments that say more than leaving them out would."""
    bound = signature.bind(*kinds, **options)
    for name, given in [*bound.arguments.items()]:
        default = signature.parameters[name].default
        if type(given) is type(default) and given == default:
            del bound.arguments[name]
    return bound


def always(kernel: Kernel) -> Callable[..., Kernel]:
    """For `by_numpy`: the same kernel for all arguments."""
    return lambda *_, **__: kernel


def _operands(kinds: tuple[Kind, ...]) -> list[ShapedArray | Number]:
    found: list[ShapedArray | Number] = []
    for kind in kinds:
        found += [kind] if isinstance(kind, ShapedArray | Number) else kind if isinstance(kind, Several) else ()
    return found


def _fit(operands: list[ShapedArray | Number], among: frozenset[DType], mixed: bool) -> bool:
    """Whether the dtypes are such as NumPy treats as we do."""
    own = {x.dtype for x in operands if isinstance(x, ShapedArray)}
    if not own <= among or (len(own) > 1 and not mixed):
        return False
    numbers = [RANK[x.kind] for x in operands if isinstance(x, Number)]
    return mixed or not numbers or (bool(own) and max(numbers) <= min([RANK[python_scalar_type(d)] for d in own]))


def _gives(kernel: Kernel, operands: list[ShapedArray | Number], avals: list[ShapedArray]) -> bool:
    """Whether the kernel gives arrays of these types."""
    zeros = [np.zeros(x.shape, x.dtype) if isinstance(x, ShapedArray) else x.kind(1) for x in operands]
    found = call_kernel(kernel, *zeros)
    results = list(map(np.asarray, found if type(found) is tuple else (found,)))
    return [(r.shape, r.dtype) for r in results] == [(a.shape, a.dtype) for a in avals]


def _several(avals: list[ShapedArray], together: Callable[[Iterable[Any]], Any] | None) -> Callable[[Any], Any] | None:
    """What makes the result of NumPy's arrays, where it is not one array."""
    if together is None:
        return None
    if len(avals) == 1:
        return lambda out: together([ConcreteArray(avals[0], np.asarray(out))])
    return lambda outs: together([ConcreteArray(a, np.asarray(x)) for a, x in zip(avals, outs, strict=True)])

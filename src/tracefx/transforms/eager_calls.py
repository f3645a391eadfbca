"""The fast path of eager calls: functions whose calls on concrete arrays are planned once per cache key.

A plan runs, in this order of preference,

1. a compiled program, for functions that XLA fuses to fewer passes over large arrays, if an array is large,
2. a handwritten NumPy kernel of the function,
3. the NumPy kernels of the primitives that the function binds, if these are few and the arrays are small,
4. a compiled program, for functions that are worth compiling.

The function is traced to make a plan, so its checks, its type promotion and the types of its results are those of the
trace. Calls without a plan, and calls under a transformation, run the function itself.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, NoneType
from typing import Any, Final, TypeAlias, TypeVar, final, overload
from typing import Literal as Exactly

import numpy as np
from attrs import frozen
from typing_extensions import ParamSpec, TypeIs

from tracefx.bounded_cache import memoize
from tracefx.core import Array, ConcreteArray, DType, Literal, Scalar, ShapedArray, Value, dtypes, from_numpy, get_aval
from tracefx.core.avals import intern_aval
from tracefx.core.backend import BACKEND
from tracefx.core.device import DEFAULT_DEVICE, Buffer
from tracefx.core.eager_cache import CacheKey, Plan
from tracefx.core.handler import CURRENT, ROOT, handling
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.kernel_context import KERNEL_CONTEXT, call_kernel, retry_reentrant
from tracefx.core.sharding import Sharding, single_device_sharding
from tracefx.filtered_tracebacks import filter_traceback
from tracefx.interpreters.stage import stage
from tracefx.ops.promotion import promote
from tracefx.pytrees import trees
from tracefx.settings import DISABLE_JIT, NUMERIC_OPTIONS, SETTINGS, X64
from tracefx.shardings.sharded_array import ShardedArray, without_placement
from tracefx.source_location import SOURCE
from tracefx.transforms.arguments import flatten_values, fun_name, output_label, to_arrays
from tracefx.transforms.jit import jit
from tracefx.transforms.kernel_replay import Kernel, converted_dtype, replay_kernels

P = ParamSpec("P")
R = TypeVar("R")

# Measured on a CPU, with the overhead of calls: a step of a replay takes 0.4 µs, on 1 << 16 elements 20 µs; a compiled
# program 6 µs; a function without a plan 3 µs for each primitive that it binds.
MAX_REPLAY_STEPS: Final = 40
"""The largest number of kernels in a replay. Longer programs run as the function itself."""
MAX_REPLAY_SIZE: Final = 1 << 16
"""The largest number of elements of an array in a replay. Larger ones spend their time in the kernels."""
MAX_STEPS_BEFORE_COMPILING: Final = 12
"""Functions that are worth compiling are compiled if a replay would take more kernels than this,"""
MAX_SIZE_BEFORE_COMPILING: Final = 1 << 12
"""or if it would have arrays with more elements than this."""

Fusion: TypeAlias = Exactly["at the first call", "at the second call"]
"""When calls with large arrays are compiled."""

_ONES: Final[Mapping[type, Scalar]] = MappingProxyType({kind: kind(1) for kind in (bool, int, float, complex)})
_STATIC: Final = frozenset({NoneType, bool, int, str, type})


@final
class _Sequence(tuple[ShapedArray, ...]):
    """The types of a sequence of arrays that is one argument."""


@final
@frozen
class NumpyKernel:
    """A handwritten NumPy kernel of a function: it computes what the function's primitives compute.

    Args:
        build: Takes the arguments of a call, defaults included, with types in place of arrays and numbers. Returns a
            function of all these as NumPy arrays, or None if there is none for the other arguments.
        dtypes: The dtypes of arrays for which there is a kernel.
        mixed: Whether arrays may have different dtypes, and numbers be of any kind. Otherwise arrays have one dtype,
            to which the numbers are converted.
    """

    build: Callable[..., Kernel | None]
    dtypes: frozenset[DType]
    mixed: bool = False

    def accepts(self, types: _ArgumentTypes) -> bool:
        """Whether the kernel takes operands of these types."""
        own = {aval.dtype for i, aval in enumerate(types.avals) if i not in types.numbers}
        if not own or not own <= self.dtypes:
            return False
        return self.mixed or (len(own) == 1 and promote([(a.dtype, a.weak_type) for a in types.avals])[0] in own)

    def of_call(self, f: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> Kernel | None:
        """Returns the kernel for a call of `f` with types in place of arrays and numbers; None if there is none."""
        bound = inspect.signature(f).bind(*args, **kwargs)
        bound.apply_defaults()
        return self.build(*bound.args, **bound.kwargs)


@overload
def eager_cached(f: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def eager_cached(
    *, numbers: int = 0, compiled: bool = False, fused: Fusion | None = None, kernel: NumpyKernel | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def eager_cached(
    f: Callable[..., Any] | None = None,
    /,
    *,
    numbers: int = 0,
    compiled: bool = False,
    fused: Fusion | None = None,
    kernel: NumpyKernel | None = None,
) -> Callable[..., Any]:
    """Decorates a function so that its calls on concrete arrays run by a cached plan.

    The arrays of a call are its positional arguments that are concrete arrays, NumPy arrays, or sequences of concrete
    arrays. The plan depends on their types, and on all other arguments, which must be hashable. What the function
    returns, and whether it raises, must not depend on the elements otherwise than by the primitives that it binds.

    Args:
        f: The function.
        numbers: How many of the first arrays may be Python numbers. Such numbers are operands too: the plan does not
            depend on their values, and the function is traced with weakly typed scalars in their place. Other Python
            numbers are part of the cache key.
        compiled: Whether the function is worth compiling, since it binds many primitives or slow ones.
        fused: Whether calls with arrays of more than `MAX_REPLAY_SIZE` elements run as a compiled program, since XLA
            fuses what the function binds to fewer passes over memory. It is compiled at the first call with a cache
            key if its results may differ from those of the primitives in the last bits, otherwise at the second.
        kernel: A handwritten NumPy kernel.

    >>> from tracefx import numpy as fnp
    >>> @eager_cached
    ... def center(x):
    ...     return x - fnp.mean(x)
    >>> x = fnp.array([1.0, 3.0])
    >>> center(x), center(x)  # the first call runs the function, the second one the plan
    (Array([-1.,  1.], dtype=float32), Array([-1.,  1.], dtype=float32))
    """
    if f is None:
        return functools.partial(eager_cached, numbers=numbers, compiled=compiled, fused=fused, kernel=kernel)
    planner, compiles = _Planner(f, numbers, compiled, fused, kernel), compiled or fused is not None
    without_plan = _compile_fallback(f) if compiled else f

    def elsewhere(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function with arrays that are traced, sharded or committed, or with arguments of unknown types."""
        if any(type(a) is ShardedArray for a in args) and BACKEND.value.default_device_is_host:
            sharding = single_device_sharding(BACKEND.value.default_device)
            placed = without_placement(args, sharding)
            if placed is not None:
                operands, committed = placed
                return _place(call(*operands, **kwargs), sharding, committed)
        return without_plan(*args, **kwargs)

    # A call reads these as closure variables, which are faster than globals and attributes.
    get_plan, make_plan = ROOT.eager_cache.get, planner.find_or_make
    get_recent, remember = ROOT.eager_cache.get_recent, ROOT.eager_cache.remember
    current, settings, x64, options, disable_jit = CURRENT.get, SETTINGS.get, X64, NUMERIC_OPTIONS, DISABLE_JIT
    concrete, number_types, static_types = ConcreteArray, frozenset(_ONES), _STATIC

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            operands = args
            recent_key: CacheKey | None = None
            if not kwargs and args and type(first := args[0]) is concrete:
                # After a program has run, little code is in the processor's caches, so it is short for frequent calls.
                if len(args) == 1:
                    recent_key = f, id(first.aval)
                elif len(args) == 2:
                    second = args[1]
                    if type(second) is concrete:
                        recent_key = f, id(first.aval), id(second.aval)
                    elif type(second) in static_types:
                        operands, recent_key = (first,), (f, id(first.aval), id(second), None)
                if recent_key is not None and (recent := get_recent(recent_key)) is not None:
                    run_recent, values, _ = recent
                    if values is settings().values and current().evaluates:
                        try:
                            return run_recent(*operands)
                        except (OverflowError, IndexError):
                            return f(*args)
            if not current().evaluates or (compiles and disable_jit.value):
                return f(*args, **kwargs)
            key: CacheKey
            key = (f, x64.value, options.value) if settings().values else (f, x64.default, options.default)
            operands = ()
            for a in args:
                kind = type(a)
                if kind is concrete:
                    key += (a.aval,)
                    operands += (a,)
                elif kind in number_types and len(operands) < numbers:
                    key += (kind,)
                    operands += (a,)
                elif kind in static_types or _is_static(a):
                    key += (kind, a)
                elif isinstance(a, np.ndarray) and a.ndim:
                    x = from_numpy(a)
                    key += (x.aval,)
                    operands += (x,)
                elif _is_sequence_of_arrays(a):
                    key += (tuple([x.aval for x in a]),)
                    operands += tuple(a)
                else:
                    return elsewhere(args, kwargs)
            if kwargs:
                for name, a in kwargs.items():
                    kind = type(a)
                    if kind not in static_types and not _is_static(a):
                        return without_plan(*args, **kwargs)
                    key += (name, kind, a)
            plan = get_plan(key) or make_plan(key, args, kwargs)
            if plan is None:
                return f(*args, **kwargs)
            if recent_key is not None and not (numbers and type(args[-1]) in number_types):
                remember(recent_key, (plan, settings().values, key))
            try:
                return plan(*operands)
            except (OverflowError, IndexError):  # a number outside the range of its dtype, or an index out of bounds
                return f(*args, **kwargs)
        except Exception as error:
            filter_traceback(error)
            raise

    return functools.update_wrapper(call, f)


def _place(out: Any, sharding: Sharding, committed: bool) -> Any:
    """Returns the results of a plan, arrays or pytrees of them, with an explicit sharding on the host."""
    if type(out) is ConcreteArray:
        return ShardedArray.on_host(out, sharding, committed)
    return trees.map(lambda x: ShardedArray.on_host(x, sharding, committed) if type(x) is ConcreteArray else x, out)


def _is_static(x: object) -> bool:
    """Whether an argument may be part of a cache key: arguments that are equal and of one type mean the same."""
    kind = type(x)
    if kind in _STATIC:
        return True
    if isinstance(x, float):  # NaN equals nothing, and zeros of both signs are equal
        return kind is float and not math.isnan(x) and (x != 0 or math.copysign(1.0, x) > 0)
    if isinstance(x, tuple):  # 1, 1.0 and True are equal, so members may have only one numeric type
        return kind is tuple and all(n is None or type(n) is int or (type(n) is tuple and _is_static(n)) for n in x)
    unhashable: object = kind.__hash__ is None
    return not unhashable and not isinstance(x, complex | np.generic | Literal)


def _is_sequence_of_arrays(x: object) -> TypeIs[list[ConcreteArray] | tuple[ConcreteArray, ...]]:
    """Whether an argument is a nonempty list or tuple of concrete arrays."""
    return isinstance(x, list | tuple) and bool(x) and all(type(a) is ConcreteArray for a in x)


def _compile_fallback(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `f`, run as one jitted function where all of its positional arguments are values.

    It is for the calls that have no cache key since an array is traced, sharded or committed.
    """

    @memoize(256, typed=True)
    def jitted(**static: object) -> Callable[..., Any]:
        return jit(functools.update_wrapper(functools.partial(f, **static), f))

    def call(*args: Any, **kwargs: Any) -> Any:
        if all(isinstance(a, Array) or a is None for a in args) and all(map(_is_static, kwargs.values())):
            return jitted(**kwargs)(*args)
        return f(*args, **kwargs)

    return call


# ------------------------------------------------------------------ making plans


@final
@frozen
class _ArgumentTypes:
    """The positional arguments of a call without the elements of arrays."""

    slots: Sequence[object]
    """The arguments, with types in place of arrays and numbers, and a `_Sequence` in place of a sequence of arrays."""
    avals: Sequence[ShapedArray]
    """The types of the operands: of arrays, and weak ones of numbers."""
    numbers: frozenset[int]
    """The positions of Python numbers among the operands."""

    @classmethod
    def of(cls, args: Sequence[object], max_numbers: int) -> _ArgumentTypes:
        """Returns the types of arguments of which up to `max_numbers` operands may be Python numbers."""
        slots: list[object] = []
        avals: list[ShapedArray] = []
        numbers: set[int] = set()
        for a in args:
            if type(a) is ConcreteArray:
                slots.append(a.aval)
                avals.append(a.aval)
            elif type(a) in _ONES and len(avals) < max_numbers:
                numbers.add(len(avals))
                slots.append(aval := get_aval(_ONES[type(a)]))
                avals.append(aval)
            elif isinstance(a, np.ndarray) and a.ndim:
                slots.append(aval := from_numpy(a).aval)
                avals.append(aval)
            elif _is_sequence_of_arrays(a):
                slots.append(types := _Sequence([x.aval for x in a]))
                avals += types
            else:
                slots.append(a)
        return cls(slots, avals, frozenset(numbers))

    def call(self, f: Callable[..., object], arrays: Sequence[object], options: Mapping[str, object]) -> object:
        """Calls a function with `arrays` in place of the types of operands."""
        rest = iter(arrays)
        args: list[object] = []
        for slot in self.slots:
            if isinstance(slot, _Sequence):
                args.append([next(rest) for _ in slot])
            else:
                args.append(next(rest) if isinstance(slot, ShapedArray) else slot)
        return f(*args, **options)

    @property
    def are_rounded_once(self) -> bool:
        """Whether converting numbers to their default dtypes first, as a trace does, does not round them twice."""
        floats = [self.avals[i].dtype for i in self.numbers if dtypes.is_inexact(self.avals[i].dtype)]
        arrays = [aval.dtype for i, aval in enumerate(self.avals) if i not in self.numbers]
        return not floats or all(not dtypes.is_float(d) or dtypes.itemsize_bits(d) >= 32 for d in arrays)


@final
@frozen
class _TracedCall:
    """The program of a call, whose first inputs are `consts`."""

    jaxpr: Jaxpr
    consts: Sequence[Value]
    rebuild: Callable[[Sequence[Any]], Any] | None
    """Makes the result from the outputs; None if the result is one array."""


def _trace_call(f: Callable[..., object], types: _ArgumentTypes, options: Mapping[str, object]) -> _TracedCall:
    """Traces a call. Does not load jaxlib unless the result is a pytree other than a sequence of arrays."""
    rebuild: Callable[[Sequence[Any]], Any] | None = None

    def flat(*values: Value) -> Sequence[Value]:
        nonlocal rebuild
        out = types.call(f, to_arrays(values), options)
        if isinstance(out, Array):
            return [out]
        if isinstance(out, list | tuple) and all(isinstance(x, Array) for x in out):
            rebuild = getattr(type(out), "_make", type(out))
            return out
        leaves, tree = flatten_values(out, output_label(f))
        rebuild = tree.unflatten
        return leaves

    token = SOURCE.set(None)
    try:
        with handling(ROOT):  # plans evaluate at the root, whichever handler is current
            jaxpr, consts = stage(flat, types.avals, ROOT, None, fun_name(f))
    finally:
        SOURCE.reset(token)
    return _TracedCall(jaxpr.closed(), consts, rebuild)


@final
@frozen
class _Planner:
    """Makes the plans for one function."""

    f: Callable[..., object]
    numbers: int
    compiled: bool
    fused: Fusion | None
    kernel: NumpyKernel | None

    def find_or_make(self, key: CacheKey, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Plan | None:
        """Returns the plan for a cache key; None if there is none."""
        if self.fused and any(a.size > MAX_REPLAY_SIZE for a in args if isinstance(a, Array | np.ndarray)):
            immediately = self.fused == "at the first call"
        else:  # such plans may give other last bits than the function
            immediately = self.compiled or self.kernel is not None
        return ROOT.eager_cache.find_or_make(key, lambda: self._make(args, kwargs), immediately)

    def _make(self, args: tuple[object, ...], options: Mapping[str, object]) -> Plan | None:
        if options.get("device") is not None:  # a trace does not place its results
            return None
        types = _ArgumentTypes.of(args, self.numbers)
        try:
            traced = _trace_call(self.f, types, options)
        except Exception:  # the function itself raises it, with concrete arrays in the message
            return None
        if not traced.jaxpr.outs:
            return None
        numbers = {i: types.avals[i] for i in types.numbers}
        avals = (*types.avals, *traced.jaxpr.out_avals)
        is_large = any(aval.size > MAX_REPLAY_SIZE for aval in avals)
        if self.fused and is_large and types.are_rounded_once and all(a.dtype != dtypes.float0 for a in avals):
            return _compiled_plan(traced, fun_name(self.f), numbers)
        if (plan := self._handwritten(traced, types, options)) is not None:
            return plan
        if not types.are_rounded_once:
            return None
        compiled = self.compiled and not types.numbers  # of numbers, the transfer takes as long as a replay
        steps = MAX_STEPS_BEFORE_COMPILING if compiled else MAX_REPLAY_STEPS
        size = MAX_SIZE_BEFORE_COMPILING if compiled else MAX_REPLAY_SIZE
        inputs = traced.jaxpr.invars[len(traced.consts) :]
        in_dtypes = [
            converted_dtype(traced.jaxpr, v) if i in types.numbers else v.aval.dtype for i, v in enumerate(inputs)
        ]
        if (replay := replay_kernels(traced.jaxpr, traced.consts, in_dtypes, steps, size)) is not None:
            return _numpy_plan(replay, traced, {i: in_dtypes[i] for i in types.numbers})
        return _compiled_plan(traced, fun_name(self.f), numbers) if self.compiled else None

    def _handwritten(self, traced: _TracedCall, types: _ArgumentTypes, options: Mapping[str, object]) -> Plan | None:
        """Returns the plan that runs the handwritten kernel, if there is one for these arguments."""
        if self.kernel is None or not self.kernel.accepts(types):
            return None
        if (kernel := self.kernel.of_call(self.f, types.slots, options)) is None:
            return None
        numbers = {i: types.avals[i].dtype for i in types.numbers}
        if not self.kernel.mixed:
            common = next(aval.dtype for i, aval in enumerate(types.avals) if i not in numbers)
            numbers = dict.fromkeys(numbers, common)
        zeros = [np.zeros(aval.shape, numbers.get(i, aval.dtype)) for i, aval in enumerate(types.avals)]
        result = call_kernel(kernel, *zeros)
        results = [np.asarray(x) for x in ([result] if len(traced.jaxpr.outs) == 1 else result)]
        if [(x.shape, x.dtype) for x in results] != [(a.shape, a.dtype) for a in traced.jaxpr.out_avals]:
            return None
        return _numpy_plan(kernel, traced, numbers)


def _numpy_plan(kernel: Kernel, traced: _TracedCall, numbers: Mapping[int, DType]) -> Plan:
    """Returns the plan that calls a function of NumPy arrays.

    Args:
        kernel: The function.
        traced: The program of the call.
        numbers: The positions of Python numbers among the operands, with the dtypes to which they are converted.
    """
    avals, rebuild = [intern_aval(aval) for aval in traced.jaxpr.out_avals], traced.rebuild
    first = avals[0]
    context, concrete, array, to_array = KERNEL_CONTEXT, ConcreteArray, np.ndarray, np.asarray

    def plan_of_one(x: ConcreteArray) -> ConcreteArray:  # this and the next are `plan` without loops, which cost 0.3 µs
        host = x.host
        try:
            out = context.run(kernel, x.numpy() if host is None else host)
        except RuntimeError as error:
            out = retry_reentrant(error, kernel, x.numpy())
        return concrete(first, out if type(out) is array else to_array(out))

    def plan_of_two(x: ConcreteArray, y: ConcreteArray) -> ConcreteArray:
        host, other = x.host, y.host
        try:
            out = context.run(kernel, x.numpy() if host is None else host, y.numpy() if other is None else other)
        except RuntimeError as error:
            out = retry_reentrant(error, kernel, x.numpy(), y.numpy())
        return concrete(first, out if type(out) is array else to_array(out))

    def plan(*operands: Any) -> Any:
        if numbers:
            hosts = [to_array(x, numbers[i]) if i in numbers else x.numpy() for i, x in enumerate(operands)]
        else:
            hosts = [x.numpy() for x in operands]
        try:
            out = context.run(kernel, *hosts)
        except RuntimeError as error:
            out = retry_reentrant(error, kernel, *hosts)
        if rebuild is None:
            return concrete(first, out if type(out) is array else to_array(out))
        outs = [out] if len(avals) == 1 else out
        return rebuild([concrete(aval, x if type(x) is array else to_array(x)) for aval, x in zip(avals, outs)])  # noqa: B905  # saves 0.2 µs

    count = len(traced.jaxpr.invars) - len(traced.consts)
    if rebuild is not None or numbers or not 1 <= count <= 2:
        return plan
    return plan_of_one if count == 1 else plan_of_two


def _compiled_plan(traced: _TracedCall, name: str, numbers: Mapping[int, ShapedArray]) -> Plan:
    """Returns the plan that runs the compiled program. `numbers` gives the types of Python numbers."""
    program = BACKEND.value.compiled(traced.jaxpr, name, (), False)
    consts, rebuild, default_device, settings = traced.consts, traced.rebuild, DEFAULT_DEVICE, SETTINGS.get
    on_host = None if consts else program.on_host
    run: Callable[[Sequence[Buffer]], Any] | None = None
    if on_host is not None:
        run = on_host.on_buffers_one if rebuild is None else on_host.on_buffers

    def plan(*operands: Any) -> Any:
        if numbers:
            operands = tuple([_as_array(x, numbers.get(i)) for i, x in enumerate(operands)])
        results = program([*consts, *operands])
        return results[0] if rebuild is None else rebuild(results)

    if run is None or on_host is None:
        return plan
    run_on_buffers, put = run, on_host.put
    recent_numbers: dict[int, tuple[complex, Buffer]] = {}  # compared by identity: -0.0 equals 0.0

    def direct_plan(*operands: Any) -> Any:
        buffers: list[Buffer] = []
        for i, x in enumerate(operands):
            if i in numbers:
                recent = recent_numbers.get(i)
                if recent is None or recent[0] is not x:
                    recent = recent_numbers[i] = x, put(i, _as_array(x, numbers[i]))
                buffer: Buffer | None = recent[1]
            else:
                buffer = x.buffer
            if buffer is None:
                return plan(*operands)
            buffers.append(buffer)
        if settings().values or default_device.default is not None:
            return plan(*operands)
        results = run_on_buffers(buffers)
        return results if rebuild is None else rebuild(results)

    def plan_of_one(x: ConcreteArray) -> Any:  # this and the next are `direct_plan` without a loop
        buffer = x.buffer
        if buffer is None or settings().values or default_device.default is not None:
            return plan(x)
        return run_on_buffers([buffer])

    def plan_of_two(x: ConcreteArray, y: ConcreteArray) -> Any:
        buffer, other = x.buffer, y.buffer
        if buffer is None or other is None or settings().values or default_device.default is not None:
            return plan(x, y)
        return run_on_buffers([buffer, other])

    count = len(traced.jaxpr.invars)
    if rebuild is not None or numbers or not 1 <= count <= 2:
        return direct_plan
    return plan_of_one if count == 1 else plan_of_two


def _as_array(x: Any, aval: ShapedArray | None) -> Any:
    """Returns a Python number as an array of the given type; an array, whose type is None, unchanged."""
    return x if aval is None else ConcreteArray(aval, call_kernel(np.asarray, x, aval.dtype))

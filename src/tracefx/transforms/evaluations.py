"""Functions of numbers that are there, evaluated by what is found once for each kind of arguments.

What a function checks and promotes depends on the types of its arrays and on the other arguments alone. So it is
traced once for each kind of them, which raises its errors and tells the types of its results; `Plans` keep how numbers
of this kind are computed from then on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType, MappingProxyType, NoneType
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, final

import numpy as np
from attrs import frozen
from typing_extensions import ParamSpec

from tracefx.core.array import Array
from tracefx.core.avals import ShapedArray
from tracefx.core.bounded_cache import insert_bounded
from tracefx.core.device import DEFAULT_DEVICE, Buffer
from tracefx.core.handler import CURRENT, ROOT, handling
from tracefx.core.jaxpr import Jaxpr
from tracefx.core.kernel_context import KERNEL_CONTEXT, retry_reentrant
from tracefx.core.literal import Literal, Scalar
from tracefx.core.settings import DISABLE_JIT, X64
from tracefx.core.source_location import EQN_LOCATION, NAMED_SCOPES
from tracefx.core.values import ConcreteArray, Value, from_numpy
from tracefx.interpreters.stage import stage
from tracefx.pytrees import trees
from tracefx.transforms.arguments import fun_name, to_arrays
from tracefx.transforms.tracing import Trace, trace

P = ParamSpec("P")
R = TypeVar("R")


@final
@frozen
class Number:
    """Stands for a Python number of any value."""

    kind: type[Scalar]


@final
class Several(tuple[ShapedArray, ...]):
    """The types of a sequence of arrays."""

    __slots__ = ()


Kind: TypeAlias = ShapedArray | Number | Several | Hashable
"""What a plan knows of an argument by place: the type of an array or number, any other argument itself."""
Key: TypeAlias = tuple[Any, ...]
"""The kinds of all arguments of a call, told apart by their types."""
Compiled: TypeAlias = tuple[Callable[[list[Buffer]], R] | None, Callable[[list[ConcreteArray]], R]]
"""Runs a program on buffers, if they are all that it takes, and on arrays whose buffers may have to be made."""
Kerneled: TypeAlias = tuple[Callable[..., Any], ShapedArray, Callable[[Any], Any] | None]
"""A function of NumPy's arrays and the type of the array that it gives, or what makes results of several of them."""

_KINDS: Final = 1024
_NEW: Final = object()
_MET: Final = False  # a kind without a plan so far
_NUMBERS: Final[Mapping[type, Number]] = MappingProxyType({kind: Number(kind) for kind in (bool, int, float, complex)})
_PLAIN: Final = frozenset({NoneType, bool, int, str, type})


def _is_fixed(x: object) -> bool:
    """Whether equal arguments of this type mean the same, so that a plan for one is a plan for the other."""
    kind = type(x)
    if kind in _PLAIN:
        return True
    if isinstance(x, float):  # neither zeros of either sign nor NaN are told apart as they should
        return kind is float and not math.isnan(x) and (x != 0 or math.copysign(1.0, x) > 0)
    if isinstance(x, tuple):  # whose members' types no dictionary looks at
        return kind is tuple and all(n is None or type(n) is int or (type(n) is tuple and _is_fixed(n)) for n in x)
    unhashable: object = kind.__hash__ is None
    return not unhashable and not isinstance(x, complex | np.generic | Literal)


def traced(f: Callable[..., Any], kinds: tuple[Kind, ...], options: dict[str, Any]) -> Trace:
    """The program of `f` for arguments of these kinds."""
    avals = _arrays(kinds)
    with handling(ROOT):  # the numbers are evaluated there, whoever is on the way
        return trace(_on_arrays(f, kinds, options), trees.structure((avals, {})), avals, None, fun_name(f))


def staged(
    f: Callable[..., Any], kinds: tuple[Kind, ...], options: dict[str, Any]
) -> tuple[Jaxpr, Sequence[Value], Callable[[Iterable[Any]], Any] | None]:
    """The program of `f` as `traced`, its constants, and what makes the result of several arrays: a sequence of them.

    It is found without jaxlib, which small evaluations need not load.
    """
    together: Callable[[Iterable[Any]], Any] | None = None
    called = _on_arrays(f, kinds, options)

    def flat(*values: Value) -> Sequence[Value]:
        nonlocal together
        out = called(*to_arrays(values))
        if isinstance(out, Array):
            return [out]
        if not isinstance(out, list | tuple) or not all(isinstance(x, Array) for x in out):
            raise TypeError(f"{fun_name(f)} gives neither an array nor a sequence of some, but {out!r}")
        together = getattr(type(out), "_make", type(out))
        return list(out)

    token, scopes = EQN_LOCATION.set(None), NAMED_SCOPES.set(())
    try:
        with handling(ROOT):
            jaxpr, consts = stage(flat, _arrays(kinds), ROOT, None, fun_name(f))
    finally:
        EQN_LOCATION.reset(token)
        NAMED_SCOPES.reset(scopes)
    return jaxpr.closed(), consts, together


def _arrays(kinds: tuple[Kind, ...]) -> tuple[ShapedArray, ...]:
    avals: list[ShapedArray] = []
    for kind in kinds:
        avals += [kind] if isinstance(kind, ShapedArray) else kind if isinstance(kind, Several) else ()
    return tuple(avals)


def _on_arrays(f: Callable[..., Any], kinds: tuple[Kind, ...], options: dict[str, Any]) -> Callable[..., Any]:
    """`f` as a function of the arrays among its arguments."""

    def called(*arrays: Any) -> Any:
        rest = iter(arrays)
        return f(*[_argument(kind, rest) for kind in kinds], **options)

    return functools.update_wrapper(called, f)


def _argument(kind: Kind, arrays: Iterator[Any]) -> Any:
    if isinstance(kind, ShapedArray):
        return next(arrays)
    if isinstance(kind, Several):
        return [next(arrays) for _ in kind]
    return kind.kind(1) if isinstance(kind, Number) else kind


@final
class Plans(Generic[R]):
    """What has been found for the kinds of arguments that a function was called with."""

    __slots__ = ("_found", "_patient", "_plan", "arrays", "get", "numbers")

    def __init__(self, plan: Callable[..., R | None], arrays: int, numbers: bool, patient: bool) -> None:
        """`plan` is called with the kinds of arguments by place, and with those by name as they are; if it is
        `patient`, when they are met for the second time: many are met once, and to plan takes as long as 100 calls.

        The first `arrays` arguments by place are arrays, or sequences of some, or, if `numbers`, Python's numbers.
        """
        self._plan = plan
        self.arrays = arrays
        self.numbers: Mapping[type, Number] = _NUMBERS if numbers else MappingProxyType({})
        self._patient = patient
        self._found: dict[Key, Any] = {}
        self.get: Callable[[Key], R | None] = self._found.get

    def find(self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R | None:
        """What is found for arguments of a kind that has no plan yet."""
        known = self._found.get(key, _NEW)
        if known is None:
            return None
        if known is _NEW and self._patient:
            insert_bounded(self._found, key, _MET, _KINDS)
            return None
        count, kinds = 0, []
        for a in args:
            if type(a) is ConcreteArray:
                kinds.append(a.aval)
                count += 1
            elif count < self.arrays and a is not None:
                operands: list[Any] = []
                self.note(a, kinds, operands)
                count += len(operands)
            else:
                kinds.append(a)
        found = self._plan(*kinds, **kwargs)
        if insert_bounded(self._found, key, found, _KINDS) is _MET:
            self._found[key] = found
        return found

    def note(self, x: object, kinds: list[Any], operands: list[Any]) -> bool:
        """Note the kind of an operand that is no array yet; False if it has none that plans know."""
        if (number := self.numbers.get(type(x))) is not None:
            kinds.append(number)
            operands.append(x)
        elif isinstance(x, np.ndarray) and x.ndim:
            value = from_numpy(x)
            kinds.append(value.aval)
            operands.append(value)
        elif isinstance(x, list | tuple) and x and all(type(a) is ConcreteArray for a in x):
            kinds.append(Several([a.aval for a in x]))
            operands.extend(x)
        else:
            return False
        return True


def evaluated(f: Callable[P, R], plans: Plans[Compiled[R]], otherwise: Callable[P, R]) -> Callable[P, R]:
    """`f`, evaluated by the programs that `plans` find.

    Arguments of no kind that plans know, such as masks by name, are for `otherwise`. What is traced is for `f`.
    """
    # What a call needs is bound here: it is a function of another module.
    plain, concrete, arrays, is_fixed = _PLAIN, ConcreteArray, plans.arrays, _is_fixed
    current, disabled, x64, elsewhere = CURRENT.get, DISABLE_JIT, X64, DEFAULT_DEVICE

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not current().evaluates or disabled.value:
            return f(*args, **kwargs)
        key: list[Any] = [x64.value]
        buffers: list[Any] = []
        at_hand = True
        for a in args:
            kind = type(a)
            if kind is concrete:
                key.append(a.aval)  # type: ignore[attr-defined]  # narrowed by the test of its type
                buffers.append(buffer := a.buffer)  # type: ignore[attr-defined]  # as above
                if buffer is None:
                    at_hand = False
            elif (len(buffers) >= arrays and (kind in plain or is_fixed(a))) or a is None:
                key += (kind, a)
            else:
                return otherwise(*args, **kwargs)
        if kwargs:
            for name, a in kwargs.items():
                kind = type(a)
                if kind not in plain and not is_fixed(a):
                    return otherwise(*args, **kwargs)
                key += (name, kind, a)
        plan = plans.get(known := tuple(key)) or plans.find(known, args, kwargs)
        if plan is None:
            return otherwise(*args, **kwargs)
        on_buffers, on_arrays = plan
        if at_hand and on_buffers is not None and elsewhere.value is None:
            return on_buffers(buffers)
        return on_arrays([a for a in args if type(a) is concrete])

    return _in_place_of(f, call)


def evaluated_by_kernels(f: Callable[P, R], plans: Plans[Kerneled]) -> Callable[P, R]:
    """`evaluated` by functions of NumPy's arrays, of which most give one array.

    It is written out a second time, since what such a function takes is less than what surrounds it.
    """
    plain, concrete, arrays, is_fixed = _PLAIN, ConcreteArray, plans.arrays, _is_fixed
    number_of: Mapping[type, Number] = plans.numbers
    current, x64, get = CURRENT.get, X64, plans.get
    quiet, once_more, array, to_array = KERNEL_CONTEXT, retry_reentrant, np.ndarray, np.asarray

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not current().evaluates:
            return f(*args, **kwargs)
        given: list[Any] = []
        known: Key
        if len(args) == 1 and not kwargs and type(x := args[0]) is concrete:  # written out, as many calls are such
            known = (x64.value, x.aval)
            host = x.host
            given.append(x.numpy() if host is None else host)
        else:
            key: list[Any] = [x64.value]
            for a in args:
                kind = type(a)
                if kind is concrete:
                    key.append(a.aval)  # type: ignore[attr-defined]  # narrowed by the test of its type
                    host = a.host  # type: ignore[attr-defined]  # as above
                    given.append(a.numpy() if host is None else host)  # type: ignore[attr-defined]  # as above
                elif len(given) < arrays and a is not None:
                    if (number := number_of.get(kind)) is not None:
                        key.append(number)
                        given.append(a)
                        continue
                    found: list[Any] = []
                    if not plans.note(a, key, found):
                        return f(*args, **kwargs)
                    given += [x.numpy() if type(x) is concrete else x for x in found]
                elif kind in plain or is_fixed(a):
                    key += (kind, a)
                else:
                    return f(*args, **kwargs)
            if kwargs:
                for name, a in kwargs.items():
                    kind = type(a)
                    if kind not in plain and not is_fixed(a):
                        return f(*args, **kwargs)
                    key += (name, kind, a)
            known = tuple(key)
        plan = get(known) or plans.find(known, args, kwargs)
        if plan is None:
            return f(*args, **kwargs)
        kernel, aval, several = plan
        try:
            out = quiet.run(kernel, *given)
        except RuntimeError as error:
            out = once_more(error, kernel, *given)
        except (OverflowError, IndexError):  # for numbers that dtypes can't hold, and places that there are not
            return f(*args, **kwargs)
        if several is None:
            return concrete(aval, out if type(out) is array else to_array(out))  # type: ignore[return-value]  # an R
        return several(out)  # type: ignore[no-any-return]  # an R

    return _in_place_of(f, call)


def _in_place_of(f: Callable[P, R], call: Callable[P, R]) -> Callable[P, R]:
    """`call` as a function of the module of `f`, where documentation and its examples look for it."""
    assert isinstance(f, FunctionType)
    assert isinstance(call, FunctionType)
    function = FunctionType(call.__code__, f.__globals__, f.__name__, None, call.__closure__)
    return cast("Callable[P, R]", functools.update_wrapper(function, f))

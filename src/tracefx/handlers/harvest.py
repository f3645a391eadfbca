"""`sow`, `reap`, `plant` and `perturb`: naming intermediate values, collecting them and replacing them.

`reap` alone returns both the result and the sown values: a compiled program does not compute unused outputs, so a
separate function for the values would save nothing, and `grad(..., has_aux=True)` accepts the pair as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Concatenate, Final, Never, ParamSpec, TypeAlias, TypeVar, cast, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.sow import Plantable, Sow, SowMode
from tracefx.core import ShapedArray, Value, dtypes
from tracefx.core.handler import bind, bind1
from tracefx.extend import SourceLocation, here
from tracefx.handlers.replacement import Replacement, ReplacingHandler
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rule_methods import rule
from tracefx.ops.elementwise.elementwise import ADD
from tracefx.ops.promotion import promote
from tracefx.ops.structural import constant_like_aval, convert_value
from tracefx.pytrees import trees
from tracefx.transforms.arguments import flatten_values, require_callable, to_arrays
from tracefx.transforms.function_types import WrappedFunction
from tracefx.transforms.transform import SameArguments, Transform, TransformOf
from tracefx.transforms.transformed_function import wrap_transformed

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Absent: TypeAlias = bool | int | float | complex
INTERMEDIATES: Final = "intermediates"
_MODES: Final[tuple[SowMode, ...]] = ("strict", "clobber", "append")


def sow(value: T, *, name: str, tag: str = INTERMEDIATES, mode: SowMode = "strict") -> T:
    """Names `value`, so that `reap` can collect it and `plant` can replace it.

    Outside of `reap`, `plant` and `perturb` this is the identity and costs nothing.

    Args:
        value: the intermediate value, a pytree of arrays.
        name: its name, unique among the values with this tag.
        tag: a namespace for names. Only `reap`, `plant` and `perturb` with the same tag handle the value.
        mode: what happens when the name is sown more than once: `"strict"` is an error, `"clobber"` keeps the last
            value, `"append"` makes a tuple of all values.

    Returns:
        `value`, with arrays as leaves.

    Raises:
        TypeError: if a leaf is not an array or a number, or `name` or `tag` is not a string.
        ValueError: if `mode` is none of the three.

    >>> from tracefx.handlers import reap
    >>> reap(lambda x: 2 * sow(x + 1, name="more"))(3)
    (Array(8, dtype=int32, weak_type=True), {'more': Array(4, dtype=int32, weak_type=True)})
    """
    for what, string in (("name", name), ("tag", tag)):
        if not isinstance(string, str):
            raise TypeError(f"sow: the {what} must be a string, got {string!r} of type {type(string).__name__}")
    if mode not in _MODES:
        raise ValueError(f"sow: mode must be one of {', '.join(map(repr, _MODES))}, got {mode!r}")
    values, tree = flatten_values(value, f"sow: the value {name!r}")
    structure = None if tree == trees.leaf() else tree
    outs = [bind1(Plantable(tag, name, mode, structure, i), x) for i, x in enumerate(values)]
    bind(Sow(tag, name, mode, structure), *outs)
    named: T = tree.unflatten(to_arrays(outs))
    return named


# ------------------------------------------------------------------ collecting


def reap(
    fun: Callable[P, R], *, tag: str = INTERMEDIATES, absent: Absent | None = None
) -> WrappedFunction[P, tuple[R, dict[str, Any]]]:
    """Returns a function that also returns the values that `fun` sows, as a dict by name.

    A value sown in the body of a scan is stacked, `[length, ...]`. One sown in a `while_loop` is that of the last
    iteration. One sown in `cond` must be sown by all branches unless `absent` is given. Values sown inside a nested
    `reap` with the same tag are collected by the inner one.

    `vmap(reap(f))` and `reap(vmap(f))` return the same values, except that in the second a value that is the same for
    the whole batch has no batch axis. `reap(grad(f))` returns the values of the forward pass.

    Args:
        fun: the function that calls `sow`.
        tag: collects only values sown with this tag.
        absent: a number that replaces values which were not sown, in the branch of a `cond` or in a `while_loop`
            without iterations. With the default, None, such a `cond` is an error and such a loop gives zeros.

    Returns:
        A function with the parameters of `fun` that returns the pair of its result and the dict of sown values.

    Raises:
        ValueError: if a name is sown twice, or by some branches of a `cond` only.
        TypeError: if the branches of a `cond` sow values of different shapes or dtypes under one name, or `tag` or
            `absent` is of a wrong type.

    >>> from tracefx import lax
    >>> from tracefx.handlers import sow
    >>> def powers(x):
    ...     return lax.fori_loop(0, 3, lambda i, y: sow(y * x, name="power"), 1)
    >>> reap(powers)(2)
    (Array(8, dtype=int32, weak_type=True), {'power': Array([2, 4, 8], dtype=int32, weak_type=True)})
    """
    _require_tag("reap", tag)
    if absent is not None and not isinstance(absent, Absent):
        raise TypeError(f"reap: absent must be a number, got {absent!r} of type {type(absent).__name__}")
    return Reap(tag, absent)(fun)


@final
@frozen(eq=False, repr=False)
class Reap(TransformOf[SameArguments]):
    """The transformation that `reap` applies, with its options as fields."""

    title: ClassVar[str] = "reap"
    tag: str = INTERMEDIATES
    absent: Absent | None = None

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable(self.title, fun)

        @wrap_transformed(self, fun)
        def reaped(*args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
            with _Reaper(self.tag, self.absent).running() as handler:
                out = fun(*args, **kwargs)
            return out, handler.reaped_values()

        return reaped


@final
@frozen(repr=False)
class _SownName:
    """The key of a collected value: its name, with a counter for values of mode "append"."""

    label: str
    number: int
    mode: SowMode = field(eq=False)
    source: SourceLocation = field(eq=False)

    @override
    def __repr__(self) -> str:
        return repr(self.label)


@final
class _Reaper(Interpreter[Never, None, _SownName]):
    """Collects the values that are sown with one tag."""

    tag: str
    fill: Absent | None

    title: ClassVar[str] = "reap"
    has_state: ClassVar[bool] = True

    @rule(Sow)
    def sow_rule(self, op: Sow, *operands: Value) -> Sequence[Value]:
        if op.tag != self.tag:
            return bind(op, *operands)
        source = here()
        if op.uncollectable is not None:
            raise ValueError(f"reap: cannot collect the value {op.label!r}, sown at {source}: {op.uncollectable}")
        value = operands[0] if op.tree is None else trees.unflatten(op.tree, operands)
        self.collect(_SownName(op.label, 0, op.mode, source), value)
        return ()

    @override
    def collect(self, name: _SownName, value: object) -> None:
        before = [n for n in self.run.collected if n.label == name.label]
        if before and (name.mode == "strict" or any(n.mode != name.mode for n in before)):
            raise ValueError(
                f"reap: two values are sown under the name {name.label!r}, one at {before[0].source} and one at "
                f"{name.source}: rename one of them, or give both mode='append', which collects both, or "
                "mode='clobber', which keeps the last"
            )
        number = len(before) if name.mode == "append" else 0
        self.run.collected[evolve(name, number=number)] = value

    @override
    def default_collected(self, name: _SownName, avals: Sequence[ShapedArray], what: str | None) -> Sequence[Value]:
        if self.fill is None and what is not None:
            raise ValueError(
                f"reap: the value {name!r} is sown at {name.source} in one branch of cond but not in "
                f"{what}: sow it there too, or give a value for the missing ones: reap(..., absent=0.0)"
            )
        if self.fill is None:
            return [constant_like_aval(aval, 0) for aval in avals]
        for aval in avals:
            if not _is_representable(self.fill, aval):
                raise TypeError(f"reap: absent={self.fill!r} cannot be converted to the type of {name!r}, {aval}")
        return [constant_like_aval(aval, self.fill) for aval in avals]

    def reaped_values(self) -> dict[str, Any]:
        """Returns the collected values by name."""
        by_name: dict[str, Any] = {}
        for name, value in self.run.collected.items():
            leaves, tree = trees.flatten(value)
            array_tree = tree.unflatten(to_arrays(leaves))
            by_name[name.label] = (*by_name.get(name.label, ()), array_tree) if name.mode == "append" else array_tree
        return by_name


def _is_representable(number: Absent, aval: ShapedArray) -> bool:
    if isinstance(number, bool):
        return True
    if isinstance(number, int):
        return not dtypes.is_bool(aval.dtype)
    return dtypes.is_complex(aval.dtype) or (isinstance(number, float) and dtypes.is_float(aval.dtype))


# ------------------------------------------------------------------ replacing


def plant(fun: Callable[P, R], *, tag: str = INTERMEDIATES) -> WrappedFunction[Concatenate[Mapping[str, Any], P], R]:
    """Returns a function that takes replacements for values that `fun` sows as its first argument.

    The replacements are a dict by name, in the form that `reap` returns: for a value sown in a scan the stacked values,
    `[length, ...]`, of which each iteration takes a slice. In a `while_loop`, whose number of iterations is unknown,
    every iteration takes the same value. The dict can be differentiated like any other argument: its gradient is that
    of the result with respect to the intermediate values.

    A replacement does not depend on the arguments of `fun`, so `plant(grad(f))` is the gradient of the program with
    the named values held constant.

    Args:
        fun: the function that calls `sow`.
        tag: replaces only values sown with this tag.

    Returns:
        A function that takes the dict of replacements, then the arguments of `fun`, and returns the result of `fun`.

    Raises:
        TypeError: if a replacement differs from the sown value in structure, shape or dtype.
        ValueError: if a name is not sown, or is sown with `mode="append"`.

    >>> from tracefx import grad
    >>> from tracefx.handlers import sow
    >>> def f(x):
    ...     return sow(x * x, name="square") * 3
    >>> plant(f)({"square": 5.0}, 2.0), grad(plant(f))({"square": 4.0}, 2.0)
    (Array(15., dtype=float32, weak_type=True), {'square': Array(3., dtype=float32, weak_type=True)})
    """
    _require_tag("plant", tag)
    return cast("WrappedFunction[Concatenate[Mapping[str, Any], P], R]", Plant(tag)(fun))


def perturb(fun: Callable[P, R], *, tag: str = INTERMEDIATES) -> WrappedFunction[Concatenate[Mapping[str, Any], P], R]:
    """Returns a function like that of `plant` that adds to the sown values instead of replacing them.

    At zero perturbations, its gradient with respect to the first argument is that of the result with respect to every
    intermediate value, including paths through later sown values, which `plant` cuts.

    Args:
        fun: the function that calls `sow`.
        tag: changes only values sown with this tag.

    Returns:
        A function that takes a dict of terms to add by name, then the arguments of `fun`.

    Raises:
        TypeError: if a term differs from the sown value in structure, shape or dtype, or is boolean.
        ValueError: if a name is not sown, or is sown with `mode="append"`.

    >>> from tracefx import grad
    >>> from tracefx.handlers import sow
    >>> def f(x):
    ...     y = sow(x * x, name="y")
    ...     return sow(y * 3, name="z") * x
    >>> grad(perturb(f))({"y": 0.0, "z": 0.0}, 2.0)
    {'y': Array(6., dtype=float32, weak_type=True), 'z': Array(2., dtype=float32, weak_type=True)}
    """
    _require_tag("perturb", tag)
    return cast("WrappedFunction[Concatenate[Mapping[str, Any], P], R]", Perturb(tag)(fun))


@frozen(eq=False, repr=False)
class _PlantTransform(Transform):
    """The base of `Plant`, which replaces sown values, and of `Perturb`, which adds to them (`adds`)."""

    tag: str = INTERMEDIATES
    adds: ClassVar[bool]

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable(self.title, fun)

        @wrap_transformed(self, fun)
        def changed(values: Mapping[str, Any], /, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(values, Mapping):
                raise TypeError(f"{self.title}: the first argument must be a dict of values by name, got {values!r}")
            replacements = {}
            for name, value in values.items():
                leaves, tree = flatten_values(value, f"{self.title}: the value {name!r}")
                replacements[name] = Replacement(tuple(leaves), tree)
            sown = set[str]()
            planter = _Planter(self.title, self.tag, replacements, sown.add, self.adds)
            with planter.running():
                out = fun(*args, **kwargs)
            planter.require_all_used(sown)
            return out

        return changed


@final
class Plant(_PlantTransform):
    """The transformation that `plant` applies."""

    title = "plant"
    adds = False


@final
class Perturb(_PlantTransform):
    """The transformation that `perturb` applies."""

    title = "perturb"
    adds = True


@final
class _Planter(ReplacingHandler, eq=False):
    """Replaces the values that are sown with one tag, or adds to them."""

    adds: bool

    named = "sown"
    noun = "replacement"

    @rule(Plantable)
    def plant_rule(self, op: Plantable, x: Value) -> Sequence[Value]:
        replacement = self.given.get(op.label) if op.tag == self.tag else None
        if replacement is None:
            return bind(op, x)
        if op.derivative:  # the replacement is a constant
            return bind(op, x) if self.adds else [constant_like_aval(x.aval, 0)]
        if op.mode == "append":
            raise ValueError(
                f"{self.title}: {op.label!r} is sown at {here()} with mode='append', so it is "
                "ambiguous which of its values is meant: sow each under its own name"
            )
        self.require_structure(op, replacement)
        if self.adds and dtypes.is_bool(x.aval.dtype):
            raise TypeError(
                f"{self.title}: the value {op.label!r}{replacement.path(op.leaf)}, "
                f"sown at {here()}, is {x.aval}, and nothing can be added to booleans: use plant"
            )
        leaf = self.cast_leaf(replacement.leaves[op.leaf], x.aval, replacement, op.leaf, op.label)
        return bind(op, bind1(ADD, x, leaf) if self.adds else leaf)

    @rule(Sow)
    def sow_rule(self, op: Sow, *operands: Value) -> Sequence[Value]:
        if op.tag == self.tag:
            self.record_name(op.label)
            if op.label in self.given:
                self.require_structure(op, self.given[op.label])
        return bind(op, *operands)

    def require_structure(self, op: Plantable | Sow, replacement: Replacement) -> None:
        tree = trees.leaf() if op.tree is None else op.tree
        if replacement.tree != tree:
            raise TypeError(
                f"{self.title}: the value {op.label!r} is {trees.show_structure(replacement.tree)}, but what "
                f"is sown at {here()} is {trees.show_structure(tree)}"
            )

    def cast_leaf(self, leaf: Value, aval: ShapedArray, replacement: Replacement, i: int, name: str) -> Value:
        """Returns a replacement leaf converted to the dtype and weak type of the sown value."""
        if leaf.aval == aval:
            return leaf
        dtype = leaf.aval.dtype
        if leaf.aval.weak_type:
            dtype = promote([(dtype, True), (aval.dtype, False)])[0]
        if leaf.aval.shape != aval.shape or dtype != aval.dtype:
            suffix = " in a step" if replacement.sliced else ""
            raise TypeError(
                f"{self.title}: the value {name!r}{replacement.path(i)} is {leaf.aval}{suffix}, but what is "
                f"sown at {here()} is {aval}"
            )
        return convert_value(leaf, aval.dtype, aval.weak_type)

    def require_all_used(self, sown: Collection[str]) -> None:
        """Raises `ValueError` unless all names that have a replacement are among those that were sown."""
        if unmet := [name for name in self.given if name not in sown]:
            names = ", ".join(map(repr, sorted(sown))) or "nothing"
            raise ValueError(
                f"{self.title}: nothing is sown under {', '.join(map(repr, unmet))} with the tag {self.tag!r}; "
                f"`fun` sows {names}"
            )


def _require_tag(caller: str, tag: object) -> None:
    if not isinstance(tag, str):
        raise TypeError(f"{caller}: the tag must be a string, got {tag!r} of type {type(tag).__name__}")

"""`sow`, `reap` and `plant`: values of a program under names, collected or overridden from outside.

One function, `reap`, gives both what the function gives and what it sows, since a compiled program computes nothing
that nobody uses, and `grad(..., has_aux=True)` takes the pair as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Concatenate, Final, Never, ParamSpec, TypeAlias, TypeVar, cast, final

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.custom_rules import CustomRuleProgram
from tracefx.control.scan import Scan
from tracefx.control.sow import Plantable, Sow, SowMode, sown_names
from tracefx.core import dtypes
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import CURRENT, bind, bind1, current, handling
from tracefx.core.promotion import promote
from tracefx.core.source_location import Provenance, at_location, current_provenance
from tracefx.core.values import Value
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.interpreters.stage import stage
from tracefx.ops.elementwise.elementwise import ADD
from tracefx.ops.structural import constant_like_aval, convert_value
from tracefx.pytrees import trees
from tracefx.pytrees.trees import keystr
from tracefx.transforms.arguments import flatten_values, require_callable, to_arrays
from tracefx.transforms.transform import Transform, WrappedFunction
from tracefx.transforms.transformed_function import wrap_transformed

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Absent: TypeAlias = bool | int | float | complex
INTERMEDIATES: Final = "intermediates"
_MODES: Final[tuple[SowMode, ...]] = ("strict", "clobber", "append")


def sow(value: T, *, name: str, tag: str = INTERMEDIATES, mode: SowMode = "strict") -> T:
    """`value`, a tree of arrays, under a name: `reap` collects it, `plant` puts another in its place.

    Without either it is the value and costs nothing. `tag` keeps names for one purpose apart from those for another.
    What is sown twice under one name is an error; with `mode="clobber"` the last one counts, with `mode="append"` the
    result is a tuple of all of them.

    Raises TypeError for leaves that are no arrays and for names and tags that are no strings, ValueError for another
    mode.

    >>> from tracefx.handlers import reap
    >>> reap(lambda x: 2 * sow(x + 1, name="more"))(3)
    (Array(8, dtype=int32, weak_type=True), {'more': Array(4, dtype=int32, weak_type=True)})
    """
    for what, given in (("name", name), ("tag", tag)):
        if not isinstance(given, str):
            raise TypeError(f"sow: the {what} must be a string, got {given!r} of type {type(given).__name__}")
    if mode not in _MODES:
        raise ValueError(f"sow: mode must be one of {', '.join(map(repr, _MODES))}, got {mode!r}")
    values, tree = flatten_values(value, f"sow: the value {name!r}")
    structure = None if tree == trees.leaf() else tree
    outs = [bind1(Plantable(tag, name, mode, structure, i), x) for i, x in enumerate(values)]
    bind(Sow(tag, name, mode, structure), *outs)
    return cast(T, tree.unflatten(to_arrays(outs)))


# ------------------------------------------------------------------ collecting


def reap(
    fun: Callable[P, R], *, tag: str = INTERMEDIATES, absent: Absent | None = None
) -> WrappedFunction[P, tuple[R, dict[str, Any]]]:
    """A function that gives what `fun` gives, and the values that are sown while it runs, by their names.

    A value that is sown in the steps of a scan comes stacked, `[length, ...]`. One that is sown in a `while_loop` is
    that of the last step, or `absent`, zeros by default, if there was none. One that some branches of a `cond` sow and
    others don't is an error; with `absent`, a number, it is filled with that where the branch sows none. Values sown
    inside of another `reap` with this tag are that one's.

    `vmap(reap(f))` and `reap(vmap(f))` give the same, but that in the second a value that is the same for the whole
    batch has no batch axis. `reap(grad(f))` gives the values of the forward pass.

    Raises ValueError for a name that is sown twice or in some branches alone, TypeError for one whose branches sow
    different types.

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
    return cast("WrappedFunction[P, tuple[R, dict[str, Any]]]", Reap(tag, absent)(fun))


@final
@frozen(eq=False, repr=False)
class Reap(Transform):
    """`reap` as a value."""

    title: ClassVar[str] = "reap"
    tag: str = INTERMEDIATES
    absent: Absent | None = None

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable(self.title, fun)

        @wrap_transformed(self, fun)
        def reaped(*args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
            with handling(_Reaper(current(), self.tag, self.absent)) as handler:
                out = fun(*args, **kwargs)
            return out, handler.reaped_values()

        return reaped


@final
@frozen(repr=False)
class _SownName:
    """A name, under which the values of mode "append" are numbered."""

    label: str
    number: int
    mode: SowMode = field(eq=False)
    source: Provenance | None = field(eq=False)

    @override
    def __repr__(self) -> str:
        return repr(self.label)


@final
@frozen(eq=False)
class _Reaper(Interpreter[Never, None]):
    """Collects what is sown under a tag."""

    tag: str
    fill: Absent | None

    title: ClassVar[str] = "reap"
    handles_all: ClassVar[bool] = True
    has_state: ClassVar[bool] = True

    @property
    @override
    def cache_key(self) -> Hashable:
        return self.tag, repr(self.fill)

    @property
    @override
    def rules(self) -> Rules[_Reaper, Value]:
        return _REAP_RULES

    def sow_rule(self, op: Sow, *operands: Value) -> Sequence[Value]:
        if op.tag != self.tag:
            return bind(op, *operands)
        source = current_provenance()
        if op.uncollectable is not None:
            raise ValueError(
                f"reap: the value {op.label!r}, sown{at_location(source)}, can't be collected: {op.uncollectable}"
            )
        value = operands[0] if op.tree is None else trees.unflatten(op.tree, operands)
        self.collect(_SownName(op.label, 0, op.mode, source), value)
        return ()

    @override
    def collect(self, name: Hashable, value: object) -> None:
        assert isinstance(name, _SownName)
        before = [n for n in self.store.collected if isinstance(n, _SownName) and n.label == name.label]
        if before and (name.mode == "strict" or any(n.mode != name.mode for n in before)):
            raise ValueError(
                f"reap: two values are sown under the name {name.label!r}, one{at_location(before[0].source)} and one"
                f"{at_location(name.source)}: give one of them another name, or both mode='append', which keeps "
                "both, or "
                "mode='clobber', which keeps the last"
            )
        number = len(before) if name.mode == "append" else 0
        self.store.collected[evolve(name, number=number)] = value

    @override
    def default_collected(self, name: Hashable, avals: Sequence[ShapedArray], what: str | None) -> Sequence[Value]:
        assert isinstance(name, _SownName)
        if self.fill is None and what is not None:
            raise ValueError(
                f"reap: the value {name!r} is sown{at_location(name.source)} in one branch of cond but not in "
                f"{what}: sow it "
                "there too, or say what stands for it with reap(..., absent=0.0)"
            )
        if self.fill is None:
            return [constant_like_aval(aval, 0) for aval in avals]
        for aval in avals:
            if not _is_representable(self.fill, aval):
                raise TypeError(f"reap: absent={self.fill!r} is no value of the type of {name!r}, {aval}")
        return [constant_like_aval(aval, self.fill) for aval in avals]

    def reaped_values(self) -> dict[str, Any]:
        """What was collected, by name."""
        found: dict[str, Any] = {}
        for name, value in self.store.collected.items():
            assert isinstance(name, _SownName)
            leaves, tree = trees.flatten(value)
            given = tree.unflatten(to_arrays(cast(list[Value], leaves)))
            found[name.label] = (*found.get(name.label, ()), given) if name.mode == "append" else given
        return found


_REAP_RULES: Final = Rules[_Reaper, Value]().on(Sow, _Reaper.sow_rule)


def _is_representable(number: Absent, aval: ShapedArray) -> bool:
    if isinstance(number, bool):
        return True
    if isinstance(number, int):
        return not dtypes.is_bool(aval.dtype)
    return dtypes.is_complex(aval.dtype) or (isinstance(number, float) and dtypes.is_float(aval.dtype))


# ------------------------------------------------------------------ overriding


def plant(fun: Callable[P, R], *, tag: str = INTERMEDIATES) -> WrappedFunction[Concatenate[Mapping[str, Any], P], R]:
    """A function that does what `fun` does with other values in place of some that it sows.

    Its first argument is a dict of these values by name, in the form in which `reap` gives them: a value that is sown
    in a scan is stacked, `[length, ...]`, and its steps take slices. In a `while_loop`, whose number of steps nobody
    knows, every step takes the same value. What is planted is an argument like any other: the derivative with respect
    to it is that of the result with respect to the intermediate value.

    `plant(grad(f))` is the gradient of a program whose intermediate value depends on nothing.

    Raises TypeError for a value of another structure, shape or dtype than what is sown, ValueError for a name that is
    not sown, or is sown with `mode="append"`.

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
    """As `plant`, but what is given is added to what is sown.

    So the gradient at zeros is that of the result with respect to every intermediate value, the way through the other
    ones included, where `plant` cuts it. Raises TypeError, too, for booleans.

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
    tag: str = INTERMEDIATES
    adds: ClassVar[bool]

    @override
    def transformed(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        require_callable(self.title, fun)

        @wrap_transformed(self, fun)
        def changed(values: Mapping[str, Any], /, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(values, Mapping):
                raise TypeError(f"{self.title}: the first argument must be a dict of values by name, got {values!r}")
            given = {}
            for name, value in values.items():
                leaves, tree = flatten_values(value, f"{self.title}: the value {name!r}")
                given[name] = _PlantedValue(tuple(leaves), tree)
            with handling(_Planter(current(), self.title, self.adds, self.tag, given)) as handler:
                out = fun(*args, **kwargs)
            handler.require_all_used()
            return out

        return changed


@final
class Plant(_PlantTransform):
    """`plant` as a value."""

    __slots__ = ()
    title = "plant"
    adds = False


@final
class Perturb(_PlantTransform):
    """`perturb` as a value."""

    __slots__ = ()
    title = "perturb"
    adds = True


@final
@frozen(eq=False)
class _PlantedValue:
    """A value that is to be planted, with as many leading axes as it has been sliced along."""

    leaves: tuple[Value, ...]
    tree: trees.TreeDef
    sliced: int = 0

    def path(self, i: int) -> str:
        return keystr(trees.flatten_with_path(self.tree.unflatten(range(len(self.leaves))))[0][i][0])

    def slice_once_more(self, leaves: Sequence[Value]) -> _PlantedValue:
        return _PlantedValue(tuple(leaves), self.tree, self.sliced + 1)


@final
@frozen(eq=False)
class _Planter(Interpreter[Never, None]):
    """Puts values in the place of what is sown under a tag, or adds them to it."""

    title: str
    adds: bool
    tag: str
    given: Mapping[str, _PlantedValue]
    used_names: set[str] = field(factory=set)
    """The names that are sown."""

    handles_all: ClassVar[bool] = True
    has_state: ClassVar[bool] = True  # so that functions with rules come as the programs they are

    @property
    @override
    def rules(self) -> Rules[_Planter, Value]:
        return _PLANT_RULES

    def plant_rule(self, op: Plantable, x: Value) -> Sequence[Value]:
        given = self.given.get(op.label) if op.tag == self.tag else None
        if given is None:
            return bind(op, x)
        if op.derivative:  # what is planted depends on nothing
            return bind(op, x) if self.adds else [constant_like_aval(x.aval, 0)]
        if op.mode == "append":
            raise ValueError(
                f"{self.title}: {op.label!r} is sown{at_location(current_provenance())} with mode='append', so that "
                "nobody can tell which of "
                "the values under this name is meant: give each a name of its own"
            )
        self.require_structure(op, given)
        if self.adds and dtypes.is_bool(x.aval.dtype):
            raise TypeError(
                f"{self.title}: the value {op.label!r}{given.path(op.leaf)}, "
                f"sown{at_location(current_provenance())}, is {x.aval}, and "
                "nothing can be added to booleans: use plant"
            )
        leaf = self.cast_leaf(given.leaves[op.leaf], x.aval, given, op.leaf, op.label)
        return bind(op, bind1(ADD, x, leaf) if self.adds else leaf)

    def sow_rule(self, op: Sow, *operands: Value) -> Sequence[Value]:
        if op.tag == self.tag:
            self.used_names.add(op.label)
            if op.label in self.given:
                self.require_structure(op, self.given[op.label])
        return bind(op, *operands)

    def require_structure(self, op: Plantable | Sow, given: _PlantedValue) -> None:
        tree = trees.leaf() if op.tree is None else op.tree
        if given.tree != tree:
            raise TypeError(
                f"{self.title}: the value {op.label!r} has the structure {given.tree}, but what is "
                f"sown{at_location(current_provenance())} "
                f"has {tree}"
            )

    def cast_leaf(self, leaf: Value, aval: ShapedArray, given: _PlantedValue, i: int, name: str) -> Value:
        """A leaf of what is given as a value of the type of what is sown."""
        if leaf.aval == aval:
            return leaf
        dtype = leaf.aval.dtype
        if leaf.aval.weak_type:
            dtype = promote([(dtype, True), (aval.dtype, False)])[0]
        if leaf.aval.shape != aval.shape or dtype != aval.dtype:
            places = " in a step" if given.sliced else ""
            raise TypeError(
                f"{self.title}: the value {name!r}{given.path(i)} is {leaf.aval}{places}, but what is "
                f"sown{at_location(current_provenance())} is {aval}"
            )
        return convert_value(leaf, aval.dtype, aval.weak_type)

    def scan_rule(self, op: Scan, *operands: Value) -> Sequence[Value]:
        """The steps of a scan take slices of what is planted in them."""
        names = [name for name in sown_names(op.jaxpr, self.tag) if name in self.given]
        if not names:
            return op.transform_bodies(self, operands)
        given = [self.given[name] for name in names]
        for name, each in zip(names, given, strict=True):
            for i, leaf in enumerate(each.leaves):
                if not leaf.aval.ndim or leaf.aval.shape[0] != op.length:
                    raise TypeError(
                        f"{self.title}: {name!r} is sown{at_location(current_provenance())} in a scan of "
                        f"{op.length} steps, so what is given "
                        f"must have {op.length} elements along axis {each.sliced}, one for each step, but the value "
                        f"{name!r}{each.path(i)} has the shape {leaf.aval.shape}"
                        f"{' in one step of the scan around it' if each.sliced else ''}"
                    )
        leaves = [leaf for each in given for leaf in each.leaves]
        n = len(operands)

        def run(*xs: Value) -> Sequence[Value]:
            slices = iter(xs[n:])
            inside = {
                name: g.slice_once_more([next(slices) for _ in g.leaves]) for name, g in zip(names, given, strict=True)
            }
            handler = evolve(self.with_inner(CURRENT.get()), given=inside)
            return handler.run(op.jaxpr, xs[:n])

        jaxpr, consts = stage(
            run, [*op.jaxpr.in_avals, *[leaf.aval.without_axis(0) for leaf in leaves]], self.inner, title=self.title
        )
        inner = evolve(op, jaxpr=jaxpr.closed(), num_consts=op.num_consts + len(consts))
        return bind(inner, *consts, *operands, *leaves)

    def custom_rule_program_rule(self, op: CustomRuleProgram, *operands: Value) -> Sequence[Value]:
        """A function in which something is changed is another one than its rule is for."""
        if sown_names(op.jaxpr, self.tag).keys() & self.given.keys():
            return self.run(op.jaxpr, operands)
        return op.transform_bodies(self, operands)

    def require_all_used(self) -> None:
        if unmet := [name for name in self.given if name not in self.used_names]:
            names = ", ".join(map(repr, sorted(self.used_names))) or "nothing"
            raise ValueError(
                f"{self.title}: nothing is sown under {', '.join(map(repr, unmet))} with the tag {self.tag!r}; "
                f"the function sows {names}"
            )


_PLANT_RULES: Final[Rules[_Planter, Value]] = (
    Rules[_Planter, Value]()
    .on(Plantable, _Planter.plant_rule)
    .on(Sow, _Planter.sow_rule)
    .on(Scan, _Planter.scan_rule)
    .capable(CustomRuleProgram, _Planter.custom_rule_program_rule)
)


def _require_tag(caller: str, tag: object) -> None:
    if not isinstance(tag, str):
        raise TypeError(f"{caller}: the tag must be a string, got {tag!r} of type {type(tag).__name__}")

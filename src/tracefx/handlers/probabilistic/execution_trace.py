"""`trace`: what became of each random value; and `log_density`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import ClassVar, Concatenate, Final, Never, ParamSpec, TypeVar, cast, final
from typing import Literal as OneOf

from attrs import field, frozen
from typing_extensions import override

import tracefx.numpy as fnp
from tracefx.control.sow import Sow, sown_names
from tracefx.control.while_loop import While
from tracefx.core.array import Array, ArrayLike
from tracefx.core.avals import ShapedArray
from tracefx.core.handler import as_array, bind, current, handling
from tracefx.core.source_location import Provenance, at_location, current_provenance
from tracefx.core.values import Value
from tracefx.handlers.probabilistic.conditioning import substitute
from tracefx.handlers.probabilistic.distributions import Distribution
from tracefx.handlers.probabilistic.sample_sites import SITES, Site, SownSite, vmap_leading_axes
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.ops.structural import constant_like_aval
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import require_callable

P = ParamSpec("P")
R = TypeVar("R")
Missing = bool | int | float


def trace(fun: Callable[P, R], *, missing: Missing | None = None) -> Callable[P, tuple[R, dict[str, Site]]]:
    """A function that gives what `fun` gives, and its sites by name: values, densities, distributions.

    Sites in the steps of a scan come stacked. A site that only some branches of a `cond` have is an error; with
    `missing`, a number, that is its value where the branch has none, and its `log_prob` is 0.

    What is told is what the handlers around make of it: `trace(seed(f, key))` and `seed(trace(f), key)` give the same.
    `observed` is known of what is observed or conditioned inside.

    Raises ValueError for two sites of one name, for a site in some branches alone, and in a `while_loop`, of whose
    number of steps no array can tell.

    >>> from tracefx.handlers import Normal, sample, seed
    >>> _, sites = seed(trace(lambda: sample("x", Normal(5.0, 0.1))), 0)()
    >>> sites["x"].value, sites["x"].log_prob
    (Array(4.7557545, dtype=float32), Array(-1.5991472, dtype=float32))
    """
    require_callable("trace", fun)

    @functools.wraps(fun)
    def traced(*args: P.args, **kwargs: P.kwargs) -> tuple[R, dict[str, Site]]:
        with handling(_TraceHandler(current(), missing)) as handler:
            out = fun(*args, **kwargs)
        return out, handler.sites()

    return traced


def log_density(fun: Callable[P, object]) -> Callable[Concatenate[Mapping[str, ArrayLike], P], Array]:
    """The logarithm of the joint density of a program's values, `f32[]`.

    The first argument of the function has the values of all that is not observed, by name, in the form in which `trace`
    gives them. So its gradient is that with respect to them: for Hamiltonian Monte Carlo, or variational inference.

    Raises UnseededError for a site that has no value, ValueError for values that no site takes, and what `trace`
    raises; of a site that a branch lacks the density is 1.

    >>> from tracefx import grad
    >>> from tracefx.handlers import Normal, sample
    >>> def model(y):
    ...     x = sample("x", Normal(0.0, 1.0))
    ...     sample("y", Normal(x, 1.0), obs=y)
    >>> grad(log_density(model))({"x": 1.0}, 3.0)
    {'x': Array(1., dtype=float32, weak_type=True)}
    """
    require_callable("log_density", fun)

    def density(values: Mapping[str, ArrayLike], /, *args: P.args, **kwargs: P.kwargs) -> Array:
        _, sites = trace(substitute(fun, values), missing=0)(*args, **kwargs)
        total = fnp.asarray(0.0)
        for site in sites.values():
            total = total + site.log_prob.sum()
        return total

    return density


@final
@frozen(repr=False)
class _SitePart:
    """What is collected of a site: its value, its density, its distribution, of this structure."""

    label: str
    part: OneOf["value", "log_prob", "distribution"]
    tree: TreeDef | None = field(default=None, eq=lambda tree: (tree is None, tree))
    observed: bool = False
    source: Provenance | None = field(default=None, eq=False)

    @override
    def __repr__(self) -> str:
        return repr(self.label)


@final
@frozen(eq=False)
class _TraceHandler(Interpreter[Never, None]):
    """Collects sites."""

    missing: Missing | None

    title: ClassVar[str] = "trace"
    handles_all: ClassVar[bool] = True
    has_state: ClassVar[bool] = True

    @property
    @override
    def cache_key(self) -> Hashable:
        return repr(self.missing)

    @property
    @override
    def rules(self) -> Rules[_TraceHandler, Value]:
        return _TRACE_RULES

    def sow_rule(self, op: Sow, *operands: Value) -> Sequence[Value]:
        if op.tag != SITES:
            return bind(op, *operands)
        source = current_provenance()
        if op.uncollectable is not None:
            why = op.uncollectable.replace("reap(f)", "trace(f)")
            raise ValueError(f"trace: the site {op.label!r}{at_location(source)} can't be recorded: {why}")
        assert op.tree is not None
        sown: SownSite = trees.unflatten(op.tree, [as_array(x) for x in operands])
        log_prob = vmap_leading_axes(_log_prob, sown.value.ndim - sown.rank)(sown.distribution, sown.value)
        tree = trees.structure(sown.distribution)
        self.collect(_SitePart(op.label, "value", source=source), sown.value)
        self.collect(_SitePart(op.label, "log_prob", source=source), log_prob)
        self.collect(_SitePart(op.label, "distribution", tree, sown.observed, source), sown.distribution)
        return bind(op, *operands)

    def while_rule(self, op: While, *operands: Value) -> Sequence[Value]:
        for body in op.jaxprs():
            for label in sown_names(body, SITES):
                raise ValueError(
                    f"trace: the site {label!r} is in a while_loop{at_location(current_provenance())}, of whose "
                    "number of steps no array can "
                    "tell: use scan or fori_loop, with a number of steps that is known"
                )
        return op.transform_bodies(self, operands)

    @override
    def collect(self, name: Hashable, value: object) -> None:
        assert isinstance(name, _SitePart)
        for each in self.store.collected:
            if (
                isinstance(each, _SitePart)
                and name.part == "value"
                and (each.label, each.part) == (name.label, name.part)
            ):
                raise ValueError(
                    f"trace: there are two sites of the name {name.label!r}, one{at_location(each.source)} and one"
                    f"{at_location(name.source)}: give one of them another name"
                )
        self.store.collected[name] = value

    @override
    def default_collected(self, name: Hashable, avals: Sequence[ShapedArray], what: str | None) -> Sequence[Value]:
        """A branch may have the site, with another distribution."""
        assert isinstance(name, _SitePart)
        ours = {each.label for each in self.store.collected if isinstance(each, _SitePart)}
        if self.missing is None and what is not None and name.label not in ours:
            raise ValueError(
                f"trace: the site {name.label!r}{at_location(name.source)} is in one branch of cond but not in "
                f"{what}: sample "
                "it there too, or say what stands for it with trace(..., missing=0.0)"
            )
        fill = self.missing if name.part == "value" and self.missing is not None else 0
        return [constant_like_aval(aval, fill) for aval in avals]

    def sites(self) -> dict[str, Site]:
        parts: dict[str, dict[str, list[tuple[_SitePart, object]]]] = {}
        for name, value in self.store.collected.items():
            assert isinstance(name, _SitePart)
            parts.setdefault(name.label, {}).setdefault(name.part, []).append((name, value))
        found = {}
        for label, of in parts.items():
            ((_, value),), ((_, log_prob),), kinds = of["value"], of["log_prob"], of["distribution"]
            distribution = cast(Distribution, kinds[0][1]) if len(kinds) == 1 else None
            observed = all(name.observed for name, _ in kinds)
            found[label] = Site(as_array(cast(Value, value)), as_array(cast(Value, log_prob)), distribution, observed)
        return found


def _log_prob(distribution: Distribution, value: Array) -> Array:
    return as_array(distribution.log_prob(value))


_TRACE_RULES: Final = Rules[_TraceHandler, Value]().on(Sow, _TraceHandler.sow_rule).on(While, _TraceHandler.while_rule)

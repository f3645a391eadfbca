"""`trace`, which records the sites of a probabilistic program, and `log_density`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Concatenate, Never, ParamSpec, TypeVar, cast, final
from typing import Literal as OneOf

from attrs import field, frozen
from typing_extensions import override

import tracefx.numpy as fnp
from tracefx.control.sow import Sow, sown_names
from tracefx.control.while_loop import While
from tracefx.core import Array, ArrayLike, ShapedArray, Value
from tracefx.core.handler import as_array, bind
from tracefx.extend import SourceLocation, here
from tracefx.filtered_tracebacks import api_boundary
from tracefx.handlers.probabilistic.conditioning import substitute
from tracefx.handlers.probabilistic.distributions import Distribution
from tracefx.handlers.probabilistic.sample_sites import SITES, Site, SownSite, vmap_leading_axes
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rule_methods import rule
from tracefx.ops.structural import constant_like_aval
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import require_callable

P = ParamSpec("P")
R = TypeVar("R")
Missing = bool | int | float


def trace(fun: Callable[P, R], *, missing: Missing | None = None) -> Callable[P, tuple[R, dict[str, Site]]]:
    """Returns a function that also returns the sites of `fun` by name: values, log probabilities and distributions.

    Sites in a scan are stacked. The recorded values are those given by the handlers around: `trace(seed(f, key))` and
    `seed(trace(f), key)` return the same sites. `observed` is set for values that are observed or conditioned inside.

    Args:
        fun: a probabilistic program, which calls `sample`.
        missing: a number that is recorded as the value of a site which the branch taken of a `cond` does not have, with
            a `log_prob` of 0. With the default, None, all branches must have the same sites.

    Returns:
        A function with the parameters of `fun` that returns the pair of its result and a dict of `Site`s.

    Raises:
        ValueError: if two sites have one name, a site is in some branches only, or a site is in a `while_loop`, whose
            number of iterations is unknown, so that its values cannot be stacked.
        TypeError: if `fun` is not callable.

    >>> from tracefx.handlers import Normal, sample, seed
    >>> _, sites = seed(trace(lambda: sample("x", Normal(5.0, 0.1))), 0)()
    >>> sites["x"].value, sites["x"].log_prob
    (Array(4.7557545, dtype=float32), Array(-1.5991472, dtype=float32))
    """
    require_callable("trace", fun)

    @api_boundary
    @functools.wraps(fun)
    def traced(*args: P.args, **kwargs: P.kwargs) -> tuple[R, dict[str, Site]]:
        with _TraceHandler(missing).running() as handler:
            out = fun(*args, **kwargs)
        return out, handler.sites()

    return traced


def log_density(fun: Callable[P, object]) -> Callable[Concatenate[Mapping[str, ArrayLike], P], Array]:
    """Returns a function that computes the logarithm of the joint density of a program's values.

    Its gradient with respect to the values is what Hamiltonian Monte Carlo and variational inference need.

    Args:
        fun: a probabilistic program, which calls `sample`.

    Returns:
        A function that takes the values of all sites that are not observed, as a dict by name in the form that `trace`
        returns, then the arguments of `fun`, and returns an `f32[]`. A site that is missing in a branch contributes 0.

    Raises:
        UnseededError: if a site has no value.
        ValueError: if a value belongs to no site, and where `trace` raises it.
        TypeError: if `fun` is not callable.

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
    """The key of one collected part of a site: its value, log probability, or distribution with its structure."""

    label: str
    part: OneOf["value", "log_prob", "distribution"]
    tree: TreeDef | None = field(default=None, eq=lambda tree: (tree is None, tree), kw_only=True)
    observed: bool = field(default=False, kw_only=True)
    source: SourceLocation = field(eq=False)

    @override
    def __repr__(self) -> str:
        return repr(self.label)


@final
class _TraceHandler(Interpreter[Never, None, _SitePart]):
    """Records sites."""

    missing: Missing | None

    title: ClassVar[str] = "trace"
    has_state: ClassVar[bool] = True

    @rule(Sow)
    def sow_rule(self, op: Sow, *operands: Value) -> Sequence[Value]:
        if op.tag != SITES:
            return bind(op, *operands)
        source = here()
        if op.uncollectable is not None:
            why = op.uncollectable.replace("reap(f)", "trace(f)")
            raise ValueError(f"trace: cannot record the site {op.label!r} at {source}: {why}")
        assert op.tree is not None
        sown: SownSite = trees.unflatten(op.tree, [as_array(x) for x in operands])
        log_prob = vmap_leading_axes(_log_prob, sown.value.ndim - sown.rank)(sown.distribution, sown.value)
        tree = trees.structure(sown.distribution)
        self.collect(_SitePart(op.label, "value", source), sown.value)
        self.collect(_SitePart(op.label, "log_prob", source), log_prob)
        self.collect(_SitePart(op.label, "distribution", source, tree=tree, observed=sown.observed), sown.distribution)
        return bind(op, *operands)

    @rule(While)
    def while_rule(self, op: While, *operands: Value) -> Sequence[Value]:
        for body in op.jaxprs():
            for label in sown_names(body, SITES):
                raise ValueError(
                    f"trace: the site {label!r} is in a while_loop at {here()}, whose number of "
                    "iterations is unknown: use scan or fori_loop with a known number of steps"
                )
        return op.transform_bodies(self, operands)

    @override
    def collect(self, name: _SitePart, value: object) -> None:
        for each in self.run.collected:
            if name.part == "value" and (each.label, each.part) == (name.label, name.part):
                raise ValueError(
                    f"trace: two sites have the name {name.label!r}, one at {each.source} and one at "
                    f"{name.source}: rename one of them"
                )
        self.run.collected[name] = value

    @override
    def default_collected(self, name: _SitePart, avals: Sequence[ShapedArray], what: str | None) -> Sequence[Value]:
        """Fills a site that a branch does not have, or whose distribution in that branch is another one."""
        own_labels = {each.label for each in self.run.collected}
        if self.missing is None and what is not None and name.label not in own_labels:
            raise ValueError(
                f"trace: the site {name.label!r} at {name.source} is in one branch of cond but not in "
                f"{what}: sample it there too, or give a value for the missing ones: trace(..., missing=0.0)"
            )
        fill = self.missing if name.part == "value" and self.missing is not None else 0
        return [constant_like_aval(aval, fill) for aval in avals]

    def sites(self) -> dict[str, Site]:
        """Returns the recorded sites by name."""
        parts: dict[str, dict[str, list[tuple[_SitePart, object]]]] = {}
        for name, value in self.run.collected.items():
            parts.setdefault(name.label, {}).setdefault(name.part, []).append((name, value))
        sites = {}
        for label, by_part in parts.items():
            ((_, value),), ((_, log_prob),), distributions = (
                by_part["value"],
                by_part["log_prob"],
                by_part["distribution"],
            )
            distribution = cast(Distribution, distributions[0][1]) if len(distributions) == 1 else None
            observed = all(name.observed for name, _ in distributions)
            sites[label] = Site(as_array(value), as_array(log_prob), distribution, observed)
        return sites


def _log_prob(distribution: Distribution, value: Array) -> Array:
    return as_array(distribution.log_prob(value))

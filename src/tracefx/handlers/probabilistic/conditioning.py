"""`condition`, `substitute` and `replay`: give values to the sites of a probabilistic program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal as OneOf
from typing import ParamSpec, TypeVar, final

from attrs import evolve

from tracefx.control.sow import Sow
from tracefx.core import ArrayLike, Value
from tracefx.core.handler import bind
from tracefx.extend import here
from tracefx.filtered_tracebacks import api_boundary
from tracefx.handlers.probabilistic.sample_sites import SITES, Sample, SampleTangent, Site, SownSite, cast_to_draw
from tracefx.handlers.replacement import Replacement, ReplacingHandler
from tracefx.interpreters.rule_methods import rule
from tracefx.ops.structural import constant_like_aval
from tracefx.pytrees import trees
from tracefx.transforms.arguments import flatten_values, require_callable

P = ParamSpec("P")
R = TypeVar("R")


def condition(fun: Callable[P, R], values: Mapping[str, ArrayLike]) -> Callable[P, R]:
    """Returns `fun` with given values for some sites, which count as observed.

    If several handlers give a value to one site, the outermost one wins.

    Args:
        fun: a probabilistic program, which calls `sample`.
        values: the values by name, in the form that `trace` returns: stacked, `[length, ...]`, for a site in a scan.

    Returns:
        A function like `fun`.

    Raises:
        ValueError: if a name belongs to no site.
        TypeError: if a value differs from the draws in shape or kind of dtype.

    >>> from tracefx.handlers import Normal, sample, seed
    >>> def model():
    ...     return 2 * sample("x", Normal(0.0, 1.0))
    >>> condition(model, {"x": 3.0})()
    Array(6., dtype=float32)
    """
    return _substitute_values(fun, values, "condition")


def substitute(fun: Callable[P, R], values: Mapping[str, ArrayLike]) -> Callable[P, R]:
    """Like `condition`, but the values count as drawn: they remain unobserved and outer handlers may replace them.

    Args:
        fun: a probabilistic program, which calls `sample`.
        values: the values by name, as for `condition`.

    Returns:
        A function like `fun`.

    >>> from tracefx.handlers import Normal, sample, trace
    >>> _, sites = trace(substitute(lambda: sample("x", Normal(0.0, 1.0)), {"x": 3.0}))()
    >>> sites["x"].observed
    False
    """
    return _substitute_values(fun, values, "substitute")


def replay(fun: Callable[P, R], sites: Mapping[str, Site]) -> Callable[P, R]:
    """Returns `fun` with the values that were drawn in a trace, for the sites that both have.

    Observed sites, in the trace or in `fun`, keep their values. Names that `fun` does not have are ignored.

    Args:
        fun: a probabilistic program, which calls `sample`.
        sites: the sites of a trace, by name.

    Returns:
        A function like `fun`.

    Raises:
        TypeError: if `sites` is not a dict of `Site`s.

    >>> from tracefx.handlers import Normal, sample, seed, trace
    >>> def guide():
    ...     return sample("x", Normal(1.0, 0.1))
    >>> def model():
    ...     return sample("x", Normal(0.0, 1.0)) + sample("y", Normal(0.0, 1.0))
    >>> _, sites = seed(trace(guide), 0)()
    >>> _, again = seed(trace(replay(model, sites)), 1)()
    >>> again["x"].value == sites["x"].value
    Array(True, dtype=bool)
    """
    mapping: object = sites
    if not isinstance(mapping, Mapping) or not all(isinstance(site, Site) for site in mapping.values()):
        raise TypeError(f"replay: the sites must be those of a trace, by name, got {sites!r}")
    return _substitute_values(fun, {name: site.value for name, site in sites.items() if not site.observed}, "replay")


def _substitute_values(
    fun: Callable[P, R], values: Mapping[str, ArrayLike], title: _SubstitutionKind
) -> Callable[P, R]:
    require_callable(title, fun)
    if not isinstance(values, Mapping):
        raise TypeError(f"{title}: the values must be a dict by name, got {values!r}")

    @api_boundary
    @functools.wraps(fun)
    def with_values(*args: P.args, **kwargs: P.kwargs) -> R:
        given = {}
        for name, value in values.items():
            leaves, _ = flatten_values((value,), f"{title}: the value of {name!r}, ")
            given[name] = Replacement(tuple(leaves), trees.leaf())
        sampled = set[str]()
        handler = _SubstituteHandler(title, SITES, given, sampled.add)
        with handler.running():
            out = fun(*args, **kwargs)
        handler.require_all_used(sampled)
        return out

    return with_values


_SubstitutionKind = OneOf["condition", "substitute", "replay"]


@final
class _SubstituteHandler(ReplacingHandler, eq=False):
    """Gives values to sites."""

    named = "sampled"
    noun = "value"

    @rule(Sample)
    def sample_rule(self, op: Sample, *operands: Value) -> Sequence[Value]:
        self.record_name(op.label)
        given = self.given.get(op.label)
        if given is None or (self.title == "replay" and op.origin == "observed"):
            return bind(op, *operands)
        step = " in a step" if given.sliced else ""
        (value,) = given.leaves
        value = cast_to_draw(value, op.aval, f"{self.title}: the value of {op.label!r}{step}, sampled at {here()},")
        observed = self.title == "condition" or op.origin == "observed"
        return op.bind_with_value("observed" if observed else "given", op.parameters(operands), value)

    @rule(SampleTangent)
    def sample_tangent_rule(self, op: SampleTangent, tangent: Value) -> Sequence[Value]:
        """Replaces the tangent of a given value by zero: the value is a constant inside of the handler."""
        return [constant_like_aval(tangent.aval, 0)] if op.label in self.given else bind(op, tangent)

    @rule(Sow)
    def sow_rule(self, op: Sow, *operands: Value) -> Sequence[Value]:
        if op.tag == SITES and op.label in self.given and self.title == "condition":
            assert op.tree is not None
            sown: SownSite = trees.unflatten(op.tree, operands)
            op = evolve(op, tree=trees.structure(evolve(sown, observed=True)))
        return bind(op, *operands)

    def require_all_used(self, sampled: Collection[str]) -> None:
        """Raises `ValueError` unless all names that have a value are names of sites."""
        unmet = [name for name in self.given if name not in sampled]
        if unmet and self.title != "replay":
            names = ", ".join(map(repr, sorted(sampled))) or "none"
            raise ValueError(
                f"{self.title}: nothing is sampled under {', '.join(map(repr, unmet))}; the names of the function's "
                f"sites are {names}"
            )

"""`condition`, `substitute` and `replay`: values of a probabilistic program that are given from outside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, Never, ParamSpec, TypeVar, final
from typing import Literal as OneOf

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx.control.custom_rules import CustomRuleProgram
from tracefx.control.scan import Scan
from tracefx.control.sow import Sow, sown_names
from tracefx.core.array import ArrayLike
from tracefx.core.handler import CURRENT, bind, current, handling
from tracefx.core.source_location import at_location, current_provenance
from tracefx.core.values import Value
from tracefx.handlers.probabilistic.sample_sites import SITES, Sample, SampleTangent, Site, SownSite, cast_to_draw
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rules import Rules
from tracefx.interpreters.stage import stage
from tracefx.ops.structural import constant_like_aval
from tracefx.pytrees import trees
from tracefx.transforms.arguments import flatten_values, require_callable

P = ParamSpec("P")
R = TypeVar("R")


def condition(fun: Callable[P, R], values: Mapping[str, ArrayLike]) -> Callable[P, R]:
    """`fun` where sites have these values, and count as observed.

    Values have the form in which `trace` gives them: that of a site in a scan is stacked, `[length, ...]`. Where a
    value is given more than once, the outermost counts.

    Raises ValueError for a name that no site has, TypeError for a value of another shape or kind than the draws.

    >>> from tracefx.handlers import Normal, sample, seed
    >>> def model():
    ...     return 2 * sample("x", Normal(0.0, 1.0))
    >>> condition(model, {"x": 3.0})()
    Array(6., dtype=float32)
    """
    return _substitute_values(fun, values, "condition")


def substitute(fun: Callable[P, R], values: Mapping[str, ArrayLike]) -> Callable[P, R]:
    """As `condition`, but the values count as drawn: the density is that of all, and they may be replaced.

    >>> from tracefx.handlers import Normal, sample, trace
    >>> _, sites = trace(substitute(lambda: sample("x", Normal(0.0, 1.0)), {"x": 3.0}))()
    >>> sites["x"].observed
    False
    """
    return _substitute_values(fun, values, "substitute")


def replay(fun: Callable[P, R], sites: Mapping[str, Site]) -> Callable[P, R]:
    """`fun` with the values that were drawn in a trace, for those of its sites that are in it.

    What was observed there, or is here, is left as it is; names that `fun` doesn't have are no error.

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
    given: object = sites
    if not isinstance(given, Mapping) or not all(isinstance(site, Site) for site in given.values()):
        raise TypeError(f"replay: the sites must be those of a trace, by name, got {sites!r}")
    return _substitute_values(fun, {name: site.value for name, site in sites.items() if not site.observed}, "replay")


def _substitute_values(
    fun: Callable[P, R], values: Mapping[str, ArrayLike], title: _SubstitutionKind
) -> Callable[P, R]:
    require_callable(title, fun)
    if not isinstance(values, Mapping):
        raise TypeError(f"{title}: the values must be a dict by name, got {values!r}")

    @functools.wraps(fun)
    def given(*args: P.args, **kwargs: P.kwargs) -> R:
        arrays = {}
        for name, value in values.items():
            (x,), _ = flatten_values((value,), f"{title}: the value of {name!r}, ")
            arrays[name] = x
        with handling(_SubstituteHandler(current(), title, arrays)) as handler:
            out = fun(*args, **kwargs)
        handler.require_all_used()
        return out

    return given


_SubstitutionKind = OneOf["condition", "substitute", "replay"]


@final
@frozen(eq=False)
class _SubstituteHandler(Interpreter[Never, None]):
    """Gives values to sites."""

    title: _SubstitutionKind
    values: Mapping[str, Value]
    depth: int = 0
    """How many scans these are the steps of."""
    used_names: set[str] = field(factory=set)
    other_names: set[str] = field(factory=set)

    handles_all: ClassVar[bool] = True
    has_state: ClassVar[bool] = True  # so that functions with rules come as the programs they are

    @property
    @override
    def rules(self) -> Rules[_SubstituteHandler, Value]:
        return _SUBSTITUTE_RULES

    def sample_rule(self, op: Sample, *operands: Value) -> Sequence[Value]:
        value = self.values.get(op.label)
        if value is None or (self.title == "replay" and op.origin == "observed"):
            self.other_names.add(op.label)
            return bind(op, *operands)
        self.used_names.add(op.label)
        step = " in a step" if self.depth else ""
        value = cast_to_draw(
            value,
            op.aval,
            f"{self.title}: the value of {op.label!r}{step}, sampled{at_location(current_provenance())},",
        )
        observed = self.title == "condition" or op.origin == "observed"
        return op.bind_with_value("observed" if observed else "given", op.parameters(operands), value)

    def sample_tangent_rule(self, op: SampleTangent, tangent: Value) -> Sequence[Value]:
        """What is given depends on nothing inside."""
        return [constant_like_aval(tangent.aval, 0)] if op.label in self.values else bind(op, tangent)

    def sow_rule(self, op: Sow, *operands: Value) -> Sequence[Value]:
        if op.tag == SITES and op.label in self.values and self.title == "condition":
            assert op.tree is not None
            sown: SownSite = trees.unflatten(op.tree, operands)
            op = evolve(op, tree=trees.structure(evolve(sown, observed=True)))
        return bind(op, *operands)

    def scan_rule(self, op: Scan, *operands: Value) -> Sequence[Value]:
        """The steps of a scan take slices of what is given to them."""
        names = [name for name in sown_names(op.jaxpr, SITES) if name in self.values]
        if not names:
            return op.transform_bodies(self, operands)
        for name in names:
            aval = self.values[name].aval
            if not aval.ndim or aval.shape[0] != op.length:
                raise TypeError(
                    f"{self.title}: {name!r} is sampled{at_location(current_provenance())} in a scan of {op.length} "
                    "steps, so its value must "
                    f"have {op.length} elements along axis {self.depth}, one for each step, but has the shape "
                    f"{aval.shape}{' in one step of the scan around it' if self.depth else ''}"
                )
        arrays = [self.values[name] for name in names]
        n = len(operands)

        def run(*xs: Value) -> Sequence[Value]:
            values = {**self.values, **dict(zip(names, xs[n:], strict=True))}
            handler = evolve(self.with_inner(CURRENT.get()), values=values, depth=self.depth + 1)
            return handler.run(op.jaxpr, xs[:n])

        avals = [*op.jaxpr.in_avals, *[x.aval.without_axis(0) for x in arrays]]
        jaxpr, consts = stage(run, avals, self.inner, title=self.title)
        inner = evolve(op, jaxpr=jaxpr.closed(), num_consts=op.num_consts + len(consts))
        return bind(inner, *consts, *operands, *arrays)

    def custom_rule_program_rule(self, op: CustomRuleProgram, *operands: Value) -> Sequence[Value]:
        """A function in which a value is given is another one than its rule is for."""
        if sown_names(op.jaxpr, SITES).keys() & self.values.keys():
            return self.run(op.jaxpr, operands)
        return op.transform_bodies(self, operands)

    def require_all_used(self) -> None:
        unmet = [name for name in self.values if name not in self.used_names]
        if unmet and self.title != "replay":
            names = ", ".join(map(repr, sorted(self.used_names | self.other_names))) or "none"
            raise ValueError(
                f"{self.title}: nothing is sampled under {', '.join(map(repr, unmet))}; the names of the function's "
                f"sites are {names}"
            )


_SUBSTITUTE_RULES: Final = (
    Rules[_SubstituteHandler, Value]()
    .on(Sample, _SubstituteHandler.sample_rule)
    .on(SampleTangent, _SubstituteHandler.sample_tangent_rule)
    .on(Sow, _SubstituteHandler.sow_rule)
    .on(Scan, _SubstituteHandler.scan_rule)
    .capable(CustomRuleProgram, _SubstituteHandler.custom_rule_program_rule)
)

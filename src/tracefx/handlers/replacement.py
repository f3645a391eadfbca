"""Handlers that replace named values: the base class of those of `plant`, `perturb`, `condition` and `replay`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Never, final

from attrs import evolve, frozen

from tracefx.control.custom_rules import CustomRuleProgram
from tracefx.control.scan import Scan
from tracefx.control.sow import sown_names
from tracefx.core import Value
from tracefx.core.handler import CURRENT, bind
from tracefx.extend import here
from tracefx.interpreters.interpreter import Interpreter
from tracefx.interpreters.rule_methods import rule
from tracefx.interpreters.stage import stage
from tracefx.pytrees import trees
from tracefx.pytrees.trees import keystr


@final
@frozen(eq=False)
class Replacement:
    """A pytree that replaces a named value."""

    leaves: tuple[Value, ...]
    tree: trees.TreeDef
    sliced: int = 0
    """The number of enclosing scans, along whose axes the leaves have been sliced."""

    def path(self, i: int) -> str:
        """Returns the path of a leaf in the pytree, as text."""
        return keystr(trees.flatten_with_path(self.tree.unflatten(range(len(self.leaves))))[0][i][0])


class ReplacingHandler(Interpreter[Never, None], eq=False):
    """Replaces the values that are sown with a tag under given names. Rules for the values are those of subclasses."""

    title: str
    tag: str
    given: Mapping[str, Replacement]
    record_name: Callable[[str], None]
    """Called with each name that occurs with the tag."""

    has_state: ClassVar[bool] = True  # so that calls with custom rules arrive with their jaxprs
    named: ClassVar[str]
    """What happens to values that get a name, in messages: they are `sown`."""
    noun: ClassVar[str]
    """What replaces a value, in messages."""

    @rule(Scan)
    def scan_rule(self, op: Scan, *operands: Value) -> Sequence[Value]:
        """Passes each iteration of a scan its slices of the replacements."""
        names = [name for name in sown_names(op.jaxpr, self.tag) if name in self.given]
        if not names:
            return op.transform_bodies(self, operands)
        replacements = [self.given[name] for name in names]
        for name, each in zip(names, replacements, strict=True):
            for i, leaf in enumerate(each.leaves):
                if not leaf.aval.ndim or leaf.aval.shape[0] != op.length:
                    raise TypeError(
                        f"{self.title}: {name!r} is {self.named} at {here()} in a scan of {op.length} steps, so its "
                        f"{self.noun} must have {op.length} elements along axis {each.sliced}, one for each step, but "
                        f"the value {name!r}{each.path(i)} has the shape {leaf.aval.shape}"
                        f"{' in one step of the scan around it' if each.sliced else ''}"
                    )
        leaves = [leaf for each in replacements for leaf in each.leaves]
        n = len(operands)

        def run(*xs: Value) -> Sequence[Value]:
            slices = iter(xs[n:])
            inside = {
                name: evolve(each, leaves=tuple([next(slices) for _ in each.leaves]), sliced=each.sliced + 1)
                for name, each in zip(names, replacements, strict=True)
            }
            return evolve(self, given=inside).start(CURRENT.get()).interpret(op.jaxpr, xs[:n])

        avals = [*op.jaxpr.in_avals, *[leaf.aval.without_axis(0) for leaf in leaves]]
        jaxpr, consts = stage(run, avals, self.inner, title=self.title)
        inner = evolve(op, jaxpr=jaxpr.closed(), num_consts=op.num_consts + len(consts))
        return bind(inner, *consts, *operands, *leaves)

    @rule(capability=CustomRuleProgram)
    def custom_rule_program_rule(self, op: CustomRuleProgram, *operands: Value) -> Sequence[Value]:
        """Interprets the body instead of the custom rule if a value in it is replaced: the rule no longer holds."""
        if sown_names(op.jaxpr, self.tag).keys() & self.given.keys():
            return self.interpret(op.jaxpr, operands)
        return op.transform_bodies(self, operands)

"""The rule for `call_hi_primitive`, by which JAX applies a `HiPrim`: an object with an expansion and rules of its own.

Functions with user-defined derivatives, checkpoints and names are such objects where JAX is set to write them so, and
become the operations that they are here. Others keep the rules that they have in JAX, as primitives of other libraries
do, unless these compute what the expansion's operations do: then the expansion is imported in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import jax
from jax.experimental import hijax

from tracefx.control.checkpoint import Name
from tracefx.core.handler import bind
from tracefx.core.jaxpr import eval_jaxpr
from tracefx.core.values import Value
from tracefx.interop.jax.callables import CustomRule, custom_jvp, custom_vjp
from tracefx.interop.jax.controlled import checkpoint
from tracefx.interop.jax.foreign import Application, Foreign
from tracefx.interop.jax.translating import Equation, Program, Rule, Translation, given_types
from tracefx.transforms.arguments import name_of

_HiRule: TypeAlias = Callable[[Translation, Equation, Sequence[Value], Any], Sequence[Value]]
_HI_PRIM: Final[Any] = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive
"""The base class, which is called VJPHiPrimitive before JAX 0.11."""


def _call(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Sequence[Value]:
    prim = eqn.params["_prim"]
    kind = type(prim)
    rule = _HI_RULES.get(f"{kind.__module__}.{kind.__qualname__}")
    if rule is not None:
        return rule(translation, eqn, args, prim)
    if eqn.effects:
        raise translation.untranslated(f"{eqn.primitive.name}: {kind.__name__}")
    if kind.jvp is _HI_PRIM.jvp and kind.vjp_fwd is not _HI_PRIM.vjp_fwd:
        return _reverse_mode(translation, eqn, args, prim)
    theirs = Application(translation, eqn.primitive, eqn.params, _expanded(eqn))
    return bind(Foreign(kind.__name__, theirs, tuple(given_types(eqn))), *args)


def _expanded(eqn: Equation) -> Callable[..., Any]:
    """The expansion as a function of flat operands and of the parameters."""
    primitive: Any = eqn.primitive  # whose methods have no types
    expanded: Callable[..., Any] = primitive.to_lojax
    return expanded


def _expansion(translation: Translation, eqn: Equation, args: Sequence[Value]) -> Program:
    """The expansion as a program."""
    expanded = _expanded(eqn)
    avals = [x.aval for x in args]
    traced = translation.traced_there(lambda *xs: expanded(*xs, **eqn.params), avals, [v.aval for v in eqn.invars])
    return translation.program(traced, avals)


def _in_place(translation: Translation, eqn: Equation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    program = _expansion(translation, eqn, args)
    return eval_jaxpr(program.jaxpr, (), [*program.consts, *args])


# ------------------------------------------------------------------ user-defined derivatives


def _num_consts(prim: Any, has_consts: bool) -> int:
    """How many operands are closed-over values, which are the first argument of those that have any."""
    return len(jax.tree_util.tree_leaves(prim.in_avals[0])) if has_consts else 0


def _custom_jvp(translation: Translation, eqn: Equation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    """Since JAX 0.12 the rule is `jvp_rule`, and closed-over values are operands."""
    params = prim.params
    num_consts = _num_consts(prim, "jvp_rule" in params)
    jvp = params["jvp_rule"] if "jvp_rule" in params else params["jvp_fun"]
    custom = CustomRule(prim.traced.fun_name, _expansion(translation, eqn, args), num_consts, prim.symbolic_zeros)
    return custom_jvp(translation, eqn, args, custom, name_of(jvp))


def _custom_vjp(translation: Translation, eqn: Equation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    """Since JAX 0.11 closed-over values are operands."""
    num_consts = _num_consts(prim, hasattr(type(prim), "drop_fwd_consts"))
    custom = CustomRule(prim.traced.fun_name, _expansion(translation, eqn, args), num_consts, prim.symbolic_zeros)
    return custom_vjp(translation, eqn, args, custom, name_of(prim.fwd), name_of(prim.bwd))


def _reverse_mode(translation: Translation, eqn: Equation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    """An object that has derivatives in reverse mode alone."""
    kind = type(prim)
    custom = CustomRule(kind.__name__, _expansion(translation, eqn, args), 0, False)
    return custom_vjp(translation, eqn, args, custom, name_of(kind.vjp_fwd), name_of(kind.vjp_bwd_retval))


# ------------------------------------------------------------------ checkpoints


def _checkpoint(translation: Translation, eqn: Equation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    return checkpoint(translation, prim.params, args)


def _name(translation: Translation, eqn: Equation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    return bind(Name(prim.name), *args)


_HI_RULES: Final[Mapping[str, _HiRule]] = MappingProxyType(
    {
        "jax._src.ad_checkpoint.CheckpointName": _name,
        "jax._src.ad_checkpoint.RematTraced": _checkpoint,
        "jax._src.hijax.CustomJVPTraced": _custom_jvp,
        "jax._src.hijax.CustomVJPTraced": _custom_vjp,
        "jax._src.numpy.hijax.Einsum": _in_place,
        "jax._src.numpy.hijax.Nonzero": _in_place,
        "jax._src.numpy.hijax.SearchSorted": _in_place,
    }
)
"""By the classes of the objects. The rules of those imported in place are the rules of the expansion's operations."""

RULES: Final[Mapping[str, Rule]] = MappingProxyType({"call_hi_primitive": _call})
"""By the names of JAX's primitives."""

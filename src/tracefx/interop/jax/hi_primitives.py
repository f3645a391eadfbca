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

from tracefx.control.checkpoint import CheckpointName
from tracefx.core.evaluation import eval_jaxpr
from tracefx.core.handler import bind
from tracefx.core.values import Value
from tracefx.interop.jax.foreign_primitives import ForeignPrimitive, ParameterizedPrimitive
from tracefx.interop.jax.importing_control import bind_checkpoint
from tracefx.interop.jax.importing_custom_rules import CustomRule, bind_custom_jvp, bind_custom_vjp
from tracefx.interop.jax.importing_programs import ImportedProgram, Importer, ImportRule, JaxEquation, result_types
from tracefx.transforms.arguments import fun_name

_HiRule: TypeAlias = Callable[[Importer, JaxEquation, Sequence[Value], Any], Sequence[Value]]
_HI_PRIM: Final[Any] = getattr(hijax, "HiPrim", None) or hijax.VJPHiPrimitive
"""The base class, which is called VJPHiPrimitive before JAX 0.11."""


def _call_hi_primitive(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> Sequence[Value]:
    prim = eqn.params["_prim"]
    kind = type(prim)
    rule = _HI_RULES.get(f"{kind.__module__}.{kind.__qualname__}")
    if rule is not None:
        return rule(translation, eqn, args, prim)
    if eqn.effects:
        raise translation.missing_rule_error(f"{eqn.primitive.name}: {kind.__name__}")
    if kind.jvp is _HI_PRIM.jvp and kind.vjp_fwd is not _HI_PRIM.vjp_fwd:
        return _reverse_mode(translation, eqn, args, prim)
    theirs = ParameterizedPrimitive(translation, eqn.primitive, eqn.params, _expansion_function(eqn))
    return bind(ForeignPrimitive(kind.__name__, theirs, tuple(result_types(eqn))), *args)


def _expansion_function(eqn: JaxEquation) -> Callable[..., Any]:
    """The expansion as a function of flat operands and of the parameters."""
    primitive: Any = eqn.primitive  # whose methods have no types
    expanded: Callable[..., Any] = primitive.to_lojax
    return expanded


def _expansion_program(translation: Importer, eqn: JaxEquation, args: Sequence[Value]) -> ImportedProgram:
    """The expansion as a program."""
    expanded = _expansion_function(eqn)
    avals = [x.aval for x in args]
    traced = translation.trace_like(lambda *xs: expanded(*xs, **eqn.params), avals, [v.aval for v in eqn.invars])
    return translation.program(traced, avals)


def _inline_expansion(translation: Importer, eqn: JaxEquation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    program = _expansion_program(translation, eqn, args)
    return eval_jaxpr(program.jaxpr, (), [*program.consts, *args])


# ------------------------------------------------------------------ user-defined derivatives


def _num_consts(prim: Any, has_consts: bool) -> int:
    """How many operands are closed-over values, which are the first argument of those that have any."""
    return len(jax.tree_util.tree_leaves(prim.in_avals[0])) if has_consts else 0


def _custom_jvp(translation: Importer, eqn: JaxEquation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    """Since JAX 0.12 the rule is `jvp_rule`, and closed-over values are operands."""
    params = prim.params
    num_consts = _num_consts(prim, "jvp_rule" in params)
    jvp = params["jvp_rule"] if "jvp_rule" in params else params["jvp_fun"]
    custom = CustomRule(
        prim.traced.fun_name, _expansion_program(translation, eqn, args), num_consts, prim.symbolic_zeros
    )
    return bind_custom_jvp(translation, eqn, args, custom, fun_name(jvp))


def _custom_vjp(translation: Importer, eqn: JaxEquation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    """Since JAX 0.11 closed-over values are operands."""
    num_consts = _num_consts(prim, hasattr(type(prim), "drop_fwd_consts"))
    custom = CustomRule(
        prim.traced.fun_name, _expansion_program(translation, eqn, args), num_consts, prim.symbolic_zeros
    )
    return bind_custom_vjp(translation, eqn, args, custom, fun_name(prim.fwd), fun_name(prim.bwd))


def _reverse_mode(translation: Importer, eqn: JaxEquation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    """An object that has derivatives in reverse mode alone."""
    kind = type(prim)
    custom = CustomRule(kind.__name__, _expansion_program(translation, eqn, args), 0, False)
    return bind_custom_vjp(translation, eqn, args, custom, fun_name(kind.vjp_fwd), fun_name(kind.vjp_bwd_retval))


# ------------------------------------------------------------------ checkpoints


def _checkpoint(translation: Importer, eqn: JaxEquation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    return bind_checkpoint(translation, prim.params, args)


def _name(translation: Importer, eqn: JaxEquation, args: Sequence[Value], prim: Any) -> Sequence[Value]:
    return bind(CheckpointName(prim.name), *args)


_HI_RULES: Final[Mapping[str, _HiRule]] = MappingProxyType(
    {
        "jax._src.ad_checkpoint.CheckpointName": _name,
        "jax._src.ad_checkpoint.RematTraced": _checkpoint,
        "jax._src.hijax.CustomJVPTraced": _custom_jvp,
        "jax._src.hijax.CustomVJPTraced": _custom_vjp,
        "jax._src.numpy.hijax.Einsum": _inline_expansion,
        "jax._src.numpy.hijax.Nonzero": _inline_expansion,
        "jax._src.numpy.hijax.SearchSorted": _inline_expansion,
    }
)
"""By the classes of the objects. The rules of those imported in place are the rules of the expansion's operations."""

RULES: Final[Mapping[str, ImportRule]] = MappingProxyType({"call_hi_primitive": _call_hi_primitive})
"""By the names of JAX's primitives."""

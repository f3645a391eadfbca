"""`sample`: random values with names, as primitives that handlers interpret.

A site binds two primitives: `Sample` for the value, which handlers draw or replace, and `Sow` with a reserved tag,
which shows the value to handlers that record it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final
from typing import Literal as OneOf

from attrs import evolve, field, frozen
from typing_extensions import override

from tracefx import random
from tracefx.control.sow import Sow
from tracefx.core import Array, ArrayLike, DType, Shape, ShapedArray, Value, dtypes
from tracefx.core.effects import NO_EFFECTS, Effect, Effects
from tracefx.core.handler import as_array, bind
from tracefx.core.primitive import (
    Batchable,
    BatchDims,
    Differentiable,
    Expandable,
    MappedAxis,
    Primitive,
    Tangent,
    Transposable,
    UndefinedPrimal,
    Zero,
)
from tracefx.errors import UnseededError
from tracefx.extend import here
from tracefx.handlers.probabilistic.distributions import Distribution, Reparametrized
from tracefx.lowering import Builder, IrValue, Lowerable
from tracefx.ops.annotations.identity import Identity
from tracefx.ops.structural import batch_first, convert_value, instantiate
from tracefx.pytrees import trees
from tracefx.pytrees.trees import TreeDef
from tracefx.transforms.arguments import flatten_values
from tracefx.transforms.differentiation import jvp
from tracefx.transforms.vmap import vmap

D = TypeVar("D", bound=Distribution | None)
SITES: Final = "tracefx.sites"
"""The tag under which sites are sown."""


@final
@trees.register_dataclass
@frozen
class Site:
    """A recorded random value.

    A site in a scan, or inside `vmap`, has all arrays stacked.

    Attributes:
        value: the value.
        log_prob: the log probability of each draw, `f32[batch...]`.
        distribution: its distribution; None if branches of a `cond` draw from distributions of different classes.
        observed: whether the value was given, by `obs=` or by a `condition` inside.

    >>> from tracefx import random
    >>> from tracefx.handlers import Normal, observe, trace
    >>> _, sites = trace(lambda: observe("x", Normal(0.0, 1.0), 2.0))()
    >>> sites["x"].value, sites["x"].observed
    (Array(2., dtype=float32), True)
    """

    value: Array
    log_prob: Array
    distribution: Distribution | None
    observed: bool = field(metadata={"static": True})


@final
@trees.register_dataclass
@frozen
class SownSite:
    """The sown content of a site; `rank` is the number of axes of the value without batch axes."""

    value: Array
    distribution: Distribution
    observed: bool = field(metadata={"static": True})
    rank: int = field(metadata={"static": True})


@final
@frozen
class SampleEffect(Effect):
    """The effect of drawing a random number: not removed or repeated, and batched per element."""

    per_batch_element = True
    name: str

    @override
    def __str__(self) -> str:
        return f"Sample {self.name!r}"


ValueOrigin = OneOf["open", "drawn", "given", "observed"]


@final
@frozen(eq=False)
class Sample(Primitive, Expandable, Differentiable, Batchable, Lowerable):
    """A value of a distribution.

    Its operands are the leaves of the distribution, followed by the value unless `origin` is `"open"`; its results are
    the value and the leaves. All have the axes `batch_shape` first.

    Attributes:
        label: the name of the site.
        tree: the structure of the distribution.
        shape: the shape of a draw.
        dtype: the dtype of a draw.
        batch_shape: the batch axes of enclosing `vmap`s.
        origin: where the value comes from; `"open"` if it is still to be drawn.
    """

    name = "sample"
    label: str = field(metadata={"print": "name", "erased": True})
    tree: TreeDef = field(metadata={"erased": True})
    shape: Shape
    dtype: DType
    batch_shape: Shape = field(default=(), metadata={"hide_default": True})
    origin: ValueOrigin = field(default="open", metadata={"hide_default": True})

    @property
    @override
    def profile_name(self) -> str:
        return f"sample({self.label})"

    @property
    @override
    def effects(self) -> Effects:
        return frozenset({SampleEffect(self.label)}) if self.origin == "open" else NO_EFFECTS

    @property
    def aval(self) -> ShapedArray:
        """The shape and dtype of the value, including batch axes."""
        return ShapedArray(self.batch_shape + self.shape, self.dtype)

    def parameters(self, operands: Sequence[Value]) -> Sequence[Value]:
        """Returns the leaves of the distribution among the operands."""
        return operands if self.origin == "open" else operands[:-1]

    def distribution(self, parameters: Sequence[Value]) -> Distribution:
        """Returns the distribution with these leaves."""
        distribution: Distribution = self.tree.unflatten([as_array(x) for x in parameters])
        return distribution

    def bind_with_value(self, origin: ValueOrigin, parameters: Sequence[Value], value: Value) -> Sequence[Value]:
        """Binds the site with a given value, which outer handlers may still replace."""
        return bind(evolve(self, origin=origin), *parameters, value)

    @override
    def abstract_eval(self, *avals: ShapedArray) -> Sequence[ShapedArray]:
        return [self.aval, *(avals if self.origin == "open" else avals[:-1])]

    @override
    def evaluate(self, args: Sequence[Value]) -> Sequence[Value]:
        if self.origin == "open":
            raise self.unseeded_error()
        return [args[-1], *args[:-1]]

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        if self.origin == "open":
            raise UnseededError(
                f"sample of {self.label!r} at {here()}: its operands are values of a handler "
                "that has no rule for it. Seed the function inside of that handler: handler(seed(f, key)), not "
                "seed(handler(f), key)"
            )
        return [args[-1], *args[:-1]]

    @override
    def lower(self, builder: Builder, *operands: IrValue) -> Sequence[IrValue]:
        if self.origin == "open":
            raise self.unseeded_error()
        return [operands[-1], *operands[:-1]]

    def unseeded_error(self) -> UnseededError:
        """Returns the error for a site without a value."""
        return UnseededError(
            f"sample of {self.label!r} at {here()}: there are no random numbers to draw it "
            "from. Run the function with a key, seed(f, key), or give the value: "
            f"condition(f, {{{self.label!r}: ...}})"
        )

    # -------------------------------------------------------------- rules

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        op = evolve(self, batch_shape=(axis.size, *self.batch_shape))
        outs = bind(op, *[batch_first(x, d, axis) for x, d in zip(args, dims, strict=True)])
        return outs, [0] * len(outs)

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        outs = bind(self, *primals)
        if self.origin == "open":
            tangent, moving = self._pathwise_tangent(outs[0], primals, tangents), list(tangents)
        else:
            *moving, tangent = tangents
        if not isinstance(tangent, Zero):  # a handler that replaces the value also makes this tangent zero
            (tangent,) = bind(SampleTangent(self.label), tangent)
        return outs, [tangent, *moving]

    def _pathwise_tangent(self, value: Value, parameters: Sequence[Value], tangents: Sequence[Tangent]) -> Tangent:
        """Returns the derivative of the value with respect to the parameters at constant noise."""
        if not dtypes.is_inexact(self.dtype):
            return Zero(self.aval.tangent())
        distribution = self.distribution(parameters)
        if not isinstance(distribution, Reparametrized):
            raise TypeError(
                f"sample of {self.label!r} at {here()}: {type(distribution).__name__} does not "
                "define how its draws depend on its fields; inherit from Reparametrized, or seed the function before "
                "it is differentiated: grad(seed(f, key))"
            )

        def pushed(*fields: Value) -> Array:
            return self.map_batch(lambda d, z: d.push(z), self.distribution(fields), noise)

        noise = self.map_batch(lambda d, x: d.pull(x), distribution, value)
        return jvp(pushed, tuple(parameters), tuple([instantiate(t) for t in tangents]))[1]

    def map_batch(self, f: Callable[..., Array], distribution: Distribution, *xs: Value) -> Array:
        """Applies `f` to each element of the batch."""
        return vmap_leading_axes(f, len(self.batch_shape))(distribution, *xs)

    def draw(self, key: Array, parameters: Sequence[Value]) -> Array:
        """Returns a random value for each element of the batch."""
        keys = random.split(key, self.batch_shape) if self.batch_shape else key
        value = vmap_leading_axes(_draw_one, len(self.batch_shape))(self.distribution(parameters), keys)
        if value.aval.shape != self.aval.shape or value.aval.dtype != self.aval.dtype:
            name = type(self.distribution(parameters)).__name__
            raise TypeError(
                f"sample of {self.label!r} at {here()}: a draw of {name} is {value.aval}, "
                f"but its shape and dtype say {self.aval}: define these properties to match the draws"
            )
        return value


def _draw_one(distribution: Distribution, key: Array) -> Array:
    return as_array(distribution.sample(key))


def vmap_leading_axes(f: Callable[..., Array], axes: int) -> Callable[..., Array]:
    """Returns `f` mapped over `axes` leading axes of its arguments."""
    for _ in range(axes):
        f = vmap(f)
    return f


@final
@frozen(eq=False)
class SampleTangent(Identity, Primitive, Expandable, Differentiable, Transposable, Batchable):
    """Marks the tangent or cotangent of a sampled value; handlers that replace the value make it zero."""

    name = "sample_tangent"
    label: str = field(metadata={"print": "name", "erased": True})

    @override
    def expand(self, *args: Value) -> Sequence[Value]:
        return args

    @override
    def jvp(self, primals: Sequence[Value], tangents: Sequence[Tangent]) -> tuple[Sequence[Value], Sequence[Tangent]]:
        return bind(self, *primals), [t if isinstance(t, Zero) else bind(self, t)[0] for t in tangents]

    @override
    def transpose(self, cts: Sequence[Tangent], *args: Value | UndefinedPrimal) -> Sequence[Tangent | None]:
        return [ct if isinstance(ct, Zero) else bind(self, ct)[0] for ct in cts]

    @override
    def batch(self, axis: MappedAxis, args: Sequence[Value], dims: BatchDims) -> tuple[Sequence[Value], BatchDims]:
        return bind(self, *args), dims


# ------------------------------------------------------------------ public functions


def sample(name: str, distribution: Distribution, *, obs: ArrayLike | None = None) -> Array:
    """Returns a named random value: `seed` draws it, `condition` replaces it, `trace` records it.

    Inside `vmap` each batch element has its own value.

    Args:
        name: the name of the site, unique in the program.
        distribution: its distribution.
        obs: an observed value, with the shape of a draw. With the default, None, the value is random.

    Returns:
        The value.

    Raises:
        UnseededError: if no handler provides a value or random numbers.
        TypeError: if `name` is not a string, `distribution` is not a `Distribution`, or `obs` has another shape or an
            incompatible dtype.
        ValueError: if the fields of the distribution do not broadcast.

    >>> from tracefx.handlers import Normal, seed
    >>> seed(lambda: sample("x", Normal(5.0, 0.1)), 0)()
    Array(4.7557545, dtype=float32)
    """
    if not isinstance(name, str):
        raise TypeError(f"sample: the name must be a string, got {name!r} of type {type(name).__name__}")
    if not isinstance(distribution, Distribution):
        raise TypeError(
            f"sample of {name!r}: the distribution must inherit from Distribution, got {distribution!r} of type "
            f"{type(distribution).__name__}"
        )
    parameters, tree = flatten_values(distribution, f"sample of {name!r}: the distribution")
    try:
        shape, dtype = distribution.shape, distribution.dtype
    except ValueError as error:
        raise ValueError(f"sample of {name!r}: the fields of {distribution} don't fit each other: {error}") from error
    op = Sample(name, tree, shape, dtype)
    if obs is None:
        outs = bind(op, *parameters)
    else:
        outs = op.bind_with_value(
            "observed", parameters, cast_to_draw(as_array(obs), op.aval, f"sample of {name!r}: obs")
        )
    value = as_array(outs[0])
    sown = SownSite(value, op.distribution(outs[1:]), obs is not None, len(shape))
    leaves, sown_tree = trees.flatten(sown)
    bind(Sow(SITES, name, "strict", sown_tree), *leaves)
    return value


def observe(name: str, distribution: Distribution, value: ArrayLike) -> Array:
    """Conditions on an observed value: the same as `sample(name, distribution, obs=value)`.

    Args:
        name: the name of the site.
        distribution: its distribution.
        value: the observed value, with the shape of a draw.

    Returns:
        The value, in the dtype of the distribution.

    >>> from tracefx.handlers import Normal, log_density
    >>> log_density(lambda: observe("x", Normal(0.0, 1.0), 0.0))({})
    Array(-0.9189385, dtype=float32)
    """
    return sample(name, distribution, obs=value)


def cast_to_draw(x: Value, aval: ShapedArray, what: str) -> Value:
    """Converts a given value to the dtype of a draw; raises TypeError if its shape or kind of dtype differs."""
    kinds = [_dtype_rank(a.dtype) for a in (x.aval, aval)]
    if x.aval.shape != aval.shape or kinds[0] > kinds[1]:
        raise TypeError(f"{what} is {x.aval}, but the value is {aval}")
    return convert_value(x, aval.dtype, False)


def _dtype_rank(dtype: DType) -> int:
    return [dtypes.is_bool(dtype), dtypes.is_integer(dtype), dtypes.is_float(dtype), True].index(True)

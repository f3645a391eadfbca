"""`ShapeDtypeStruct`: shapes and dtypes in place of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Self, final

from attrs import field, frozen
from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, DTypeLike, Shape, ShapedArray, dtypes, is_arraylike
from tracefx.core.layouts import Format, Layout, format_of, without_layout
from tracefx.core.named_sharding import NamedSharding
from tracefx.core.partition_spec import PartitionSpec
from tracefx.core.sharding import Sharding
from tracefx.interpreters.refs import RefLike, read_refs, ref_arguments
from tracefx.ops.duck_typing import DuckTypedArray, array_type
from tracefx.ops.operation import static_shape
from tracefx.pytrees import trees
from tracefx.pytrees.trees import PyTree, TreeDef
from tracefx.shardings.conversions import as_sharding
from tracefx.shardings.sharded_array import ShardedArray
from tracefx.transforms.arguments import LEAF_TYPES, LeafNames, leaf_value


def _shape(shape: Sequence[int]) -> Shape:
    return static_shape("ShapeDtypeStruct", shape)


def _sharding(given: Format | Sharding | PartitionSpec | None) -> Sharding | None:
    if isinstance(given, NamedSharding):
        return given
    layout = given.layout if isinstance(given, Format) else None
    ndim = len(layout.major_to_minor) if isinstance(layout, Layout) else 0
    sharding = without_layout(given, "ShapeDtypeStruct: sharding", ndim)
    return None if sharding is None else as_sharding(sharding, "ShapeDtypeStruct")


def _exact_dtype(dtype: DTypeLike) -> DType:
    return dtypes.as_dtype(dtype, exact=True)


def struct_of(aval: ShapedArray, sharding: Sharding | None = None) -> ShapeDtypeStruct:
    """Returns a type as a `ShapeDtypeStruct`, with the given sharding or else that of the type."""
    return ShapeDtypeStruct(
        aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=sharding or aval.explicit_sharding
    )


@final
@frozen
class ShapeDtypeStruct:
    """The shape and dtype of an array, used in place of it by `eval_shape`, `jit(f).lower`, `linear_transpose` etc.

    Args:
        shape: The shape, a sequence of integers.
        dtype: The dtype, or its name.
        weak_type: Whether the type is weak, like that of a Python number. False by default.
        sharding: The sharding of the array, its `Format`, or a `PartitionSpec` of the mesh in use, for programs that
            are compiled. None by default. The type has its sharding over explicit mesh axes.

    >>> ShapeDtypeStruct((2, 3), "float32")
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    shape: Shape = field(converter=_shape)
    dtype: DType = field(converter=_exact_dtype)
    weak_type: bool = field(default=False, kw_only=True)
    sharding: Sharding | None = field(default=None, kw_only=True, converter=_sharding)
    """The sharding of an array for which a program is compiled."""

    @classmethod
    def like(cls, array: ArrayLike | DuckTypedArray) -> Self:
        """Returns the shape, dtype and weak type of an array; for a committed array also its sharding.

        Args:
            array: An array, a number, or an object with `shape` and `dtype`.

        >>> ShapeDtypeStruct.like(2.0)
        ShapeDtypeStruct(shape=(), dtype=float32, weak_type=True)
        """
        aval = array_type(array, "ShapeDtypeStruct.like: array")
        has_sharding = not isinstance(array, Array) or (isinstance(array, ShardedArray) and array.committed)
        given = getattr(array, "sharding", None) if has_sharding else None
        sharding = given if isinstance(given, Sharding) else None
        return cls(aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=sharding)

    def update(
        self,
        *,
        shape: Sequence[int] | None = None,
        dtype: DTypeLike | None = None,
        weak_type: bool | None = None,
        sharding: Format | Sharding | PartitionSpec | EllipsisType | None = ...,
    ) -> Self:
        """Returns a copy with some fields replaced.

        Args:
            shape: The new shape; None, the default, keeps it.
            dtype: The new dtype; None, the default, keeps it.
            weak_type: The new weak type; None, the default, keeps it.
            sharding: The new sharding; None removes it, and `...`, the default, keeps it.

        >>> ShapeDtypeStruct((2, 3), "float32").update(shape=(4,))
        ShapeDtypeStruct(shape=(4,), dtype=float32)
        """
        return type(self)(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            weak_type=self.weak_type if weak_type is None else weak_type,
            sharding=self.sharding if sharding is ... else sharding,
        )

    @property
    def format(self) -> Format:
        """The sharding with the layout in memory, which is row-major; both None without a sharding."""
        return format_of(self.sharding, self.ndim) if isinstance(self.sharding, Sharding) else Format()

    @property
    def is_ref(self) -> bool:
        """Whether it is the type of a mutable reference: always False."""
        return False

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.aval.size

    @property
    def aval(self) -> ShapedArray:
        """The shape, dtype, weak type and sharding over explicit mesh axes as an abstract value."""
        aval = ShapedArray(self.shape, self.dtype, self.weak_type)
        return aval if self.sharding is None else aval.with_sharding(self.sharding)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a shape without axes")
        return self.shape[0]

    @override
    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        where = "" if self.sharding is None else f", sharding={self.sharding}"
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={dtypes.name(self.dtype)}{weak}{where})"


def flatten_avals(tree: PyTree, what: str | LeafNames) -> tuple[list[ShapedArray], TreeDef]:
    """Returns the types of the leaves of a pytree (arrays or objects with `shape` and `dtype`), and its structure."""
    leaves, treedef = trees.flatten_with_known_types(tree, LEAF_TYPES)
    avals: list[ShapedArray] = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, ShapeDtypeStruct):
            avals.append(leaf.aval)
        elif (
            not is_arraylike(leaf)
            and not isinstance(leaf, RefLike)
            and hasattr(leaf, "shape")
            and hasattr(leaf, "dtype")
        ):
            dtype = dtypes.canonicalize(dtypes.as_dtype(leaf.dtype))
            avals.append(ShapedArray(tuple(leaf.shape), dtype, bool(getattr(leaf, "weak_type", False))))
        else:
            avals.append(leaf_value(leaf, i, tree, what).aval)
    return avals, treedef


def flatten_avals_and_refs(
    tree: PyTree, what: str | LeafNames, where: str
) -> tuple[list[ShapedArray], TreeDef, tuple[int, ...]]:
    """Does the same as `flatten_avals` for arguments that may be references; returns also the positions of these."""
    leaves, treedef = trees.flatten_with_known_types(tree, LEAF_TYPES)
    refs = ref_arguments(where, leaves)
    avals, _ = flatten_avals(treedef.unflatten(read_refs(leaves, refs)) if refs else tree, what)
    return avals, treedef, tuple(refs)

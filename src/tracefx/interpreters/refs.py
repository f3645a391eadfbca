"""Mutable references: cells that hold an array and can be written to, also while a function is traced.

A `Ref` belongs to the handler under which it was created, and holds a value of that handler: an array, or a tracer of
`jvp`, `vmap` or `jit`. Reading returns the contents; writing replaces them by the result of a pure update. So handlers
see only pure primitives, and nothing about references.

A trace that is made inside (the body of a loop, a jitted function) must not touch the contents themselves, since it
runs once for all steps and calls. It handles the effect by passing state: at the first use of a reference from outside,
a handler with `ThreadsRefs` adds an input for its contents and from then on reads and writes its own copy. What was
written becomes an additional output of the recorded program, which is pure; whoever runs it writes these outputs back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn, TypeAlias, final, overload

from typing_extensions import override

from tracefx.core import Array, ArrayLike, DType, Shape, ShapedArray, as_value, dtypes
from tracefx.core.avals import RefType
from tracefx.core.handler import CURRENT, Handler, Tracer, as_array, require_not_escaped
from tracefx.core.indexed_updates import Index as GenericIndex
from tracefx.errors import EscapedTracerError, RefError, TypePromotionError
from tracefx.interpreters.recording import Recording, StageTracer
from tracefx.ops import promotion
from tracefx.ops.duck_typing import DuckTypedArray, array_type
from tracefx.ops.structural import convert_value
from tracefx.source_location import Provenance, at_location, current_provenance

Index: TypeAlias = GenericIndex[Array]


@final
class TracedRef:
    """The contents of a reference from outside, in one trace.

    Attributes:
        input: The contents at the beginning of the traced program.
        contents: The contents at this point of it.
    """

    __slots__ = ("contents", "input")

    def __init__(self, contents: StageTracer) -> None:
        self.input: Final = contents
        self.contents: Array = contents

    @property
    def written(self) -> bool:
        """Whether the program writes to the reference."""
        return self.contents is not self.input


class ThreadsRefs(Recording):
    """A recording handler that threads the contents of references from outside through the program.

    Attributes:
        refs: The references from outside that the traced function uses, in the order of their first uses.
    """

    __slots__ = ()
    refs: dict[Ref, TracedRef]


class RefLike(ABC):
    """The operations of references and of their views.

    An index is any index that arrays accept: integers, slices, arrays, traced values and tuples of these. Written
    values broadcast to the shape of the indexed elements; they must have the dtype of the reference or be weakly typed,
    as Python numbers are.
    """

    __slots__ = ()

    @abstractmethod
    def _read(self) -> Array:
        """Returns the contents."""

    @abstractmethod
    def _write(self, contents: ArrayLike) -> None:
        """Replaces the contents by an array of the same shape and dtype."""

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The shape of the contents."""

    @property
    @abstractmethod
    def dtype(self) -> DType:
        """The dtype of the contents."""

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return ShapedArray(self.shape, self.dtype).size

    def __getitem__(self, index: Index) -> Array:
        contents = self._read()
        return contents if index is ... else contents[index]

    def __setitem__(self, index: Index, value: ArrayLike) -> None:
        new = self._converted(value)
        if index is not ... or new.shape != self.shape:
            new = self._read().at[index].set(new)
        self._write(new)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a reference without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return iter(self._read())

    __array_ufunc__ = None  # NumPy arrays leave `array + ref` to this class, which has no arithmetic

    @property
    def at(self) -> RefIndexer:
        """Views: `ref.at[index]` reads and writes the elements of `ref` at the index.

        >>> import tracefx as fx
        >>> ref = fx.new_ref(fx.numpy.zeros(3))
        >>> view = ref.at[1:]
        >>> view[0] = 5.0
        >>> ref
        Ref([0., 5., 0.], dtype=float32)
        """
        return RefIndexer(self)

    def get(self, index: Index = ...) -> Array:
        """Returns the elements at an index, as `ref[index]` does.

        Args:
            index: The index. `...`, the default, means all elements.

        Returns:
            The array.
        """
        return self[index]

    def set(self, value: ArrayLike, index: Index = ...) -> None:
        """Replaces the elements at an index, as `ref[index] = value` does.

        Args:
            value: The new elements.
            index: The index. `...`, the default, means all elements.

        Raises:
            RefError: If the value has another dtype. It is a TypeError and a ValueError.
            ValueError: If the value does not broadcast to the shape of the elements.
        """
        self[index] = value

    def swap(self, value: ArrayLike, index: Index = ...) -> Array:
        """Replaces the elements at an index and returns the old ones.

        Args:
            value: The new elements.
            index: The index. `...`, the default, means all elements.

        Returns:
            The elements before the call.

        Raises:
            RefError: If the value has another dtype. It is a TypeError and a ValueError.
            ValueError: If the value does not broadcast to the shape of the elements.
        """
        old = self[index]
        self[index] = value
        return old

    def addupdate(self, value: ArrayLike, index: Index = ...) -> None:
        """Adds to the elements at an index. Unlike `ref[index] += value`, it adds once per repetition of an index.

        Args:
            value: What is added.
            index: The index. `...`, the default, means all elements.

        Raises:
            RefError: If the value has another dtype. It is a TypeError and a ValueError.
            ValueError: If the value does not broadcast to the shape of the elements.
        """
        self._write(self._read().at[index].add(self._converted(value)))

    def _converted(self, value: ArrayLike) -> Array:
        """Returns a value to be written, in the dtype of the reference."""
        x = as_value(value, "the value that is written to a reference")
        if x.aval.dtype != self.dtype:
            try:
                promoted = promotion.promote([(self.dtype, False), (x.aval.dtype, x.aval.weak_type)])[0]
            except TypePromotionError:
                promoted = x.aval.dtype
            if not x.aval.weak_type or promoted != self.dtype:
                name, is_key = dtypes.name(self.dtype), dtypes.is_key(self.dtype) or dtypes.is_key(x.aval.dtype)
                convert = "" if is_key else f": convert it with value.astype({name!r})"
                raise RefError(
                    f"a value of type {x.aval} is written to a reference of dtype {name}{convert}; the dtype of a "
                    "reference does not change"
                )
            x = convert_value(x, self.dtype, False)
        return as_array(x)


@final
class Ref(RefLike):
    """A mutable reference to an array. `new_ref` creates it.

    `ref[index]` reads elements, `ref[index] = value` writes them, and `ref[index] += value` does both; `ref[...]` is
    all of them. What is read is an ordinary, immutable array. Functions under `jit`, `scan`, `while_loop`, `cond`,
    `checkpoint` and the other transformations may read and write references that they close over; `jit` and `vmap` also
    take them as arguments.

    Attributes:
        aval: Its type.
        frozen: Whether it was frozen, so that it cannot be used any more.
        lent_to: The transformation that has it as an argument at the moment; uses of it are errors. None otherwise.

    >>> import tracefx as fx
    >>> total = fx.new_ref(fx.numpy.zeros(2))
    >>> @fx.jit
    ... def add(x):
    ...     total[0] += x
    ...     return total[...].sum()
    >>> add(1.0), add(2.0), total
    (Array(1., dtype=float32), Array(3., dtype=float32), Ref([3., 0.], dtype=float32))
    """

    __slots__ = ("__weakref__", "_argument", "_contents", "_handler", "_home", "lent_to", "_origin", "aval", "frozen")

    def __init__(self, contents: Array, argument: str | None = None) -> None:
        """Makes a reference that belongs to the current handler.

        Args:
            contents: Its contents.
            argument: The name of the argument that it is, for messages; None, the default, if it is a new reference.
        """
        self.aval: Final = RefType(contents.aval)
        self.frozen = False
        self._contents = contents
        self._argument: Final = argument
        self._handler: Final = CURRENT.get()
        self._home: Final = _threading_handler(self._handler)
        self._origin: Final[Provenance | None] = current_provenance()
        self.lent_to: str | None = None

    @property
    @override
    def shape(self) -> Shape:
        return self.aval.shape

    @property
    @override
    def dtype(self) -> DType:
        return self.aval.dtype

    @property
    def description(self) -> str:
        """The reference in messages."""
        if self._argument is not None:
            return f"the reference {self.aval}, {self._argument},"
        return f"the reference {self.aval} made{at_location(self._origin) or ' outside'}"

    @property
    def is_local(self) -> bool:
        """Whether it was made inside a traced function, so that it is valid only during the trace."""
        return self._home is not None

    def freeze(self) -> Array:
        """Returns the contents, and ends the life of the reference: later uses are errors.

        Raises:
            RefError: If it is not used where it was made: in another trace, or as an argument.
        """
        if self._argument is not None or self._threading() is not None:
            raise RefError(
                f"{self.description} is frozen in a function that did not make it: freeze it where it was made, or "
                "read it with ref[...]"
            )
        contents = self._read()
        self.frozen = True
        return contents

    def _threading(self) -> ThreadsRefs | None:
        """Returns the innermost trace inside the one that the reference belongs to; None in that one itself."""
        if self.frozen:
            raise RefError(f"{self.description} is used after freeze: use the array that freeze returned")
        if self.lent_to is not None:
            raise RefError(
                f"{self.description} is closed over by a function that also takes it as an argument, in "
                f"{self.lent_to}: use the argument only"
            )
        innermost: ThreadsRefs | None = None
        for handler in CURRENT.get().chain():
            if isinstance(handler, ThreadsRefs):
                if handler is self._home:
                    return innermost
                innermost = innermost or handler
        if self._home is not None:
            raise EscapedTracerError(
                f"{self.description} in {self._home.title} is used after the traced function returned, or in a part of "
                "the program that is traced on its own: a reference lives as long as the call that makes it. Make the "
                "reference outside, or return ref[...]"
            )
        return innermost

    def _traced(self, handler: ThreadsRefs) -> TracedRef:
        if self not in handler.refs:
            handler.refs[self] = TracedRef(handler.input(self.aval.contents))
        return handler.refs[self]

    @override
    def _read(self) -> Array:
        handler = self._threading()
        contents = self._contents if handler is None else self._traced(handler).contents
        if isinstance(contents, Tracer):
            require_not_escaped(contents, "as the contents of a reference")
        return contents

    @override
    def _write(self, contents: ArrayLike) -> None:
        handler, aval = self._threading(), self.aval.contents
        new = as_array(convert_value(as_value(contents), aval.dtype, aval.weak_type))
        owner = self._handler if handler is None else handler
        if isinstance(new, Tracer) and not any(h.owns(new) for h in owner.chain()):
            self._raise_foreign(new)
        if not new.aval.vma <= aval.vma:
            raise RefError(
                f"a value of type {new.aval} is written to {self.description}: its contents would vary over mesh axes; "
                "make it inside the mapped function, of a value that varies over these axes"
            )
        if handler is None:
            self._contents = new
        else:
            self._traced(handler).contents = new

    def _raise_foreign(self, value: Tracer) -> NoReturn:
        """Raises the error for a value of a transformation that began after the reference was made."""
        title = value.handler.title
        kind = {"vmap": "batched", "differentiation": "differentiated"}.get(title, "traced")
        raise RefError(
            f"a {kind} value of type {value.aval} is written to {self.description}, outside of the function under "
            f"{title}, so it would outlive the transformation: make the reference inside that function"
            + (", or pass it to the function as a batched argument" if kind == "batched" else "")
            + (", or write tracefx.lax.stop_gradient(value)" if kind == "differentiated" else "")
        )

    @override
    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self.description} can't be pickled or copied: pickle ref[...], and make a new reference of it"
        )

    @override
    def __repr__(self) -> str:
        if isinstance(self._contents, Tracer) or self.frozen:
            return f"{self.aval}{' (frozen)' if self.frozen else ''}"
        return f"Ref{repr(self._contents).removeprefix('Array')}"


@final
class RefView(RefLike):
    """A view of a reference at an index, `ref.at[index]`: reads and writes the elements of the reference."""

    __slots__ = ("_base", "_index")

    def __init__(self, base: RefLike, index: Index) -> None:
        self._base: Final = base
        self._index: Final = index

    @property
    @override
    def shape(self) -> Shape:
        return self._read().shape

    @property
    @override
    def dtype(self) -> DType:
        return self._base.dtype

    @override
    def _read(self) -> Array:
        return self._base[self._index]

    @override
    def _write(self, contents: ArrayLike) -> None:
        self._base[self._index] = contents

    @override
    def __repr__(self) -> str:
        return f"RefView({self._base!r}, {self._index!r})"


@final
class RefIndexer:
    """The type of `ref.at`."""

    __slots__ = ("_base",)

    def __init__(self, base: RefLike) -> None:
        self._base: Final = base

    def __getitem__(self, index: Index) -> RefView:
        return RefView(self._base, index)


def new_ref(init_val: ArrayLike) -> Ref:
    """Makes a mutable reference to an array.

    Args:
        init_val: The first contents: an array or a number. They determine the shape and the dtype of the reference.

    Returns:
        A `Ref`.

    Raises:
        TypeError: If `init_val` is not an array or a number.

    >>> import tracefx as fx
    >>> ref = fx.new_ref(fx.numpy.zeros(3))
    >>> ref[0] = 1.0
    >>> ref[1:] += 2.0
    >>> ref[...]
    Array([1., 2., 2.], dtype=float32)

    Derivatives flow through references that are made in the differentiated function:

    >>> def cube(x):
    ...     product = fx.new_ref(1.0)
    ...     def multiply(i, _):
    ...         product[...] *= x
    ...     fx.lax.fori_loop(0, 3, multiply, None)
    ...     return fx.freeze(product)
    >>> fx.grad(cube)(2.0)
    Array(12., dtype=float32, weak_type=True)
    """
    if isinstance(init_val, RefLike):
        raise TypeError("new_ref: init_val must be an array or a number, got a reference: pass its contents, ref[...]")
    return Ref(as_array(as_value(init_val, "new_ref: init_val")))


def freeze(ref: Ref) -> Array:
    """Returns the contents of a reference, which cannot be used afterwards.

    Args:
        ref: A reference that was made in the same function.

    Returns:
        Its contents.

    Raises:
        TypeError: If `ref` is not a `Ref`.
        RefError: If it was frozen before, or made in another traced function. It is a ValueError.

    >>> import tracefx as fx
    >>> ref = fx.new_ref(1.0)
    >>> ref[...] += 1.0
    >>> fx.freeze(ref)
    Array(2., dtype=float32, weak_type=True)
    """
    if not isinstance(ref, Ref):
        raise TypeError(f"freeze takes a Ref, as new_ref makes it, got an object of type {type(ref).__name__}")
    return ref.freeze()


def get(ref: RefLike, idx: Index = ...) -> Array:
    """Returns elements of a reference, as `ref[idx]` does.

    Args:
        ref: A reference or a view.
        idx: The index. `...`, the default, and None mean all elements.

    Returns:
        The array.

    >>> import tracefx as fx
    >>> fx.ref.get(fx.new_ref(fx.numpy.arange(3)), 2)
    Array(2, dtype=int32)
    """
    return ref[... if idx is None else idx]


def set(ref: RefLike, idx: Index, value: ArrayLike) -> None:
    """Replaces elements of a reference, as `ref[idx] = value` does.

    Args:
        ref: A reference or a view.
        idx: The index. `...` and None mean all elements.
        value: The new elements.

    Raises:
        RefError: If the value has another dtype. It is a TypeError and a ValueError.
        ValueError: If the value does not broadcast to the shape of the elements.

    >>> import tracefx as fx
    >>> ref = fx.new_ref(fx.numpy.arange(3))
    >>> fx.ref.set(ref, 0, 7)
    >>> ref
    Ref([7, 1, 2], dtype=int32)
    """
    ref.set(value, ... if idx is None else idx)


def swap(ref: RefLike, idx: Index, value: ArrayLike) -> Array:
    """Replaces elements of a reference and returns the old ones.

    Args:
        ref: A reference or a view.
        idx: The index. `...` and None mean all elements.
        value: The new elements.

    Returns:
        The elements before the call.

    Raises:
        RefError: If the value has another dtype. It is a TypeError and a ValueError.
        ValueError: If the value does not broadcast to the shape of the elements.

    >>> import tracefx as fx
    >>> ref = fx.new_ref(fx.numpy.arange(3))
    >>> fx.ref.swap(ref, 0, 7), ref
    (Array(0, dtype=int32), Ref([7, 1, 2], dtype=int32))
    """
    return ref.swap(value, ... if idx is None else idx)


def addupdate(ref: RefLike, idx: Index, x: ArrayLike) -> None:
    """Adds to elements of a reference. Unlike `ref[idx] += x`, it adds once per repetition of an index.

    Args:
        ref: A reference or a view.
        idx: The index. `...` and None mean all elements.
        x: What is added.

    Raises:
        RefError: If `x` has another dtype. It is a TypeError and a ValueError.
        ValueError: If `x` does not broadcast to the shape of the elements.

    >>> import tracefx as fx
    >>> ref = fx.new_ref(fx.numpy.zeros(2))
    >>> fx.ref.addupdate(ref, fx.numpy.array([0, 0, 1]), 1.0)
    >>> ref
    Ref([2., 1.], dtype=float32)
    """
    ref.addupdate(x, ... if idx is None else idx)


@overload
def typeof(x: Ref) -> RefType: ...  # type: ignore[overload-overlap]  # a Ref has a shape and a dtype, too
@overload
def typeof(x: ArrayLike | DuckTypedArray) -> ShapedArray: ...
def typeof(x: Ref | ArrayLike | DuckTypedArray) -> ShapedArray | RefType:
    """Returns the abstract value (shape, dtype and weak type) of `x`.

    Args:
        x: An array, a number, a tracer, a reference, or an object with `shape` and `dtype`.

    Returns:
        The aval; of a reference a `RefType`. Inside a checked `shard_map`, its `vma` names the mesh axes over which the
        array may vary from device to device.

    Raises:
        TypeError: If `x` is neither an array nor a reference, and does not have a shape and a dtype.

    >>> typeof(2.0)
    f32[]*
    """
    return x.aval if isinstance(x, Ref) else array_type(x, "typeof: argument")


def _threading_handler(handler: Handler) -> ThreadsRefs | None:
    """Returns the innermost handler on a chain that threads references; None outside of all traces."""
    return next((h for h in handler.chain() if isinstance(h, ThreadsRefs)), None)


# ------------------------------------------------------------------ references as arguments


def ref_arguments(where: str, leaves: Sequence[object]) -> dict[int, Ref]:
    """Returns the references among the leaves of a call's arguments, by their positions.

    Args:
        where: The name of the arguments, for messages.
        leaves: The leaves.

    Raises:
        RefError: If a reference is passed twice.
    """
    refs = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, Ref)}
    passed = list(refs.values())
    for n, ref in enumerate(passed):
        if ref in passed[:n]:
            raise RefError(
                f"{where}: {ref.description} is passed twice: a write to one argument would change the other, so pass "
                "it once"
            )
    return refs


def read_refs(leaves: Sequence[object], refs: Mapping[int, Ref]) -> list[object]:
    """Returns leaves with references replaced by their contents; `refs` are the references by their positions."""
    return [refs[i][...] if i in refs else leaf for i, leaf in enumerate(leaves)] if refs else list(leaves)


@contextmanager
def lent(refs: Iterable[Ref], borrower: str) -> Iterator[None]:
    """A context manager in which uses of references are errors, because a transformation has their contents.

    Args:
        refs: The references.
        borrower: The transformation that has them as arguments, for messages.
    """
    refs = list(refs)
    try:
        for ref in refs:
            ref.lent_to = borrower
        yield
    finally:
        for ref in refs:
            ref.lent_to = None

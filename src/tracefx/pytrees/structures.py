"""Pytree structures as plain values: description, comparison, and messages about differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import attrs
from attrs import field, frozen

from tracefx.pytrees.paths import DictKey, FlattenedIndexKey, GetAttrKey, KeyPath, SequenceKey, keystr
from tracefx.pytrees.registry import NODE_REGISTRY, TreeDef, children_with_keys, namedtuple_fields, type_name

NodeKind: TypeAlias = Literal["leaf", "none", "tuple", "list", "dict", "namedtuple", "custom"]
_NODE_KINDS: Final[Mapping[type, NodeKind]] = {type(None): "none", tuple: "tuple", list: "list", dict: "dict"}


@frozen
class TreeDescription:
    """A pytree structure as a plain Python value, which can be pickled, compared and read without jaxlib.

    Args:
        kind: The kind of the node.
        type: The type of the node; `None` for a leaf.
        metadata: The keys of a dict, or the metadata that a registered type's flatten function returned.
        children: The descriptions of the children.

    >>> from tracefx.pytrees.trees import structure
    >>> [child.kind for child in describe(structure([1, (2,)])).children]
    ['leaf', 'tuple']
    """

    kind: NodeKind
    type: type | None = None
    metadata: object = None
    children: tuple[TreeDescription, ...] = field(default=(), repr=lambda c: f"<{len(c)}>" if len(c) > 8 else repr(c))

    def build(self) -> TreeDef:
        """Returns the structure.

        Raises:
            TypeError: If a type is not registered as a node in this process.

        >>> from tracefx.pytrees.trees import structure
        >>> describe(structure((1, [2]))).build()
        PyTreeDef((*, [*]))
        """
        native = NODE_REGISTRY.load()
        if self.type is None:
            return native.make_treedef(None, ())
        if self.kind == "custom" and not NODE_REGISTRY.is_registered(self.type):
            NODE_REGISTRY.adopt([self.type])
            if not NODE_REGISTRY.is_registered(self.type):
                raise TypeError(
                    f"{type_name(self.type)} is not registered as a pytree node here; register it before building this"
                    " structure, as the process that described it did"
                )
        metadata = list(cast(tuple[object, ...], self.metadata)) if self.kind == "dict" else self.metadata
        return native.make_treedef((self.type, metadata), [child.build() for child in self.children])


def treedef_text(tree: TreeDescription) -> str | None:
    """Returns the structure in Python notation, with `*` for leaves.

    Returns `None` for a structure with classes, or with dict keys other than strings and numbers.
    """
    if tree.kind == "leaf" or tree.kind == "none":
        return "*" if tree.kind == "leaf" else "None"
    children = [treedef_text(child) for child in tree.children]
    texts = [text for text in children if text is not None]
    if len(texts) < len(children):
        return None
    if tree.kind == "tuple":
        return f"({', '.join(texts)},)" if len(texts) == 1 else f"({', '.join(texts)})"
    if tree.kind == "list":
        return f"[{', '.join(texts)}]"
    keys = tree.metadata
    if tree.kind != "dict" or not isinstance(keys, tuple) or any(type(key) not in (str, int, bool) for key in keys):
        return None
    return f"{{{', '.join([f'{key!r}: {text}' for key, text in zip(keys, texts, strict=True)])}}}"


_LEAF: Final = TreeDescription("leaf")


def describe(treedef: TreeDef) -> TreeDescription:
    """Returns the description of a structure.

    Args:
        treedef: The structure.

    Returns:
        A plain Python value, which can be compared, pickled and read without jaxlib.

    >>> from tracefx.pytrees.trees import structure
    >>> describe(structure({"x": None}))
    TreeDescription(kind='dict', type=<class 'dict'>, metadata=('x',),
        children=(TreeDescription(kind='none', type=<class 'NoneType'>, metadata=None, children=()),))
    """
    data = treedef.node_data()
    if data is None:
        return _LEAF
    nodetype, metadata = data
    kind = _NODE_KINDS.get(nodetype, "custom" if namedtuple_fields(nodetype) is None else "namedtuple")
    if kind == "dict":
        metadata = tuple(_dict_keys(metadata))
    return TreeDescription(kind, nodetype, metadata, tuple([describe(child) for child in treedef.children()]))


def _dict_keys(metadata: object) -> list[object]:
    """Returns the metadata of a dict node, which jaxlib makes a list of the keys."""
    return cast(list[object], metadata)


def _reduce(treedef: TreeDef) -> str | tuple[Any, ...]:
    """Pickles structures by their description; those of jax as they would be without tracefx."""
    return (
        (TreeDescription.build, (describe(treedef),))
        if NODE_REGISTRY.load().flattened_here(treedef)
        else treedef.__reduce_ex__(4)
    )


NODE_REGISTRY.set_reducer(_reduce)


@frozen(eq=False)
class Difference:
    """The first position at which two structures differ, and both substructures there."""

    path: KeyPath
    expected: TreeDef
    got: TreeDef

    def show(self, expected: str, got: str) -> str:
        """Returns two to four lines for an error message, in which the two trees have these names."""
        return (
            f"  {expected}: {_show_node(self.expected)}\n  {got}: {_show_node(self.got)}"
            f"{self._show_keys(expected, got)}"
        )

    def _show_keys(self, expected: str, got: str) -> str:
        data, other = self.expected.node_data(), self.got.node_data()
        if data is None or other is None or data[0] is not dict or other[0] is not dict:
            return ""
        keys, other_keys = _dict_keys(data[1]), _dict_keys(other[1])
        missing = [key for key in keys if key not in other_keys]
        extra = [key for key in other_keys if key not in keys]
        return "".join(
            [f"\n  only in {name}: {_show_keys(some)}" for name, some in ((expected, missing), (got, extra)) if some]
        )


def first_difference(expected: TreeDef, got: TreeDef, *, prefix: bool = False) -> Difference | None:
    """Returns the first difference of two structures; `None` if there is none.

    With `prefix`, returns the first position where `expected` is not a prefix of `got`.
    """
    return _first_difference(expected, got, prefix, ())


def _first_difference(expected: TreeDef, got: TreeDef, prefix: bool, path: KeyPath) -> Difference | None:
    data = expected.node_data()
    if prefix and data is None:
        return None
    children, others = expected.children(), got.children()
    if data != got.node_data() or len(children) != len(others):
        return Difference(path, expected, got)
    pairs = [(i, a, b) for i, (a, b) in enumerate(zip(children, others, strict=True)) if a != b]
    for i, a, b in pairs:
        if _first_difference(a, b, prefix, ()) is not None:
            return _first_difference(a, b, prefix, (*path, _child_keys(expected)[i]))
    return None


def _child_keys(treedef: TreeDef) -> KeyPath:
    """Returns the keys of a node's children, as far as the structure determines them."""
    data, n = treedef.node_data(), len(treedef.children())
    if data is None or n == 0:
        return ()
    nodetype, metadata = data
    if nodetype in (tuple, list):
        return tuple(map(SequenceKey, range(n)))
    if nodetype is dict:
        return tuple(map(DictKey, _dict_keys(metadata)))
    if (names := namedtuple_fields(nodetype)) is not None:
        return tuple(map(GetAttrKey, names))
    native = NODE_REGISTRY.load()
    try:
        # Keys can be computed only from an instance. Its class may reject placeholder children with any exception.
        value = native.make_treedef(data, [native.make_treedef(None, ())] * n).unflatten([object()] * n)
        keys = [key for key, _ in children_with_keys(value)]
    except Exception:
        keys = []
    return tuple(keys) if len(keys) == n else tuple(map(FlattenedIndexKey, range(n)))


def _show_keys(keys: Sequence[object]) -> str:
    return ", ".join(map(repr, keys))


def show_structure(treedef: TreeDef, leaf: str = "a leaf") -> str:
    """Describes a structure for messages: its root in words and, if it is nested, all of it in Python notation.

    `leaf` describes a structure that is only a leaf.

    >>> from tracefx.pytrees.trees import structure
    >>> show_structure(structure((1, 2)))
    'a tuple of length 2'
    >>> show_structure(structure([1, {"a": 2}]))
    "a list of length 2, [*, {'a': *}]"
    """
    root = _show_node(treedef) if treedef.node_data() is not None else leaf
    if all(child.num_leaves == 1 and child.node_data() is None for child in treedef.children()):
        return root
    return f"{root}, {_notation(treedef)}"


def _notation(treedef: TreeDef) -> str:
    """Returns a structure in Python notation with `*` for leaves; classes are shown with their static fields."""
    data, children = treedef.node_data(), list(map(_notation, treedef.children()))
    if data is None:
        return "*"
    nodetype, metadata = data
    match _NODE_KINDS.get(nodetype):
        case "none":
            return "None"
        case "dict":
            return f"{{{', '.join([f'{key!r}: {x}' for key, x in zip(_dict_keys(metadata), children, strict=True)])}}}"
        case "tuple":
            return f"({', '.join(children)}{',' * (len(children) == 1)})"
        case "list":
            return f"[{', '.join(children)}]"
        case _ if namedtuple_fields(nodetype) is not None:
            return f"{nodetype.__name__}({', '.join(children)})"
        case _:
            return f"{nodetype.__name__}({', '.join([*children, *_show_metadata(nodetype, metadata)])})"


def _show_metadata(nodetype: type, metadata: object) -> list[str]:
    """Returns the metadata of a registered class: its static fields by name, if it declares them."""
    declared = [
        *(dataclasses.fields(nodetype) if dataclasses.is_dataclass(nodetype) else ()),
        *(attrs.fields(nodetype) if attrs.has(nodetype) else ()),
    ]
    names = [f.name for f in declared if f.metadata.get("static", False)]
    if isinstance(metadata, tuple) and len(metadata) == len(names):
        return [f"{name}={value!r}" for name, value in zip(names, metadata, strict=True)]
    return [f"metadata={metadata!r}"]


def _show_node(treedef: TreeDef) -> str:
    """Describes a node for messages."""
    data, n = treedef.node_data(), len(treedef.children())
    if data is None:
        return "a leaf"
    nodetype, metadata = data
    match _NODE_KINDS.get(nodetype):
        case "none":
            return "None"
        case "dict":
            return f"a dict with the keys {_show_keys(_dict_keys(metadata))}" if n else "an empty dict"
        case "tuple" | "list" as kind:
            return f"a {kind} of length {n}"
        case _ if namedtuple_fields(nodetype) is not None:
            return f"a named tuple {type_name(nodetype)}"
        case _:
            parts = [f"{n} child{'' if n == 1 else 'ren'}", *_show_metadata(nodetype, metadata)]
            return f"a {type_name(nodetype)} with {' and '.join(parts)}"


def require_same_structure(what: str, expected: TreeDef, got: TreeDef, expected_name: str, got_name: str) -> None:
    """Raises TypeError, with the first difference and both structures, unless they are equal.

    Args:
        what: The subject of the message, e.g. "the carry of scan".
        expected: The expected structure.
        got: The actual structure.
        expected_name: The name of the expected structure in the message.
        got_name: The name of the actual structure in the message.

    >>> from tracefx.pytrees.trees import structure
    >>> require_same_structure("jvp: tangents", structure((1, [2])), structure((1, [2, 3])), "primals", "tangents")
    Traceback (most recent call last):
    TypeError: jvp: tangents must have the structure of primals. They differ at [1]:
      primals: a list of length 1
      tangents: a list of length 2
    as a whole:
      primals: a tuple of length 2, (*, [*])
      tangents: a tuple of length 2, (*, [*, *])
    """
    if expected == got or (difference := first_difference(expected, got)) is None:
        return
    raise TypeError(
        f"{what} must have the structure of {expected_name}. They differ at {_show_path(difference)}:\n"
        f"{difference.show(expected_name, got_name)}"
        f"{_show_whole(difference, expected_name, expected, got_name, got)}"
    )


def _show_path(difference: Difference) -> str:
    return keystr(difference.path) or "the root"


def _show_whole(difference: Difference, expected_name: str, expected: TreeDef, got_name: str, got: TreeDef) -> str:
    """Returns lines with both structures, or "" if the difference at the root shows them."""
    if not difference.path:
        return ""
    return f"\nas a whole:\n  {expected_name}: {show_structure(expected)}\n  {got_name}: {show_structure(got)}"


def prefix_error(what: str, prefix: TreeDef, of: str, full: TreeDef) -> ValueError:
    """Returns the error for a tree that is not a prefix of another one. `what` may have a context, before a colon."""
    text = f"{what} must have the structure of {of}, or leaves for subtrees."
    difference = first_difference(prefix, full, prefix=True)
    if difference is None:
        return ValueError(text)
    name = what.rpartition(": ")[2]
    return ValueError(
        f"{text} They differ at {_show_path(difference)}:\n{difference.show(name, of)}"
        f"{_show_whole(difference, name, prefix, of, full)}"
    )

"""Mutable references emulated in Python on top of `jax.numpy`, as the oracle of tests of references.

Loops are unrolled; a conditional runs all branches and selects between the results and between the contents of all
references. So a program is a pure function of `jax.numpy`, which all transformations of JAX accept; those of JAX's own
references do not work under all of them.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from typing_extensions import override

CELLS: list[Cell] = []
"""The references of the program that is running."""


class View:
    """A view of a reference; `at[index]` of it is one, too."""

    def __init__(self, base: Any, index: Any) -> None:
        self.base, self.index = base, index

    def __getitem__(self, index: Any) -> Any:
        return self.base[self.index][index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.base[self.index] = self.base[self.index].at[index].set(value)

    def addupdate(self, value: Any, index: Any = ...) -> None:
        self.base[self.index] = self.base[self.index].at[index].add(value)

    @property
    def at(self) -> Any:
        return Indexer(self)


class Cell(View):
    """A reference."""

    def __init__(self, contents: Any) -> None:
        self.contents = jnp.asarray(contents)
        CELLS.append(self)

    @override
    def __getitem__(self, index: Any) -> Any:
        return self.contents[index]

    @override
    def __setitem__(self, index: Any, value: Any) -> None:
        self.contents = self.contents.at[index].set(value)

    @override
    def addupdate(self, value: Any, index: Any = ...) -> None:
        self.contents = self.contents.at[index].add(value)


class Indexer:
    def __init__(self, base: View) -> None:
        self.base = base

    def __getitem__(self, index: Any) -> View:
        return View(self.base, index)


def swap(ref: View, index: Any, value: Any) -> Any:
    old = ref[index]
    ref[index] = value
    return old


def fori_loop(lower: int, upper: int, body: Callable[..., Any], init: Any) -> Any:
    for i in range(lower, upper):
        init = body(jnp.int32(i), init)
    return init


def scan(step: Callable[..., Any], init: Any, xs: Any) -> Any:
    ys = []
    leaves, tree = jax.tree.flatten(xs)
    for i in range(3):
        init, y = step(init, jax.tree.unflatten(tree, [x.at[i] if isinstance(x, View) else x[i] for x in leaves]))
        ys.append(y)
    return init, jax.tree.map(lambda *each: jnp.stack(each), *ys)


def switch(index: Any, branches: Any, *operands: Any) -> Any:
    before, cells = [cell.contents for cell in CELLS], list(CELLS)
    ends = []
    for branch in branches:
        for cell, contents in zip(cells, before, strict=True):
            cell.contents = contents
        out = branch(*operands)
        ends.append((out, [cell.contents for cell in cells]))
    out, after = jax.tree.map(lambda *each: jnp.select([index == i for i in range(len(each))], each), *ends)
    for cell, contents in zip(cells, after, strict=True):
        cell.contents = contents
    return out


def vmap(f: Callable[..., Any]) -> Callable[..., Any]:
    def batched(*args: Any) -> Any:
        size = next(len(a) for a in args if not isinstance(a, View))
        outs = [f(*[a.at[i] if isinstance(a, View) else a[i] for a in args]) for i in range(size)]
        return jax.tree.map(lambda *each: jnp.stack(each), *outs)

    return batched


EMULATED = types.SimpleNamespace(
    new_ref=Cell,
    freeze=lambda ref: ref[...],
    jit=lambda f: f,
    checkpoint=lambda f: f,
    vmap=vmap,
    ref=types.SimpleNamespace(
        get=lambda ref, index=...: ref[index],
        swap=swap,
        addupdate=lambda ref, index, value: ref.addupdate(value, index),
    ),
    lax=types.SimpleNamespace(
        fori_loop=fori_loop,
        scan=scan,
        switch=switch,
        cond=lambda pred, true_fun, false_fun, *operands: switch(
            jnp.asarray(pred).astype(jnp.int32), [false_fun, true_fun], *operands
        ),
        map=lambda f, xs: jnp.stack([f(x) for x in xs]),
    ),
)

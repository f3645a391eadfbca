"""Generated code: functions without loops, such as the one that calls of a compiled function run, for one signature.

A loop over the arguments takes as long as the rest of Python's part of a call: for one array, 0.5 of 7 microseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Final

from tracefx.bounded_cache import memoize

MAX_UNROLLED: Final = 64
"""The largest number of leaves for which code is generated."""

_SOURCE: Final = """
def call(*args, **kwargs):
    try:
        if CURRENT.get() is ROOT and SETTINGS.get().values is settings:
            leaves = {leaves}
            if leaves is not None:
                {unrolled}
                if (result := run_on_leaves(leaves)) is not MISMATCH:
                    return result
        return otherwise(*args, **kwargs)
    except Exception as error:
        filter_traceback(error)
        raise
"""
LEAVES_OF_TREE: Final = "flat[0] if (flat := flatten((args, kwargs)))[1] == in_tree else None"
"""The source of the leaves of calls whose traced arguments are trees."""
LEAVES_OF: Final = "leaves_of(args, kwargs)"
"""The source of the leaves of any other calls."""
_UNROLLED: Final = """{targets} = leaves
                if {are_arrays}:
                    if not ({have_types}):
                        return otherwise(*args, **kwargs)
                    if {have_buffers}:
                        {run}"""


def plain_leaves(positional: int, names: tuple[str, ...], statics: Sequence[int | str]) -> str:
    """Returns the source of the leaves of calls whose traced arguments are leaves.

    Static arguments are compared by identity. If one is another object, the source is a call of `leaves_of`.

    Args:
        positional: The number of positional arguments.
        names: The names of the keyword arguments, without the static ones.
        statics: The positions and names of the static arguments.

    >>> plain_leaves(2, (), [])
    'args if len(args) == 2 and not kwargs else None'
    >>> plain_leaves(2, (), [1])
    '(args[0], ) if len(args) == 2 and not kwargs and args[1] is static_0 else leaves_of(args, kwargs)'
    """
    keywords = len(names) + sum(isinstance(key, str) for key in statics)
    conditions = [f"len(args) == {positional}", f"len(kwargs) == {keywords}" if keywords else "not kwargs"]
    conditions += [f"{_argument(key)} is static_{k}" for k, key in enumerate(statics)]
    keys: list[int | str] = [i for i in range(positional) if i not in statics]
    keys += names
    leaves = f"({''.join(f'{_argument(key)}, ' for key in keys)})" if names or statics else "args"
    return f"{leaves} if {' and '.join(conditions)} else {LEAVES_OF if statics else None}"


def _argument(key: int | str) -> str:
    return f"args[{key}]" if isinstance(key, int) else f"kwargs.get({key!r})"


def generate_call(
    leaves: str, count: int, consts: int, runs: bool, donated: Collection[int], variables: Mapping[str, object]
) -> FunctionType:
    """Returns the function that calls of a compiled function run.

    Args:
        leaves: The source of the leaves of a call; its value is None if the call has another structure.
        count: The number of leaves.
        consts: The number of constants.
        runs: Whether the variable `run` is a function of buffers; otherwise `call_with_buffers` takes the leaves, too.
        donated: The leaves that `run` deletes; the variable `donated_0` is the name of leaf 0 for messages.
        variables: The values of the names in the source.
    """
    unrolled = "pass"
    if 0 < count <= MAX_UNROLLED:
        buffers = ", ".join([*(["*consts"] if consts else []), *[f"b{i}" for i in range(count)]])
        run = f"return run([{buffers}])" if runs else f"return call_with_buffers(leaves, [{buffers}])"
        if donated:
            before = [f"x{i}.host = None" for i in donated]
            after = [f"x{i}.buffer = x{i}.device_copy = None; x{i}.donated_as = donated_{i}" for i in donated]
            run = "; ".join([*before, f"result = run([{buffers}])", *after, "return result"])
        unrolled = _UNROLLED.format(
            targets="".join([f"x{i}, " for i in range(count)]),
            are_arrays=" and ".join([f"type(x{i}) is ConcreteArray" for i in range(count)]),
            have_types=" and ".join([f"x{i}.aval is aval_{i}" for i in range(count)]),
            have_buffers=" and ".join(
                [f"(b{i} := x{i}.buffer) is not None" for i in range(count)]
                + [f"not x{i}.shares_buffer" for i in donated]
            ),
            run=run,
        )
    return define(_SOURCE.format(leaves=leaves, unrolled=unrolled), variables)


def define(source: str, variables: Mapping[str, object]) -> FunctionType:
    """Returns the function that `source` defines, where `variables` are its global variables.

    >>> define("def scaled(x): return factor * x", {"factor": 3})(2)
    6
    """
    code = _compiled(source)
    return FunctionType(code.replace(), {**variables})  # a copy: Python adapts code to the types that it meets


@memoize(limit=256)
def _compiled(source: str) -> CodeType:
    """Compiles the source of a function, as if it were in this file: its frames are internal ones."""
    (code,) = [x for x in compile(source, __file__, "exec").co_consts if isinstance(x, CodeType)]
    return code

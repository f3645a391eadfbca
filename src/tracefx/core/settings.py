"""Settings: process defaults read once from the environment, overridden per context.

Only functions that users call read a setting. Rules, handlers, passes and kernels depend on their operands and
fields alone, so a program once traced means the same under every setting. The backend reads where executables are
kept, which changes no result.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from attrs import define, field, frozen

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


@final
class SettingFrame(Generic[T]):
    """A value that a setting was given, and the one before it. `left` says that its `with` block is over."""

    __slots__ = ("left", "outer", "value")
    value: T
    outer: SettingFrame[T] | None
    left: bool

    def __init__(self, value: T, outer: SettingFrame[T] | None) -> None:
        self.value = value
        self.outer = outer
        self.left = False

    def innermost_active(self) -> SettingFrame[T]:
        """The innermost one, from here outwards, whose block is not over."""
        found = self
        while found.left and found.outer is not None:
            found = found.outer
        return found


@final
@define(eq=False)
class Override(Generic[T]):
    """A value for a setting, in force between `__enter__` and `__exit__`.

    Blocks may end in any order, as those of suspended generators do: one that ends while an inner one goes on leaves
    that in force, and the inner one then returns to what was in force before both.
    """

    setting: Setting[T]
    value: T
    _entered: SettingFrame[T] | None = field(default=None, init=False, repr=False)
    _token: Token[SettingFrame[T]] | None = field(default=None, init=False, repr=False)

    def __enter__(self) -> None:
        if self._entered is not None:
            raise RuntimeError(f"{self!r} is already in force; make another override to nest one inside it")
        variable = self.setting._innermost
        self._entered = SettingFrame(self.value, variable.get())
        self._token = variable.set(self._entered)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entered, token, variable = self._entered, self._token, self.setting._innermost
        if entered is None or token is None:
            raise RuntimeError(f"{self!r} is not in force")
        self._entered = self._token = None
        entered.left = True
        innermost = variable.get()
        try:
            variable.reset(token)
        except ValueError:
            # Another context entered it, a generator's that is closed here. There it stays, with the value before it.
            entered.value = entered.innermost_active().value
        variable.set(innermost.innermost_active())


@final
@frozen(eq=False)
class Setting(Generic[T]):
    """A named default of the process, read once from an environment variable, that contexts override.

    `parse` turns the variable's text into a value, or raises a ValueError that says what is allowed. New threads
    start from the process default; a copied context (asyncio tasks) starts from what the copier saw.

    Raises ValueError if the environment variable holds text that `parse` refuses.

    >>> verbose = Setting("verbose", "TRACEFX_EXAMPLE_VERBOSE", parse_bool, False)
    >>> with verbose.override(True):
    ...     verbose.value
    True
    >>> verbose.value
    False
    """

    name: str
    env: str
    parse: Callable[[str], T] = field(repr=False)
    default: T
    _innermost: ContextVar[SettingFrame[T]] = field(init=False, repr=False)
    innermost: Callable[[], SettingFrame[T]] = field(init=False, repr=False)
    """`innermost().value` is `value` without what a property costs: for calls that count every 10 ns."""

    @_innermost.default
    def _read_environment(self) -> ContextVar[SettingFrame[T]]:
        text = os.environ.get(self.env)
        value = self.default
        if text is not None:
            try:
                value = self.parse(text)
            except ValueError as error:
                raise ValueError(f"environment variable {self.env}={text!r}: {error}") from None
        # The outermost one is never left, so sharing it between contexts is safe.
        return ContextVar(self.name, default=SettingFrame(value, None))  # noqa: B039

    @innermost.default
    def _bind_get(self) -> Callable[[], SettingFrame[T]]:
        return self._innermost.get

    @property
    def value(self) -> T:
        """The value in the current context."""
        return self._innermost.get().value

    def override(self, value: T) -> AbstractContextManager[None]:
        """A context manager inside which the setting is `value`.

        Blocks may be left in any order.
        """
        return Override(self, value)


_BOOL_WORDS: Final = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def parse_bool(text: str) -> bool:
    """The bool that a word from the environment stands for; ValueError for any other word.

    >>> parse_bool("on"), parse_bool("False")
    (True, False)
    """
    word = _BOOL_WORDS.get(text.strip().lower())
    if word is None:
        raise ValueError(f"allowed are {', '.join(_BOOL_WORDS)} (in either case); unset it for the default")
    return word


X64: Final = Setting("enable_x64", "TRACEFX_ENABLE_X64", parse_bool, False)
DISABLE_JIT: Final = Setting("disable_jit", "TRACEFX_DISABLE_JIT", parse_bool, False)


def enable_x64(enabled: bool = True) -> AbstractContextManager[None]:
    """Let implicit dtypes be 64 bits wide inside the `with` block (or 32 bits, given False).

    Implicit are the dtypes of Python numbers and of 64-bit NumPy data that comes in without a dtype of its own
    being asked for. A dtype asked for explicitly is honoured either way. The process default comes from
    `TRACEFX_ENABLE_X64`. Raises TypeError if `enabled` is no bool.

    >>> with enable_x64():
    ...     X64.value
    True
    """
    return X64.override(_checked_bool("enable_x64", enabled))


def disable_jit(disable: bool = True) -> AbstractContextManager[None]:
    """Run functions under `jit` operation by operation inside the `with` block, for debugging.

    The process default comes from `TRACEFX_DISABLE_JIT`. Raises TypeError if `disable` is no bool.

    >>> with disable_jit():
    ...     DISABLE_JIT.value
    True
    """
    return DISABLE_JIT.override(_checked_bool("disable_jit", disable))


@final
@frozen
class CompilationCache:
    """A folder where compiled programs are kept for later processes, and how many bytes they may take there."""

    path: Path
    max_bytes: int = 1 << 30


def parse_cache(text: str) -> CompilationCache | None:
    """The cache in the folder that the environment names; `None`, which is no cache, for an empty text."""
    return CompilationCache(_folder(text)) if text.strip() else None


def _folder(path: str | os.PathLike[str]) -> Path:
    # Not imported at the top: few processes need it, and with all that it imports it takes 4 ms.
    from pathlib import Path

    return Path(path).expanduser().absolute()


COMPILATION_CACHE: Final[Setting[CompilationCache | None]] = Setting(
    "compilation_cache", "TRACEFX_COMPILATION_CACHE_DIR", parse_cache, None
)


def compilation_cache(path: str | os.PathLike[str] | None, *, max_bytes: int = 1 << 30) -> AbstractContextManager[None]:
    """Keep what is compiled inside the `with` block in the folder `path`, and take from there what is in it already.

    A later process that traces an equal program loads its executable instead of lowering and compiling it. The least
    recently used executables go when they would take more than `max_bytes` together. Programs with operations that
    others than tracefx define are compiled anew in every process, as are those with side effects and those that run on
    devices of several processes. None turns a cache off. Lines and scopes are no part of what makes programs equal, so
    profilers and dumps of a program that was loaded show those of the program that was stored. The process default
    comes from `TRACEFX_COMPILATION_CACHE_DIR`; without it there is none.

    The folder holds machine code that is run as it is: let nobody write to it whom you would not let run programs.

    Raises TypeError for a path that is none, ValueError if `max_bytes` is negative.

    >>> with compilation_cache("/tmp/programs", max_bytes=10_000_000):
    ...     pass
    """
    return COMPILATION_CACHE.override(None if path is None else as_compilation_cache(path, max_bytes))


def as_compilation_cache(path: str | os.PathLike[str], max_bytes: int = 1 << 30) -> CompilationCache:
    """The cache in a folder, which need not exist yet; it stays the same if the working directory changes."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"a compilation cache needs the path of a folder, got {path!r} of type {type(path).__name__}")
    if type(max_bytes) is not int or max_bytes < 0:
        raise ValueError(f"a compilation cache needs a number of bytes for max_bytes, got {max_bytes!r}")
    return CompilationCache(_folder(path), max_bytes)


def _checked_bool(function: str, value: bool) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{function} takes True or False, got {value!r} of type {type(value).__name__}")
    return value

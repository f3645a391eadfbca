"""Settings: process defaults read once from the environment, overridden per context.

Only functions that users call read a setting. Rules, handlers, passes and kernels depend on their operands and
fields alone, so a program once traced means the same under every setting. The backend reads where executables are
kept, which changes no result.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, final

from attrs import define, field, frozen

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


@final
class SettingsFrame:
    """A `with` block that overrides settings, and the values of all overridden settings inside it.

    `values` is replaced, never changed. A block may end while an inner one goes on, as blocks in suspended generators
    do; the inner block then gets another frame, without the values of the outer one.
    """

    __slots__ = ("has_ended", "outer", "override", "values")
    values: Mapping[Setting[Any], object]

    def __init__(self, override: Override[Any] | None, outer: SettingsFrame | None) -> None:
        self.override = override
        self.outer = outer
        self.has_ended = False
        self.update()

    def update(self) -> None:
        """Computes the values from those of the outer frame."""
        outer: Mapping[Setting[Any], object] = {} if self.outer is None else self.outer.values
        if self.override is None or self.has_ended:
            self.values = outer
        else:
            self.values = {**outer, self.override.setting: self.override.value}


SETTINGS: Final[ContextVar[SettingsFrame]] = ContextVar("tracefx_settings", default=SettingsFrame(None, None))  # noqa: B039  # the outermost frame never ends
"""The innermost block that overrides settings. A setting that no block overrides has its default."""


@final
@define(eq=False)
class Override(Generic[T]):
    """A `with` block in which a setting has another value. Blocks may end in any order."""

    setting: Setting[T]
    value: T
    _frame: SettingsFrame | None = field(default=None, init=False, repr=False)
    _token: Token[SettingsFrame] | None = field(default=None, init=False, repr=False)

    def move_to(self, frame: SettingsFrame) -> SettingsFrame:
        """Makes `frame` the one of this block, in place of another in which an outer block has ended."""
        self._frame = frame
        return frame

    def __enter__(self) -> T:
        if self._frame is not None:
            raise RuntimeError(f"{self!r} is already in force; make another override to nest one inside it")
        self._frame = SettingsFrame(self, SETTINGS.get())
        self._token = SETTINGS.set(self._frame)
        return self.value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        frame, token = self._frame, self._token
        if frame is None or token is None:
            raise RuntimeError(f"{self!r} is not in force")
        self._frame = self._token = None
        frame.has_ended = True
        innermost = SETTINGS.get()
        try:
            SETTINGS.reset(token)
        except ValueError:
            # Another context entered the block, a generator's that is closed here, and keeps the frame.
            frame.update()
        SETTINGS.set(_active(innermost))


def _active(innermost: SettingsFrame) -> SettingsFrame:
    """Returns a frame with the overrides that are still in force; those inside of an ended one get new frames."""
    frames = list(_frames(innermost))
    ended = [i for i, frame in enumerate(frames) if frame.has_ended]
    if not ended:
        return innermost
    frame = frames[ended[-1] + 1]  # the outermost frame never ends
    for inner in reversed(frames[: ended[-1]]):
        if inner.override is not None and not inner.has_ended:
            inner.has_ended = True
            frame = inner.override.move_to(SettingsFrame(inner.override, frame))
    return frame


def _frames(innermost: SettingsFrame) -> Iterator[SettingsFrame]:
    frame: SettingsFrame | None = innermost
    while frame is not None:
        yield frame
        frame = frame.outer


@final
@frozen(eq=False)
class Setting(Generic[T]):
    """A named default of the process that `with` blocks override in the current context.

    With `env`, the default is read once from this environment variable: `parse` turns its text into a value, or raises
    a ValueError that says what is allowed. New threads start from the process default; a copied context (asyncio tasks)
    starts with the overrides of the context that it was copied from.

    Raises ValueError if the environment variable holds text that `parse` refuses.

    >>> verbose = Setting("verbose", False, "TRACEFX_EXAMPLE_VERBOSE", parse_bool)
    >>> with verbose.override(True):
    ...     verbose.value
    True
    >>> verbose.value
    False
    """

    name: str
    default: T
    env: str | None = None
    parse: Callable[[str], T] | None = field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        text = None if self.env is None else os.environ.get(self.env)
        if text is not None and self.parse is not None:
            try:
                object.__setattr__(self, "default", self.parse(text))
            except ValueError as error:
                raise ValueError(f"environment variable {self.env}={text!r}: {error}") from None

    @property
    def value(self) -> T:
        """The value in the current context."""
        overridden = SETTINGS.get().values
        return cast(T, overridden.get(self, self.default)) if overridden else self.default

    def override(self, value: T) -> Override[T]:
        """Returns a context manager inside which the setting is `value`. Such blocks may end in any order."""
        return Override(self, value)

    def innermost_override(self, value: T) -> Override[T] | None:
        """Returns the innermost block in force that overrides the setting with this very object."""
        for frame in _frames(SETTINGS.get()):
            override = frame.override
            if override is not None and override.setting is self and override.value is value and not frame.has_ended:
                return override
        return None


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


X64: Final = Setting("enable_x64", False, "TRACEFX_ENABLE_X64", parse_bool)
DISABLE_JIT: Final = Setting("disable_jit", False, "TRACEFX_DISABLE_JIT", parse_bool)


def enable_x64(enabled: bool = True) -> Override[bool]:
    """Let implicit dtypes be 64 bits wide inside the `with` block (or 32 bits, given False).

    Implicit are the dtypes of Python numbers and of 64-bit NumPy data that comes in without a dtype of its own
    being asked for. A dtype asked for explicitly is honoured either way. The process default comes from
    `TRACEFX_ENABLE_X64`. Raises TypeError if `enabled` is no bool.

    >>> with enable_x64():
    ...     X64.value
    True
    """
    return X64.override(_checked_bool("enable_x64", enabled))


def disable_jit(disable: bool = True) -> Override[bool]:
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
    "compilation_cache", None, "TRACEFX_COMPILATION_CACHE_DIR", parse_cache
)


def compilation_cache(
    path: str | os.PathLike[str] | None, *, max_bytes: int = 1 << 30
) -> Override[CompilationCache | None]:
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

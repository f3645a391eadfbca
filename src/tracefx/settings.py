"""Settings: process-wide defaults, read once from the environment and overridden per context by `with` blocks.

Only functions that users call read a setting. Rules, handlers, passes and kernels depend on their operands and
fields alone, so a traced program means the same under every setting. The only exception is the backend, which reads
the directory of the compilation cache and whether to log compilations; that changes no result. The core overrides two
settings that are no options of users and that no trace depends on: the scopes around an interpreted body, and the
functions staged for their closures.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar, cast, final

from attrs import define, field, frozen

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


@final
class SettingsFrame:
    """One `with` block that overrides a setting, together with the values of all settings overridden inside it.

    Frames form a linked list through `outer`. `values` is replaced, never mutated. A block may end before an inner one,
    as blocks in suspended generators do; the inner block then gets a new frame, without the values of the ended one.
    """

    __slots__ = ("has_ended", "outer", "override", "values")
    values: Mapping[Setting[Any], object]

    def __init__(self, override: Override[Any] | None, outer: SettingsFrame | None) -> None:
        self.override = override
        self.outer = outer
        self.has_ended = False
        self.update()

    def update(self) -> None:
        """Recomputes `values` from those of the outer frame."""
        outer: Mapping[Setting[Any], object] = {} if self.outer is None else self.outer.values
        if self.override is None or self.has_ended:
            self.values = outer
        else:
            self.values = {**outer, self.override.setting: self.override.value}


SETTINGS: Final[ContextVar[SettingsFrame]] = ContextVar("tracefx_settings", default=SettingsFrame(None, None))  # noqa: B039  # the outermost frame never ends
"""The innermost active frame. A setting that no frame overrides has its default."""


@final
@define(eq=False)
class Override(Generic[T]):
    """A context manager that overrides one setting. Overrides may end in any order.

    An override that is deleted without having been entered warns, since a call without `with` changes nothing.
    """

    setting: Setting[T]
    value: T
    _was_entered: bool = field(default=False, init=False, repr=False)
    _frame: SettingsFrame | None = field(default=None, init=False, repr=False)
    _token: Token[SettingsFrame] | None = field(default=None, init=False, repr=False)

    def move_to(self, frame: SettingsFrame) -> SettingsFrame:
        """Makes `frame` the frame of this override, in place of one inside an ended block. Returns it."""
        self._frame = frame
        return frame

    def __enter__(self) -> T:
        if self._frame is not None:
            raise RuntimeError(f"{self!r} is already active; make another override to nest one inside it")
        self._was_entered = True
        self._frame = SettingsFrame(self, SETTINGS.get())
        self._token = SETTINGS.set(self._frame)
        return self.value

    def __del__(self) -> None:
        if not self._was_entered:
            setting = self.setting
            default = "" if setting.env is None else f", or set {setting.env} in the environment for the whole process"
            warnings.warn(
                f"a call of {setting.name} had no effect: write `with {setting.name}(...):` around the code that it is "
                f"meant for{default}",
                RuntimeWarning,
                stacklevel=2,
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        frame, token = self._frame, self._token
        if frame is None or token is None:
            raise RuntimeError(f"{self!r} is not active")
        self._frame = self._token = None
        frame.has_ended = True
        innermost = SETTINGS.get()
        try:
            SETTINGS.reset(token)
        except ValueError:
            # The block was entered in another context, e.g. that of a generator which is closed here.
            frame.update()
        else:
            outer = frame.outer
            if innermost is frame and outer is not None and outer is SETTINGS.get() and not outer.has_ended:
                return  # blocks that end in the reverse order, as nearly all do
        SETTINGS.set(_active(innermost))


def _active(innermost: SettingsFrame) -> SettingsFrame:
    """Returns a frame with the overrides that are still active; those inside an ended one get new frames."""
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
    """Iterates over the frames from the innermost to the outermost."""
    frame: SettingsFrame | None = innermost
    while frame is not None:
        yield frame
        frame = frame.outer


@final
@frozen(eq=False)
class Setting(Generic[T]):
    """A named process-wide default that `with` blocks override in the current context.

    New threads start from the process default; a copied context (asyncio tasks) starts with the overrides of the
    context that it was copied from.

    Args:
        name: The name, for `repr`.
        default: The value where nothing overrides it.
        env: The environment variable that replaces `default`, read once. `None` for no variable.
        parse: Converts the text of the variable to a value; raises ValueError that lists the accepted texts.

    Raises:
        ValueError: If `parse` rejects the text of the environment variable.

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
        """Returns a context manager that sets the setting to `value`. Such blocks may end in any order."""
        return Override(self, value)

    def set_default(self, value: T) -> None:
        """Replaces the process default: the value in all threads where no block overrides it."""
        object.__setattr__(self, "default", value)
        for frame in _frames(SETTINGS.get()):
            frame.values = {**frame.values}  # calls that are prepared for the old ones compare the object

    def innermost_override(self, value: T) -> Override[T] | None:
        """Returns the innermost active override of the setting with this very object as its value."""
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
    """Parses a boolean from an environment variable. Raises ValueError for an unknown word.

    >>> parse_bool("on"), parse_bool("False")
    (True, False)
    """
    word = _BOOL_WORDS.get(text.strip().lower())
    if word is None:
        raise ValueError(f"allowed are {', '.join(_BOOL_WORDS)} (in either case); unset it for the default")
    return word


RankPromotion: TypeAlias = Literal["allow", "warn", "raise"]


@final
@frozen(eq=False)
class NumericOptions:
    """Options of JAX that decide which programs are valid and which random numbers are drawn, compared by identity.

    `tracefx.interop.as_jax` sets them; there are no functions for them, since the defaults are what tracefx means.

    Args:
        strict_dtypes: Whether operands of different strong dtypes are errors instead of being promoted.
        rank_promotion: What happens to operands of different ranks, scalars excepted.
        prng_impl: The generator of keys that are made without `impl`.
        typed_raw_keys: Whether `PRNGKey` returns the keys of `key`.
        narrow_dtypes: Whether explicit dtypes of 64 bits mean 32 bits unless `enable_x64` is on.
        partitionable: Whether Threefry computes each element from its own index. If not, it draws other numbers.
    """

    strict_dtypes: bool = False
    rank_promotion: RankPromotion = "allow"
    prng_impl: str = "threefry2x32"
    typed_raw_keys: bool = False
    narrow_dtypes: bool = False
    partitionable: bool = True


NUMERIC_OPTIONS: Final = Setting("numeric_options", NumericOptions())
"""Read by functions that users call, and part of the keys of traces."""

X64: Final = Setting("enable_x64", False, "TRACEFX_ENABLE_X64", parse_bool)
DISABLE_JIT: Final = Setting("disable_jit", False, "TRACEFX_DISABLE_JIT", parse_bool)
LOG_COMPILES: Final = Setting("log_compiles", False, "TRACEFX_LOG_COMPILES", parse_bool)

TracebackFiltering: TypeAlias = Literal["off", "filtered"]


def parse_traceback_filtering(text: str) -> TracebackFiltering:
    """Parses the mode of traceback filtering. Raises ValueError for another text.

    >>> parse_traceback_filtering(" OFF ")
    'off'
    """
    match text.strip().lower():
        case "off" | "filtered" as mode:
            return mode
        case _:
            raise ValueError("allowed are off, filtered (in either case); unset it for the default")


TRACEBACK_FILTERING: Final[Setting[TracebackFiltering]] = Setting(
    "traceback_filtering", "filtered", "TRACEFX_TRACEBACK_FILTERING", parse_traceback_filtering
)


RepeatsMode: TypeAlias = Literal["auto", "share", "pieces", "inline"]


def parse_repeats(text: str) -> RepeatsMode:
    """Parses what happens to repeated blocks. Raises ValueError for another text.

    >>> parse_repeats(" INLINE ")
    'inline'
    """
    match text.strip().lower():
        case "auto" | "share" | "pieces" | "inline" as mode:
            return mode
        case _:
            raise ValueError("allowed are auto, share, pieces, inline (in either case); unset it for the default")


REPEATS: Final[Setting[RepeatsMode]] = Setting("repeats", "auto", "TRACEFX_REPEATS", parse_repeats)


def enable_x64(enabled: bool = True) -> Override[bool]:
    """Returns a context manager in which default dtypes are 64 bits wide.

    It affects the dtypes of Python numbers, of functions called without a `dtype`, and of 64-bit NumPy data that is
    passed in: these become 32 bits wide otherwise. An explicit dtype is honoured either way. The process default is the
    environment variable `TRACEFX_ENABLE_X64`.

    Args:
        enabled: Whether default dtypes are 64 bits wide; False makes them 32 bits wide. True by default.

    Returns:
        A context manager. It applies to the current thread or task.

    Raises:
        TypeError: If `enabled` is not a bool.

    >>> with enable_x64():
    ...     X64.value
    True
    >>> import tracefx.numpy as fnp
    >>> with enable_x64():
    ...     fnp.arange(3).dtype
    dtype('int64')
    """
    return X64.override(_checked_bool("enable_x64", enabled))


def disable_jit(disable: bool = True) -> Override[bool]:
    """Returns a context manager in which functions under `jit` are evaluated eagerly, for debugging.

    `scan`, `cond` and the other control-flow functions run as Python loops and branches, too, so that prints and
    debuggers see concrete values. The process default is the environment variable `TRACEFX_DISABLE_JIT`.

    Args:
        disable: Whether `jit` is disabled. True by default.

    Returns:
        A context manager. It applies to the current thread or task.

    Raises:
        TypeError: If `disable` is not a bool.

    >>> with disable_jit():
    ...     DISABLE_JIT.value
    True
    >>> from tracefx import jit
    >>> with disable_jit():
    ...     y = jit(lambda x: print("x is", x) or 2 * x)(3)
    x is 3
    """
    return DISABLE_JIT.override(_checked_bool("disable_jit", disable))


def log_compiles(value: bool = True) -> Override[bool]:
    """Returns a context manager in which each compilation is logged, with the types of the arguments and the time.

    A function that is compiled again and again is so noticed. The logger is `logging.getLogger("tracefx")`, the level
    WARNING, which Python prints by default. The process default is the environment variable `TRACEFX_LOG_COMPILES`.

    Args:
        value: Whether compilations are logged. True by default.

    Returns:
        A context manager. It applies to the current thread or task.

    Raises:
        TypeError: If `value` is not a bool.

    >>> import logging, sys
    >>> from tracefx import jit
    >>> handler = logging.StreamHandler(sys.stdout)
    >>> logging.getLogger("tracefx").addHandler(handler)
    >>> @jit
    ... def scaled(x):
    ...     return 0.125 * x
    >>> with log_compiles():
    ...     y = scaled(2.0)
    scaled(f32[]): compiled in ... s
    >>> logging.getLogger("tracefx").removeHandler(handler)
    """
    return LOG_COMPILES.override(_checked_bool("log_compiles", value))


def traceback_filtering(mode: TracebackFiltering) -> Override[TracebackFiltering]:
    """Returns a context manager that determines whether tracebacks show the frames of tracefx.

    Filtering changes only the tracebacks of an exception and of those that it is chained to. The process default is the
    environment variable `TRACEFX_TRACEBACK_FILTERING`; without it, tracebacks are filtered.

    Args:
        mode: `"filtered"` removes the frames of tracefx from the tracebacks of errors that leave its functions, except
            for one entry, which says so; `"off"` keeps them.

    Returns:
        The context manager.

    Raises:
        ValueError: If `mode` is neither of these.

    >>> with traceback_filtering("off"):
    ...     TRACEBACK_FILTERING.value
    'off'
    """
    if mode not in ("off", "filtered"):
        raise ValueError(f"traceback_filtering takes 'off' or 'filtered', got {mode!r}")
    return TRACEBACK_FILTERING.override(mode)


def repeats(mode: RepeatsMode) -> Override[RepeatsMode]:
    """Returns a context manager that determines whether the repeated blocks of a program are compiled once.

    It applies to the programs that are compiled in it, on the CPU; `jit(f, repeats=...)` overrides it for one function.
    The process default is the environment variable `TRACEFX_REPEATS`; without it, the mode is `"auto"`.

    Args:
        mode: `"share"` compiles runs of equal blocks of operations, such as the layers of a network and of its
            gradient, once; `"auto"` does so unless temporaries would take much more memory; `"pieces"` makes an
            executable of each kind of block, for the compilation cache on disk to keep; `"inline"` compiles each block
            on its own, as JAX does.

    Returns:
        A context manager. It applies to the current thread or task.

    Raises:
        ValueError: If `mode` is none of these.

    >>> with repeats("inline"):
    ...     REPEATS.value
    'inline'
    """
    return REPEATS.override(checked_repeats("repeats", mode))


def checked_repeats(what: str, mode: object) -> RepeatsMode:
    """Returns the mode; raises ValueError that starts with `what` unless it is one."""
    match mode:
        case "auto" | "share" | "pieces" | "inline":
            return mode
        case _:
            raise ValueError(f"{what} must be 'auto', 'share', 'pieces' or 'inline', got {mode!r}")


@final
@frozen
class CompilationCache:
    """The persistent compilation cache: its directory, and the maximal total size of its files in bytes."""

    path: Path
    max_bytes: int = 1 << 30


def parse_cache(text: str) -> CompilationCache | None:
    """Parses the directory of the compilation cache from an environment variable; empty text means no cache."""
    return CompilationCache(_folder(text)) if text.strip() else None


def _folder(path: str | os.PathLike[str]) -> Path:
    # A lazy import: few processes need it, and it takes 4 ms.
    from pathlib import Path

    return Path(path).expanduser().absolute()


COMPILATION_CACHE: Final[Setting[CompilationCache | None]] = Setting(
    "compilation_cache", None, "TRACEFX_COMPILATION_CACHE_DIR", parse_cache
)


def compilation_cache(
    path: str | os.PathLike[str] | None, *, max_bytes: int = 1 << 30
) -> Override[CompilationCache | None]:
    """Returns a context manager in which compiled programs are stored in a directory and loaded from there.

    A later process that traces an equal program loads its executable instead of lowering and compiling it. Source lines
    and scopes are not compared, so profiles and dumps of a loaded program show those of the program that was stored.
    These programs are never cached: those with primitives defined outside tracefx, those with side effects, and those
    that run on devices of several processes. The process default is the environment variable
    `TRACEFX_COMPILATION_CACHE_DIR`; without it there is no cache.

    The directory contains machine code that is executed as it is: restrict write access to trusted users.

    Args:
        path: The directory, which is created if necessary. None disables the cache.
        max_bytes: The maximal total size; the least recently used executables are evicted. 1 GiB by default.

    Returns:
        A context manager. It applies to the current thread or task.

    Raises:
        TypeError: If `path` is not a path.
        ValueError: If `max_bytes` is not a non-negative integer.

    >>> with compilation_cache("/tmp/programs", max_bytes=10_000_000):
    ...     pass
    """
    return COMPILATION_CACHE.override(None if path is None else as_compilation_cache(path, max_bytes))


def as_compilation_cache(path: str | os.PathLike[str], max_bytes: int = 1 << 30) -> CompilationCache:
    """Returns the compilation cache in a directory, which need not exist yet. The path is made absolute."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"a compilation cache needs the path of a directory, got {path!r} of type {type(path).__name__}"
        )
    if type(max_bytes) is not int or max_bytes < 0:
        raise ValueError(f"a compilation cache needs a number of bytes for max_bytes, got {max_bytes!r}")
    return CompilationCache(_folder(path), max_bytes)


def _checked_bool(function: str, value: bool) -> bool:
    """Returns `value`; raises TypeError unless it is a bool."""
    if type(value) is not bool:
        raise TypeError(f"{function} takes True or False, got {value!r} of type {type(value).__name__}")
    return value

"""`jax.config`: the options of JAX that have a meaning on tracefx, with the values that they can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, Final, NoReturn, final

from attrs import asdict, field, frozen
from typing_extensions import override

from tracefx.bounded_cache import memoize
from tracefx.core.handler import current, handling
from tracefx.interop.as_jax.debugging import ResultChecker
from tracefx.interop.as_jax.unsupported import unsupported
from tracefx.random.keys import IMPLEMENTATIONS
from tracefx.settings import (
    COMPILATION_CACHE,
    DISABLE_JIT,
    LOG_COMPILES,
    NUMERIC_OPTIONS,
    TRACEBACK_FILTERING,
    X64,
    NumericOptions,
    Setting,
    as_compilation_cache,
)


def _same(value: Any) -> Any:
    return value


@frozen(eq=False)
class Option:
    """An option that is a setting of tracefx.

    Args:
        setting: The setting.
        to_tracefx: From the value of the option to that of the setting.
        to_jax: The inverse.
    """

    setting: Setting[Any]
    to_tracefx: Callable[[Any], Any] = bool
    to_jax: Callable[[Any], Any] = _same

    def read(self) -> Any:
        """Returns the value in the current context."""
        return self.to_jax(self.setting.value)

    def update(self, value: Any) -> None:
        """Changes the value in the whole process."""
        self.setting.set_default(self.to_tracefx(value))

    def override(self, value: Any) -> AbstractContextManager[Any]:
        """Returns a context manager in which the option has a value."""
        return self.setting.override(self.to_tracefx(value))


def with_option(options: NumericOptions, name: str, value: object) -> NumericOptions:
    """Returns numeric options with another value of one of them; the same object for the same values."""
    return _numeric_options(**{**asdict(options), name: value})


@memoize(64)
def _numeric_options(**values: Any) -> NumericOptions:
    return NumericOptions(**values)


@final
@frozen(eq=False)
class NumericOption(Option):
    """An option that is one of `NumericOptions`.

    Args:
        name: Its name there.
        values: The values of the option, each with the value there.
    """

    setting: Setting[Any] = field(init=False, default=NUMERIC_OPTIONS)
    to_tracefx: Callable[[Any], Any] = field(init=False, repr=False)
    name: str = field(kw_only=True)
    values: Mapping[Any, Any] = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "to_tracefx", self._converted)

    def _converted(self, value: Any) -> Any:
        if value not in self.values:
            raise ValueError(f"the option is one of {', '.join(map(repr, self.values))}, got {value!r}")
        return self.values[value]

    @override
    def read(self) -> Any:
        now = getattr(NUMERIC_OPTIONS.value, self.name)
        return next(value for value, ours in self.values.items() if ours == now)

    @override
    def update(self, value: Any) -> None:
        NUMERIC_OPTIONS.set_default(with_option(NUMERIC_OPTIONS.default, self.name, self._converted(value)))

    @override
    def override(self, value: Any) -> AbstractContextManager[Any]:
        return NUMERIC_OPTIONS.override(with_option(NUMERIC_OPTIONS.value, self.name, self._converted(value)))


@final
@frozen(eq=False)
class CheckOption(Option):
    """An option that is a `ResultChecker` in a `with` block.

    Args:
        infinities: Whether it looks for infinities instead of NaN.
    """

    setting: Setting[Any] = field(init=False, repr=False)
    infinities: bool = field(kw_only=True)

    @override
    def read(self) -> bool:
        return any(isinstance(h, ResultChecker) and h.infinities == self.infinities for h in current().chain())

    @override
    def update(self, value: Any) -> None:
        if bool(value) != self.read():
            name = "debug_infs" if self.infinities else "debug_nans"
            raise unsupported(f"jax_{name}={value!r} for the whole process", f"write `with jax.{name}(True):`")

    @override
    def override(self, value: Any) -> AbstractContextManager[Any]:
        if not value:
            self.update(value)
        return handling(ResultChecker(current(), self.infinities))


@final
@frozen(eq=False)
class FixedOption(Option):
    """An option of which only some values can be given; they all mean what tracefx does.

    Args:
        name: Its name.
        default: Its value.
        others: Further values that mean the same.
        reason: Why it can have no other value, or what replaces them.
    """

    setting: Setting[Any] = field(init=False, repr=False)
    to_tracefx: Callable[[Any], Any] = field(init=False, repr=False)
    name: str = field(kw_only=True)
    default: Any = field(kw_only=True)
    others: tuple[Any, ...] = field(kw_only=True, default=())
    reason: str = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "setting", Setting(self.name, self.default))
        object.__setattr__(self, "to_tracefx", self._checked)

    def _checked(self, value: Any) -> Any:
        if value != self.default and value not in self.others:
            raise unsupported(f"{self.name}={value!r}", self.reason)
        return value


_DEBUGGING: Final = "tracefx.handlers has checkify, explain, log and other tools for debugging"
_FILTERING: Final[Mapping[Any, str]] = MappingProxyType(
    {"off": "off", "auto": "filtered", "remove_frames": "filtered", "tracebackhide": "filtered", None: "filtered"}
)


def _filtering(value: Any) -> str:
    if value not in _FILTERING:
        raise ValueError(f"jax_traceback_filtering is one of {', '.join(map(str, _FILTERING))}, got {value!r}")
    return _FILTERING[value]


_FIXED: Final[tuple[tuple[str, Any, tuple[Any, ...], str], ...]] = (
    ("jax_check_tracer_leaks", False, (True,), "leaked tracers are always detected"),
    ("jax_cpu_enable_async_dispatch", True, (False,), "results are the same"),
    ("jax_debug_key_reuse", False, (), "`tracefx.handlers.check_key_reuse` checks keys"),
    ("jax_default_device", None, (), "`with jax.default_device(device)` sets it"),
    ("jax_default_matmul_precision", None, ("default",), "pass `precision` to the functions"),
    ("jax_enable_checks", False, (True,), "it changes no result"),
    ("jax_explain_cache_misses", False, (), "`jax.jit(f).explain_retrace(x)` explains them"),
    ("jax_legacy_prng_key", "allow", (), "it restricts raw keys"),
    ("jax_no_tracing", False, (), _DEBUGGING),
    ("jax_platform_name", "", ("cpu",), "the environment variable TRACEFX_PLATFORM names the platform"),
    ("jax_platforms", None, ("cpu", ""), "the environment variable TRACEFX_PLATFORM names the platform"),
    ("jax_pmap_shmap_merge", True, (), "pmap is a shard_map"),
    ("jax_softmax_custom_jvp", True, (), "the derivative of softmax is its own"),
    ("jax_transfer_guard", None, ("allow",), "transfers are not guarded"),
    ("jax_use_shardy_partitioner", True, (), "programs are partitioned by Shardy"),
)

_BOOLS: Final = {False: False, True: True}
_OPTIONS: Final[Mapping[str, Option]] = MappingProxyType(
    {
        "jax_enable_x64": Option(X64),
        "jax_disable_jit": Option(DISABLE_JIT),
        "jax_log_compiles": Option(LOG_COMPILES),
        "jax_traceback_filtering": Option(TRACEBACK_FILTERING, _filtering),
        "jax_compilation_cache_dir": Option(
            COMPILATION_CACHE,
            lambda path: None if path is None else as_compilation_cache(path),
            lambda cache: None if cache is None else str(cache.path),
        ),
        "jax_debug_infs": CheckOption(infinities=True),
        "jax_debug_nans": CheckOption(infinities=False),
        "jax_default_prng_impl": NumericOption(name="prng_impl", values={each: each for each in IMPLEMENTATIONS}),
        "jax_enable_custom_prng": NumericOption(name="typed_raw_keys", values=_BOOLS),
        "jax_explicit_x64_dtypes": NumericOption(name="narrow_dtypes", values={"warn": True, "allow": False}),
        "jax_numpy_dtype_promotion": NumericOption(name="strict_dtypes", values={"standard": False, "strict": True}),
        "jax_numpy_rank_promotion": NumericOption(
            name="rank_promotion", values={each: each for each in ("allow", "warn", "raise")}
        ),
        "jax_threefry_partitionable": NumericOption(name="partitionable", values=_BOOLS),
        **{
            name: FixedOption(name=name, default=default, others=others, reason=reason)
            for name, default, others, reason in _FIXED
        },
    }
)


@final
class Config:
    """The options of JAX: attributes such as `config.jax_enable_x64`, and `config.update(name, value)`."""

    __slots__ = ()

    def update(self, name: str, value: Any) -> None:
        """Changes an option in the whole process.

        Args:
            name: The name, with the prefix `jax_`.
            value: The value.

        Raises:
            AttributeError: If there is no such option.
            UnsupportedJaxError: If it cannot have this value.
        """
        _option(name).update(value)

    def read(self, name: str) -> Any:
        """Returns the value of an option."""
        return _option(name).read()

    @property
    def values(self) -> dict[str, Any]:
        """The values of all options."""
        return {name: option.read() for name, option in _OPTIONS.items()}

    @property
    def x64_enabled(self) -> bool:
        """Whether default dtypes are 64 bits wide."""
        return X64.value

    def parse_flags_with_absl(self) -> None:
        """Does nothing: the options are not flags of absl."""

    config_with_absl = parse_flags_with_absl

    def __getattr__(self, name: str) -> Any:
        return _option(name).read()

    @override
    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"write jax.config.update({name!r}, {value!r})")


def _option(name: str) -> Option:
    option = _OPTIONS.get(name)
    if option is None:
        raise AttributeError(f"jax.config has on tracefx no option {name!r}; it has {', '.join(_OPTIONS)}")
    return option


config: Final = Config()


def _context_manager(name: str) -> Callable[..., AbstractContextManager[Any]]:
    def override(value: Any = True) -> AbstractContextManager[Any]:
        return nullcontext(value) if _option(name).read() == value else _option(name).override(value)

    override.__doc__ = f"Returns a context manager in which the option `{name}` has a value."
    override.__name__ = name.removeprefix("jax_")
    return override


(
    check_tracer_leaks,
    debug_infs,
    debug_key_reuse,
    debug_nans,
    default_matmul_precision,
    default_prng_impl,
    enable_checks,
    enable_custom_prng,
    explain_cache_misses,
    legacy_prng_key,
    log_compiles,
    no_tracing,
    numpy_dtype_promotion,
    numpy_rank_promotion,
    softmax_custom_jvp,
    threefry_partitionable,
    transfer_guard,
) = [
    _context_manager(f"jax_{name}")
    for name in (
        "check_tracer_leaks",
        "debug_infs",
        "debug_key_reuse",
        "debug_nans",
        "default_matmul_precision",
        "default_prng_impl",
        "enable_checks",
        "enable_custom_prng",
        "explain_cache_misses",
        "legacy_prng_key",
        "log_compiles",
        "no_tracing",
        "numpy_dtype_promotion",
        "numpy_rank_promotion",
        "softmax_custom_jvp",
        "threefry_partitionable",
        "transfer_guard",
    )
]

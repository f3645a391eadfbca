"""`progress`: reports of loops in eager and compiled programs, and the progress bars drawn from them."""

from __future__ import annotations

import builtins
import functools
import io
import os
import re
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import tracefx as fx
import tracefx.numpy as fnp
from tests.comparison import assert_near
from tests.errors import untyped
from tracefx import lax
from tracefx.core.handler import current
from tracefx.errors import HandlerStateError
from tracefx.handlers import Report, RichBars, count, progress
from tracefx.handlers.progress_reporting import plain_bars
from tracefx.testing import check_interpretation
from tracefx.testing.tolerances import ELEMENTARY, PROGRAM

F = Callable[..., Any]
Reports = list[Report]


@pytest.fixture
def reports() -> Reports:
    return []


def steps(reports: Reports, depth: int = 0) -> list[int]:
    return [r.done for r in reports if r.loop.depth == depth]


def take_reports(reports: Reports) -> Reports:
    """Returns the reports so far and clears the list."""
    taken = reports[:]
    reports.clear()
    return taken


def sum_with_scan(x: Any, n: int = 1000) -> Any:
    return lax.scan(lambda c, y: (c + y, c), x, fnp.arange(float(n)))


def count_with_while(x: Any) -> Any:
    """A while loop of statically unknown length: 1000 steps for 1000."""
    return lax.while_loop(lambda c: c[0] < x, lambda c: (c[0] + 1, c[1] * 1.001), (0.0, 1.0))


def check_reports_of_known_length(taken: Reports, total: int, every: int) -> None:
    assert steps(taken) == sorted({*range(every, total + 1, every), total})
    assert all(r.total == total for r in taken)
    assert [r.finished for r in taken] == [False] * (len(taken) - 1) + [True]


def with_and_without_jit(f: F, show: F) -> dict[str, F]:
    return {
        "plain": progress(f, show=show),
        "inside jit": fx.jit(progress(f, show=show)),
        "around jit": progress(fx.jit(f), show=show),
    }


# ------------------------------------------------------------------ which reports there are


@pytest.mark.parametrize("name", ["plain", "inside jit", "around jit"])
def test_scan_sends_a_hundred_reports(name: str, reports: Reports) -> None:
    f = with_and_without_jit(sum_with_scan, reports.append)[name]
    for _ in range(2):  # the second call runs the cached program
        want = sum_with_scan(1.0)
        np.testing.assert_array_equal(f(1.0)[0], want[0])
        np.testing.assert_array_equal(f(1.0)[1], want[1])
        taken = take_reports(reports)
        check_reports_of_known_length(taken[:100], 1000, 10)
        check_reports_of_known_length(taken[100:], 1000, 10)


@pytest.mark.parametrize(
    ("n", "every"), [(2, 1), (7, 1), (99, 1), (100, 1), (101, 2), (250, 3), (1001, 11)], ids=lambda x: str(x)
)
def test_reports_of_scans_of_any_length(n: int, every: int, reports: Reports) -> None:
    progress(lambda: sum_with_scan(0.0, n), show=reports.append)()
    check_reports_of_known_length(reports, n, every)


def test_short_loops_send_no_reports(reports: Reports) -> None:
    f = progress(lambda n: sum_with_scan(0.0, n), show=reports.append)
    f(0)
    f(1)
    progress(fx.jit(count_with_while), show=reports.append)(63.0)
    assert reports == []


def test_every_sets_the_number_of_steps_between_reports(reports: Reports) -> None:
    progress(sum_with_scan, every=300, show=reports.append)(0.0)
    check_reports_of_known_length(take_reports(reports), 1000, 300)
    progress(count_with_while, every=300, show=reports.append)(1000.0)
    assert [(r.done, r.total, r.finished) for r in reports] == [
        (300, None, False),
        (600, None, False),
        (900, None, False),
        (1000, None, True),
    ]


@pytest.mark.parametrize("name", ["plain", "inside jit", "around jit"])
def test_while_loop_doubles_the_interval_between_reports(name: str, reports: Reports) -> None:
    f = with_and_without_jit(count_with_while, reports.append)[name]
    assert f(1000.0)[0] == 1000
    done = steps(reports)
    assert done == [*range(64, 128, 2), *range(128, 256, 4), *range(256, 512, 8), *range(512, 1000, 16), 1000]
    assert {r.total for r in reports} == {None}
    assert [r.finished for r in reports] == [False] * (len(done) - 1) + [True]


def test_while_loop_with_max_steps(reports: Reports) -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: c < x, lambda c: c + 1, 0.0, max_steps=1000)

    assert progress(f, show=reports.append)(42.0) == 42
    assert [(r.done, r.total, r.finished) for r in reports] == [
        *[(i, 1000, False) for i in (10, 20, 30, 40)],
        (42, 1000, True),
    ]
    take_reports(reports)
    progress(f, show=reports.append)(2000.0)
    check_reports_of_known_length(reports, 1000, 10)


def test_fori_loop_with_traced_bounds(reports: Reports) -> None:
    @fx.jit
    def f(first: Any, end: Any) -> Any:
        return lax.fori_loop(first, end, lambda i, x: x + i, 0)

    with_progress = progress(f, show=reports.append)
    for first, end, every in ((0, 1000, 10), (-50, 200, 3), (0, 10, 1)):
        assert with_progress(first, end) == sum(range(first, end))
        check_reports_of_known_length(take_reports(reports), end - first, every)
    assert with_progress(3, 3) == with_progress(5, 3) == 0
    assert reports == []


def test_counting_while_loop_has_a_known_length(reports: Reports) -> None:
    loops: list[F] = [
        lambda n: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2), (0, n))[0],
        lambda n: lax.while_loop(lambda c: c[0] < 400, lambda c: (c[0] + 1, n), (0, n))[0],
        lambda n: lax.while_loop(lambda i: i < 100, lambda i: i + 1, fnp.asarray(-100, np.int8)) + n - 100,
    ]
    for f in loops:
        assert progress(fx.jit(f), show=reports.append)(400) == 400
        taken = take_reports(reports)
        total = taken[-1].done
        check_reports_of_known_length(taken, total, -(-total // 100))
    batched = progress(fx.jit(fx.vmap(loops[0])), show=reports.append)
    np.testing.assert_array_equal(batched(fnp.array([400, 300])), [400, 300])
    assert steps(reports)[-1] == 400


def test_other_while_loops_have_no_known_length(reports: Reports) -> None:
    """Loops that resemble counting loops but are not."""
    loops: list[F] = [
        lambda n: lax.while_loop(lambda c: c[0] < c[1], lambda c: (c[0] + 2, c[1]), (0, n)),
        lambda n: lax.while_loop(lambda c: c[0] < c[1], lambda c: (c[0] + 1, c[1] - 1), (0, n)),
        lambda n: lax.while_loop(lambda c: c[1] < c[0], lambda c: (c[0] - 1, c[1]), (n, 0)),
        lambda n: lax.while_loop(lambda c: c[0] <= c[1], lambda c: (c[0] + 1, c[1]), (0, n)),
        lambda n: lax.while_loop(lambda c: c[0] < c[1], lambda c: (c[0] + 1, c[1]), (0.0, n + 0.5)),
        lambda n: lax.while_loop(lambda c: c[0] < n + 1, lambda c: (c[0] + 1, c[1]), (0, n)),
    ]
    for f in loops:
        np.testing.assert_array_equal(progress(fx.jit(f), show=reports.append)(400), f(400))
        assert {r.total for r in take_reports(reports)} == {None}


def test_reports_of_map(reports: Reports) -> None:
    f = progress(lambda x: lax.map(lambda y: y * 2, x), show=reports.append)
    np.testing.assert_array_equal(f(fnp.arange(50)), 2 * np.arange(50))
    check_reports_of_known_length(reports, 50, 1)


# ------------------------------------------------------------------ nested loops


def nested(x: Any) -> Any:
    def outer(c: Any, _: None) -> Any:
        return lax.scan(lambda c, y: (c + y, None), c, fnp.arange(200.0))[0], None

    return lax.scan(outer, x, None, 7)[0]


def test_nested_loops_have_increasing_depth(reports: Reports) -> None:
    for f in with_and_without_jit(nested, reports.append).values():
        assert f(0.0) == 7 * sum(range(200))
        taken = take_reports(reports)
        assert steps(taken) == [*range(1, 8)]
        assert steps(taken, 1) == [*range(20, 201, 20)] * 7
        assert len({r.loop for r in taken}) == 2


def test_depth_limits_the_reported_nesting(reports: Reports) -> None:
    progress(nested, depth=1, show=reports.append)(0.0)
    assert {r.loop.depth for r in take_reports(reports)} == {0}

    def deep(x: Any) -> Any:
        return lax.scan(lambda c, _: (nested(c), None), x, None, 2)[0]

    progress(deep, show=reports.append)(0.0)  # the innermost loop is too deep and is not reported
    assert {(r.loop.depth, r.total) for r in take_reports(reports)} == {(0, 2), (1, 200)}


def test_loops_in_branches_and_calls_are_reported(reports: Reports) -> None:
    def f(x: Any) -> Any:
        y = fx.jit(lambda x: lax.cond(x > 0, lambda x: sum_with_scan(x)[0], lambda x: sum_with_scan(x, 500)[0], x))(x)
        return fx.checkpoint(lambda y: sum_with_scan(y, 300)[0])(y)

    for g in with_and_without_jit(f, reports.append).values():
        for x, n in ((1.0, 1000), (-1.0, 500)):
            assert g(x) == f(x)
            taken = take_reports(reports)
            check_reports_of_known_length([r for r in taken if r.total == n], n, n // 100)
            check_reports_of_known_length([r for r in taken if r.total == 300], 300, 3)
            assert {r.total for r in taken} == {n, 300}


# ------------------------------------------------------------------ batches and derivatives


def test_batched_scan_is_reported_once(reports: Reports) -> None:
    x = fnp.arange(3.0)
    for f in (
        fx.vmap(progress(sum_with_scan, show=reports.append)),
        progress(fx.vmap(sum_with_scan), show=reports.append),
    ):
        np.testing.assert_array_equal(f(x)[0], fx.vmap(sum_with_scan)(x)[0])
        check_reports_of_known_length(take_reports(reports), 1000, 10)
    assert fx.vmap(progress(lambda x: sum_with_scan(0.0)[0] + x, show=reports.append))(x)[0] == sum(range(1000))
    check_reports_of_known_length(take_reports(reports), 1000, 10)


def test_batched_while_loop_reports_its_longest_element(reports: Reports) -> None:
    x = fnp.array([100.0, 200.0, 10.0])
    for f in (
        fx.vmap(progress(count_with_while, show=reports.append)),
        progress(fx.vmap(count_with_while), show=reports.append),
        fx.jit(fx.vmap(progress(count_with_while, show=reports.append))),
    ):
        np.testing.assert_array_equal(f(x)[0], x)
        assert steps(take_reports(reports)) == [*range(64, 128, 2), *range(128, 201, 4), 200]


def scan_of_sines(x: Any) -> Any:
    return lax.scan(lambda c, y: (fnp.sin(c) + y * c, None), x, fnp.arange(400.0) / 400)[0]


def test_grad_reports_forward_and_backward_loops(reports: Reports) -> None:
    want = fx.grad(scan_of_sines)(0.3)
    forward = 100
    inside = fx.grad(progress(scan_of_sines, show=reports.append))
    gradients: tuple[F, ...] = (inside, fx.jit(inside))
    for f in gradients:
        assert_near(f(0.3), want, ELEMENTARY)
        check_reports_of_known_length(take_reports(reports), 400, 4)
    for f in (
        progress(fx.grad(scan_of_sines), show=reports.append),
        progress(fx.jit(fx.grad(scan_of_sines)), show=reports.append),
    ):
        assert_near(f(0.3), want, ELEMENTARY)
        taken = take_reports(reports)
        check_reports_of_known_length(taken[:forward], 400, 4)
        check_reports_of_known_length(taken[forward:], 400, 4)


def jvp_of(f: F, x: Any, t: Any) -> Any:
    return fx.jvp(f, (x,), (t,))


def test_jvp_reports_one_loop(reports: Reports) -> None:
    want = fx.jvp(scan_of_sines, (0.3,), (1.0,))
    gradients: tuple[F, ...] = (
        lambda x, t: fx.jvp(progress(scan_of_sines, show=reports.append), (x,), (t,)),
        progress(functools.partial(jvp_of, scan_of_sines), show=reports.append),
    )
    for f in gradients:
        assert_near(f(0.3, 1.0), want, ELEMENTARY)
        check_reports_of_known_length(take_reports(reports), 400, 4)
    out, t = fx.jvp(lambda x: progress(count_with_while, show=reports.append)(x)[1] * x, (200.0,), (1.0,))
    assert_near([out, t], [200 * 1.001**200, 1.001**200], PROGRAM)
    assert steps(reports)[-1] == 200


def test_grad_of_a_checkpointed_scan(reports: Reports) -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, y: (fnp.sin(c) + y * c, None), x, fnp.arange(400.0) / 400, checkpoint=20)[0]

    want = fx.grad(scan_of_sines)(0.3)
    assert_near(fx.grad(progress(f, show=reports.append))(0.3), want, ELEMENTARY)
    assert steps(reports)[-1] == 400
    assert_near(progress(fx.grad(f), show=reports.append)(0.3), want, ELEMENTARY)


def test_progress_adds_few_residuals() -> None:
    x = np.float32(0.3)
    with_progress = progress(scan_of_sines, show=lambda report: None)
    plain, counting = count(fx.grad(scan_of_sines))(x), count(fx.grad(with_progress))(x)
    assert counting.peak_bytes <= plain.peak_bytes + 16 * 400


# ------------------------------------------------------------------ context manager


def test_context_manager_reports_all_loops_inside(reports: Reports) -> None:
    bars = progress(show=reports.append)
    f = fx.jit(sum_with_scan)
    with bars as entered_bars:
        assert entered_bars is bars
        f(0.0)
        count_with_while(100.0)
    assert len(reports) > 100
    take_reports(reports)
    f(0.0)
    assert reports == []
    with bars, bars:
        sum_with_scan(0.0)
    assert len(take_reports(reports)) == 200
    decorated = bars(sum_with_scan)
    assert decorated.__name__ == "sum_with_scan"
    decorated(0.0)
    check_reports_of_known_length(reports, 1000, 10)


def test_context_manager_in_several_threads(reports: Reports) -> None:
    bars, outer, entered = progress(show=reports.append), current(), threading.Barrier(2)

    def run(n: int) -> tuple[bool, list[int]]:
        with bars:
            entered.wait()
            sum_with_scan(0.0, n)
            entered.wait()
        with bars:  # entered and left without synchronisation
            sum_with_scan(0.0, n + 1)
        return current() is outer, [n, n + 1]

    with ThreadPoolExecutor(2) as threads:
        assert [clean for clean, _ in threads.map(run, [200, 300])] == [True, True]
    assert sorted(r.done for r in reports if r.finished) == [200, 201, 300, 301]


def test_context_managers_must_exit_in_reverse_order(reports: Reports) -> None:
    first, second, outer = progress(show=reports.append), progress(show=reports.append), current()
    first.__enter__()
    second.__enter__()
    with pytest.raises(HandlerStateError, match="reverse order"):
        first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    first.__exit__(None, None, None)
    assert current() is outer


def test_reports_have_the_source_location(reports: Reports) -> None:
    for f in with_and_without_jit(sum_with_scan, reports.append).values():
        f(0.0)
        (loop,) = {r.loop for r in take_reports(reports)}
        assert (loop.location.file, loop.location.function, loop.name) == (__file__, "sum_with_scan", "scan")
        assert str(loop) == f"scan in {loop.location}"


def test_exceptions_of_show_propagate(reports: Reports) -> None:
    class Stop(Exception):
        pass

    def show(report: Report) -> None:
        reports.append(report)
        if report.done == 500:
            raise Stop

    for f in with_and_without_jit(sum_with_scan, show).values():
        with pytest.raises(Stop):
            f(0.0)
        assert steps(take_reports(reports))[-1] == 500
    sum_with_scan(0.0)
    assert reports == []


# ------------------------------------------------------------------ bars


def terminal() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=True, width=100, color_system=None), file


@pytest.mark.parametrize("name", ["plain", "inside jit", "around jit"])
def test_rich_bars_are_drawn(name: str) -> None:
    console, file = terminal()
    with_and_without_jit(sum_with_scan, RichBars(console))[name](0.0)
    text = file.getvalue()
    assert f"scan test_progress.py:{sum_with_scan.__code__.co_firstlineno + 1}" in text
    assert "1000/1000" in text


def test_bars_of_nested_loops_are_reused() -> None:
    console, file = terminal()
    bars = RichBars(console)
    with progress(show=bars):
        fx.jit(nested)(0.0)
        fx.jit(nested)(0.0)
        assert len(bars._tasks) == 2
    assert "7/7" in file.getvalue()
    assert "200/200" in file.getvalue()
    assert bars._live is None


def test_bars_of_unknown_length() -> None:
    console, file = terminal()
    progress(fx.jit(count_with_while), show=RichBars(console))(1000.0)
    assert "64/?" in file.getvalue()
    assert "1000/1000" in file.getvalue()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_bars_are_closed_after_an_exception(error: type[BaseException]) -> None:
    console, _ = terminal()
    bars = RichBars(console)

    def interrupted(x: Any) -> Any:
        y, _ = sum_with_scan(x)
        fx.debug.callback(fail, y)
        return y

    def fail(y: Any) -> None:
        raise error

    with pytest.raises(error):
        progress(interrupted, show=bars)(0.0)
    assert bars._live is None

    def stopped(x: Any) -> Any:
        raise error

    with pytest.raises(error), progress(show=bars):
        stopped(0.0)
    assert bars._live is None
    threads = {t.name for t in threading.enumerate()}
    assert not any("refresh" in name.lower() for name in threads)
    progress(sum_with_scan, show=bars)(0.0)  # the bars can be used again


@pytest.mark.parametrize("name", ["block", "around jit"])
def test_keyboard_interrupt_ends_a_compiled_loop(name: str, reports: Reports) -> None:
    def show(report: Report) -> None:
        reports.append(report)
        if report.done == 300:
            os.kill(os.getpid(), signal.SIGINT)

    f = fx.jit(lambda x: lax.scan(lambda c, _: (fnp.tanh(c @ c), None), x, None, 1000)[0])

    def in_block(x: Any) -> Any:
        with progress(show=show):
            return f(x)

    g = in_block if name == "block" else progress(f, show=show)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore SIGINT in background jobs
    try:
        with pytest.raises(KeyboardInterrupt):
            g(fnp.ones((50, 50)) / 50)
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps(reports)[-1] == 300
    assert signal.set_wakeup_fd(-1) == -1


@pytest.fixture
def without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the import of rich fail."""
    real = builtins.__import__

    def import_without_rich(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "rich":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", import_without_rich)


@pytest.mark.usefixtures("without_rich")
def test_import_error_says_how_to_install_rich() -> None:
    with pytest.raises(ImportError, match=r"pip install rich"):
        RichBars()
    progress(sum_with_scan, show=lambda report: None)(0.0)


@pytest.mark.usefixtures("without_rich")
def test_bars_without_rich_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    progress(fx.jit(sum_with_scan))(0.0)
    *_, last = capsys.readouterr().err.split("\r")
    line = sum_with_scan.__code__.co_firstlineno + 1
    assert re.fullmatch(rf"scan test_progress\.py:{line} \[#{{20}}\] 1000/1000 0:00:\d\d *\n", last)


@pytest.mark.usefixtures("without_rich")
def test_plain_bars_of_nested_loops_share_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plain_bars, "REFRESH_SECONDS", -1.0)
    bars = progress()
    with bars:
        fx.jit(nested)(0.0)
    drawn = capsys.readouterr().err
    assert drawn.count("\n") == 1
    first, *_ = [line for line in drawn.split("\r") if "   scan" in line]
    bar = r"scan test_progress\.py:\d+ \[[#-]{20}\]"
    assert re.match(rf"{bar} \d/7 .*   {bar} \d+/200", first)


@pytest.mark.usefixtures("without_rich")
def test_plain_bars_of_unknown_length(capsys: pytest.CaptureFixture[str]) -> None:
    progress(fx.jit(count_with_while))(1000.0)
    drawn = capsys.readouterr().err.split("\r")
    assert re.search(r":\d+ 64 0:00:\d\d", drawn[1])
    assert "] 1000/1000 " in drawn[-1]


@pytest.mark.usefixtures("without_rich")
def test_plain_line_ends_after_an_exception(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(x: fx.Array) -> fx.Array:
        fx.debug.callback(fail)
        return x

    def fail() -> None:
        raise ValueError("callback")

    f = progress(fx.jit(lambda x: lax.fori_loop(0, 100, lambda i, x: lax.cond(i == 50, fails, lambda x: x, x), x)))
    for _ in range(2):
        with pytest.raises(ValueError, match="callback"):
            f(1.0)
        assert capsys.readouterr().err.endswith("\n")


# ------------------------------------------------------------------ refused arguments


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="progress"):
        untyped(progress)(3)
    with pytest.raises(TypeError, match="progress: show"):
        untyped(progress)(show=3)
    for name in ("every", "depth"):
        for invalid in (0, -1, 1.5, True):
            with pytest.raises(ValueError, match=f"progress: {name} must be a positive integer, got {invalid}"):
                untyped(progress)(sum_with_scan, **{name: invalid})


def test_progress_obeys_the_handler_laws() -> None:
    def with_progress(f: F) -> F:
        return progress(f, show=lambda report: None, every=1)

    assert not check_interpretation(with_progress).skipped

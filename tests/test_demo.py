"""The demo: training, gradient checks, the picture, progress output and the exit status."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from typing_extensions import override

import tracefx as fx
import tracefx.numpy as fnp
from demo import digits
from demo.checks import difference_from_jax, difference_from_loop
from demo.picture import draw
from demo.progress import Progress
from tests.comparison import assert_near
from tracefx import tree


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def data() -> tuple[digits.Examples, digits.Examples]:
    return digits.load_data(np.random.default_rng(0))


def test_train_and_test_split_covers_the_data(data: tuple[digits.Examples, digits.Examples]) -> None:
    train, test = data
    assert (train.images.shape, test.images.shape) == ((1437, 64), (360, 64))
    assert float(fnp.min(train.images)) == 0
    assert float(fnp.max(train.images)) == 1
    assert {int(n) for n in np.asarray(test.labels)} == set(range(10))


def test_training_epoch_reduces_the_loss_deterministically(data: tuple[digits.Examples, digits.Examples]) -> None:
    one, other = [digits.train(*data, epochs=1, random=np.random.default_rng(3)) for _ in range(2)]
    assert one.losses == other.losses
    assert len(one.losses) == 1437 // digits.BATCH
    assert one.losses[-1] < 0.8 * one.losses[0]
    assert digits.accuracy(one.params, data[1]) > 0.5


def test_initial_loss_is_near_chance(data: tuple[digits.Examples, digits.Examples]) -> None:
    params = digits.new_params(digits.SIZES, np.random.default_rng(1))
    probabilities = fnp.sum(fnp.exp(digits.predict(params, data[0].images)), axis=-1)
    assert_near(probabilities, np.ones(probabilities.shape))
    assert 1.5 < float(digits.loss(params, *data[0])) < 4  # log(10) is 2.3


def test_gradient_checks_accept_gradients_and_reject_wrong_ones(data: tuple[digits.Examples, digits.Examples]) -> None:
    params = digits.new_params(digits.SIZES, np.random.default_rng(1))
    batch = data[0].take(slice(8))
    _, gradient = digits.loss_and_gradient(params, *batch)
    assert difference_from_jax(gradient, params, *batch) < digits.TOLERANCE
    per_example = digits.per_example_gradients(params, *batch)
    assert difference_from_loop(per_example, fx.grad(digits.loss), params, *batch) < digits.TOLERANCE

    wrong = tree.map(lambda g: g * 1.01, gradient)
    assert difference_from_jax(wrong, params, *batch) > digits.TOLERANCE
    broken = tree.map(lambda g: g * np.float32("nan"), gradient)
    assert not difference_from_jax(broken, params, *batch) <= digits.TOLERANCE
    shuffled = tree.map(lambda g: fnp.flip(g, axis=0), per_example)
    assert difference_from_loop(shuffled, fx.grad(digits.loss), params, *batch) > digits.TOLERANCE


def test_picture_is_written(tmp_path: Path, data: tuple[digits.Examples, digits.Examples]) -> None:
    test = data[1].take(slice(40))
    for name, predicted in (("right.png", test.labels), ("wrong.png", test.labels + 1)):
        draw(tmp_path / "new" / name, [2.0, 1.0, 0.5, 0.4], [1.5, 0.7], *test, predicted)
        assert (tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG")


def test_progress_output_on_a_terminal_and_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        with Progress("training", 80, stream) as progress:
            for i in range(1, 81):
                progress.show(i, "a loss of " + "1" * (90 - i))
    assert terminal.getvalue().count("\n") == 1
    assert all(len(line) < 60 for line in terminal.getvalue().replace("\r", "\n").splitlines())
    assert "80/80" in terminal.getvalue()
    lines = file.getvalue().splitlines()
    assert len(lines) == 8
    assert lines[-1].startswith("training 80/80")
    assert "\r" not in file.getvalue()


def test_progress_ends_its_line_on_an_error() -> None:
    terminal = Terminal()

    def interrupted() -> None:
        with Progress("training", 2, terminal) as progress:
            progress.show(1, "")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().endswith("\n")


def test_failed_check_sets_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(digits, "EPOCHS", 1)
    assert digits.main() == 1
    out = capsys.readouterr().out
    assert "FAIL  test accuracy" in out
    assert "ok    gradient beside JAX's" in out
    assert "reduce_max" in out  # the program
    assert (tmp_path / "out" / "digits.png").exists()

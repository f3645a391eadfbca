"""The command `tracefx show`."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

import pytest

import tracefx
from tests.subprocesses import run_python
from tracefx.command import main

PROGRAM = """
import tracefx as fx
import tracefx.numpy as fnp

def loss(params, x, power=2.0):
    return fnp.sum(fnp.abs(x @ params["w"] + params["b"]) ** power)

class Model:
    @staticmethod
    def call(x):
        return fnp.sin(x)

number = 3
program = fx.make_jaxpr(Model.call)(1.0)
"""
PARAMS = "{'w': f32[3,4], 'b': f32[4]}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shown_here.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shown_here", raising=False)
    return tmp_path


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["--version"])
    assert exit_info.value.code == 0
    assert capsys.readouterr().out == f"tracefx {tracefx.__version__}\n"


def test_show_writes_a_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "shown_here:loss", PARAMS, "f32[2,3]"]) == 0
    assert capsys.readouterr().out == "loss.html\n"
    page = (folder / "loss.html").read_text(encoding="utf-8")
    assert "params[&#x27;w&#x27;]" in page or "params['w']" in page
    assert "shown_here.py" in page


def test_show_options(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    command_line = ["show", "shown_here.py:loss", PARAMS, "f32[2,3]", "3.0", "--grad", "--steps", "program,simplified"]
    assert main([*command_line, "-o", "x.html", "--title", "a <title>", "--open"]) == 0
    page = (folder / "x.html").read_text(encoding="utf-8")
    assert "<h1>a &lt;title&gt;</h1>" in page
    assert [page.index(f"<h2>{name}</h2>") for name in ("loss", "grad", "simplified")] == sorted(
        [page.index(f"<h2>{name}</h2>") for name in ("loss", "grad", "simplified")]
    )
    assert opened == [(folder / "x.html").resolve().as_uri()]


def test_show_members_and_programs_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "shown_here:Model.call", "bf16[2]*", "-o", "-"]) == 0
    assert "<i>:bf16[2]*</i>" in capsys.readouterr().out
    assert main(["show", "shown_here:program", "-o", "-"]) == 0
    assert "<u>sin</u>" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command_line", "message"),
    [
        (
            ["shown_here"],
            "'shown_here' is not the name of a function: write module:function, or path/to/file.py:function",
        ),
        (["shown_here:los"], "shown_here has no 'los'; did you mean loss?"),
        (["nowhere:f"], "there is no module 'nowhere', here or installed"),
        (["nowhere.py:f"], "there is no file nowhere.py"),
        (["shown_here:number"], "shown_here:number is neither a function nor a program: 3"),
        (["shown_here:program", "f32[]"], "shown_here:program is a program: pass no types for it"),
        (["shown_here:loss", "f32[]"], "was given 1 type: missing a required argument: 'x'"),
        (["shown_here:loss", "f32[]", "f33[2]"], "show: 'f33[2]' is not a type: 'f33' names no dtype"),
        (
            ["shown_here:loss", "(f32[2,%],)", "f32[]"],
            "'f32[2,%]' in '(f32[2,%],)' is not a type: '%' is not part of a program",
        ),
        (
            ["shown_here:loss", "(f32[2,a],)", "f32[]"],
            "'f32[2,a]' in '(f32[2,a],)' is not the type of an argument: its sizes must be integers",
        ),
        (["shown_here:loss", "f32[2", "f32[]"], "'f32[2' is not the type of an argument: write one such as f32[8,128]"),
        (["shown_here:loss", "open('x')", "f32[]"], "\"open('x')\" is not the type of an argument"),
        (["shown_here:Model.call", "f32[]", "--steps", "grads"], "there is no step 'grads'; did you mean 'grad'?"),
        (["shown_here:Model.call", "f32[]", "--steps", "xyz"], "there is no step 'xyz'. There are program, grad"),
        (["shown_here:Model.call", "f32[]", "-o", "none/x.html"], "none/x.html cannot be written: No such file or"),
    ],
)
def test_invalid_arguments_print_an_error(
    command_line: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", *command_line]) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("tracefx show: ")
    assert message in stderr


def test_errors_of_the_function_are_messages(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert main(["show", "shown_here:loss", "{'w': f32[3,4], 'b': f32[5]}", "f32[2,3]"]) == 2
    first, message = capsys.readouterr().err.splitlines()
    assert first == f"tracefx show: shown_here:loss raises an error at {folder / 'shown_here.py'}:6 (loss)"
    assert "BroadcastError: add: shapes (2, 4), (5,) do not broadcast together" in message
    assert main(["show", "shown_here:Model.call", "f32[3]", "--grad"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "tracefx show: shown_here:Model.call raises an error",
        "TypeError: grad of call: the function must return a scalar, got f32[3]; sum it, or use vjp or jacrev",
    ]


def test_errors_of_the_function_are_raised_without_filtering() -> None:
    with tracefx.traceback_filtering("off"), pytest.raises(TypeError, match="must return a scalar"):
        main(["show", "shown_here:Model.call", "f32[3]", "--grad"])


def test_import_errors_in_the_module_are_raised(folder: Path) -> None:
    (folder / "lacking.py").write_text("import not_there_at_all\n", encoding="utf-8")
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        main(["show", "lacking:f"])


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "show" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["show", "--help"])
    assert "tracefx show model:loss" in capsys.readouterr().out


def test_command_as_python_module(folder: Path) -> None:
    process = run_python("-m", "tracefx", "show", "shown_here:Model.call", "f32[2]", "-o", "y.html", cwd=folder)
    assert (process.returncode, process.stdout) == (0, "y.html\n"), process.stderr
    assert (folder / "y.html").exists()

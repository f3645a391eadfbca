"""The wheel, installed in a new environment without access to the checkout.

Its dependencies are links to those installed here, because pip takes long to copy them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tracefx

ROOT: Final = Path(__file__).parent.parent
NO_REGISTRY: Final = re.compile(r"No matching distribution|Could not fetch|Connection|Temporary failure|Max retries")

README_BLOCKS: Final = """
import doctest, pathlib, sys
text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
parts = text.split("```python\\n")
namespace, line, attempted = {}, 0, 0
for before, part in zip(parts[:3], parts[1:4]):  # definitions, then two examples
    line += before.count("\\n") + 1
    block = part.split("```", 1)[0]
    if ">>>" not in block:
        exec(compile("\\n" * line + block, "README.md", "exec"), namespace)
        continue
    test = doctest.DocTestParser().get_doctest(block, namespace, "README", "README.md", line)
    results = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, clear_globs=False)
    assert not results.failed, results
    attempted += results.attempted
assert attempted > 5, attempted
"""


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder, without environment variables that point to the checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)


def pip(*arguments: str | Path, cwd: Path) -> None:
    """Runs pip; skips the test if the package registry is unreachable."""
    done = run(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments, cwd=cwd)
    if done.returncode and NO_REGISTRY.search(done.stderr):
        pytest.skip(f"pip needs the package registry, which cannot be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def link_dependencies(site_packages: Path) -> None:
    """Links the packages that the installed wheel requires, and those that these require, into its environment."""
    (wheel,) = metadata.distributions(path=[str(site_packages)])
    distributions, linked = [wheel], {"tracefx"}
    for distribution in distributions:
        for requirement in map(Requirement, distribution.requires or ()):
            name = canonicalize_name(requirement.name)
            if name in linked or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
                continue
            linked.add(name)
            required = metadata.distribution(name)
            distributions.append(required)
            for entry in {file.parts[0] for file in required.files or ()} - {"..", "__pycache__"}:
                (site_packages / entry).symlink_to(Path(str(required.locate_file(entry))))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The `bin` folder of a new environment with the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("tracefx-*.whl")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=120)
    bin = environment / "bin"
    pip("--python", bin / "python", "install", "--no-deps", "--no-compile", "--no-index", wheel, cwd=folder)
    link_dependencies(next(environment.glob("lib/python*/site-packages")))
    pip("--python", bin / "python", "check", cwd=folder)
    yield bin
    shutil.rmtree(folder)  # pytest would keep three copies of hundreds of megabytes


def test_first_blocks_of_the_readme_run(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "python", "-W", "error", "-c", README_BLOCKS, ROOT / "README.md", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_imported_package_is_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "python", "-c", "import tracefx; print(tracefx.__file__)", cwd=tmp_path)
    assert Path(done.stdout.strip()).is_relative_to(installed.parent), done


def test_command_prints_its_version_and_writes_a_page(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "tracefx", "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"tracefx {tracefx.__version__}\n")
    (tmp_path / "model.py").write_text("import tracefx.numpy as fnp\ndef loss(x):\n    return fnp.sum(fnp.sin(x))\n")
    done = run(installed / "tracefx", "show", "model.py:loss", "f32[3]", "--grad", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "loss.html\n"), done.stderr
    assert "cos" in (tmp_path / "loss.html").read_text(encoding="utf-8")


def test_wheel_is_typed(installed: Path, tmp_path: Path) -> None:
    code = "import importlib.resources as r; print(r.files('tracefx').joinpath('py.typed').is_file())"
    assert run(installed / "python", "-c", code, cwd=tmp_path).stdout == "True\n"


def test_package_metadata_agrees_across_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {tracefx.__version__}\n" in cited
    assert f"\nlicense: {project['license']}\n" in cited
    assert project["description"] in " ".join(cited.split())
    pythons = re.findall(r"Programming Language :: Python :: (3\.\d+)", " ".join(project["classifiers"]))
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    assert f"| Python | {', '.join(pythons)} |" in page
    assert project["requires-python"] == f">={pythons[0]}"

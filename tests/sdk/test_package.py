"""The package as it is shipped: its wheel in a fresh environment, and its types."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest
import tenure

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*words, **variables):
    """What it printed."""
    words = [str(word) for word in words]
    environment = {**os.environ, **variables}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel():
    """The wheel that `cargo xtask wheel` wrote last."""
    given = os.environ.get("TENURE_WHEEL")
    built = [pathlib.Path(given)] if given else sorted((ROOT / "target" / "wheels").glob("*.whl"), key=os.path.getmtime)
    assert built, "there is no wheel: run `cargo xtask wheel`"
    return built[-1]


def test_a_wheel_serves_every_python_from_3_10_on_and_brings_its_types(wheel):
    assert "-cp310-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
    assert {"tenure/py.typed", "tenure/_native.pyi", "tenure/conductor/__init__.py"} <= names


def test_a_wheel_installs_into_a_fresh_environment_without_an_index_and_works(wheel, server, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path)
    python = tmp_path / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel)
    said = run(python, "-m", "tenure", TENURE_URL=server.url, PYTHONPATH="")
    assert f"tenure {tenure.__version__}" in said and "answers" in said
    program = "import tenure; lease = tenure.Client(holder='a').acquire('x:1'); print(lease.state); lease.release()"
    assert run(python, "-c", program, TENURE_URL=server.url, PYTHONPATH="").strip() == "held"


def test_the_types_of_the_native_half_are_those_it_has():
    run(sys.executable, "-m", "mypy.stubtest", "tenure._native")


def test_the_package_is_typed_throughout():
    run(sys.executable, "-m", "mypy", "--no-incremental", "--strict", "--no-warn-return-any", "-p", "tenure")

"""The JavaScript SDK 4.0.0, unchanged: its workers, its workflow builder and its executor."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent / "js"
BUILT = HERE.parents[2] / "target" / "js"


@pytest.fixture(scope="module")
def packages():
    """Where the pinned packages are; installed when the list has changed."""
    lock = (HERE / "package-lock.json").read_text()
    stamp = BUILT / "node_modules" / "installed.json"
    if not stamp.is_file() or stamp.read_text() != lock:
        BUILT.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, BUILT)
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=BUILT, check=True)
        stamp.write_text(lock)
    return BUILT / "node_modules"


def test_workers_and_the_executor_of_the_javascript_sdk_run_unchanged(server, packages):
    environment = {**os.environ, "NODE_PATH": str(packages), "CONDUCTOR_SERVER_URL": f"{server.url}/api"}
    done = subprocess.run(
        ["node", str(HERE / "run.cjs")], env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert said["all"]["status"] == "COMPLETED", said
    assert said["all"]["output"] == {"greeting": "Hello Tenure", "slept": True, "polls": 3}
    assert said["long"] == {"polls": 1, "seen": [1]}, "extended while it ran, handed out once"
    assert said["failing"]["status"] == "FAILED" and said["failing"]["attempts"] == 2, said
    assert "not today" in said["failing"]["reason"]

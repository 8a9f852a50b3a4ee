"""Every block of the project's own guides, and what it promises."""

import os
import pathlib

import guide_blocks
import own_guides  # noqa: F401  (makes the promises)
import pytest
import readme  # noqa: F401
from locks_world import Locks
from server_world import ServerWorld

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "guide"


def blocks(name, folder=FOLDER):
    found = guide_blocks.read(folder / f"{name}.md")
    return [pytest.param(block, id=f"{name}-{block.number}-{block.language}") for block in found]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = ServerWorld()
    world.folder, world.cursor = tmp_path_factory.mktemp("guides"), 0
    os.environ["TENURE_URL"] = world.url
    yield world
    del os.environ["TENURE_URL"]
    world.close()


@pytest.fixture(scope="module")
def locks():
    world = Locks()
    yield world
    world.close()


@pytest.mark.parametrize("name", ["quickstart", "leasing", "locks", "tasks", "workflows", "agents"])
def test_every_guide_is_there(name):
    assert guide_blocks.read(FOLDER / f"{name}.md")


WITH_SERVER = ("quickstart", "leasing", "agents", "tasks", "workflows")


@pytest.mark.parametrize("block", [block for name in WITH_SERVER for block in blocks(name)])
def test_a_guide_is_true(block, world):
    guide_blocks.keep(block, world, f"guide/{block.document}")


@pytest.mark.parametrize("block", blocks("locks"))
def test_the_guide_to_locks_is_true(block, locks):
    guide_blocks.keep(block, locks, "guide/locks")


@pytest.mark.parametrize("block", blocks("README", ROOT))
def test_the_readme_is_true(block, world):
    guide_blocks.keep(block, world, "README")

"""Every block of the documents in the folder TENURE_SEEDS, and what it promises."""

import os
import pathlib

import guide_blocks
import pytest
import seed_intents  # noqa: F401  (these make the promises)
import seed_locks  # noqa: F401
import seed_tasks  # noqa: F401
from locks_world import Locks
from server_world import ServerWorld

FOLDER = os.environ.get("TENURE_SEEDS")
#: Which document is about what, told by its first words.
ABOUT = {
    "# Distributed Locks": "locks",
    "# Task Lease Extension": "tasks",
    "Lease Contention": "leasing-examples",
    "Why Leasing": "leasing-guide",
}


def documents():
    if not FOLDER:
        return {}
    found = {}
    for path in sorted(pathlib.Path(FOLDER).glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        for words, name in ABOUT.items():
            if words in text:
                found[name] = guide_blocks.read(path)
                break
    return found


DOCUMENTS = documents()


def blocks(name):
    found = DOCUMENTS.get(name, [])
    return [pytest.param(block, id=f"{name}-{block.number}-{block.language or 'text'}") for block in found]


@pytest.fixture(scope="module")
def locks():
    world = Locks()
    yield world
    world.close()


@pytest.mark.parametrize("block", blocks("locks"))
def test_the_document_about_locks_is_true(block, locks):
    guide_blocks.keep(block, locks, "locks")


@pytest.fixture(scope="module")
def world():
    world = ServerWorld()
    yield world
    world.close()


@pytest.mark.parametrize("block", blocks("leasing-examples"))
def test_the_examples_of_leasing_are_true(block, world):
    guide_blocks.keep(block, world, "leasing-examples")


@pytest.mark.parametrize("block", blocks("leasing-guide"))
def test_the_guide_to_leasing_is_true(block, world):
    guide_blocks.keep(block, world, "leasing-guide")


@pytest.mark.parametrize("block", blocks("tasks"))
def test_the_document_about_tasks_is_true(block, world):
    guide_blocks.keep(block, world, "tasks")

"""The examples of the package as programs, and what they leave behind on the server."""

import os
import pathlib
import subprocess
import sys

import pytest
import tenure
from tenure.conductor import Configuration, WorkflowClient

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "crates" / "tenure-py" / "examples"
#: Which example has a test here.
TESTED = set()


def example(name):
    TESTED.add(name)
    return lambda test: test


@pytest.fixture
def run(server):
    def run(name):
        """What it printed."""
        environment = {**os.environ, "TENURE_URL": server.url}
        said = subprocess.run(
            [sys.executable, FOLDER / f"{name}.py"], env=environment, capture_output=True, text=True, timeout=60
        )
        assert (said.returncode, said.stderr) == (0, ""), said
        return said.stdout

    return run


def happened(client, resource):
    """What happened to the leases that overlap this, as `(holder, kind)`."""
    events = client.events(resource=resource)
    return [(event.data["holder"], event.kind) for event in events if event.kind.startswith("lease.")]


@example("guard")
def test_the_file_is_held_alone_and_given_back(run, client):
    said = run("guard")
    assert "agent-8 is refused: agent-7 holds it" in said
    assert happened(client, "path:src") == [("agent-7", "lease.granted"), ("agent-7", "lease.released")]


@example("async_guard")
def test_tasks_take_turns_and_a_revoked_one_is_cancelled(run, client):
    said = run("async_guard")
    assert "the lease on job:report is lost: it was revoked (the machine is needed)" in said
    kinds = [kind for _, kind in happened(client, "job:report")]
    turns = ["lease.granted", "lease.released"]
    assert kinds == [*turns, *turns, "lease.granted", "lease.revoked"]


@example("agent")
def test_the_summary_is_written_under_the_leases_of_the_agent(run, server, client):
    intent_id, _, summary = run("agent").strip().partition(" ")
    assert summary.startswith("A long report, under token ")
    assert tenure.OpenIntentClient(server.url, agent_id="x").get_intent(intent_id).state == {"summary": summary}
    granted, released = ("summariser", "lease.granted"), ("summariser", "lease.released")
    assert happened(client, f"intent:{intent_id}/*") == [granted, granted, released, released]


@example("worker")
def test_a_computation_outlives_its_timeout_and_pieces_are_counted(run, server):
    workflow_id, status = run("worker").split()
    assert status == "COMPLETED"
    resize, count = WorkflowClient(Configuration(server.url)).get_workflow(workflow_id)["tasks"]
    assert (resize["pollCount"], resize["outputData"]) == (1, {"path": "a.png"})
    assert (count["pollCount"], count["outputData"]) == (3, {"colours": 200})


@example("coordinator")
def test_the_second_coordinator_is_told_who_leads(run, server):
    term_id, said = run("coordinator").strip().split(" ", 1)
    assert said == "led by coordinator-1"
    assert tenure.OpenIntentClient(server.url, agent_id="x").get_coordinator_lease(term_id).status == "active"


@example("optimistic_state")
def test_no_update_is_lost(run, server):
    *_, last = run("optimistic_state").strip().splitlines()
    intent_id, counted = last.split()
    intent = tenure.OpenIntentClient(server.url, agent_id="x").get_intent(intent_id)
    assert (counted, intent.state, intent.version) == ("10", {"n": 10}, 12)


def test_every_example_is_tested():
    assert TESTED == {path.stem for path in FOLDER.glob("*.py")}

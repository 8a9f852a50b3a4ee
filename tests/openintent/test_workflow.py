"""The workflow file of the guide, end to end: `tenure workflow` and agents of the unchanged package."""

import json
import os
import pathlib
import subprocess
import time

import httpx
import pytest
from openintent.models import IntentStatus
from support import Stream, until
from tenure_process import binary

FILE = str(pathlib.Path(__file__).with_name("pipeline.yaml"))


def tenure(url, *words, check=True):
    environment = {**os.environ, "TENURE_URL": url, "TENURE_HOLDER": "maker"}
    done = subprocess.run([binary(), "--json", "workflow", *words], env=environment, capture_output=True, text=True, timeout=60)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.returncode, json.loads(done.stdout)


def status(url, run):
    return tenure(url, "status", run)[1]["data"]


def phases(url, run):
    return [step["phase"] for step in status(url, run)["steps"]]


def test_a_wrong_file_is_refused_with_line_and_column(url, tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text('openintent: "1.0"\ninfo:\n  name: n\nworkflow:\n  a:\n    title: t\n    depends_on: [b]\n')
    code, said = tenure(url, "validate", str(file), check=False)
    assert code == 2 and said["error"]["details"]["errors"][0]["line"] == 5
    assert tenure(url, "validate", FILE)[1]["data"]["steps"] == 2
    answer = httpx.post(url + "/v1/workflows", json={"file": file.read_text()}, headers={"X-Tenure-Holder": "maker"})
    assert answer.status_code == 400 and answer.json()["errors"][0]["column"] == 3


def test_an_agent_that_dies_has_its_step_retried_with_backoff_and_the_next_instance_finishes(url, connect):
    run = tenure(url, "run", "--detach", FILE)[1]["data"]["id"]
    fetch = status(url, run)["steps"][0]["intent"]
    assert phases(url, run) == ["ready", "waiting"]
    fetcher = connect("fetcher")
    fetcher.acquire_lease(fetch, "*", 1)  # and dies
    until(lambda: phases(url, run)[0] == "retrying", what="the failed attempt")
    failed_at = time.monotonic()
    stream = Stream(url, "/agents/fetcher/subscribe", "fetcher")
    told = stream.wait("AGENT_ASSIGNED")[0][2]
    assert 1.0 < time.monotonic() - failed_at < 4.0, "two seconds after the first failure, and not before"
    assert (told["intent_id"], told["retry_attempt"]) == (fetch, 1)
    stream.close()
    lease = fetcher.acquire_lease(fetch, "*", 60)  # another instance
    assert phases(url, run)[0] == "running"
    fetcher.set_status(fetch, fetcher.get_intent(fetch).version, IntentStatus.COMPLETED)
    fetcher.release_lease(fetch, lease.id)
    assert phases(url, run) == ["done", "ready"]
    process = status(url, run)["steps"][1]["intent"]
    processor = connect("processor")
    processor.set_status(process, processor.get_intent(process).version, IntentStatus.COMPLETED)
    done = status(url, run)
    assert done["status"] == "completed" and done["ended_at"]


def test_the_third_failure_fails_the_step_and_blocks_what_depends_on_it(url, connect, tmp_path):
    file = tmp_path / "quick.yaml"
    file.write_text(pathlib.Path(FILE).read_text().replace("base_delay_seconds: 2", "base_delay_ms: 1"))
    run = tenure(url, "run", "--detach", str(file))[1]["data"]["id"]
    fetch = status(url, run)["steps"][0]["intent"]
    fetcher = connect("fetcher")
    for attempt in (1, 2, 3):
        until(lambda: phases(url, run)[0] == "ready", what=f"attempt {attempt}")
        fetcher.acquire_lease(fetch, "*", 60)
        fetcher.record_failure(fetch, attempt, "E", "no luck")
    view = status(url, run)
    assert ([step["phase"] for step in view["steps"]], view["status"]) == (["failed", "blocked"], "failed")
    assert fetcher.get_leases(fetch) == [] and view["steps"][0]["last_error"] == "no luck"


def test_following_a_run_prints_a_line_for_each_change_and_exits_with_its_outcome(url, connect):
    environment = {**os.environ, "TENURE_URL": url, "TENURE_HOLDER": "maker"}
    following = subprocess.Popen([binary(), "workflow", "run", FILE], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run = following.stderr.readline().split(" as ")[1].strip()
    for at, agent in ((0, "fetcher"), (1, "processor")):
        step = status(url, run)["steps"][at]["intent"]
        client = connect(agent)
        client.set_status(step, client.get_intent(step).version, IntentStatus.COMPLETED)
    out, _ = following.communicate(timeout=30)
    assert following.returncode == 0, out
    assert "fetch    done" in out and "completed" in out


def test_runs_survive_a_restart(server):
    environment = {**os.environ, "TENURE_URL": server.url, "TENURE_HOLDER": "maker"}
    made = subprocess.run([binary(), "--json", "workflow", "run", "--detach", FILE], env=environment, capture_output=True, text=True)
    run = json.loads(made.stdout)["data"]["id"]
    server.kill()
    server.start()
    assert phases(server.url, run) == ["ready", "waiting"]
    with pytest.raises(AssertionError):
        tenure(server.url, "status", "workflow-9-9")

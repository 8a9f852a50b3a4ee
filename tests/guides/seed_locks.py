"""What the document about distributed locks promises, block by block."""

import json
import time

from guide_blocks import promise

DOCUMENT = "locks"
ISSUE, FILE = "issue:8057324b", "path:src/api.rs"


def release_all(world):
    for who in ("alice", "bob"):
        for resource in world.held():
            world.shell(f"tenure lock release --resource '{resource}'", who)
    assert not world.held()


def expire(world, resource):
    """Leaves a lock of bob's that is over."""
    assert world.shell(f"tenure lock acquire --resource '{resource}' --ttl 1s", "bob").returncode == 0
    deadline = time.monotonic() + 60
    while resource in world.held():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@promise(DOCUMENT, 1, "acquires the lock for half an hour")
def _(block, world):
    release_all(world)
    world.said = world.shell(block.code)
    assert world.said.returncode == 0, world.said.stderr
    assert 1790 <= world.seconds_left(ISSUE) <= 1800
    assert world.held("bob")[ISSUE]["owner"] == world.me("alice")
    return "held on the remote, seen by the other clone"


def same_shape(shown, said):
    """The same labels in the same order."""
    labels = [line.split(":")[0].strip() for line in shown.splitlines() if line.strip()]
    lines = [line.split(":")[0].strip() for line in said.splitlines() if line.strip()]
    assert lines == labels, (lines, labels)


@promise(DOCUMENT, 2, "is what acquiring prints")
def _(block, world):
    same_shape(block.code, world.said.stdout)


@promise(DOCUMENT, 3, "acquires a file for an hour and answers in JSON")
def _(block, world):
    world.said = world.shell(block.code)
    assert world.said.returncode == 0 and 3590 <= world.seconds_left(FILE) <= 3600


@promise(DOCUMENT, 4, "is the shape of that JSON")
def _(block, world):
    shown, said = json.loads(block.code), json.loads(world.said.stdout)
    assert (said["schema_version"], said["ok"]) == (shown["schema_version"], shown["ok"])
    assert set(shown["data"]["lock"]) <= set(said["data"]["lock"])
    assert said["data"]["lock"]["resource"] == shown["data"]["lock"]["resource"]
    assert abs(said["data"]["lock"]["expires_unix_ms"] - (time.time() + 3600) * 1000) < 60_000


@promise(DOCUMENT, 5, "is refused when somebody else holds it")
def _(block, world):
    before = world.held()[ISSUE]
    world.said = world.shell(block.code, "bob")
    after = world.held()[ISSUE]
    assert world.said.returncode != 0
    assert (after["owner"], after["expires_unix_ms"]) == (before["owner"], before["expires_unix_ms"])
    return f"exit code {world.said.returncode}, the lock untouched"


@promise(DOCUMENT, 6, "is what the refusal says, with the holder")
def _(block, world):
    text = world.said.stderr or world.said.stdout
    same_shape(block.code, "\n".join(line for line in text.splitlines() if not line.startswith(("Note", "Hint"))))
    assert world.me("alice") in text


@promise(DOCUMENT, 7, "extends the lock from now on; nobody else can")
def _(block, world):
    world.shell(f"tenure lock renew --resource '{ISSUE}' --ttl 5m")
    assert world.seconds_left(ISSUE) <= 300
    assert world.shell(block.code).returncode == 0
    assert 1790 <= world.seconds_left(ISSUE) <= 1800
    assert world.shell(block.code, "bob").returncode != 0


@promise(DOCUMENT, 8, "gives it back at once")
def _(block, world):
    assert world.shell(block.code, "bob").returncode != 0 and ISSUE in world.held()
    assert world.shell(block.code).returncode == 0 and ISSUE not in world.held()


@promise(DOCUMENT, 9, "lists what is held, by everybody")
def _(block, world):
    world.shell(f"tenure lock acquire --resource '{ISSUE}' --ttl 30m", "bob")
    world.said = world.shell(block.code)
    assert ISSUE in world.said.stdout and FILE in world.said.stdout


@promise(DOCUMENT, 10, "is what the list looks like")
def _(block, world):
    def shape(text):
        lines = text.strip().splitlines()
        return lines[0], sorted(line.split()[0] for line in lines[1:]), {tuple(line.split()[2:4]) for line in lines[1:]}

    assert shape(block.code) == shape(world.said.stdout)


@promise(DOCUMENT, 11, "lists the same in JSON")
def _(block, world):
    world.said = world.shell(block.code)
    assert world.said.returncode == 0


@promise(DOCUMENT, 12, "is the shape of that JSON")
def _(block, world):
    shown, said = json.loads(block.code), json.loads(world.said.stdout)
    assert set(shown["data"]) <= set(said["data"]) and said["data"]["conflicts"] == []
    assert {lock["resource"] for lock in said["data"]["locks"]} == {ISSUE, FILE}
    assert all(set(shown["data"]["locks"][0]) <= set(lock) for lock in said["data"]["locks"])


@promise(DOCUMENT, 13, "removes what has expired, and only that")
def _(block, world):
    expire(world, "repo:old")
    refs = lambda: len(world.shell("git ls-remote origin 'refs/grite/locks/*'").stdout.splitlines())
    before, deadline = refs(), time.monotonic() + 60
    while refs() == before:  # clocks may differ: a lock is over a few seconds after it has expired
        assert world.shell(block.code).returncode == 0 and time.monotonic() < deadline
    assert set(world.held()) == {ISSUE, FILE}
    return f"{before} refs before, {refs()} after"


@promise(DOCUMENT, 14, "warns, or refuses, when a locked file is changed")
def _(block, world):
    config = world.root / "bob" / ".git" / "grite" / "config.toml"
    mine = config.read_text()
    assert world.shell("tenure hooks install", "bob").returncode == 0
    change = "mkdir -p src && echo x >> src/api.rs && git add src && git commit -m change"
    outcomes = {}
    for policy in ("off", "warn", "require"):
        config.write_text(block.code.replace('"warn"', f'"{policy}"') + mine)
        said = world.shell(change, "bob")
        outcomes[policy] = (said.returncode == 0, "locked" in said.stderr)
    config.write_text(mine)
    assert outcomes == {"off": (True, False), "warn": (True, True), "require": (False, True)}
    return "off passes, warn passes and says so, require refuses the commit"


def new_issue(world):
    answer = world.shell("tenure issue create --title 'Process batch' --label todo --json")
    return json.loads(answer.stdout)["data"]["issue_id"]


@promise(DOCUMENT, 15, "claims a free issue, works and closes it; a claimed one is left alone")
def _(block, world):
    release_all(world)
    free, taken = new_issue(world), new_issue(world)
    said = world.shell(block.code, ID=free)
    assert f"Claimed issue {free}" in said.stdout, said
    shown = json.loads(world.shell(f"tenure issue show {free} --json").stdout)
    assert "closed" in json.dumps(shown) and "Working on this" in json.dumps(shown)
    world.shell(f"tenure lock acquire --resource 'issue:{taken}' --ttl 30m", "bob")
    said = world.shell(block.code, ID=taken)
    assert "Issue already claimed" in said.stdout and "Claimed issue" not in said.stdout
    shown = json.dumps(json.loads(world.shell(f"tenure issue show {taken} --json").stdout))
    assert "Working on this" not in shown and set(world.held()) == {f"issue:{taken}"}


@promise(DOCUMENT, 16, "locks a file, commits it and releases")
def _(block, world):
    release_all(world)
    said = world.shell("set -e\n" + block.code)
    assert said.returncode == 0, said
    assert "Update settings" in world.shell("git log -1 --format=%s").stdout
    assert not world.held()


@promise(DOCUMENT, 17, "keeps a lock of two hours by renewing it while the task goes on")
def _(block, world):
    code = block.code.replace("grite lock release", "tenure lock status --json > \"$WORLD/during\"\ngrite lock release")
    assert world.shell(code).returncode == 0
    during = json.loads((world.root / "during").read_text())["data"]["locks"]
    assert [lock["resource"] for lock in during] == ["repo:migration"]
    assert 7190 <= during[0]["time_remaining_seconds"] <= 7200
    assert world.written("slept") == ["slept", "300"] * 2 and not world.held()


@promise(DOCUMENT, 18, "a worker takes the first issue that nobody holds, and no other")
def _(block, world):
    (world.root / "slept").unlink()
    coordinator, worker = block.code.split("# Worker agent", 1)
    first = new_issue(world)
    for issue in json.loads(world.shell("tenure issue list --label todo --json").stdout)["data"]["issues"]:
        if issue["state"] == "open" and issue["issue_id"] != first:
            world.shell(f"tenure issue close {issue['issue_id']}")
    said = world.shell(coordinator, ID=first)
    assert json.loads(said.stdout[: said.stdout.index("}\n}") + 4])["ok"], said
    second = [
        issue["issue_id"]
        for issue in json.loads(world.shell("tenure issue list --label todo --json").stdout)["data"]["issues"]
        if issue["state"] == "open" and issue["issue_id"] != first
    ]
    assert world.shell("#" + worker, "bob").returncode == 0
    assert world.written("processed") == second[:1], "the one that the coordinator holds was left alone"
    assert set(world.held()) == {f"issue:{first}"}


@promise(DOCUMENT, 19, "takes over a lock that has expired, and none that is held")
def _(block, world):
    release_all(world)
    expire(world, "repo:stolen")
    deadline = time.monotonic() + 60
    while world.shell(block.code, RESOURCE="repo:stolen").returncode:  # clocks may differ by a few seconds
        assert time.monotonic() < deadline
    mine = world.held()["repo:stolen"]
    assert mine["owner"] == world.me("alice")
    world.shell(block.code, "bob", RESOURCE="repo:stolen")
    assert world.held()["repo:stolen"]["owner"] == mine["owner"]


@promise(DOCUMENT, 20, "releases when the script ends, however it ends")
def _(block, world):
    release_all(world)
    during = "tenure lock status --json > \"$WORLD/during\"\nexit 7\n"
    assert world.shell(block.code + during, ID="trap").returncode == 7
    assert [lock["resource"] for lock in json.loads((world.root / "during").read_text())["data"]["locks"]] == ["issue:trap"]
    assert not world.held()


@promise(DOCUMENT, 21, "renews every quarter of an hour while it works")
def _(block, world):
    (world.root / "slept").unlink(missing_ok=True)
    assert world.shell(block.code).returncode == 0
    assert world.written("slept") == ["slept", "900"] * 2
    [lock] = world.held().values()
    assert 1790 <= lock["time_remaining_seconds"] <= 1800


@promise(DOCUMENT, 22, "passes over a lock that cannot be had")
def _(block, world):
    said = world.shell(block.code + "echo went on", "bob")
    assert said.returncode == 0 and "trying later" in said.stdout and "went on" not in said.stdout
    release_all(world)
    said = world.shell(block.code + "echo went on", "bob")
    assert "went on" in said.stdout and len(world.held()) == 1

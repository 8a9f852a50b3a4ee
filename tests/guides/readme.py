"""What the README promises, block by block, and the sentences around its blocks that name a command."""

import json
import os
import pathlib
import re
import subprocess

import tenure
from guide_blocks import promise
from own_guides import shell
from tenure_process import Server, binary, eventually

DOCUMENT = "README"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def commands(block):
    """Its lines, without comments."""
    return [re.sub(r"\s+#.*", "", line) for line in block.code.splitlines() if line.strip()]


def says(*words):
    return subprocess.run([binary(), *words], capture_output=True, text=True, check=True).stdout


@promise(DOCUMENT, 1, "starts the server where it says, and the tests")
def _(block, world):
    run, test = commands(block)
    assert run == "cargo run --release -- serve" and test == "cargo xtask test"
    # `cargo run` without a package runs the one that the workspace names.
    assert 'default-members = ["crates/tenure-cli"]' in (ROOT / "Cargo.toml").read_text()
    defaults = says("serve", "--help")
    assert "[default: 127.0.0.1:8000]" in defaults and "[default: ./tenure-data]" in defaults
    return "by what the program says; this test is what the second line runs"


@promise(DOCUMENT, 2, "builds the program and starts it")
def _(block, world):
    build, serve = commands(block)
    assert build.startswith("cargo build --release") and "target/release" in build and serve == "tenure serve"
    return "by its words; the program of this test was built so"


@promise(DOCUMENT, 3, "the second waits in line and gets it the moment it is free; without --wait it is refused")
def _(block, world):
    first, second, release = commands(block)
    taken = shell(first, world)
    assert taken.returncode == 0, taken
    refused = shell(second.replace("--wait 5m", ""), world)
    assert refused.returncode == 4 and refused.stderr.startswith("Error: path:src/main.rs is not free"), refused
    assert "ann" in refused.stderr and "ann" in shell("tenure lease ls", world).stdout
    environment = {**os.environ, "PATH": f"{world.folder}:{os.environ['PATH']}"}
    waiting = subprocess.Popen(["bash", "-c", second], stdout=subprocess.PIPE, text=True, env=environment)
    eventually(lambda: world.observer.check("path:src/main.rs").conflicts[0].waiting == 1, what="bob stands in line")
    lease = re.search(r"lease-\d+-\d+", taken.stdout).group(0)
    assert shell(release.replace("lease-60261-1", lease), world).returncode == 0
    printed, _ = waiting.communicate(timeout=30)
    assert waiting.returncode == 0 and "path:src/main.rs" in printed and "bob" in printed


@promise(DOCUMENT, 4, "the script runs under its lease and finds its token")
def _(block, world):
    script = world.folder / "deploy.sh"
    script.write_text('#!/bin/sh\necho "token $TENURE_TOKEN"\ntenure lease ls --resource repo:deploy --json > held.json\n')
    script.chmod(0o755)
    said = shell(commands(block)[0], world)
    assert said.returncode == 0, said
    [held] = json.loads((world.folder / "held.json").read_text())["data"]["leases"]
    assert held["resources"] == ["repo:deploy"] and said.stdout.strip() == f"token {held['token']}"
    assert not list(world.observer.leases(resource="repo:deploy", status="active"))


@promise(DOCUMENT, 5, "is a program that the Rust tests compile")
def _(block, world):
    assert block.language == "rust,no_run"
    assert 'include_str!("../../../README.md")' in (ROOT / "crates/tenure/src/lib.rs").read_text()
    return "by the documentation tests of the crate"


#: A certificate of one's own, for this machine; a self-made one that could sign others is refused by clients.
CERTIFICATE = """
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
  -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem
"""


@promise(DOCUMENT, 6, "with keys and a certificate only those who have a key come in, under the names it has")
def _(block, world):
    new_key, serve = commands(block)
    assert shell(CERTIFICATE, world).returncode == 0
    key = re.search(r"Key: (\S+)", shell(new_key, world).stdout).group(1)
    assert key not in (world.folder / "keys.toml").read_text()
    options = [str(world.folder / word) if word.endswith((".pem", ".toml")) else word for word in serve.split()[4:]]
    acquire = "tenure lease acquire --resource x:deploy --holder {} --ca cert.pem"
    with Server(*options) as server:
        assert server.url.startswith("https://")
        here = {"TENURE_URL": server.url}
        assert shell(acquire.format("ci-1"), world, **here, TENURE_API_KEY=key).returncode == 0
        other_name = shell(acquire.format("ann"), world, **here, TENURE_API_KEY=key)
        no_key = shell(acquire.format("ci-1"), world, **here)
        assert other_name.returncode != 0 and no_key.returncode != 0, (other_name, no_key)
        stranger = shell(acquire.format("ci-1").replace("--ca cert.pem", ""), world, **here, TENURE_API_KEY=key)
        assert stranger.returncode != 0, "a certificate that nobody vouches for"


@promise(DOCUMENT, 7, "copies a running server's data and verifies the copy")
def _(block, world):
    backup, check = commands(block)
    with tenure.Client(world.url, holder="x").acquire("x:kept"):
        assert shell(backup, world).returncode == 0
    said = shell(check, world)
    assert said.returncode == 0, said
    (world.folder / "broken.db").write_bytes((world.folder / "today.db").read_bytes()[:5000])
    assert shell("tenure check broken.db", world).returncode != 0
    in_use = shell(f"tenure check {world.server.data}", world)
    assert in_use.returncode != 0 and "in use" in in_use.stderr

"""`tenure run` where people work: in a shell with jobs, behind Ctrl-Z, beside a pager, under nohup. Whatever is stopped or put
into the background, the command never works on without its lease."""

import json
import os
import pty
import select
import signal
import subprocess
import time

import pytest

from tenure_process import binary, eventually

TICKING = "while :; do date +%s%N >> ticks; sleep 0.05; done"


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self, server, home):
        self.home = home
        self.said = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(home)
            environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "TENURE_URL": server.url, "T": binary(), "PS1": "ready> "}
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], environment)

    def hears(self, text):
        """Waits until the terminal shows a text that was not there before."""
        eventually(lambda: self._read() or text in self.said, what=f"{text!r} on the terminal after {self.said!r}")
        self.said = self.said.split(text, 1)[1]

    def _read(self):
        while select.select([self.fd], [], [], 0.02)[0]:
            try:
                self.said += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                return

    def type(self, text):
        os.write(self.fd, text.encode())

    def close(self):
        # A session that loses its terminal is hung up, jobs and all.
        os.close(self.fd)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def shell(server, tmp_path):
    shell = Shell(server, tmp_path)
    shell.hears("ready> ")
    yield shell
    shell.close()


def tenure(server, *words):
    done = subprocess.run([binary(), *words, "--json"], env={"TENURE_URL": server.url}, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


def held(server, resource):
    """The id of the lease on a resource, if there is one."""
    leases = tenure(server, "lease", "ls", "--resource", resource)[1]["data"]["leases"]
    return leases[0]["id"] if leases else None


def ticks(home):
    try:
        return len((home / "ticks").read_text().splitlines())
    except FileNotFoundError:
        return 0


def test_a_run_in_the_background_keeps_its_lease(server, shell, tmp_path):
    shell.type(f"$T run --resource x:a --ttl 1s -- sh -c '{TICKING}' &\n")
    first = eventually(lambda: held(server, "x:a"))
    started = time.monotonic()
    eventually(lambda: time.monotonic() - started > 3 and ticks(tmp_path) > 10)
    assert held(server, "x:a") == first, "three ttls later"
    shell.type("fg\n")
    shell.hears("run --resource")
    shell.type("\x03")
    shell.hears("ready> ")
    eventually(lambda: held(server, "x:a") is None)


def test_one_run_after_another_in_a_script_and_then_the_script_reads_the_terminal(server, shell, tmp_path):
    lines = ["$T run --resource x:a -- sh -c 'read a </dev/tty; echo first=$a'", "$T run --resource x:a -- sh -c 'read b; echo second=$b'"]
    (tmp_path / "script").write_text("\n".join([*lines, "read c; echo third=$c", ""]))
    shell.type("sh script\n")
    for number in ("first", "second", "third"):
        shell.type(f"{number}-answer\n")
        shell.hears(f"{number}={number}-answer")
    shell.hears("ready> ")


@pytest.mark.parametrize("command", [TICKING, f"timeout 600 sh -c '{TICKING}'", f"read x </dev/tty; {TICKING}"])
def test_whoever_stops_a_run_stops_what_runs_under_it(server, shell, tmp_path, command):
    (tmp_path / "command").write_text(command)
    shell.type("$T run --resource x:a --ttl 2s -- sh command\n")
    shell.hears("command\r\n")
    shell.type("\n")
    eventually(lambda: ticks(tmp_path) > 3)
    shell.type("\x1a")
    shell.hears("Stopped")
    stopped = ticks(tmp_path)
    assert tenure(server, "lease", "acquire", "--resource", "x:a", "--holder", "bob", "--wait", "1m", "--ttl", "60s")[0] == 0
    assert ticks(tmp_path) == stopped, "another holds it, and the command stands still"
    shell.type("fg\n")
    shell.hears("lost lease-")
    shell.hears("ready> ")
    assert ticks(tmp_path) <= stopped + 1, "the lease was over: it does not go on"
    shell.type("echo code=$?\n")
    shell.hears("code=75")


def test_a_run_that_is_continued_in_time_goes_on(server, shell, tmp_path):
    shell.type(f"$T run --resource x:a --ttl 60s -- sh -c '{TICKING}'\n")
    lease = eventually(lambda: held(server, "x:a"))
    eventually(lambda: ticks(tmp_path) > 3)
    shell.type("\x1a")
    shell.hears("Stopped")
    stopped = ticks(tmp_path)
    shell.type("bg\n")
    eventually(lambda: ticks(tmp_path) > stopped + 3)
    assert held(server, "x:a") == lease
    shell.type("kill %1\n")
    eventually(lambda: held(server, "x:a") is None)


def test_what_nohup_ignores_the_command_ignores_too(server, tmp_path):
    script = "echo $$ > started; while [ ! -e enough ]; do sleep 0.02; done; echo survived > result"
    words = ["nohup", binary(), "run", "--resource", "x:a", "--", "sh", "-c", script]
    with subprocess.Popen(words, cwd=tmp_path, env={"TENURE_URL": server.url, "PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        child = int(eventually(lambda: (tmp_path / "started").exists() and (tmp_path / "started").read_text()))
        run.send_signal(signal.SIGHUP)
        os.kill(child, signal.SIGHUP)
        (tmp_path / "enough").touch()
        assert run.wait(timeout=30) == 0
    assert (tmp_path / "result").read_text() == "survived\n"


def test_a_result_that_cannot_be_written_is_not_called_a_success(server):
    environment = {"TENURE_URL": server.url}
    with open("/dev/full", "w") as full:
        lost = subprocess.run([binary(), "lease", "ls"], env=environment, stdout=full, stderr=subprocess.PIPE, text=True)
    assert lost.returncode == 1 and "could not be written" in lost.stderr


def test_watching_ends_when_nobody_reads_any_more(server):
    watch = subprocess.Popen([binary(), "lease", "watch", "--after", "0"], env={"TENURE_URL": server.url}, stdout=subprocess.PIPE)
    watch.stdout.close()
    tenure(server, "lease", "acquire", "--resource", "x:a", "--holder", "ann")
    assert watch.wait(timeout=30) == 0

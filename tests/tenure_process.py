"""What every folder of tests needs: a real server on a free port with its own data, and waiting for something to happen."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent


def binary() -> str:
    """The binary under test: TENURE_BIN, else the debug build."""
    return os.environ.get("TENURE_BIN") or str(ROOT / "target" / "debug" / "tenure")


def eventually(condition, within=30.0, what="the condition"):
    """What the condition gives as soon as it is true; a wait that ends without it fails the test."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not become true within {within} s")


class Server:
    """Starts when made; `with Server() as server: server.url`. `data` survives restarts of the same object."""

    def __init__(self, *options: str, data: str | None = None):
        self._own = tempfile.TemporaryDirectory(prefix="tenure-test-") if data is None else None
        self.data = data or self._own.name
        self.options = options
        self.start()

    def start(self, listen: str = "127.0.0.1:0") -> None:
        command = [binary(), "serve", "--listen", listen, "--data", self.data, *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            found = re.search(r"https?://[\d.:\[\]]+", line)
            if found:
                self.url = found.group(0).rstrip(":")
                return
        raise RuntimeError(f"the server ended with {self.process.wait()} before it was ready")

    @property
    def address(self) -> str:
        """Host and port, to start again at the same place."""
        return self.url.split("//")[1]

    def metric(self, name: str) -> float:
        """What a counter or a gauge without labels says; fails if there is none of that name."""
        with urllib.request.urlopen(f"{self.url}/metrics") as metrics:
            lines = metrics.read().decode().splitlines()
        [value] = [line.split()[1] for line in lines if line.split()[0] == name]
        return float(value)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)
        self.process.stdout.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_) -> None:
        if self.process.poll() is None:
            self.kill()
        if self._own:
            self._own.cleanup()

"""What the tests of the Python package share: programs that run in processes of their own, and a network that fails."""

import signal
import socket
import subprocess
import sys
import textwrap
import threading


class Program:
    """A Python program in its own process. Its lines are read one by one; it may be stopped and killed."""

    def __init__(self, text, *arguments):
        command = [sys.executable, "-u", "-c", textwrap.dedent(text), *map(str, arguments)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Whoever runs the tests in the background has SIGINT ignored, and a child would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def line(self):
        text = self.process.stdout.readline()
        assert text, f"the program ended with {self.process.wait()}"
        return text.strip()

    def end(self, within=20.0):
        """Its exit code and what was still to read."""
        rest, _ = self.process.communicate(timeout=within)
        return self.process.returncode, rest

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class Wire:
    """A proxy in front of a server. `cut` makes it swallow everything, as a network that drops packets does."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        self._open = threading.Event()
        self._open.set()
        self.seen = bytearray()
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        self._open.clear()

    def mend(self):
        self._open.set()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            far = socket.create_connection(self._target)
            threading.Thread(target=self._copy, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._copy, args=(far, near, False), daemon=True).start()

    def _copy(self, source, sink, outward):
        try:
            while data := source.recv(65536):
                if outward:
                    self.seen += data
                if self._open.is_set():
                    sink.sendall(data)
        except OSError:
            pass
        finally:
            source.close()
            sink.close()

    def close(self):
        self._listener.close()


def events(client, kind):
    return [event for event in client.events() if event.kind == kind]

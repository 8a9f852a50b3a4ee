"""What several of these tests use: streams read in a thread."""

import json
import threading

import httpx
from tenure_process import eventually as until


class Stream:
    """One SSE connection, read in a thread. `events` are (id, name, data)."""

    def __init__(self, url, path, agent="raw", last_event_id=None):
        self.events, self.comments, self.error = [], [], None
        self._headers = {"X-Agent-ID": agent, "X-API-Key": "key", "Accept": "text/event-stream"}
        if last_event_id is not None:
            self._headers["Last-Event-ID"] = str(last_event_id)
        self._client = httpx.Client(timeout=None)
        self._url = url + "/api/v1" + path
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        until(lambda: self.comments or self.error, what="the stream's first line")

    def _read(self):
        try:
            with self._client.stream("GET", self._url, headers=self._headers) as response:
                self.status = response.status_code
                fields = {}
                for line in response.iter_lines():
                    if line.startswith(":"):
                        self.comments.append(line)
                    elif line:
                        name, _, value = line.partition(":")
                        fields[name] = value.strip()
                    elif fields:
                        self.events.append((fields.get("id"), fields.get("event"), json.loads(fields["data"])))
                        fields = {}
            self.error = "closed"
        except Exception as error:  # noqa: BLE001 the test looks at it
            self.error = error

    def wait(self, name, count=1):
        return until(lambda: (found := [event for event in self.events if event[1] == name])[count - 1 :] and found, what=f"{count} x {name}")

    def close(self):
        self._client.close()

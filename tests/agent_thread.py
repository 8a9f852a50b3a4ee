"""An agent that runs beside a test."""

import threading


class Running:
    """An agent in a thread, until the end of the block."""

    def __init__(self, cls, url, ttl=None):
        if ttl is not None:
            cls._tenure_settings["ttl"] = ttl
        self.agent = cls()
        self._thread = threading.Thread(target=self.agent.run, args=(url,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self.agent

    def __exit__(self, *_):
        self.agent.stop()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the agent did not stop"

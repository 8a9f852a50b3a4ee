"""A repository with a remote and two clones, for documents about locks in git."""

import json
import os
import pathlib
import subprocess
import tempfile

import stand_ins
from tenure_process import binary


class Locks:
    """`alice` and `bob` are clones of one bare repository; both have the program under the names in the documents."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="tenure-guides-")
        self.root = pathlib.Path(self._folder.name)
        (self.root / "bin").mkdir()
        for name in ("tenure", "grite"):
            (self.root / "bin" / name).symlink_to(binary())
        self._git("init", "--quiet", "--bare", "remote.git")
        for who in ("alice", "bob"):
            self._git("clone", "--quiet", "remote.git", who)
        self.shell("mkdir -p config src && echo {} > config/settings.json && git add . && git commit -qm start && git push -q")
        self.shell("git pull -q", who="bob")
        self.shell("echo '{\"changed\": true}' > config/settings.json")

    def _git(self, *words):
        subprocess.run(["git", *words], cwd=self.root, check=True, capture_output=True, env=self._environment("alice"))

    def _environment(self, who):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "TENURE_", "GRITE_"))}
        return {
            **clean,
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.root),
            "WORLD": str(self.root),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": who,
            "GIT_AUTHOR_EMAIL": f"{who}@example.org",
            "GIT_COMMITTER_NAME": who,
            "GIT_COMMITTER_EMAIL": f"{who}@example.org",
        }

    def shell(self, code, who="alice", **variables):
        """Runs it in somebody's clone."""
        return subprocess.run(
            ["bash", "-c", stand_ins.SHELL + code],
            cwd=self.root / who,
            env={**self._environment(who), **variables},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def held(self, who="alice"):
        """Who holds what, as the remote has it: resource -> lock."""
        answer = json.loads(self.shell("tenure lock status --json", who).stdout)
        return {lock["resource"]: lock for lock in answer["data"]["locks"]}

    def me(self, who):
        """The name under which somebody holds locks."""
        answer = json.loads(self.shell(f"tenure lock acquire --resource 'x:{who}' --ttl 30 --json", who).stdout)
        self.shell(f"tenure lock release --resource 'x:{who}'", who)
        return answer["data"]["lock"]["owner"]

    def seconds_left(self, resource):
        return self.held()[resource]["time_remaining_seconds"]

    def written(self, name):
        """The lines of a file that a stand-in has written."""
        path = self.root / name
        return path.read_text().split() if path.exists() else []

    def close(self):
        self._folder.cleanup()

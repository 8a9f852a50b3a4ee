"""A restored server is a server like any other: who looks into its tables with SQLite's own tools takes nothing away."""

import os
import shutil
import subprocess
import sys

from tenure_process import Server, binary


def test_a_reader_from_outside_leaves_the_log_of_a_restored_server_alone(tmp_path):
    with Server() as server:
        environment = {**os.environ, "TENURE_URL": server.url}
        subprocess.run([binary(), "lease", "acquire", "--resource", "x:a", "--holder", "ann"], env=environment, check=True)
        subprocess.run([binary(), "backup", str(tmp_path / "backup.db")], env=environment, check=True)
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(tmp_path / "backup.db", data / "tables.db")
    with Server(data=str(data)) as server:
        assert (data / "tables.db-wal").exists()
        look = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM history').fetchone()[0])"
        seen = subprocess.run([sys.executable, "-c", look, str(data / "tables.db")], capture_output=True, text=True, check=True)
        assert int(seen.stdout) > 0
        assert (data / "tables.db-wal").exists(), "the reader believed to be the last one"

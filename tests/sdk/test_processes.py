"""Processes: fork, spawn, the end of the interpreter, Ctrl-C, memory."""

import concurrent.futures
import os
import signal
import subprocess
import sys
import textwrap

import tenure
from sdk_support import Program, events
from tenure_process import Server, eventually


def test_a_forked_child_holds_nothing_and_makes_its_own_connections(server, client):
    lease = client.acquire("x:1", ttl=2)
    unnamed = tenure.Client(server.url)
    parent_name = unnamed.holder
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert lease.lost and "forked" in lease.loss
            with unnamed.acquire("x:2") as own:
                assert own.holder == unnamed.holder != parent_name
            with client.acquire("x:3"):
                pass
            try:
                lease.release()
            except RuntimeError:
                code = 0
        finally:
            del lease
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert lease.state == "held"
    assert client.lease(lease.id).status == "active"
    lease.release()
    kinds = [event.kind for event in client.events()]
    assert kinds.count("lease.granted") == kinds.count("lease.released") == 3


def test_children_of_a_process_whose_threads_are_calling_end_like_any_other(server):
    program = """
        import os, sys, threading, tenure
        client = tenure.Client(sys.argv[1], holder="p")
        held, stream = client.acquire("x:held", ttl=30), client.watch(after=0)
        next(stream)
        def call(number):
            while True:
                client.check(f"x:{number}")
        for number in range(4):
            threading.Thread(target=call, args=(number,), daemon=True).start()
        for number in range(40):
            child = os.fork()
            if child == 0:
                if number % 2:
                    client.check("x:child")
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
        held.check()
        print("done", flush=True)
    """
    with Program(program, server.url) as parent:
        assert parent.line() == "done"
        assert parent.end() == (0, "")


def test_pools_of_both_kinds_work(server, tmp_path):
    program = """
        import multiprocessing, sys, tenure
        def work(item):
            url, n = item
            with tenure.Client(url).acquire(f"x:{n}", ttl=5) as lease:
                return lease.token
        if __name__ == "__main__":
            held = tenure.Client(sys.argv[1], holder="parent").acquire("x:parent", ttl=5)
            for kind in ("fork", "spawn"):
                with multiprocessing.get_context(kind).Pool(2) as pool:
                    tokens = pool.map(work, [(sys.argv[1], n) for n in range(20)])
                    assert len(set(tokens)) == 20
            held.check()
            print("done", flush=True)
    """
    script = tmp_path / "pools.py"
    script.write_text(textwrap.dedent(program))
    result = subprocess.run([sys.executable, script, server.url], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout.strip()) == (0, "done"), result.stderr


def test_the_end_of_the_interpreter_gives_back_what_is_held(server, client):
    program = """
        import sys, threading, tenure
        client = tenure.Client(sys.argv[1], holder="b")
        kept = [client.acquire(f"x:{n}", ttl=600) for n in range(20)]
        for lease in kept:
            lease.on_lost(print)
        threading.Thread(target=lambda: client.acquire("y:1", wait=600), daemon=True).start()
    """
    with client.acquire("y:1"):
        with Program(program, server.url) as running:
            assert running.end() == (0, "")
    assert [lease for lease in client.leases(status="active")] == []
    assert len(events(client, "lease.released")) >= 20


def test_an_end_while_the_server_is_away_is_prompt_and_clean(server):
    program = """
        import sys, tenure
        lease = tenure.Client(sys.argv[1], holder="b").acquire("x:1", ttl=600)
        print("holding", flush=True)
        sys.stdin.readline()
    """
    with Program(program, server.url) as running:
        assert running.line() == "holding"
        server.kill()
        code, rest = running.end(within=10)
        assert (code, rest) == (0, "")


def test_ctrl_c_ends_a_wait_promptly_and_releases(server, client):
    program = """
        import sys, tenure
        client = tenure.Client(sys.argv[1], holder="b")
        try:
            with client.acquire("x:1", ttl=600):
                print("holding", flush=True)
                client.acquire("x:2", wait=600)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    blocker = client.acquire("x:2")
    watcher = tenure.Client(server.url, holder="c")
    with Program(program, server.url) as running:
        assert running.line() == "holding"
        eventually(lambda: watcher.check("x:2").conflicts[0].waiting == 1, what="it waits")
        running.process.send_signal(signal.SIGINT)
        assert running.line() == "interrupted"
        assert running.end(within=5)[0] == 0
    assert client.check("x:1").free
    eventually(lambda: watcher.check("x:2").conflicts[0].waiting == 0, what="it left the line")
    blocker.release()


def test_an_interrupted_wait_leaves_the_line_although_other_threads_go_on(server, client):
    program = """
        import sys, threading, tenure
        client, interrupted = tenure.Client(sys.argv[1], holder="b"), threading.Event()
        def go_on():
            while True:
                client.check("x:2")
        threading.Thread(target=go_on, daemon=True).start()
        try:
            client.acquire("x:1", wait=600)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        sys.stdin.readline()
    """
    blocker = client.acquire("x:1")
    watcher = tenure.Client(server.url, holder="c")
    with Program(program, server.url) as running:
        eventually(lambda: watcher.check("x:1").conflicts[0].waiting == 1, what="it waits")
        running.process.send_signal(signal.SIGINT)
        assert running.line() == "interrupted"
        eventually(lambda: watcher.check("x:1").conflicts[0].waiting == 0, within=5, what="it left the line")
    blocker.release()


def test_a_server_that_is_away_does_not_keep_another_from_getting_its_leases_back(server, client):
    program = """
        import concurrent.futures, sys, tenure, threading
        here, away = sys.argv[1:]
        together = threading.Barrier(4)
        def hold(number):
            client = tenure.Client(here if number else away, holder="b")
            together.wait()
            return client.acquire(f"x:{number}", ttl=600)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            held = list(pool.map(hold, range(4)))
        print("held", flush=True)
        sys.stdin.readline()
    """
    with Server() as other, Program(program, server.url, other.url) as running:
        assert running.line() == "held"
        other.kill()
        assert running.end(within=5)[0] == 0
    assert client.check("x:1", "x:2", "x:3").free


def test_children_end_while_answers_to_asyncio_are_on_their_way(server):
    program = """
        import asyncio, os, sys, threading, time, tenure
        client = tenure.AsyncClient(sys.argv[1], holder="p")
        async def ask(number):
            while True:
                await client.check(f"x:{number}")
        async def ask_much():
            await asyncio.gather(*map(ask, range(16)))
        threading.Thread(target=asyncio.run, args=(ask_much(),), daemon=True).start()
        def ends(child):
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    return status == 0
                time.sleep(0.001)
            return False
        for _ in range(200):
            child = os.fork()
            if child == 0:
                sys.exit(0)
            assert ends(child), "the child does not end"
        print("done", flush=True)
        os._exit(0)
    """
    with Program(program, server.url) as parent:
        assert parent.line() == "done"
        assert parent.end() == (0, "")


def test_python_dash_m_says_the_version_and_whether_the_server_answers(server):
    def ask(url):
        return subprocess.run(
            [sys.executable, "-m", "tenure"], capture_output=True, text=True, env={**os.environ, "TENURE_URL": url}
        )

    here, nowhere = ask(server.url), ask("http://127.0.0.1:1")
    assert here.returncode == 0 and tenure.__version__ in here.stdout and "answers" in here.stdout
    assert nowhere.returncode == 1 and "no answer" in nowhere.stdout


def resident():
    """Bytes of memory of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_flat_over_many_cycles(client):
    cycles = int(os.environ.get("TENURE_SOAK_CYCLES", "100000"))
    threads = 16

    def run(count):
        def each(number):
            for _ in range(count // threads):
                with client.acquire(f"x:{number}", ttl=30):
                    pass

        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            list(pool.map(each, range(threads)))

    run(cycles // 10)
    before = resident()
    run(cycles)
    grown = resident() - before
    assert grown < 2 << 20, f"{grown} bytes more after {cycles} cycles"


#: In a process of its own: what others left behind there would hide what a guard costs.
IDLE_GUARDS = """
    import os, sys, tenure

    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    client, count = tenure.Client(sys.argv[1], holder="a"), 3000
    guards = [client.acquire(f"warm:{n}", ttl=600) for n in range(count)]
    threads, before = len(os.listdir("/proc/self/task")), resident()
    guards += [client.acquire(f"x:{n}", ttl=600) for n in range(count)]
    print((resident() - before) / count, len(os.listdir("/proc/self/task")) - threads, flush=True)
    for guard in guards:
        guard._guard.forget()
"""


def test_an_idle_guard_costs_at_most_two_kibibytes_and_no_thread_of_its_own(server):
    with Program(IDLE_GUARDS, server.url) as program:
        bytes_each, more_threads = program.line().split()
        assert program.end()[0] == 0
    assert float(bytes_each) <= 2048 and int(more_threads) <= 0, (bytes_each, more_threads)

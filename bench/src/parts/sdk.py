"""Loads a server with one Python package; prints requests a second. PACKAGE URL CONNECTIONS WARM_UP SECONDS"""

import sys
import threading
import time

package, url, connections, warm_up, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), *map(float, sys.argv[4:6])


def with_intents(client):
    intent = client.create_intent("bench", "").id

    def cycle():
        lease = client.acquire_lease(intent, "work", duration_seconds=60)
        client.release_lease(intent, lease.id)

    return cycle


def prepare(number):
    """One acquire and one release, on a connection of its own."""
    agent = f"agent-{number}"
    if package == "openintent":
        import openintent

        return with_intents(openintent.OpenIntentClient(url, "dev-user-key", agent))
    import tenure

    if package == "tenure-intents":
        return with_intents(tenure.OpenIntentClient(url, None, agent))
    client, resource = tenure.Client(url, holder=agent), f"task:bench/{number}"

    def cycle():
        with client.acquire(resource, ttl=60):
            pass

    return cycle


done = [0] * connections
measuring, over = threading.Event(), threading.Event()


def drive(number, cycle):
    while not over.is_set():
        cycle()
        if measuring.is_set():
            done[number] += 2


threads = [threading.Thread(target=drive, args=(number, prepare(number))) for number in range(connections)]
for thread in threads:
    thread.start()
time.sleep(warm_up)
measuring.set()
start = time.monotonic()
time.sleep(seconds)
over.set()
elapsed = time.monotonic() - start
for thread in threads:
    thread.join()
print(sum(done) / elapsed)

"""Ten threads count in one shared state at the same time, and no update is lost.

    tenure serve &
    python optimistic_state.py
"""

from concurrent.futures import ThreadPoolExecutor

from tenure import ConflictError, OpenIntentClient


def main() -> None:
    client = OpenIntentClient(agent_id="counter")
    intent = client.create_intent("Count", initial_state={"n": 0})

    client.patch_state(intent.id, {"n": 0}, expected_version=intent.version)
    try:
        client.patch_state(intent.id, {"n": 0}, expected_version=intent.version)
    except ConflictError as stale:
        print("too late: version", stale.current_version, "is there")

    with ThreadPoolExecutor(10) as pool:
        one_more = lambda _: client.update_state_with(intent.id, lambda now: {"n": now.state["n"] + 1})
        list(pool.map(one_more, range(10)))
    print(intent.id, client.get_intent(intent.id).state["n"])


if __name__ == "__main__":
    main()

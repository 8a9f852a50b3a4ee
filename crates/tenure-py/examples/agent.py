"""An agent: it is told of an intent, holds it while it works, and what it returns is written into the state.

    tenure serve &
    python agent.py
"""

import threading
import time

from tenure import OpenIntentClient
from tenure.agents import Agent, on_assignment


@Agent("summariser", ttl=10)
class Summariser:
    @on_assignment
    async def summarise(self, intent):
        # The whole intent is leased here. One of its scopes can be leased within.
        async with self.lease(intent.id, scope="summary", ttl=60) as lease:
            return {"summary": f"{intent.title}, under token {lease.token}"}


def main() -> None:
    author = OpenIntentClient(agent_id="author")
    intent = author.create_intent("A long report", "Summarise it")
    author.assign_agent(intent.id, "summariser")

    agent = Summariser()
    thread = threading.Thread(target=agent.run)
    thread.start()
    while "summary" not in author.get_intent(intent.id).state:
        time.sleep(0.05)
    agent.stop()
    thread.join()
    print(intent.id, author.get_intent(intent.id).state["summary"])


if __name__ == "__main__":
    main()

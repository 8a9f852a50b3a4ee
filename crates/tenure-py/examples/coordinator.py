"""One coordinator leads a portfolio; a second one is refused, and told who leads.

    tenure serve &
    python coordinator.py
"""

from tenure import ConflictError, OpenIntentClient


def main() -> None:
    first, second = OpenIntentClient(agent_id="coordinator-1"), OpenIntentClient(agent_id="coordinator-2")
    portfolio = first.create_portfolio("Trips")
    term = first.acquire_coordinator_lease(portfolio_id=portfolio.id, ttl_seconds=600)
    first.coordinator_heartbeat(term.id)
    try:
        second.acquire_coordinator_lease(portfolio_id=portfolio.id, ttl_seconds=600)
    except ConflictError as refusal:
        print(term.id, "led by", refusal.current_holder)


if __name__ == "__main__":
    main()

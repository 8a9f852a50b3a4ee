"""Holds a file while it works on it; the folder around it is refused meanwhile.

    tenure serve &
    python guard.py
"""

import tenure


def main() -> None:
    client = tenure.Client(holder="agent-7")
    with client.acquire("path:src/parser.rs", ttl=30) as lease:
        try:
            tenure.Client(holder="agent-8").acquire("path:src")
        except tenure.ConflictError as refusal:
            print("agent-8 is refused:", refusal.current_holder, "holds it until", refusal.expires_at)
        # Whatever is written to should refuse a token smaller than the largest it has seen.
        print("writing under token", lease.token)


if __name__ == "__main__":
    main()

"""`python -m tenure`: the version of this package, and whether the server answers."""

from __future__ import annotations

import sys

import tenure


def main() -> int:
    print(f"tenure {tenure.__version__}, Python {sys.version.split()[0]}")
    client = tenure.Client(patience=0)
    try:
        server = client.version()
    except tenure.TenureError as error:
        print(f"{client.url}: {error} ({error.__cause__ or error.code})")
        return 1
    print(f"{client.url}: answers, version {server.get('version', 'unknown')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Two tasks of one event loop take turns; when a lease is lost, the block under it is cancelled.

    tenure serve &
    python async_guard.py
"""

import asyncio

import tenure


async def take_a_turn(name: str) -> int:
    async with tenure.AsyncClient(holder=name).acquire("job:report", ttl=5, wait=60) as lease:
        await asyncio.sleep(0.1)
        return lease.token


async def lose_it() -> None:
    async with tenure.AsyncClient(holder="carl").acquire("job:report", ttl=1) as lease:
        await tenure.AsyncClient(holder="admin").revoke(lease.id, "the machine is needed")
        await asyncio.sleep(60)


async def main() -> None:
    tokens = await asyncio.gather(take_a_turn("ann"), take_a_turn("bob"))
    print("two turns, two tokens:", tokens)
    try:
        await lose_it()
    except tenure.LeaseLost as loss:
        print(loss)


if __name__ == "__main__":
    asyncio.run(main())

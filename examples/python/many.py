"""The same code in many sandboxes at once, each on its own."""

import asyncio
import time

from opensandbox import Sandbox


async def one(number: int) -> str:
    sandbox = await Sandbox.create("host")
    async with sandbox:
        try:
            execution = await sandbox.commands.run(f"echo $(({number} * {number})) > /tmp/n; cat /tmp/n")
            return execution.logs.stdout[0].text
        finally:
            await sandbox.kill()


async def main() -> None:
    began = time.monotonic()
    squares = await asyncio.gather(*(one(number) for number in range(20)))
    print(squares, f"{time.monotonic() - began:.2f} s")


asyncio.run(main())

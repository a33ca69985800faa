"""What ends TLS before a server, as a team's proxy does: `tls_proxy.py CHAIN KEY LISTEN TARGET`.

LISTEN and TARGET are ADDRESS:PORT; bytes are passed on as they are.
"""

import asyncio
import ssl
import sys
from contextlib import suppress


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """All that comes, and then the end."""
    with suppress(OSError):
        while chunk := await source.read(65536):
            sink.write(chunk)
            await sink.drain()
    sink.close()


async def main(chain: str, key: str, listen: str, target: str) -> None:
    """Serve until a signal ends it."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(chain, key)
    host, port = listen.split(":")
    server, server_port = target.split(":")

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(server, server_port)
        except OSError:  # it does not run yet
            writer.close()
            return
        await asyncio.gather(pump(reader, back), pump(there, writer))

    await (await asyncio.start_server(take, host, port, ssl=tls)).serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""A server's loop closes no earlier than its connections."""

from __future__ import annotations

import asyncio

from headrace.services.broker.ports import LOOPBACK
from tests.kafka.serving import Connections, cancel_others


def test_a_connection_whose_task_ends_in_the_last_turn_is_closed() -> None:
    async def serve() -> asyncio.StreamWriter:
        came: asyncio.Future[asyncio.StreamWriter] = asyncio.Future()
        over = asyncio.Event()

        async def carry(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.set_result(writer)
            await over.wait()

        server = await asyncio.start_server(Connections().carried_by(carry), LOOPBACK, 0)
        port = server.sockets[0].getsockname()[1]
        _, client = await asyncio.open_connection(LOOPBACK, port)
        writer = await came
        client.transport.abort()
        server.close()
        over.set()
        await cancel_others()
        return writer

    loop = asyncio.new_event_loop()
    writer = loop.run_until_complete(serve())
    loop.close()
    assert writer.get_extra_info("socket").fileno() == -1

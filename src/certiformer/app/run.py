"""Starting and ending: the socket, the processes, the server."""

from __future__ import annotations

import asyncio
import socket
import webbrowser
from collections.abc import Callable

from ..errors import CertiformerError, InputError
from ..options import Options
from .pool import Pool
from .serving import Serving

CONNECTIONS = 256  # that are open at once; further ones are turned away


def serve(serving: Serving, options: Options, say: Callable[[str], None]) -> None:
    """Serve until somebody ends it; `say` gets the address."""
    try:
        import uvicorn

        from .server import build, own_address
    except ImportError as error:
        raise CertiformerError(f"the app needs {error.name}: pip install 'certiformer[app]'") from None

    async def run(listening: socket.socket) -> None:
        pool = Pool(serving, options)
        try:
            await pool.start()
            config = uvicorn.Config(
                build(pool, serving),
                log_level="warning",
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                limit_concurrency=CONNECTIONS,
                timeout_graceful_shutdown=1,
            )
            address = own_address(serving.host, listening.getsockname()[1])
            say(f"certiformer app: {address} (Ctrl-C ends it)")
            if serving.browser:
                webbrowser.open(address)
            await uvicorn.Server(config).serve(sockets=[listening])
        finally:
            await pool.stop()

    with _listening(serving) as found:
        asyncio.run(run(found))


def _listening(serving: Serving) -> socket.socket:
    family = socket.AF_INET6 if ":" in serving.host else socket.AF_INET
    try:
        return socket.create_server((serving.host, serving.port), family=family)
    except OSError as error:
        told = f"--host {serving.host} --port {serving.port}: {error.strerror or error}"
        raise InputError(f"{told}; --port 0 takes a free port") from None

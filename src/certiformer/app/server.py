"""The page and what it asks for, over HTTP.

No request names a file: pages are in this package, models are on the shelf, reports are in memory. Every answer
carries a policy that lets the browser load nothing but this server's own scripts and styles.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .._version import __version__
from ..colours import LEVELS
from ..errors import InputError
from ..text import visible
from .asking import NORMS, WORDS, read
from .line import Busy, Job
from .pool import Pool
from .serving import LOCAL, Serving

MOST_BYTES = 2**17  # of a request
PATIENCE = 10.0  # seconds in which a request must have arrived
HTML, TEXT, SCRIPT, STYLE, SVG = "text/html", "text/plain", "text/javascript", "text/css", "image/svg+xml"
BYTES = "application/octet-stream"
TYPES = {".html": HTML, ".json": "application/json"}


class Guard:
    """Who may ask, and what a browser may do with the answer."""

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        self.app, self.hosts = app, serving.hosts
        frames = " ".join(serving.frame) or "'none'"
        self.headers = {
            "Content-Security-Policy": (
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
                f"base-uri 'none'; form-action 'none'; frame-ancestors {frames}"
            ),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(self.headers)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refused(scope["method"], Headers(scope=scope))
        await (self.app if refused is None else refused)(scope, receive, guarded)

    def _refused(self, method: str, headers: Headers) -> Response | None:
        """An answer for requests by another name or from the pages of another site."""
        asked = headers.get("host", "").lower()
        try:
            name = urlsplit(f"//{asked}").hostname or ""
        except ValueError:
            name = ""
        if self.hosts is not None and name not in self.hosts:
            return _problem(403, "this server does not go by that name; --allow-host adds one")
        if method in ("GET", "HEAD"):
            return None
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if site != "same-origin" or (origin is not None and urlsplit(origin).netloc.lower() != asked):
            return _problem(403, "questions are asked from the page of this server")
        return None


def build(pool: Pool, serving: Serving) -> Starlette:
    """The application."""
    ask = Asking(pool, serving)
    routes = [Route(f"/{name}", page) for name, page in _pages().items()]
    routes += [
        Route("/health", lambda _: PlainTextResponse("ok")),
        Route("/api/models", ask.models),
        Route("/api/questions", ask.question, methods=["POST"]),
        Route("/api/questions/{name}", ask.cancel, methods=["DELETE"]),
        Route("/api/questions/{name}/events", ask.events),
        Route("/api/questions/{name}/{file}", ask.file),
    ]
    handlers = {InputError: _told, Busy: _busy, HTTPException: _http}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.add_middleware(Guard, serving=serving)
    return app


class Asking:
    """What the page asks for."""

    def __init__(self, pool: Pool, serving: Serving) -> None:
        self.pool, self.serving = pool, serving

    async def models(self, _: Request) -> Response:
        """The models, and how much may be asked of them."""
        limits = {name: getattr(self.serving, name) for name in ("seconds", "longest", "most_sets")}
        choices = {"norms": NORMS, "words": WORDS, "levels": LEVELS}
        return JSONResponse({"models": self.pool.models, "limits": limits, **choices, "version": __version__})

    async def question(self, request: Request) -> Response:
        """A question into the line; the answer is its name."""
        if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return _problem(415, "expected a question as JSON")
        try:
            body = await asyncio.wait_for(_body(request), PATIENCE)
        except asyncio.TimeoutError:
            return _problem(408, "the question did not arrive in time")
        if body is None:
            return _problem(413, f"the question is longer than {MOST_BYTES:,} bytes")
        asked = read(body, models=self.pool.shelf, longest=self.serving.longest)
        visitor = request.client.host if request.client is not None else ""
        return JSONResponse({"name": self.pool.ask(asked, visitor).name}, status_code=201)

    async def cancel(self, request: Request) -> Response:
        self.pool.cancel(self.pool.job(request.path_params["name"]))
        return Response(status_code=204)

    async def events(self, request: Request) -> Response:
        """All that is told of a question, as it comes; a browser that lost the line goes on where it was."""
        job = self.pool.job(request.path_params["name"])
        last = request.headers.get("last-event-id", "0")
        first = int(last) if last.isascii() and last.isdigit() and len(last) < 9 else 0
        return StreamingResponse(
            _stream(job, first), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    async def file(self, request: Request) -> Response:
        """The report of an answer, or a certificate, to be kept."""
        job, name = self.pool.job(request.path_params["name"]), request.path_params["file"]
        if name not in job.files:
            raise InputError("there is no such file of this answer")
        headers = {"Content-Disposition": f'attachment; filename="certiformer-{name}"'}
        return Response(job.files[name], media_type=TYPES.get(PurePath(name).suffix, BYTES), headers=headers)


async def _stream(job: Job, first: int) -> AsyncIterator[str]:
    async for number, message in job.follow(first):
        yield ": still here\n\n" if message is None else f"id: {number}\ndata: {json.dumps(message)}\n\n"


async def _body(request: Request) -> bytes | None:
    """The body of a request; None where it is too long."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            return None
    return body


def _pages() -> dict[str, Callable[[Request], Response]]:
    """What is shipped with the package, by the name it is asked for."""
    from ..report.style import css

    here, shared = files(__package__).joinpath("web"), files("certiformer.report")
    held = {
        "": (here.joinpath("page.html").read_text(encoding="utf-8"), HTML),
        "app.js": (here.joinpath("app.js").read_text(encoding="utf-8"), SCRIPT),
        "words.js": (shared.joinpath("words.js").read_text(encoding="utf-8"), SCRIPT),
        "style.css": (css() + here.joinpath("app.css").read_text(encoding="utf-8"), STYLE),
        "icon.svg": (here.joinpath("icon.svg").read_text(encoding="utf-8"), SVG),
        "robots.txt": ("User-agent: *\nDisallow: /api/\n", TEXT),
    }

    def page(content: str, kind: str) -> Callable[[Request], Response]:
        return lambda _: Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return {name: page(*item) for name, item in held.items()}


def _problem(status: int, message: str, **headers: str) -> Response:
    return JSONResponse({"message": visible(message)}, status_code=status, headers=headers)


def _told(_: Request, error: Any) -> Response:
    return _problem(400, str(error))


def _busy(_: Request, __: Any) -> Response:
    return _problem(503, "many questions are waiting: please try again in a moment", **{"Retry-After": "5"})


def _http(_: Request, error: Any) -> Response:
    return _problem(error.status_code, "there is no such page" if error.status_code == 404 else str(error.detail))


def own_address(host: str, port: int) -> str:
    """The address to open on this machine."""
    shown = "localhost" if host in LOCAL or host in ("0.0.0.0", "::", "") else host
    return f"http://{shown}:{port}/"

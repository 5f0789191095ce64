"""A real HTTP server that speaks OpenAI's protocol, and misbehaves on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GOOD = "good"


@dataclass
class Server:
    """What the server does, and what it saw.

    Attributes:
        answer: The text of a good answer, from the request.
        script: How the next requests are answered, in order; after that, well.
        requests: What was asked.
        most: Greatest number of requests that were open at a time.
    """

    answer: Callable[[dict[str, Any]], str] = lambda request: "hello"
    script: list[Any] = field(default_factory=list)
    models: tuple[str, ...] = ("toy-model",)
    delay: float = 0.0
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    most: int = 0
    address: str = ""
    _open: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serve(server: Server) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

        def do_GET(self) -> None:
            models = [{"id": name, "object": "model"} for name in server.models]
            self.reply(200, {"object": "list", "data": models})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with server._lock:
                server.requests.append(request)
                server.headers.append({k.lower(): v for k, v in self.headers.items()})
                server._open += 1
                server.most = max(server.most, server._open)
                how = server.script.pop(0) if server.script else GOOD
            try:
                time.sleep(server.delay)
                self.behave(how, request)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client had enough
            finally:
                with server._lock:
                    server._open -= 1

        def behave(self, how: Any, request: dict[str, Any]) -> None:
            if isinstance(how, int):
                self.reply(how, {"error": {"message": "no"}}, {"retry-after": "0"})
            elif how == "broken JSON":
                self.reply(200, b"{")
            elif how == "no choices":
                self.reply(200, {**self.good(request), "choices": []})
            elif how == "no text":
                answer = self.good(request)
                answer["choices"][0]["message"]["content"] = None
                self.reply(200, answer)
            elif how == "cut off":
                body = json.dumps(self.good(request)).encode()
                self.head(200, len(body))
                self.wfile.write(body[: len(body) // 2])
            elif how == "hang up":
                self.close_connection = True
            elif how == "drip":
                body = json.dumps(self.good(request)).encode()
                self.head(200, len(body))
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(0.05)
            else:
                self.reply(200, self.good(request))

        def good(self, request: dict[str, Any]) -> dict[str, Any]:
            text = server.answer(request)
            message = {"role": "assistant", "content": text}
            return {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": request["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
            }

        def head(self, status: int, length: int, more: dict[str, str] | None = None) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(length))
            for name, value in (more or {}).items():
                self.send_header(name, value)
            self.end_headers()

        def reply(self, status: int, body: Any, more: dict[str, str] | None = None) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.head(status, len(content), more)
            self.wfile.write(content)

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    server.address = f"http://127.0.0.1:{http.server_port}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()

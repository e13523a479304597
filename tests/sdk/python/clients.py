"""Both published Python clients behind one face, and a record of what was called.

The packages stay as they are. `Blocking` stands before the objects of the asynchronous client and
waits for each call, so that one test holds for both; it changes no argument and no result.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cached_property
from typing import Any

import httpx
from code_interpreter import CodeInterpreter, CodeInterpreterSync
from code_interpreter.adapters.factory import AdapterFactory as CodeFactory
from code_interpreter.sync.adapters.factory import AdapterFactorySync as CodeFactorySync
from opensandbox import Sandbox, SandboxSync
from opensandbox.adapters.factory import AdapterFactory
from opensandbox.config import ConnectionConfig, ConnectionConfigSync
from opensandbox.models.execd import ExecutionHandlers
from opensandbox.models.execd_sync import ExecutionHandlersSync
from opensandbox.models.sandboxes import SandboxEndpoint
from opensandbox.sync.adapters.factory import AdapterFactorySync
from served import Server

KINDS = ["sync", "async"]
WAYS = ["direct", "through-the-server", "through-its-own-proxy"]
EXECD_PORT = 44772

# Which public methods the tests of this run have called: the kind, the service, the method.
CALLED: set[tuple[str, str, str]] = set()


def public_methods(service: Any) -> set[str]:
    """What a service offers: every method of its class without an underscore."""
    return {
        name
        for name, member in inspect.getmembers(type(service), callable)
        if not name.startswith("_")
    }


class Blocking:
    """A service of either client whose methods return when they are done."""

    def __init__(self, kind: str, name: str, service: Any, run: Callable[[Any], Any]) -> None:
        self.kind, self.name, self.service, self.run_until_done = kind, name, service, run

    def __getattr__(self, method: str) -> Any:
        found = getattr(self.service, method)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            CALLED.add((self.kind, self.name, method))
            result = found(*arguments, **options)
            if inspect.isawaitable(result):
                result = self.run_until_done(result)
            if hasattr(result, "__aiter__"):
                result = self.run_until_done(collected(result))
            return result

        return call


def is_called_by_a_client() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def collected(stream: Any) -> list[Any]:
    return [item async for item in stream]


class Box:
    """A sandbox, one kind of client, and one way to the daemon inside."""

    def __init__(self, server: Server, kind: str, way: str, **options: Any) -> None:
        self.kind, self.way = kind, way
        self.runner = asyncio.Runner() if kind == "async" else None
        through_server = way == "through-the-server"
        config_class = ConnectionConfig if kind == "async" else ConnectionConfigSync
        self.config = config_class(
            domain=server.domain, api_key=server.api_key, use_server_proxy=through_server
        )
        options.setdefault("timeout", timedelta(minutes=10))
        image = options.pop("image", "host")
        sandbox_class = Sandbox if kind == "async" else SandboxSync
        self.sandbox = self.wait(
            sandbox_class.create(image, connection_config=self.config, **options)
        )
        self.id: str = self.sandbox.id
        self.endpoint: SandboxEndpoint = self.wait(self.sandbox.get_endpoint(EXECD_PORT))
        services = {"commands": self.sandbox.commands, "files": self.sandbox.files}
        services["metrics"] = self.sandbox.metrics
        if way == "through-its-own-proxy":
            services = self.behind_its_own_proxy()
        self.commands = self.blocking("commands", services["commands"])
        self.files = self.blocking("files", services["files"])
        self.metrics = self.blocking("metrics", services["metrics"])
        self.whole = self.blocking("sandbox", self.sandbox)
        self.vault = self.blocking("vault", self.sandbox.credential_vault)

    def behind_its_own_proxy(self) -> dict[str, Any]:
        """The client's own services, told the address that some runtimes give them."""
        self.endpoint = self.endpoint.model_copy(
            update={"endpoint": f"{self.endpoint.endpoint}/proxy/{EXECD_PORT}"}
        )
        factory_class = AdapterFactory if self.kind == "async" else AdapterFactorySync
        factory = factory_class(self.config)
        return {
            "commands": factory.create_command_service(self.endpoint),
            "files": factory.create_filesystem_service(self.endpoint),
            "metrics": factory.create_metrics_service(self.endpoint),
        }

    @cached_property
    def interpreter(self) -> Any:
        """The code interpreter of the sandbox, once it has found that code can be run."""
        whole = CodeInterpreter if self.kind == "async" else CodeInterpreterSync
        made = self.blocking("interpreter", whole).create(self.sandbox)
        if self.way == "through-its-own-proxy":
            self.leave(self.blocking("interpreter", made))
            factory_class = CodeFactory if self.kind == "async" else CodeFactorySync
            service = factory_class(self.config).create_code_execution_service(self.endpoint)
            made = whole(self.sandbox, service)
        return self.blocking("interpreter", made)

    @cached_property
    def codes(self) -> Any:
        return self.blocking("codes", self.interpreter.service.codes)

    def leave(self, service: Any) -> None:
        """Closes an interpreter, or its service; each client has its own name for that."""
        getattr(service, "aclose" if self.kind == "async" else "close")()

    def blocking(self, name: str, service: Any) -> Any:
        return Blocking(self.kind, name, service, self.wait)

    def together(self, calls: list[Callable[[], Any]]) -> list[Any]:
        """What calls return that are all under way at once."""
        if self.runner is None:
            with ThreadPoolExecutor(len(calls)) as threads:
                return list(threads.map(lambda call: call(), calls))

        async def gathered() -> list[Any]:
            return await asyncio.gather(*(call() for call in calls))

        return self.runner.run(gathered())

    def wait(self, result: Any) -> Any:
        # Whoever is called by the client itself, as handlers are, cannot wait here: the client does.
        if inspect.isawaitable(result) and not is_called_by_a_client():
            assert self.runner is not None

            async def waiting() -> Any:
                return await result

            return self.runner.run(waiting())
        return result

    def files_as(self, uid: int, gid: int) -> Any:
        """Files as another user; the call that every client documents is `files_with_identity`."""
        if self.way == "through-its-own-proxy":
            service = self.files.service.with_identity(uid, gid)
        else:
            service = self.whole.files_with_identity(uid, gid)
        CALLED.add((self.kind, "files", "with_identity"))
        return self.blocking("files as another user", service)

    def http(self) -> httpx.Client:
        """Plain HTTP to the daemon, with what the clients send to be let in."""
        headers = self.endpoint.build_request_headers(self.config)
        return httpx.Client(base_url=f"http://{self.endpoint.endpoint}", headers=headers)

    def handlers(self, **functions: Callable[[Any], Any]) -> Any:
        """Handlers of stream events, plain functions for both clients."""
        if self.kind == "sync":
            return ExecutionHandlersSync(**functions)

        def asynchronous(function: Callable[[Any], Any]) -> Any:
            async def handle(event: Any) -> None:
                result = function(event)
                if inspect.isawaitable(result):
                    await result

            return handle

        return ExecutionHandlers(**{name: asynchronous(f) for name, f in functions.items()})

    def close(self) -> None:
        if "interpreter" in vars(self):
            self.leave(self.interpreter)
        self.wait(self.sandbox.kill())
        self.wait(self.sandbox.close())
        if self.runner is not None:
            self.runner.close()

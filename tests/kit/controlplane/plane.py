"""A real Kubernetes control plane on this machine, for as long as a test session needs it.

Used by the pytest fixtures and by the command line. It starts unmodified servers and knows nothing
of Muster.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType

from kit.controlplane import settings
from kit.controlplane.build import Binaries, build
from kit.controlplane.folder import PrivateFolder
from kit.controlplane.process import Component, ControlPlaneError, free_port
from kit.controlplane.settings import LOOPBACK, User
from kit.kubeclient import KubeClient, condition
from kit.waiting import until

ETCD = "etcd"
APISERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"


class ControlPlane:
    """etcd and kube-apiserver; on top, unless switched off, controller-manager, scheduler, KWOK.

    `version`: Kubernetes release without a leading v, None for the session's. `users` get a token
    each, beside `admin`. `arguments`: component name -> further command line arguments, which win
    over ours. `ready_timeout_s`: how long each component may take to become ready. `prepare` is awaited
    between the API server and what talks to it: the garbage collector looks for kinds at its start, and
    then only every 30 s.

    Use it as `async with ControlPlane(...) as plane`, or call `start` and `stop`. It is bound to no
    event loop, but `start` must be called from a thread that outlives it (the main thread).
    Methods raise ControlPlaneError, with the end of the server's log, and BuildError.
    """

    def __init__(
        self,
        *,
        version: str | None = None,
        users: Sequence[User] = (),
        controller_manager: bool = True,
        scheduler: bool = True,
        kwok: bool = True,
        arguments: Mapping[str, Sequence[str]] | None = None,
        ready_timeout_s: float = 120.0,
        prepare: "Callable[[ControlPlane], Awaitable[None]] | None" = None,
        echo: Callable[[str], None] = print,
    ) -> None:
        chosen = {CONTROLLER_MANAGER: controller_manager, SCHEDULER: scheduler, KWOK: kwok}
        self._names = [ETCD, APISERVER, *(name for name, on in chosen.items() if on)]
        self._version = version
        self._users = tuple(users)
        self._arguments = {CONTROLLER_MANAGER: [settings.NO_TYPE_CHECKS], **(arguments or {})}
        self._ready_timeout_s = ready_timeout_s
        self._prepare = prepare
        self._echo = echo
        self._folder: PrivateFolder | None = None
        self._binaries: Binaries | None = None
        #: Component name -> component, in the order of their start.
        self._components: dict[str, Component] = {}
        self._port = free_port()
        self._etcd_port = 0
        #: Member of system:masters: may do everything.
        self.admin = User("admin", ("system:masters",))
        #: Component name -> who it is to the API server.
        self._clients = {
            CONTROLLER_MANAGER: User("system:kube-controller-manager"),
            SCHEDULER: User("system:kube-scheduler"),
            KWOK: User("kwok", ("system:masters",)),
        }
        #: Seconds that the last `start` took, without building.
        self.start_seconds = 0.0

    async def start(self) -> None:
        """Build what is missing, start every component and return when all are ready."""
        if self._folder is not None:
            raise ControlPlaneError(f"cannot start {self.url}: it runs already; stop it first")
        self._binaries = await asyncio.to_thread(build, self._version, self._names, echo=self._echo)
        started = time.monotonic()
        self._folder = PrivateFolder()
        try:
            await self._start_storage()
            if self._prepare is not None:
                await self._prepare(self)
            await self._start_clients()
            if KWOK in self._components:
                await self._break_in_kwok()
        except BaseException:
            await self.stop()
            raise
        self.start_seconds = time.monotonic() - started

    async def stop(self) -> None:
        """Kill what was started and remove its files. Nothing to do when nothing was."""
        for component in reversed(self._components.values()):
            await component.kill()
        self._components.clear()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)
            self._folder = None

    async def __aenter__(self) -> "ControlPlane":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Base URL of the API server; the same for the whole life of this object."""
        return f"https://{LOOPBACK}:{self._port}"

    @property
    def etcd_url(self) -> str:
        """Base URL of etcd, which also answers HTTP (`/v3/kv/...`): to compact it, for one."""
        return f"http://{LOOPBACK}:{self._etcd_port}"

    @property
    def version(self) -> str:
        """Kubernetes release that serves, without a leading v."""
        if self._binaries is None:
            raise ControlPlaneError("cannot tell the version of a control plane before its start")
        return self._binaries.kubernetes_version

    @property
    def folder(self) -> Path:
        """Folder with logs (`logs/<component>.log`), keys and data; gone after `stop`."""
        if self._folder is None:
            raise ControlPlaneError(f"cannot use the control plane at {self.url}: start it first")
        return self._folder.path

    @property
    def ca_file(self) -> Path:
        """Certificates that vouch for the API server, in PEM."""
        return self.folder / "tls" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of `admin`."""
        return self.kubeconfig_for(self.admin)

    def kubeconfig_for(self, user: User) -> Path:
        """Kubeconfig of one of the users, written at first use."""
        path = self.folder / f"{user.name.replace(':', '-').replace('/', '-')}.kubeconfig"
        if not path.exists():
            settings.kubeconfig(path, url=self.url, ca_file=self.ca_file, user=user)
        return path

    def component(self, name: str) -> Component:
        """A server by the name of its binary, e.g. to see whether it runs or to read its log."""
        try:
            return self._components[name]
        except KeyError:
            raise ControlPlaneError(
                f"cannot find component {name!r}: this control plane has {list(self._components)}"
            ) from None

    async def start_component(self, name: str) -> None:
        """Start a stopped server again, with the same port and data; return when it is ready."""
        component = self.component(name)
        component.start()
        await component.wait_ready(self._ready_timeout_s)

    async def stop_component(self, name: str) -> None:
        """Kill one server, as a crash would. Its port and data stay reserved for its return."""
        await self.component(name).kill()

    async def start_apiserver(self) -> None:
        """End the outage that `stop_apiserver` began."""
        await self.start_component(APISERVER)

    async def stop_apiserver(self) -> None:
        """Begin an outage: clients see their connections reset, then refused."""
        await self.stop_component(APISERVER)

    async def restart_apiserver(self) -> None:
        """An outage of a few seconds."""
        await self.stop_apiserver()
        await self.start_apiserver()

    @asynccontextmanager
    async def outage(self, name: str = APISERVER) -> AsyncIterator[None]:
        """Keep one server down inside the block; it is ready again after the block."""
        await self.stop_component(name)
        try:
            yield
        finally:
            await self.start_component(name)

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """Inside the block one server does nothing, and goes on after it where it was."""
        process = self.component(name).process
        if process is None:
            raise ControlPlaneError(f"cannot freeze {name}: it does not run; start it first")
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    async def _start_storage(self) -> None:
        """Start etcd and the API server, at once: the API server waits for etcd by itself."""
        (self.folder / "logs").mkdir()
        settings.service_account_key(self.folder / "service-account.pem")
        users = [self.admin, *self._clients.values(), *self._users]
        settings.token_file(self.folder / "tokens.csv", users)
        etcd_port = self._etcd_port = free_port()
        etcd = settings.etcd_arguments(self.folder, client_port=etcd_port, peer_port=free_port())
        server = settings.apiserver_arguments(self.folder, port=self._port, etcd_port=etcd_port)
        await self._bring_up(
            self._add(ETCD, etcd, f"http://{LOOPBACK}:{etcd_port}/health"),
            self._add(APISERVER, server, f"{self.url}/readyz"),
        )

    async def _start_clients(self) -> None:
        """Start whatever talks to the API server."""
        added = []
        for name in self._names[2:]:
            port = free_port()
            kubeconfig = self.kubeconfig_for(self._clients[name])
            if name == CONTROLLER_MANAGER:
                command = settings.controller_manager_arguments(port=port, kubeconfig=kubeconfig)
            elif name == SCHEDULER:
                config = self.folder / "scheduler.json"
                settings.scheduler_config(config, kubeconfig=kubeconfig)
                command = settings.scheduler_arguments(port=port, config=config)
            else:
                command = settings.kwok_arguments(port=port, kubeconfig=kubeconfig)
            scheme = "http" if name == KWOK else "https"
            added.append(self._add(name, command, f"{scheme}://{LOOPBACK}:{port}/healthz"))
        await self._bring_up(*added)

    async def _break_in_kwok(self) -> None:
        """Let KWOK play one node and one pod by themselves.

        It prepares each stage at its first use, and dies of `concurrent map writes` when two first uses coincide.
        """
        name, meta = "break-in", {"name": "break-in"}
        pod = {
            "metadata": {**meta, "namespace": "default"},
            "spec": {"nodeName": name, "containers": [{"name": "c", "image": "c"}]},
        }
        async with KubeClient(self.url, token=self.admin.token, ca_file=self.ca_file) as kube:
            await kube.create({"apiVersion": "v1", "kind": "Node", "metadata": meta})

            async def ready() -> bool:
                return condition(await kube.get("v1", "Node", name), "Ready").get("status") == "True"

            async def runs() -> bool:
                return bool((await kube.get("v1", "Pod", name, "default"))["status"]["phase"] == "Running")

            async def gone() -> bool:
                return await kube.find("v1", "Pod", name, "default") is None

            await until(ready, what="KWOK to play its first node")
            await kube.create({"apiVersion": "v1", "kind": "Pod", **pod})
            await until(runs, what="KWOK to play its first pod")
            await kube.delete("v1", "Pod", name, "default")
            await until(gone, what="KWOK to end its first pod")
            await kube.delete("v1", "Node", name)

    def _add(self, name: str, command: list[str], ready_url: str) -> Component:
        assert self._binaries is not None
        component = Component(
            name=name,
            command=[str(self._binaries.paths[name]), *command, *self._arguments.get(name, ())],
            ready_url=ready_url,
            log=self.folder / "logs" / f"{name}.log",
        )
        self._components[name] = component
        return component

    async def _bring_up(self, *components: Component) -> None:
        for component in components:
            component.start()
        for component in components:
            await component.wait_ready(self._ready_timeout_s)

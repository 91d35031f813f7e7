"""The gateway as a source for the commands of a tenant: a kubeconfig is enough, without a key of NATS.

The client sends the token of the kubeconfig, and reports an error in one sentence. ``gatewayviews`` makes the values.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

import muster
from muster.model.language import say
from muster.ports import ApiResponse, ApiUnreachableError
from muster.serving import shapes
from muster_cli.exits import FORBIDDEN, NOT_FOUND, USAGE, CliError

if TYPE_CHECKING:
    from muster.kube.transport import KubeTransport
    from muster_cli.loopback import Loopback

ANSWER_S = 60.0
"""For one answer: an earlier moment is folded again."""
S = TypeVar("S", bound=Struct)


class MissingThereError(CliError):
    """The gateway does not have the object, or the reader may not see the object."""

    def __init__(self, message: str) -> None:
        super().__init__(message, NOT_FOUND)


class _OfVersion(Struct):
    version: str = ""


class Gateway:
    """An open connection. ``at``: the moment of the questions."""

    def __init__(
        self, transport: KubeTransport | Loopback, at: str, *, signed: bool = False, answer_s: float = ANSWER_S
    ) -> None:
        """``signed``: whether requests have a token."""
        self._transport = transport
        self._at = at
        self._signed = signed
        self._answer_s = answer_s

    @property
    def home(self) -> str:
        """The namespace of the context; empty without one."""
        return self._transport.target.namespace

    async def get(self, path: str, shape: type[S], *, at: str = "", **query: str) -> S:
        """The answer to a question. Raises CliError."""
        return await self._ask("GET", path, shape, None, at or self._at, query)

    async def post(self, path: str, body: object, shape: type[S]) -> S:
        return await self._ask("POST", path, shape, msgspec.json.encode(body), self._at, {})

    async def viewer(self) -> shapes.Viewer:
        """The user of the token, and what this user may see. Raises CliError."""
        return await self._ask("GET", "/api/v1/viewer", shapes.Viewer, None, "", {})

    async def _ask(
        self, method: str, path: str, shape: type[S], body: bytes | None, at: str, query: dict[str, str]
    ) -> S:
        asked = {name: text for name, text in {**query, "at": at}.items() if text}
        answer = await self._send(method, path, asked, body)
        if not answer.ok:
            raise await self._refused(answer, query.get("namespace", "") or _namespace_in(path))
        try:
            decoded = msgspec.json.decode(answer.body, type=shape)
        except msgspec.DecodeError as err:
            raise await self._differs(say("its answer cannot be read ({err})", err=err)) from err
        moment: shapes.MomentView | None = getattr(decoded, "moment", None)
        if moment is not None and not moment.live and not asked.get("at"):
            raise CliError(say("the gateway {url} still reads the log; ask again soon", url=self._url))
        return decoded

    async def _send(self, method: str, path: str, query: dict[str, str], body: bytes | None) -> ApiResponse:
        try:
            return await self._transport.request(method, path, query=query, body=body, timeout_s=self._answer_s)
        except ApiUnreachableError as err:
            raise CliError(
                say(
                    "cannot reach the gateway {url}: {error}; is it served there? In a cluster: `kubectl -n "
                    "muster-system port-forward service/muster-gateway 8800:80`, and --gateway "
                    "http://127.0.0.1:8800",
                    url=self._url,
                    error=err.__cause__ or err,
                )
            ) from err

    @property
    def _url(self) -> str:
        return self._transport.target.server

    async def _refused(self, answer: ApiResponse, namespace: str) -> CliError:
        try:
            error = msgspec.json.decode(answer.body, type=shapes.Problem).error
        except msgspec.DecodeError:
            return await self._differs(say("it answered HTTP {status} without a reason", status=answer.status))
        origin = self._transport.target.origin
        match answer.status:
            case 401 if not self._signed:
                return CliError(
                    say(
                        "the gateway {url} asks for a token, and {origin} has none: a client certificate is for "
                        "the API server alone. Give your user a token: `kubectl config set-credentials USER "
                        '--token="$(kubectl create token SERVICEACCOUNT)"`, with a ServiceAccount that may list '
                        "pods",
                        url=self._url,
                        origin=origin,
                    ),
                    FORBIDDEN,
                )
            case 401:
                return CliError(
                    say(
                        "the gateway {url} refuses the token of {origin}: {error}",
                        url=self._url,
                        origin=origin,
                        error=error,
                    ),
                    FORBIDDEN,
                )
            case 403:
                return CliError(
                    say(
                        "you may not see namespace {namespace}: {error}; `kubectl auth can-i list pods -n "
                        "{namespace}` checks it, and an administrator of the namespace grants it",
                        namespace=namespace,
                        error=error,
                    ),
                    FORBIDDEN,
                )
            case 404 if error.startswith(say("there is no such page")):
                return await self._differs(say("it does not know this question"))
            case 404:
                return MissingThereError(error)
            case 400:
                return CliError(
                    say("the gateway {url} does not take the question: {error}", url=self._url, error=error), USAGE
                )
        return CliError(
            say(
                "the gateway {url} cannot answer (HTTP {status}): {error}",
                url=self._url,
                status=answer.status,
                error=error,
            )
        )

    async def _differs(self, difference: str) -> CliError:
        """Why an answer is none: another version, or something else that is served there."""
        version = ""
        with contextlib.suppress(CliError, msgspec.DecodeError):
            viewer = await self._send("GET", "/api/v1/viewer", {}, None)
            version = msgspec.json.decode(viewer.body, type=_OfVersion).version if viewer.ok else ""
        text = say("cannot use the gateway {url}: {difference}", url=self._url, difference=difference)
        if not version:
            return CliError(
                say("{words}; is that a gateway of Muster, and nothing before it that asks for a sign-in?", words=text)
            )
        return CliError(
            say(
                "{words}; it is version {version}, this command is {own}: use one of its version",
                words=text,
                version=version,
                own=muster.__version__,
            )
        )


def _namespace_in(path: str) -> str:
    """Of ``/api/v1/jobs/NAMESPACE/NAME``."""
    return path.split("/")[4] if path.count("/") == 5 else ""

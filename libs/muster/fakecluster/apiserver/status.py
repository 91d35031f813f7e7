"""The Status objects of an API server's refusals, as exceptions.

Raised by every verb of the simulated server; `handle` makes answers of these. Wording, reasons and details follow the
answers of a real server of release 1.36, because clients read them.
"""

from __future__ import annotations

from typing import Any

from muster.model.api import ApiResource

Obj = dict[str, Any]
"""A Kubernetes object as JSON has it."""


class StatusError(Exception):
    """A request was refused: the HTTP status and the Status object that goes with it."""

    def __init__(self, code: int, reason: str, message: str, details: Obj | None = None) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.body: Obj = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            **({} if details is None else {"details": details}),
            "code": code,
        }


def about(resource: ApiResource, name: str, kind: str = "") -> Obj:
    """The ``details`` of a Status: which object it is about. The ``kind`` there is mostly the plural."""
    details: Obj = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = kind or resource.plural
    return details


def success(resource: ApiResource, name: str, uid: str) -> Obj:
    """What a DELETE is answered with when the object is gone."""
    details = about(resource, name) | {"uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def created() -> Obj:
    """What a binding or an eviction is answered with."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def not_found(resource: ApiResource, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{resource} "{name}" not found', about(resource, name))


def already_exists(resource: ApiResource, name: str, *, deleting: bool) -> StatusError:
    message = f'{resource} "{name}" already exists'
    return StatusError(
        409,
        "AlreadyExists",
        f"object is being deleted: {message}" if deleting else message,
        about(resource, name),
    )


def conflict(resource: ApiResource, name: str, why: str, *, title: str = "", kind: str = "") -> StatusError:
    """``title`` is how the message names the resource, ``kind`` how the details do; both default to the plural."""
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {title or resource} "{name}": {why}',
        about(resource, name, kind),
    )


def stale(resource: ApiResource, name: str) -> StatusError:
    """The writer has not seen the newest version."""
    return conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )


def wrong_precondition(resource: ApiResource, name: str, field: str, wanted: str, actual: str) -> StatusError:
    """A DELETE named another ``uid`` or ``resourceVersion`` than the object has."""
    word, happened = ("UID", "deleted and then recreated") if field == "uid" else ("ResourceVersion", "modified")
    why = (
        f"the {word} in the precondition ({wanted}) does not match the {word} in record ({actual}). "
        f"The object might have been {happened}"
    )
    kind = resource.kind + (f".{resource.group}" if resource.group else "")
    return conflict(resource, name, why, title=kind, kind=resource.kind)


def invalid(resource: ApiResource, name: str, causes: list[tuple[str, str, str]]) -> StatusError:
    """``causes``: (field path, reason such as FieldValueInvalid, message) of everything that is wrong."""
    texts = [f"{field}: {message}" for field, _, message in causes]
    kind = resource.kind + (f".{resource.group}" if resource.group else "")
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = about(resource, name, resource.kind)
    details["causes"] = [{"reason": reason, "message": message, "field": field} for field, reason, message in causes]
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {joined}', details)


def rejected() -> StatusError:
    """A JSON patch did not apply. A real server does not say which operation failed, nor why: a failed ``test``
    and a path that is not there look the same.
    """
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def forbidden(resource: ApiResource, name: str, why: str) -> StatusError:
    return StatusError(403, "Forbidden", f'{resource} "{name}" is forbidden: {why}', about(resource, name))


def expired(message: str) -> StatusError:
    """410: what was asked for lies before the history that is still kept."""
    return StatusError(410, "Expired", message)


def too_old(wanted: int, oldest: int) -> StatusError:
    return expired(f"too old resource version: {wanted} ({oldest})")


def too_new(wanted: int, current: int) -> StatusError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return StatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})

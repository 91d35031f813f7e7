"""JSON patch and JSON merge patch, as applied by an API server.

Pure: the document is never changed, the result shares all unchanged parts. Deviations from RFC 6902 are the real
server's own, measured on release 1.36: ``replace`` of a missing key adds the key, ``test`` against a missing key
passes for ``null``, and negative indices count from the end.
"""

from __future__ import annotations

from typing import Any

from muster.fakecluster.apiserver.status import bad_request, rejected

_NOTHING = object()


def merge_patch(document: Any, patch: Any) -> Any:
    """RFC 7396: objects are merged, ``null`` removes a key, everything else is replaced."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(document: Any, operations: Any) -> Any:
    """The document after all operations; raises StatusError 422 when one does not apply, 400 for no patch at all."""
    if not isinstance(operations, list) or not all(isinstance(entry, dict) for entry in operations):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    for operation in operations:
        document = _apply(document, operation)
    return document


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values: ``1``, ``1.0`` and ``true`` differ, as they do on the wire."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    path = operation.get("path")
    if not isinstance(path, str):
        raise rejected()
    match operation.get("op"):
        case "test":
            if not same(_test_value(document, path), operation.get("value")):
                raise rejected()
            return document
        case "add":
            return _change(document, _keys(path), operation.get("value"), insert=True)
        case "replace":
            return _replace(document, path, operation.get("value"))
        case "remove":
            return _remove(document, _keys(path))
        case "copy":
            return _change(document, _keys(path), _source(document, operation), insert=True)
        case "move":
            value = _source(document, operation)
            return _change(_remove(document, _keys(operation["from"])), _keys(path), value, insert=True)
        case _:
            raise rejected()


def _test_value(document: Any, path: str) -> Any:
    """What a ``test`` compares with: an absent key counts as null, an absent parent as a failure."""
    return document if path == "" else _child(_parent(document, path), _keys(path)[-1], absent=None)


def _source(document: Any, operation: dict[str, Any]) -> Any:
    path = operation.get("from")
    if not isinstance(path, str):
        raise rejected()
    return _child(_parent(document, path), _keys(path)[-1], absent=None)


def _replace(document: Any, path: str, value: Any) -> Any:
    if path == "":
        if not isinstance(value, dict | list):
            raise rejected()
        return value
    return _change(document, _keys(path), value, insert=False)


def _keys(path: str) -> list[str]:
    """The steps of a JSON pointer; the text before its first slash does not count."""
    parts = path.split("/")[1:]
    if not parts:
        raise rejected()
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def _parent(document: Any, path: str) -> Any:
    for key in _keys(path)[:-1]:
        document = _child(document, key)
    return document


def _child(parent: Any, key: str, absent: Any = _NOTHING) -> Any:
    """``parent[key]``; an absent key of an object gives ``absent``, or is refused when none was given."""
    if isinstance(parent, dict):
        child = parent.get(key, absent)
        if child is _NOTHING:
            raise rejected()
        return child
    if isinstance(parent, list):
        return parent[_index(key, len(parent))]
    raise rejected()


def _index(key: str, length: int) -> int:
    """Position in a list of that length; counts from the end when negative."""
    try:
        index = int(key)
    except ValueError:
        raise rejected() from None
    if not -length <= index < length:
        raise rejected()
    return index % length


def _change(document: Any, keys: list[str], value: Any, *, insert: bool) -> Any:
    """A copy of the document with ``value`` at ``keys``; in a list ``insert`` makes room for it."""
    key = keys[0]
    if len(keys) > 1:
        value = _change(_child(document, key), keys[1:], value, insert=insert)
        insert = False
    if isinstance(document, dict):
        return {**document, key: value}
    if not isinstance(document, list):
        raise rejected()
    result = list(document)
    if not insert:
        result[_index(key, len(result))] = value
    elif key == "-":
        result.append(value)
    else:
        result.insert(_index(key, len(result) + 1), value)
    return result


def _remove(document: Any, keys: list[str]) -> Any:
    key, child = keys[0], _child(document, keys[0])
    if len(keys) > 1:
        return _change(document, [key], _remove(child, keys[1:]), insert=False)
    if isinstance(document, dict):
        return {name: value for name, value in document.items() if name != key}
    result = list(document)
    del result[_index(key, len(result))]
    return result

"""Any value of a struct's type, for property tests: drawn from what msgspec knows of the type."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect as mi

INTEGERS = st.integers(-(2**63), 2**64 - 1)
TEXTS = st.text(max_size=8)
DEEPEST = 3
"""Levels of a struct inside itself."""


def values(kind: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Any value of a type: whatever an annotation of a struct may say."""
    return _of(mi.type_info(kind), depth)


def _of(info: mi.Type, depth: int) -> st.SearchStrategy[Any]:
    match info:
        case mi.NoneType():
            return st.none()
        case mi.BoolType():
            return st.booleans()
        case mi.IntType():
            return INTEGERS
        case mi.StrType():
            return TEXTS
        case mi.LiteralType():
            return st.sampled_from(info.values)
        case mi.UnionType():
            known = [each for each in info.types if depth < DEEPEST or not isinstance(each, mi.StructType)]
            return st.one_of([_of(each, depth) for each in known or info.types])
        case mi.ListType():
            return st.lists(_of(info.item_type, depth), max_size=3)
        case mi.VarTupleType():
            items = st.lists(_of(info.item_type, depth + 1), max_size=3 if depth < DEEPEST else 0)
            return items.map(tuple)
        case mi.DictType():
            return st.dictionaries(_of(info.key_type, depth), _of(info.value_type, depth), max_size=3)
        case mi.NamedTupleType():
            return st.tuples(*(_of(each.type, depth) for each in info.fields)).map(lambda found: info.cls(*found))
        case mi.StructType():
            deep = depth + _holds_itself(info)
            given = {each.name: _of(each.type, deep) for each in info.fields if depth < DEEPEST or each.required}
            return st.fixed_dictionaries(given).map(lambda found: info.cls(**found))
    raise AssertionError(f"no values are known for {info}")


def _holds_itself(info: mi.StructType) -> bool:
    """Whether a field may be such a struct again."""
    unions = (each.type for each in info.fields if isinstance(each.type, mi.UnionType))
    return any(isinstance(each, mi.StructType) and each.cls is info.cls for union in unions for each in union.types)


def example(kind: type[msgspec.Struct]) -> msgspec.Struct:
    """One plain value of a struct: empty texts, zeroes, the first of what may be."""
    return msgspec.convert(_plain(mi.type_info(kind)), kind)


def _plain(info: mi.Type) -> Any:
    match info:
        case mi.StructType():
            tag = {info.tag_field: info.tag} if info.tag_field else {}
            return tag | {each.encode_name: _plain(each.type) for each in info.fields if each.required}
        case mi.NamedTupleType():
            return [_plain(each.type) for each in info.fields]
        case mi.UnionType():
            return _plain(info.types[0])
        case mi.LiteralType():
            return info.values[0]
        case mi.DictType():
            return {}
        case mi.ListType() | mi.VarTupleType():
            return []
        case mi.BoolType():
            return False
        case mi.IntType():
            return 0
        case mi.NoneType():
            return None
    return ""

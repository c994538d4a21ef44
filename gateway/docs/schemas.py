"""JSON schemas of msgspec types.

`msgspec.json.schema_components` (0.23) fails on members whose default is UNSET, which the wire
structs use for members that are left out; here such a member is simply not required.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import inspect

Schema = dict[str, Any]

_SIMPLE: dict[type[inspect.Type], Schema] = {
    inspect.AnyType: {},
    inspect.BoolType: {"type": "boolean"},
    inspect.FloatType: {"type": "number"},
    inspect.IntType: {"type": "integer"},
    inspect.NoneType: {"type": "null"},
    inspect.RawType: {},
    inspect.StrType: {"type": "string"},
}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


class Components:
    """Writes schemas; structs land in `schemas` under their name and are referred to."""

    def __init__(self) -> None:
        """Start with no struct."""
        self.schemas: dict[str, Schema] = {}

    def refer(self, kind: Any) -> Schema:
        """Schema of any type."""
        return self._schema(inspect.type_info(kind))

    def _schema(self, info: inspect.Type) -> Schema:
        if isinstance(info, inspect.Metadata):
            return {**self._schema(info.type), **(info.extra_json_schema or {})}
        if isinstance(info, inspect.StructType):
            return self._struct(info)
        if isinstance(info, inspect.UnionType):
            return self._union(info.types)
        if isinstance(info, inspect.ListType):
            return {
                "type": "array",
                "items": self._schema(info.item_type),
                **_bounds(info, max_length="maxItems"),
            }
        if isinstance(info, inspect.DictType):
            return {"type": "object", "additionalProperties": self._schema(info.value_type)}
        if isinstance(info, inspect.LiteralType):
            return {"enum": list(info.values)}
        return {**_SIMPLE[type(info)], **_bounds(info, max_length="maxLength")}

    def _union(self, types: Iterable[inspect.Type]) -> Schema:
        options = [self._schema(kind) for kind in types]
        return options[0] if len(options) == 1 else {"anyOf": options}

    def _struct(self, info: inspect.StructType) -> Schema:
        name = info.cls.__name__
        if name not in self.schemas:
            schema = self.schemas[name] = {"type": "object", "title": name}
            if info.cls.__doc__:
                schema["description"] = " ".join(info.cls.__doc__.split())
            schema["properties"] = {field.encode_name: self._member(field) for field in info.fields}
            required = [field.encode_name for field in info.fields if field.required]
            if required:
                schema["required"] = required
        return {"$ref": f"#/components/schemas/{name}"}

    def _member(self, field: inspect.Field) -> Schema:
        schema = self._schema(field.type)
        default = field.default
        if default in (msgspec.NODEFAULT, msgspec.UNSET) or isinstance(default, msgspec.Raw):
            return schema
        return {**schema, "default": msgspec.to_builtins(default)}


def _bounds(info: inspect.Type, max_length: str) -> Schema:
    words = {**_BOUNDS, "max_length": max_length}
    values = {word: getattr(info, attribute, None) for attribute, word in words.items()}
    return {word: value for word, value in values.items() if value is not None}

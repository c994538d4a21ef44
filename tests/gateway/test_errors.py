"""The table from fault codes to HTTP."""

import json

import pytest

from core import errors as core_errors
from core.errors import DerenderError, FaultCode
from gateway import errors


@pytest.mark.parametrize("code", list(FaultCode))
def test_every_code_has_a_row(code: FaultCode) -> None:
    row = errors.TABLE[code]
    assert 400 <= row.status < 600
    assert row.type.endswith("Error")
    assert (row.retry_after_s is not None) == (row.status == 503)


def _kinds() -> list[type[DerenderError]]:
    found = [value for value in vars(core_errors).values() if isinstance(value, type)]
    return [kind for kind in found if issubclass(kind, DerenderError)]


@pytest.mark.parametrize("kind", _kinds())
def test_a_body_has_openai_shape(kind: type[DerenderError]) -> None:
    status, headers, body = errors.answer(kind("A sentence.", "some.field"))
    assert json.loads(body) == {
        "error": {
            "message": "A sentence.",
            "type": errors.TABLE[kind.code].type,
            "param": "some.field",
            "code": status,
        }
    }
    assert (status == 503) == any(name == b"retry-after" for name, _ in headers)

"""The table from fault codes to HTTP."""

import json

import pytest

from core.protocol import errors as core_errors
from core.protocol.errors import DerenderError, FaultCode
from gateway.http import errors


@pytest.mark.parametrize("code", list(FaultCode))
def test_every_code_has_a_row(code: FaultCode) -> None:
    row = errors.TABLE[code]
    assert 400 <= row.status < 600
    assert row.type.endswith("Error")
    assert (row.retry_after_s is not None) == (row.status == 503)


@pytest.mark.parametrize("code", list(FaultCode))
def test_a_body_has_openai_shape(code: FaultCode) -> None:
    error = DerenderError("A sentence.", "some.field")
    error.code = code
    status, headers, body = errors.answer(error)
    assert json.loads(body) == {
        "error": {
            "message": "A sentence.",
            "type": errors.TABLE[code].type,
            "param": "some.field",
            "code": errors.TABLE[code].code or status,
        }
    }
    assert (status == 503) == any(name == b"retry-after" for name, _ in headers)


def test_codes_are_told_apart_by_one_class_each() -> None:
    kinds = [value for value in vars(core_errors).values() if isinstance(value, type)]
    codes = [kind.code for kind in kinds if issubclass(kind, DerenderError)]
    assert set(codes) == set(FaultCode)

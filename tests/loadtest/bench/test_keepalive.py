"""The benchmark's raw connection."""

import pytest

from loadtest.bench.keepalive import PostError, check_status, content_length, request_bytes


def test_answers_are_taken_only_whole_and_with_200() -> None:
    assert request_bytes("h:1", "/p", b"{}").endswith(b"content-length: 2\r\n\r\n{}")
    assert content_length(b"HTTP/1.1 200 OK\r\nContent-Length: 17") == 17
    with pytest.raises(PostError, match="no content-length"):
        content_length(b"HTTP/1.1 200 OK")
    with pytest.raises(PostError, match="status 400: why"):
        check_status(b"HTTP/1.1 400 Bad Request", b"why")

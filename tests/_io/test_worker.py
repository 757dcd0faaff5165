"""Messages between processes, and processes that end."""

from __future__ import annotations

import io

import numpy as np
import pytest

from cpcapp._io.worker import Worker, receive, send


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 0, 4), (5, 7)])
@pytest.mark.parametrize("dtype", ["<f8", ">f4", "|b1", "<i2"])
def test_what_is_sent_is_received(rng, shape, dtype):
    stream = io.BytesIO()
    array = rng.integers(0, 2, shape).astype(dtype)
    send(stream, {"text": "\u00e4"}, [array, array.T])
    whole = stream.getvalue()
    message, (one, two) = receive(io.BytesIO(whole))
    assert message == {"text": "\u00e4"}
    np.testing.assert_array_equal(one, array)
    np.testing.assert_array_equal(two, array.T)
    assert one.dtype == array.dtype
    for end in range(len(whole)):
        assert receive(io.BytesIO(whole[:end])) is None or array.size == 0


def test_a_process_that_does_not_start():
    worker = Worker("cpcapp.no_such_module")
    assert not worker.is_ready
    assert worker.ask({}, 5.0) is None

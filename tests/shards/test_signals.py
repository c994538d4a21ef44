"""The record of signals."""

import os
import signal
from multiprocessing.connection import wait

from shards.service.signals import END_SIGNALS, SignalRecord


def test_a_signal_is_recorded_and_nothing_else_happens() -> None:
    with SignalRecord() as record:
        os.kill(os.getpid(), signal.SIGTERM)
        assert wait([record.fileno()], 5)
        assert record.take() == [signal.SIGTERM]
        assert record.take() == []


def test_pushed_signals_come_out_in_order() -> None:
    with SignalRecord() as record:
        for number in (signal.SIGCHLD, signal.SIGINT):
            record.push(number)
        assert record.take() == [signal.SIGCHLD, signal.SIGINT]
    assert signal.SIGINT in END_SIGNALS


def test_former_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with SignalRecord():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before

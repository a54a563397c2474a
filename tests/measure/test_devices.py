"""The CPU's clock and memory."""

import torch

from fastplan.measure.devices import device_of


def test_marks_are_in_order():
    device = device_of("cpu", 3)
    begin, end = device.mark(), device.mark()
    device.wait()
    assert device.seconds(begin, end) >= 0
    assert (device.backend, device.torch.type) == ("gloo", "cpu")
    assert device.name


def test_peak_memory_counts_what_was_freed_again():
    device = device_of("cpu", 0)
    device.begin_memory()
    values = torch.ones(1 << 24)
    del values
    assert device.peak_memory() > 1 << 25


def test_peak_memory_begins_anew():
    device = device_of("cpu", 0)
    values = torch.ones(1 << 24)
    del values
    device.begin_memory()
    assert device.peak_memory() < 1 << 25

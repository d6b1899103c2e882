"""Which devices stand for what was asked for; a machine's GPUs are put in its place."""

from __future__ import annotations

import pytest
import torch

from leech.errors import ConfigError
from leech.models.device import choose_devices


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch):
    def have(number: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)

    return have


def test_copies_on_the_cpu_need_no_gpu(gpus):
    gpus(0)
    assert choose_devices("cpu", 3) == [torch.device("cpu")] * 3
    assert choose_devices("auto", None) == choose_devices("auto", 1) == [torch.device("cpu")]


def test_several_gpus_are_the_first_of_the_machine(gpus):
    gpus(4)
    assert choose_devices("auto", 3) == [torch.device("cuda", number) for number in range(3)]
    assert choose_devices("cuda", None) == [torch.device("cuda", 0)]


@pytest.mark.parametrize(
    ("there", "words", "hint"), [(0, "no usable GPUs", "--device cpu"), (1, "1 usable GPU here", "--gpus 1")]
)
def test_more_gpus_than_there_are_are_refused(gpus, there, words, hint):
    gpus(there)
    with pytest.raises(ConfigError, match=words) as caught:
        choose_devices("auto", 2)
    assert hint in caught.value.hint

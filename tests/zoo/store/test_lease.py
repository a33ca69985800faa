"""Leases: one holder at a time, and none that is dead; each test on a folder and on S3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from bundle_maker import BUILD_KEY

from menagerie.store.layout import lease_key
from zoo.processes import Owner
from zoo.store import coordination, open_store
from zoo.store.coordination import LeaseTiming, hold_lease

if TYPE_CHECKING:
    from pathlib import Path

QUICK = LeaseTiming(renew=0.05, look=0.02, dead=0.5, settle=1)


def linked_to(folder: Path, text: str) -> Path:
    """A link that reads as `/proc/self/ns/pid` does."""
    link = folder / "pid"
    link.symlink_to(text)
    return link


def test_a_lease_is_held_by_one(place: Any) -> None:
    """The second waits, and is given the holder and the fact that it waited."""
    order: list[str] = []
    first, second = place.store(), place.store()
    waiting = threading.Event()

    def wait() -> None:
        def reported(holder: str) -> None:
            order.append(holder)
            waiting.set()

        with hold_lease(second.objects, BUILD_KEY, QUICK, reported) as waited:
            order.append(f"waited {waited}")

    with hold_lease(first.objects, BUILD_KEY, QUICK) as waited:
        assert not waited
        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(20)
        order.append("done")
    thread.join()
    assert order[0].startswith(f"process {os.getpid()} on ")
    assert order[1:] == ["done", "waited True"]
    assert first.objects.list_keys("") == []


def test_of_two_that_saw_it_free_one_has_it(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both look before either writes: one has it, and the other waits until that has ended."""
    looked, reported = threading.Barrier(2), threading.Event()
    real, first = coordination._read, threading.local()

    def read(*args: Any) -> Any:
        seen = real(*args)
        if not hasattr(first, "done"):
            first.done = True
            looked.wait(20)
        return seen

    monkeypatch.setattr(coordination, "_read", read)
    patient = replace(QUICK, dead=1e6, settle=1e6, renew=1.0)
    order: list[str] = []

    def take() -> None:
        with hold_lease(
            place.store().objects, BUILD_KEY, patient, lambda _: reported.set()
        ) as waited:
            assert reported.wait(20)
            order.append(f"waited {waited}")

    takers = [threading.Thread(target=take) for _ in range(2)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert order == ["waited False", "waited True"]


@pytest.mark.parametrize(("writing", "settling"), [(0.001, 0.05), (0.3, 1.2), (65, 10)])
def test_a_slow_store_is_given_longer_to_settle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writing: float, settling: float
) -> None:
    """Between writing a note and reading it back: four times as long as the writing took.

    A write that had to be tried again for a minute says nothing of the others.
    """
    store, passed, slept = open_store(str(tmp_path)), [0.0], []
    put = store.objects.put_small

    def slowly(*args: Any) -> None:
        put(*args)
        passed.append(writing)

    monkeypatch.setattr(store.objects, "put_small", slowly)
    clock = SimpleNamespace(monotonic=lambda: sum(passed), sleep=slept.append)
    monkeypatch.setattr(coordination, "time", clock)
    with hold_lease(store.objects, BUILD_KEY):
        assert slept == [pytest.approx(settling)]


def note(process: Owner) -> bytes:
    """A lease's note, of a holder that does not renew it."""
    who = process.model_dump()
    return json.dumps({"owner": "x", "host": "a host", "process": who, "beat": 3}).encode()


def here(pid: int, born: str = "0" * 12) -> Owner:
    """A process that had this id here, once."""
    return Owner.this().model_copy(update={"pid": pid, "born": born})


ELSEWHERE = Owner(host="elsewhere-0123456789ab", pid=1, born="0" * 12)


def test_a_dead_holder_does_not_block(place: Any) -> None:
    """On another host it is given up after a while without a beat; on this one, at once."""
    store = place.store()
    store.objects.put_small(lease_key(BUILD_KEY), note(ELSEWHERE))
    with hold_lease(store.objects, BUILD_KEY, QUICK) as waited:
        assert waited
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for pid in (ended.pid, os.getpid()):  # an id that no process has, and one that was given anew
        store.objects.put_small(lease_key(BUILD_KEY), note(here(pid)))
        with hold_lease(store.objects, BUILD_KEY, replace(QUICK, dead=1e6)) as waited:
            assert not waited


def test_a_holder_in_a_container_is_not_looked_for_here(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the host's name but ids of its own; that no process has its id here says nothing."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with monkeypatch.context() as patch:
        patch.setattr("zoo.processes._SPACE", linked_to(tmp_path, "pid:[1]"))
        theirs = here(ended.pid)
    store = place.store()
    store.objects.put_small(lease_key(BUILD_KEY), note(theirs))
    with hold_lease(store.objects, BUILD_KEY, QUICK) as waited:
        assert waited


def test_a_holder_whose_clock_is_wrong_keeps_its_lease(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only changes count, no time that is written down; a damaged note is no note."""
    store, passed = place.store(), [0.0]
    lived = QUICK.dead * 20

    def sleep(seconds: float) -> None:
        passed.append(seconds)
        if sum(passed) < lived:
            beat = f'"beat": {len(passed) + 3}'.encode()
            renewed = note(ELSEWHERE).replace(b'"beat": 3', beat)
            store.objects.put_small(lease_key(BUILD_KEY), renewed)

    store.objects.put_small(lease_key(BUILD_KEY), note(ELSEWHERE))
    clock = SimpleNamespace(monotonic=lambda: sum(passed), sleep=sleep)
    monkeypatch.setattr(coordination, "time", clock)
    with hold_lease(store.objects, BUILD_KEY, replace(QUICK, look=QUICK.dead * 0.9)) as waited:
        assert waited
        assert sum(passed) > lived + QUICK.dead
    store.objects.put_small(lease_key(BUILD_KEY), b"{]")
    with hold_lease(store.objects, BUILD_KEY, QUICK) as waited:
        assert not waited

"""Frames in the hand-over file: read while being written, damaged, and shared among writers."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sdk_exporter import spool

RECORD = st.dictionaries(st.text(max_size=8), st.one_of(st.text(max_size=40), st.integers()), max_size=4)


@settings(deadline=None, max_examples=60)
@given(st.lists(RECORD, min_size=1, max_size=5), st.data())
def test_half_a_frame_is_waited_for(records: list[dict[str, object]], data: st.DataObject) -> None:
    whole = b"".join(spool.encode(record) for record in records)
    first = data.draw(st.integers(0, len(whole)))
    early, used, damaged = spool.decode(whole[:first], at_end=False)
    late, rest, more = spool.decode(whole[used:], at_end=True)
    assert early + late == records
    assert (used + rest, damaged + more) == (len(whole), 0)


@settings(deadline=None, max_examples=60)
@given(st.lists(RECORD, min_size=1, max_size=4), RECORD, st.data())
def test_a_torn_frame_costs_only_itself(
    records: list[dict[str, object]], torn: dict[str, object], data: st.DataObject
) -> None:
    frame = spool.encode(torn)
    cut = data.draw(st.integers(2, len(frame) - 1))
    at = data.draw(st.integers(0, len(records)))
    before = b"".join(spool.encode(record) for record in records[:at])
    after = b"".join(spool.encode(record) for record in records[at:])
    found, used, damaged = spool.decode(before + frame[:cut] + after, at_end=True)
    assert found == records
    assert used + len(frame) >= len(before + frame[:cut] + after)
    assert damaged or at == len(records)


def _write(path: str, writer: int, count: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    page = os.memfd_create("page")
    os.ftruncate(page, spool.PAGE_BYTES)
    end = spool.Writer(descriptor, spool.Page(page))
    for number in range(count):
        assert end.write({"writer": writer, "number": number, "filling": "x" * (number % 3000)})


def test_writers_in_many_processes_do_not_tear_each_others_frames(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.touch()
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(str(path), writer, 200)) for writer in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    records, _, damaged = spool.decode(path.read_bytes(), at_end=True)
    assert damaged == 0
    assert sorted((record["writer"], record["number"]) for record in records) == [
        (writer, number) for writer in range(4) for number in range(200)
    ]


def test_full_file_drops_and_counts(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "events", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    page_file = os.memfd_create("page")
    os.ftruncate(page_file, spool.PAGE_BYTES)
    page = spool.Page(page_file)
    writer = spool.Writer(descriptor, page, cap_bytes=1000)
    written = sum(writer.write({"n": number, "filling": "x" * 100}) for number in range(50))
    assert 0 < written < 50
    assert page.get(spool.Page.DROPPED) == writer.dropped == 50 - written
    page.set(spool.Page.ACKNOWLEDGED, os.fstat(descriptor).st_size)
    assert writer.write({"n": 51})
    os.close(descriptor)
    os.close(page_file)


def test_output_leaves_room_for_the_evidence(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "events", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    page_file = os.memfd_create("page")
    os.ftruncate(page_file, spool.PAGE_BYTES)
    writer = spool.Writer(descriptor, spool.Page(page_file), cap_bytes=10_000)
    while writer.write({"k": "out", "b": "x" * 100}):
        pass
    assert os.fstat(descriptor).st_size < 3_000
    assert writer.write({"k": "start", "n": "job.run"})
    assert not writer.write({"k": "out", "b": "y"})
    os.close(descriptor)
    os.close(page_file)


def test_no_launcher_no_writer() -> None:
    assert spool.from_environment({}) is None
    assert spool.from_environment({spool.ENVIRONMENT_KEY: "nonsense"}) is None
    assert spool.from_environment({spool.ENVIRONMENT_KEY: "0,-1,1,1,1,1"}) is None

"""The happenings of what is over are text: told as before, and no part of what a reader of a snapshot makes."""

import pytest

from kit.histories import files
from muster.core.stage import Folder
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state
from muster.told.codes.happenings import MAX_PER_SUBJECT, Happening, KeptPast
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState


def test_what_was_packed_goes_on_as_what_was_not() -> None:
    plain, packed = KeptPast(), KeptPast()
    for seq in range(3 * MAX_PER_SUBJECT):
        new = Happening(at=seq, seq=seq, item=0, what=f"what-{seq % 7}", weight="detail" if seq % 3 else "turn")
        plain.add(new)
        packed.add(new)
        packed.pack()
    assert packed.all() == plain.all()
    assert (packed.fresh, len(plain.all())) == ([], MAX_PER_SUBJECT)


def test_numbers_beyond_64_bits_and_every_letter_are_kept_and_equal_texts_are_one() -> None:
    pasts = [
        KeptPast([Happening(at=0, seq=1, item=0, what="seen", weight="step", words="ü", request={"memory": 1 << 70})])
        for _ in range(2)
    ]
    for past in pasts:
        past.pack()
    assert (pasts[0].all()[0].words, pasts[0].all()[0].request) == ("ü", {"memory": 1 << 70})
    assert pasts[0].packed is pasts[1].packed


@pytest.mark.parametrize("name", ["demo-teams", "philly-default", "gpu-shares-move"])
def test_a_snapshot_is_read_without_the_past_of_what_is_over(name: str) -> None:
    state, folder = ReadState(), Folder(ReadModel())
    for stored in files.read(name):
        folder.fold(state, stored)
    over = {*state.over, *state.gone}
    assert over
    again = decode_state(encode_state(state), ReadState)
    assert not any(again.records[uid].past.fresh for uid in over)
    assert all(again.records[uid].past.all() for uid in state.gone)
    assert not any(again.gang_records[key].past.fresh for key in state.gangs_gone)

"""What the copies of a stream hold, compared. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from muster.runtime.logkeeping.copies import Cause, ServerTrouble


def compare(stream: str, copies: Mapping[str, Mapping[int, bytes]], first: int, last: int) -> list[ServerTrouble]:
    """Which server differs from the others in which sequences, from ``first`` to ``last``.

    A message that one server has and another lacks is missing there: each is stored with a checksum. Where there are
    two contents the one that more servers have counts; where neither does, the server is "". What no
    server has is lost.
    """
    wrong: dict[tuple[Cause, str], list[int]] = {}
    for seq in range(first, last + 1):
        by_server = {name: copy.get(seq) for name, copy in copies.items()}
        contents = Counter(content for content in by_server.values() if content is not None).most_common(2)
        if not contents:
            wrong.setdefault(("lost", ""), []).append(seq)
        elif len(contents) == 2 and contents[0][1] == contents[1][1]:
            wrong.setdefault(("differs", ""), []).append(seq)
        else:
            for name, content in by_server.items():
                if content != contents[0][0]:
                    wrong.setdefault(("differs", name), []).append(seq)
    return [
        ServerTrouble(cause, name, stream, number=len(seqs), seq=seqs[0])
        for (cause, name), seqs in sorted(wrong.items())
    ]

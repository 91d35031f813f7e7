"""When a credential is loaded anew, and what happens when that fails."""

import asyncio

import pytest

from muster.kube.credentials import RETRY_S, Credential, CredentialError, Loaded


class World:
    """A clock to set and a source that counts."""

    def __init__(self, *answers: Loaded | Exception) -> None:
        self.now_s = 0.0
        self.loads = 0
        self.answers = list(answers)

    async def load(self) -> Loaded:
        self.loads += 1
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def credential(self, first: Loaded, load_timeout_s: float = 60.0) -> Credential:
        return Credential(first, self.load, clock=lambda: self.now_s, load_timeout_s=load_timeout_s)


async def test_static_header_stays() -> None:
    credential = Credential(Loaded("Bearer a"))
    assert await credential.header() == "Bearer a"
    assert not await credential.renew("Bearer a")


@pytest.mark.parametrize(("valid_s", "renewed_s"), [(3600.0, 3300.0), (100.0, 80.0)])
async def test_header_is_renewed_before_it_ends(valid_s: float, renewed_s: float) -> None:
    world = World(Loaded("b"))
    credential = world.credential(Loaded("a", valid_s))
    world.now_s = renewed_s - 0.1
    assert await credential.header() == "a"
    world.now_s = renewed_s
    assert await credential.header() == "b"


async def test_source_is_looked_at_again_after_its_time() -> None:
    world = World(Loaded("b", recheck_s=60.0), Loaded("c"))
    credential = world.credential(Loaded("a", recheck_s=60.0))
    world.now_s = 60.0
    assert await credential.header() == "b"
    world.now_s = 119.0
    assert (await credential.header(), world.loads) == ("b", 1)
    world.now_s = 120.0
    assert await credential.header() == "c"


async def test_many_requests_load_once() -> None:
    world = World(Loaded("b"))
    credential = world.credential(Loaded("a", 0.0))
    assert await asyncio.gather(*(credential.header() for _ in range(20))) == ["b"] * 20
    assert world.loads == 1


async def test_failure_keeps_the_old_header_while_it_is_good() -> None:
    world = World(OSError("no file"), Loaded("b"))
    credential = world.credential(Loaded("a", 100.0))
    world.now_s = 80.0
    assert [await credential.header() for _ in range(3)] == ["a"] * 3
    assert world.loads == 1
    world.now_s = 80.0 + RETRY_S
    assert await credential.header() == "b"


async def test_failure_after_the_end_is_an_error() -> None:
    world = World(CredentialError("plugin failed"))
    credential = world.credential(Loaded("a", 100.0))
    world.now_s = 100.0
    with pytest.raises(CredentialError) as caught:
        await credential.header()
    assert str(caught.value.__cause__) == "plugin failed"


@pytest.mark.looptime
async def test_source_that_hangs_is_given_up() -> None:
    async def hang() -> Loaded:
        await asyncio.Event().wait()
        raise AssertionError

    credential = Credential(Loaded("a", 0.0), hang, load_timeout_s=5.0)
    with pytest.raises(CredentialError):
        await credential.header()


async def test_refused_header_is_renewed_once_for_all_who_were_refused() -> None:
    world = World(Loaded("b"))
    credential = world.credential(Loaded("a"))
    assert await asyncio.gather(*(credential.renew("a") for _ in range(5))) == [True] * 5
    assert world.loads == 1
    assert await credential.renew("a")


async def test_renewal_that_brings_the_same_header_makes_no_second_try() -> None:
    world = World(Loaded("a"))
    credential = world.credential(Loaded("a"))
    assert not await credential.renew("a")


async def test_source_is_not_pestered() -> None:
    world = World(Loaded("a"), Loaded("b"))
    credential = world.credential(Loaded("a"))
    assert not await credential.renew("a")
    assert not await credential.renew("a")
    assert world.loads == 1
    world.now_s = RETRY_S
    assert await credential.renew("a")

"""What doctor advises for the servers of NATS."""

from muster.runtime.logkeeping.copies import ServerTrouble
from muster_cli.serverchecks import _told


def test_a_store_is_not_emptied_while_another_server_lacks_something() -> None:
    absent = ServerTrouble("absent", "nats-1", "MUSTER_LOG_main_4")
    (alone,) = _told([], [absent], "main")
    assert alone.fix.startswith("empty its store")
    both = _told([], [absent, ServerTrouble("behind", "nats-0", "MUSTER_LOG_main_3", number=237)], "main")
    assert next(finding.fix for finding in both if "nats-1" in finding.title).startswith("first what is said of nats-0")

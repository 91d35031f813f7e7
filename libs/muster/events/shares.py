"""What queues may have by fair share: decided by the quota accountant where fair shares are in force."""

from __future__ import annotations

from msgspec import field

from muster.events.base import Decision
from muster.model.resources import Vector


class SharesChanged(Decision, frozen=True, kw_only=True):
    """The fair share of some queues has changed, or their recent use counts otherwise.

    Only changes since the last event, by full path; an empty vector: nothing any more.
    """

    root: str
    """Path of the root of the tree whose queues share."""
    shares: dict[str, Vector] = field(default_factory=dict)
    """path -> its fair share, in base units"""
    usage: dict[str, Vector] = field(default_factory=dict)
    """path -> what it used lately, in millionths of the capacity at that time; every stage counts with it from here
    on
    """

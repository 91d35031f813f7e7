"""Rule sets: by which rules the stages decide is said by the log, not by the build that happens to run.

A build knows the rule sets up to NEWEST and decides by the one that the log has put in force: what is new stays dark
until ``ruleset_activated``, and every stage switches at that very sequence. To change what is decided: raise NEWEST,
ask ``state.ruleset`` where the rules part, and keep the code of the rule set before. Until the first release there is
one rule set (decision record 21).
"""

from __future__ import annotations

from muster.events.envelope import UnknownEventError

OLDEST = 1
NEWEST = 1
"""The newest rule set this build can decide by."""


class UnknownRulesetError(UnknownEventError):
    """The log has put rules in force that this build does not know: it must not decide by others."""

    def __init__(self, number: int, newest: int) -> None:
        super().__init__(["ruleset_activated"])
        self.args = (f"rule set {number} is in force and this build knows rule sets up to {newest}; upgrade it",)

"""The command ``muster``: runs Muster, reads its log, explains and replays it."""

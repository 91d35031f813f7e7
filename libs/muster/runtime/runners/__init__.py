"""Runners: what folds the log and appends to it, each beside the stage or the adapter that it drives."""

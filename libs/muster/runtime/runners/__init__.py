"""Runners: fold the log and append to the log, each beside the stage or the adapter under its control."""

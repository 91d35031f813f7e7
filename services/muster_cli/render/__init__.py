"""What commands print, as pure functions from values to lines: no I/O, no clock, no settings."""

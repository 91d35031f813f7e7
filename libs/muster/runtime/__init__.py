"""The process of a service, and its four rooms: runners, log keeping, replaying, presenting."""

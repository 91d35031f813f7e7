"""The process of a service, and the four rooms of what runs in it: runners, log keeping, replaying, presenting."""

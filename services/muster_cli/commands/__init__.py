"""One command per module, named like the command: it reads options, asks the layers below, and prints."""

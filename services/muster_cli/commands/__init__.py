"""One command for each module of the same name: reads options, asks the layers below, and prints."""

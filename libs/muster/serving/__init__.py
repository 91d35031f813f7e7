"""The answers to readers over HTTP: the read model at any moment, within the rights of the viewer."""

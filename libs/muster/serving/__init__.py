"""What readers over HTTP are answered: the read model at any moment, within what one viewer may see."""

"""Views: the read model and the log as readers want them, in words. They decide nothing."""

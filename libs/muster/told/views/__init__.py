"""Views: the read model and the log as readers ask for them: stories, measures, public events.

Pure functions without a decision. The gateway, the CLI and the publisher call them.
"""

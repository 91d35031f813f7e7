"""Views: the read model and the log in the form that readers ask for: stories, measures, public events.

Pure functions without a decision. The gateway, the CLI and the publisher call the views.
"""

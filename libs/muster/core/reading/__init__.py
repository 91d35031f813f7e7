"""Reading: from objects of the API server to facts, with a reader for each resource.

Stage ``Watcher`` (``watcher.py``) decides which facts an observation adds. ``watched.py`` has a row for each resource;
the watcher's runner and the judge of a log read the rows.
"""

"""The publisher: copies public events to the stream other systems follow."""

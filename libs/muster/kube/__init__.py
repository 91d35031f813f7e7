"""The real API server: connection, watch streams, discovery. The only package that imports kubernetes_asyncio.

The import costs seconds of CPU, so only ``config.connect`` does the import. Everything but ``config`` and
``transport`` works on any ``ports.ApiTransport``, the simulated transport too.
"""

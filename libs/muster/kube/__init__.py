"""The real API server: connection, watch streams, discovery. The only package that imports kubernetes_asyncio.

That import costs seconds of CPU, so it happens inside ``config.connect`` and nowhere else. Everything but
``config`` and ``transport`` works on any ``ports.ApiTransport``, the simulated one too.
"""

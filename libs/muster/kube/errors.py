"""Why a connection could not be set up."""


class KubeConfigError(Exception):
    """The configuration does not lead to an API server, or leads to one that does not answer or know us.

    The message says what was tried, with which file or address, and what to do. Trying again changes nothing unless
    ``retryable``.
    """

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable

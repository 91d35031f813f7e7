"""Why a connection could not be set up."""


class KubeConfigError(Exception):
    """The configuration leads to no API server, or to a server that does not answer or does not know us.

    The message names the attempt, the file or address, and the next step. Trying again changes nothing unless
    ``retryable``.
    """

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable

"""The files of a ``muster up``: in a directory of the user's, or in a temporary directory removed at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from muster.model.language import say
from muster_cli import samples
from muster_cli.datafolder import NATS_FOLDER
from muster_cli.exits import CliError
from muster_cli.instances import TEMPORARY


class Home:
    """Use it as a context manager. ``data`` None: temporary."""

    def __init__(self, data: Path | None) -> None:
        self.temporary = data is None
        self._data = data
        self.path = Path()

    def __enter__(self) -> Self:
        if self._data is None:
            self.path = Path(tempfile.mkdtemp(prefix=TEMPORARY))
            return self
        try:
            self._data.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise CliError(
                say("cannot use {data} for the log: it is no directory; give another --data", data=self._data)
            ) from None
        except OSError as err:
            raise CliError(
                say("cannot use {data} for the log: {error}; give another --data", data=self._data, error=err.strerror)
            ) from err
        self.path = self._data.resolve()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)

    @property
    def store(self) -> Path:
        """The broker's."""
        return self.path / NATS_FOLDER

    @property
    def journal(self) -> Path:
        """The simulated cluster's."""
        return self.path / "cluster.jsonl"

    @property
    def moments(self) -> Path:
        """The gateway's states of earlier moments."""
        return self.path / "moments"

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def service_log(self) -> Path:
        """What the services have to say, as JSON lines."""
        return self.path / "muster.log"

    def lay_out(self, names: Iterable[str]) -> None:
        """Put sample manifests where the user can edit and submit the manifests; edited manifests stay unchanged."""
        for name in names:
            path = self.path / name
            if not path.exists():
                path.write_text(samples.text(name), encoding="utf-8")

"""``muster config show``."""

from __future__ import annotations

import re
from typing import Any

from msgspec import to_builtins

from muster.model.language import say
from muster.runtime.config import PREFIX, load_with_origins
from muster_cli.console import DIM, STRONG, Output, columns, styled
from muster_cli.options import Form


def config_show(*, output: Form = "table") -> None:
    """Show the settings in force."""
    config, origins = load_with_origins()
    values: dict[str, Any] = to_builtins(config)
    values["nats_url"] = re.sub(r"//[^@/]*@", "//***@", values["nats_url"])
    out = Output()
    if output == "name":
        out.lines([f"{PREFIX}{name.upper()}" for name in values])
    elif output in ("table", "wide"):
        rows = [[styled((title, STRONG)) for title in ("SETTING", "VALUE", "FROM")]]
        for name, value in values.items():
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            origin = origins.get(name, "")
            rows.append(
                [styled(name), styled(shown or '""'), styled((origin or say("default"), "" if origin else DIM))]
            )
        out.lines(columns(rows))
    else:
        settings = {n: {"value": v, "from": origins.get(n, "default")} for n, v in values.items()}
        out.data(settings, "json" if output == "json" else "yaml")

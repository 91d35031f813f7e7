"""What is wrong in a command line that cannot be parsed, in the language of the reader."""

from __future__ import annotations

from difflib import get_close_matches

from cyclopts import CycloptsError
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from muster.model.language import listed, say


def mistake(err: CycloptsError) -> str:
    """The mistake and the way out, lower case, without a full stop."""
    match err:
        case UnknownOptionError():
            option = err.token.keyword or err.token.value
            known = [name for argument in err.argument_collection for name in argument.names]
            words = {name.lstrip("-"): name for name in known}  # The dashes that all have make none alike.
            close = get_close_matches(option.lstrip("-"), words, n=1, cutoff=0.7)
            hint = say("; did you mean {close}?", close=words[close[0]]) if close else ""
            return say("there is no option {option}{hint}", option=option, hint=hint)
        case RepeatArgumentError() if err.token.keyword:
            return say("{option} is given more than once", option=err.token.keyword)
        case UnusedCliTokensError() if err.unused_tokens:
            return say("nothing more is expected: leave out {words}", words=" ".join(err.unused_tokens))
        case MissingArgumentError() if err.argument is not None:
            given = err.keyword or next((token.keyword for token in err.argument.tokens if token.keyword), "")
            return say("{option} needs a value", option=given) if given else say("give {name}", name=err.argument.name)
        case CoercionError() if err.argument is not None and err.token is not None:
            return _unfit(err.token.keyword or err.argument.name, err.token.value, err)
    return str(err).strip().rstrip(".")


def _unfit(name: str, value: str, err: CoercionError) -> str:
    choices = err.argument.get_choices(force=True) if err.argument is not None else None
    if choices:
        return say(
            "{name} cannot be {value!r}; it is one of {choices}", name=name, value=value, choices=listed(choices)
        )
    if err.target_type is int:
        return say("{name} is a whole number, and cannot be {value!r}", name=name, value=value)
    if err.target_type is float:
        return say("{name} is a number, and cannot be {value!r}", name=name, value=value)
    return say("{name} cannot be {value!r}", name=name, value=value)

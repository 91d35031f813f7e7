"""A plugin of pytest, before anything of Muster is imported: ``MUSTER_MUTANT`` is the core that is tested."""

import os
import sys

from kit.mutants.sites import VARIABLE, MutantFinder, mutant_of

assert not [name for name in sys.modules if name.startswith(("muster.core", "muster.told", "muster.audit"))], (
    "the core was imported before"
)
sys.meta_path.insert(0, MutantFinder(mutant_of(os.environ[VARIABLE])))  # type: ignore[arg-type]

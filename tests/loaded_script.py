"""A script of the repository that is in no package, as a module."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def loaded_script(path: Path) -> ModuleType:
    """Execute the script, afresh, under the name of its file."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module  # where its classes look themselves up
    spec.loader.exec_module(module)
    return module

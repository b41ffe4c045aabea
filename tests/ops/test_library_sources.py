"""Every file that a shipped library lists exists, and every file of ours that it includes is listed.

A library's digest covers the files that it lists: an included file that is not listed could change, and the old library
would still be used.
"""

from __future__ import annotations

import pytest
from builds import with_included

from kernwright.ops.builds import libraries
from kernwright.runtime.library import Library
from kernwright.runtime.target import Target

SHIPPED = [library for target in ("sm_90", "cpu") for library in libraries(Target(target))]


@pytest.mark.parametrize("library", SHIPPED, ids=lambda own: own.name)
def test_a_library_lists_every_file_that_it_includes(library: Library) -> None:
    assert [source for source in library.sources if not source.is_file()] == []
    assert set(with_included(library.sources)) - set(library.sources) == set()

"""When a claim is in use: the moments of a program, as bit sets.

Coarse: a moment for each phase. Roles of a phase run side by side, and a role's warps go through its
acts each at its own pace, so all that a phase uses is in use at once; what two phases use is not.

Fine: a moment for each combination of acts that the roles of a phase can stand at. What one role uses
during its first act and what it uses during its second may then share bytes, if its warps wait for
one another in between; the glue adds those barriers (sync.py). It is tried only where the kernel
does not fit without.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from pipelink.model import Manifest
from pipelink.place.program import RoleActs

MOST_MOMENTS = 512  # of a phase; a phase of more is looked at coarsely


@dataclass(frozen=True)
class Moments:
    """Bit sets of moments."""

    manifest: Manifest
    program: tuple[RoleActs, ...]
    fine: bool

    @cached_property
    def _phases(self) -> dict[str, tuple[int, tuple[RoleActs, ...], list[tuple[int, ...]]]]:
        """Of each phase: its first bit, the roles that are told apart by act, the combinations."""
        found = {}
        bit = 0
        for phase in self.manifest.phases:
            roles = tuple(r for r in self.program if r.phase == phase.name)
            if not self.fine or math.prod(len(r.acts) for r in roles) > MOST_MOMENTS:
                roles = ()
            places = list(itertools.product(*(range(len(r.acts)) for r in roles)))
            found[phase.name] = (bit, roles, places)
            bit += len(places)
        return found

    def phase(self, *names: str) -> int:
        """All moments of some phases."""
        live = 0
        for name in names:
            bit, _, places = self._phases[name]
            live |= ((1 << len(places)) - 1) << bit
        return live

    def between(self, names: Iterable[str]) -> int:
        """All moments from the first to the last of some phases: what is kept in between."""
        order = [p.name for p in self.manifest.phases]
        numbers = sorted(order.index(name) for name in set(names))
        return self.phase(*order[numbers[0] : numbers[-1] + 1]) if numbers else 0

    def acts(self, phase: str, role: str, first: int, last: int) -> int:
        """The moments at which a role stands at one of its acts `first` to `last`."""
        bit, roles, places = self._phases[phase]
        names = [r.role for r in roles]
        if role not in names:
            return self.phase(phase)
        index = names.index(role)
        return sum(1 << bit + n for n, place in enumerate(places) if first <= place[index] <= last)

"""What would start it now: changes to the request, to the cluster or to other runs, each put through the engine.

`what_ifs` tries single changes, and pairs of those that moved something only when no single one helps, or only such as
make the run smaller. The smallest step of each kind that helps is offered: the nearest speed, the fewest machines to
uncordon. Nothing is offered that the engine did not place.
"""

from placement.whatif.changes import Change, Code, Named, WhatIf, WhatIfs
from placement.whatif.search import what_ifs

__all__ = ["Change", "Code", "Named", "WhatIf", "WhatIfs", "what_ifs"]

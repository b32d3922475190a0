"""What decided between placements: a group's machines against all others that it could have had."""

from dataclasses import dataclass

import numpy as np

from placement.arrays import Longs
from placement.ask import Ask
from placement.shapes import Shape
from placement.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Score:
    """The parts that decided, in the order in which they are compared; smaller is better in each."""

    verdict: int
    machines: int
    lemon: float
    """Highest lemon score among the machines used."""
    racks: int
    """Racks spanned; a machine without a rack counts as a rack of its own."""
    broken: int
    """Machines that were wholly free and are now only partly used."""
    left_over: int
    """Free GPUs that stay behind on the machines used."""
    suspects: int
    """GPUs with a warning sign that had to be used."""

    @property
    def network(self) -> tuple[int, int, int]:
        """What `patience_seconds` waits for: verdict, machines, racks. Smaller is a better network."""
        return (self.verdict, self.machines, self.racks)


def score_of(ask: Ask, shape: Shape, verdict: Verdict, machines: Longs) -> Score:
    """The score of these machines, rows of the snapshot that was asked."""
    snapshot, gpus = ask.snapshot, shape.gpus
    left_over = snapshot.gpus_free[machines] - gpus
    suspects = np.maximum(gpus - ask.gpus.healthy_where_fitting[machines], 0)
    return Score(
        verdict=int(verdict),
        machines=shape.machines,
        lemon=0.0 if ask.lemons is None else float(ask.lemons[machines].max()),
        racks=len(set(ask.topology.own_rack[machines].tolist())),
        broken=int(np.count_nonzero(snapshot.whole[machines] & (left_over > 0))),
        left_over=int(left_over.sum()),
        suspects=int(suspects.sum()),
    )

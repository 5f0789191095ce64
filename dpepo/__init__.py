"""DPEPO and its relatives: the algorithms as pure functions with the papers' symbols.

`weights` and `advantages` need numpy alone; `dpepo.losses` needs torch and is imported by name.
"""

from dpepo.advantages import Rows, estimator, estimator_names
from dpepo.weights import WeightConfig, episode_weights, mean_weight, shape, step_weight

__all__ = [
    "Rows",
    "WeightConfig",
    "episode_weights",
    "estimator",
    "estimator_names",
    "mean_weight",
    "shape",
    "step_weight",
]

"""Tabular Q-learning on the toy house: what `AdmissibleIndex` is for.

    python examples/q_learning.py

Two replicas explore one house at a time and share one table, which knows nothing but numbers.
"""

from __future__ import annotations

from collections import defaultdict

import gymnasium
import numpy as np

import parallel_envs  # noqa: F401 - registers the environments
from parallel_envs.wrappers import AdmissibleIndex

EPISODES, N, ACTIONS = 600, 2, 6
STEP_SIZE, DISCOUNT = 0.5, 0.9


def main() -> tuple[float, float]:
    """Learn; return the share of wins in the first and in the last hundred episodes."""
    env = AdmissibleIndex(gymnasium.make("ParallelToy-v0", n=N, max_turns=6), ACTIONS)
    rng = np.random.default_rng(0)
    values: defaultdict[tuple[str, str], np.ndarray] = defaultdict(lambda: np.zeros(ACTIONS + 1))
    wins = []
    _, info = env.reset(seed=0)
    for episode in range(EPISODES):
        curious = 1 - episode / (0.8 * EPISODES)  # from all random to greedy
        _, info = env.reset()
        done = False
        while not done:
            states = [(info["task_id"], key) for key in info["state_key"]]
            masks, scores, closed = info["action_mask"], info["score"], info["closed"]
            action = np.zeros(N, dtype=int)
            for replica, (state, mask) in enumerate(zip(states, masks, strict=True)):
                usable = np.flatnonzero(mask)[1:]  # not to stand still
                if len(usable) == 0:
                    continue
                greedy = usable[np.argmax(values[state][usable])]
                action[replica] = rng.choice(usable) if rng.random() < curious else greedy
            _, _, terminated, truncated, info = env.step(action)
            done = terminated or truncated
            for replica in np.flatnonzero(~closed):
                following = values[(info["task_id"], info["state_key"][replica])]
                future = 0.0 if info["closed"][replica] else DISCOUNT * following.max()
                target = info["score"][replica] - scores[replica] + future
                old = values[states[replica]][action[replica]]
                values[states[replica]][action[replica]] = old + STEP_SIZE * (target - old)
        wins.append(bool(info["won"].any()))
    env.close()
    return float(np.mean(wins[:100])), float(np.mean(wins[-100:]))


if __name__ == "__main__":
    before, after = main()
    print(f"wins in the first 100 episodes: {before:.0%}, in the last 100: {after:.0%}")

"""A reward model as a user would write it."""

from collections import Counter

import numpy as np

import drstream as drs


class ByHand(drs.models.RewardModel):
    """A user's own model: the mean reward of each action."""

    fitted = False

    def fit(self, log):
        sums = np.zeros((2, log.n_actions))
        reader = log.reader(action=True)
        for part in log.parts(reader.columns):
            for batch in reader.batches(part, Counter()):
                sums += [np.bincount(batch.action, minlength=log.n_actions), np.bincount(batch.action, batch.reward)]
        self.means = sums[1] / sums[0]
        self.fitted = True
        return self

    def predict(self, X):
        return np.tile(self.means, (X.shape[0], 1))

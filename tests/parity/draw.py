"""Random choices of the instance generator."""

import random
from collections.abc import Sequence
from typing import Any


class Draw(random.Random):
    """A seeded source of choices; a string seed keeps it independent of the hash seed."""

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.randrange(len(options))]

    def subset(self, options: Sequence[Any]) -> list[Any]:
        """One or more of the options, in random order."""
        return self.sample(list(options), self.randint(1, len(options)))

    def magnitude(self, low: float, high: float) -> float:
        """A number between low and high, each power of ten equally likely."""
        return low * (high / low) ** self.random()

"""Notices what is wrong with workers and endpoints, and silence: a loop over the store.

`sightings`: what the store knows of each worker, one question a round. `channels`: the health of a poll channel.
`conditions`: what that means, as findings of the contract. `ledger`: open, update, resolve, each once. `loop`: rounds.
"""

from .ledger import Condition, Finding
from .loop import Round, Watch

__all__ = ["Condition", "Finding", "Round", "Watch"]

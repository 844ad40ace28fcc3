"""Notices what is wrong with workers and endpoints, and silence: a loop over the store.

`sightings`: what the store knows of each worker, one question a round. `channels`: the health of a poll channel.
`conditions`: what that means, as findings of the contract; `hosts`: the same of hosts, from how requests ended.
`ledger`: open, update, resolve, each once. `loop`: rounds. Re-exports nothing: alerts are about findings, and the loop
drives both.
"""

"""Alerts: rules over what was measured, and telling people once.

`rules`: rules as data, read from YAML. `measures`: what rules are about. `evaluate`: rules × measures → alerts.
`notices`: what a channel is given. `delivery`: who is told, when, by which collector, and what became of it. One file
for each channel; `CHANNELS` in `channels` names them.
"""

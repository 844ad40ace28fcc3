"""Alerts: rules over what was measured, and telling people once.

`rules`: rules as data, read from YAML. `measures`: what rules are about. `evaluate`: rules × measures → alerts.
`incidents`: which alerts are one incident. `notices`: what a channel is given. `delivery`: who is told, when, by which
collector, and what became of it. One file for each kind of channel; `KINDS` in `channels` names them.
"""

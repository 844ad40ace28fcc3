"""One function, one SQL text, one typed answer. Values are bound, never pasted into a text.

`job`: everything stored about one request. `jobs`: requests as last diagnosed. `groups`: same failure, grouped.
`fleet`: endpoints, workers, stop channels, the counts of the overview. `waiting`: which requests wait for a diagnosis.
"""

from collector.diagnosis.standing_out import StandsOut

from .fleet import (
    EndpointSummary,
    Overview,
    StopChannel,
    WorkerSummary,
    endpoints,
    overview,
    stop_channels,
    workers,
)
from .groups import Change, GroupDetail, GroupSummary, Regression, group, groups
from .job import JobSpans, spans_of_job
from .jobs import JobFilter, JobList, StoredJob, counts_of_groups, histories_of, list_jobs, stored_jobs
from .pages import LIMIT_DEFAULT, LIMIT_MAX, Page
from .stored import NO_FAILURE, Hardware, JobRow, VerdictRow

__all__ = [
    "LIMIT_DEFAULT",
    "LIMIT_MAX",
    "NO_FAILURE",
    "Change",
    "EndpointSummary",
    "GroupDetail",
    "GroupSummary",
    "Hardware",
    "JobFilter",
    "JobList",
    "JobRow",
    "JobSpans",
    "Overview",
    "Page",
    "Regression",
    "StandsOut",
    "StopChannel",
    "StoredJob",
    "VerdictRow",
    "WorkerSummary",
    "counts_of_groups",
    "endpoints",
    "group",
    "groups",
    "histories_of",
    "list_jobs",
    "overview",
    "spans_of_job",
    "stop_channels",
    "stored_jobs",
    "workers",
]

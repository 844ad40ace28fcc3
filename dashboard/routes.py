"""The site on one screen: path → page."""

from __future__ import annotations

from fastapi import APIRouter

from dashboard.pages import (
    alerts,
    diagnose,
    endpoint,
    failure,
    group,
    groups,
    jobs,
    login,
    overview,
    runbook,
    search,
    static,
    status,
    stop_channels,
    verdict_docs,
    worker,
)
from dashboard.site import PageRoute

router = APIRouter(route_class=PageRoute, include_in_schema=False)

router.get("/")(overview.overview_page)
router.get("/overview.json")(overview.overview_json)
router.get("/search")(search.search_page)
router.get("/jobs")(jobs.jobs_page)
router.get("/jobs.json")(jobs.jobs_json)
router.get("/jobs.csv")(jobs.jobs_csv)
router.get("/jobs/{job_id:anything}")(failure.failure_page)  # and .json, .md
router.get("/groups")(groups.groups_page)
router.get("/groups.json")(groups.groups_json)
router.get("/groups/{fingerprint:anything}")(group.group_page)  # and .json
router.post("/groups/{fingerprint:anything}")(group.act_on_group)
router.get("/endpoints/{endpoint_id:anything}")(endpoint.endpoint_page)  # and .json
router.get("/workers/{worker_id:anything}")(worker.worker_page)  # and .json
router.get("/stop-channels")(stop_channels.stop_channels_page)
router.get("/stop-channels.json")(stop_channels.stop_channels_json)
router.get("/alerts")(alerts.alerts_page)
router.get("/alerts.json")(alerts.alerts_json)
router.post("/alerts")(alerts.act_on_alert)
router.get("/diagnose")(diagnose.diagnose_page)
router.post("/diagnose")(diagnose.diagnose)
router.get("/status")(status.status_page)
router.get("/status.json")(status.status_json)
router.get("/docs/verdicts")(verdict_docs.verdict_docs_page)
router.get("/docs/verdicts.json")(verdict_docs.verdict_docs_json)
router.get("/docs/runbooks/{name}")(runbook.runbook_page)
router.get("/login")(login.login_page)
router.post("/login")(login.login)
router.get("/static/{name}")(static.static_page)

"""Tokens of providers, each known by its public prefix: one rule a kind, with an example beside it.

A new provider is a new line here. Every pattern begins with its literal and is bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TokenRule:
    """A provider's token. `marker` must be in the text before `pattern` is tried.

    `example` is a shape, filled with random characters by the tests: `{n}` letters and digits, `{h:n}` hex, `{u:n}`
    capitals and digits, `{d:n}` digits. No real-looking token is written anywhere.
    """

    kind: str
    marker: str
    pattern: re.Pattern[str]
    example: str
    whole_word: bool = False


def _rule(kind: str, marker: str, pattern: str, example: str, *, whole_word: bool = False) -> TokenRule:
    return TokenRule(kind, marker, re.compile(pattern), example, whole_word)


WORD_BEFORE: Final = re.compile(r"(?:\\[nrt]|%[2-7][0-9A-Fa-f]|[^A-Za-z0-9])\Z")
"""What ends a word in front of a token: an escaped newline and a URL-quoted character too. Looked at after a match, so
that the pattern itself begins with its literal, which the engine finds fast."""

TOKEN_RULES: Final[tuple[TokenRule, ...]] = (
    # model hubs and inference services
    _rule("hugging_face", "hf_", r"hf_[A-Za-z0-9]{20,}", "hf_{34}"),
    _rule("hugging_face_org", "api_org_", r"api_org_[A-Za-z0-9]{20,}", "api_org_{34}"),
    _rule("openai", "sk-", r"sk-(?:[A-Za-z0-9]{2,12}-){1,3}[A-Za-z0-9_-]{16,}", "sk-proj-{48}"),
    _rule("openai_legacy", "sk-", r"sk-[A-Za-z0-9]{24,}", "sk-{48}", whole_word=True),
    _rule("runpod", "rpa_", r"rpa_[A-Za-z0-9]{24,}", "rpa_{u:44}"),
    _rule("replicate", "r8_", r"r8_[A-Za-z0-9]{24,}", "r8_{37}", whole_word=True),
    _rule("groq", "gsk_", r"gsk_[A-Za-z0-9]{30,}", "gsk_{52}"),
    _rule("nvidia", "nvapi-", r"nvapi-[A-Za-z0-9_-]{30,}", "nvapi-{64}"),
    _rule("perplexity", "pplx-", r"pplx-[A-Za-z0-9]{24,}", "pplx-{48}"),
    _rule("xai", "xai-", r"xai-[A-Za-z0-9]{30,}", "xai-{80}"),
    _rule("fireworks", "fw_", r"fw_[A-Za-z0-9]{20,}", "fw_{24}", whole_word=True),
    _rule("together", "tgp_v", r"tgp_v\d_[A-Za-z0-9_-]{30,}", "tgp_v1_{43}"),
    _rule("cerebras", "csk-", r"csk-[A-Za-z0-9]{30,}", "csk-{48}", whole_word=True),
    _rule("jina", "jina_", r"jina_[A-Za-z0-9_-]{40,}", "jina_{60}", whole_word=True),
    _rule("tavily", "tvly-", r"tvly-(?:[a-z]{2,6}-)?[A-Za-z0-9]{24,}", "tvly-{32}", whole_word=True),
    _rule("wandb", "wandb_v", r"wandb_v\d_[A-Za-z0-9_]{30,}", "wandb_v1_{77}"),
    _rule("langsmith", "lsv2_", r"lsv2_[a-z]{2}_[0-9a-f_]{30,}", "lsv2_pt_{h:32}_{h:10}"),
    _rule("pinecone", "pcsk_", r"pcsk_[A-Za-z0-9_]{30,}", "pcsk_{60}"),
    _rule("modal", "a", r"a[ks]-[A-Za-z0-9]{22}(?![A-Za-z0-9-])", "as-{22}", whole_word=True),
    _rule("e2b", "e2b_", r"e2b_[0-9a-f]{32,}", "e2b_{h:40}", whole_word=True),
    # code hosts and package registries
    _rule("github", "gh", r"gh[pousr]_[A-Za-z0-9]{20,}", "ghp_{36}"),
    _rule("github_fine", "github_pat_", r"github_pat_[A-Za-z0-9_]{20,}", "github_pat_{22}_{59}"),
    _rule(
        "gitlab",
        "gl",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|imt|oas)-[A-Za-z0-9_-]{16,}(?:\.[0-9a-z]{2,16}){0,3}",
        "glpat-{20}",
        whole_word=True,
    ),
    _rule("npm", "npm_", r"npm_[A-Za-z0-9]{30,}", "npm_{36}"),
    _rule("pypi", "pypi-", r"pypi-[A-Za-z0-9_-]{40,}", "pypi-AgEIcHlwaS5vcmc{80}"),
    _rule("docker", "dckr_", r"dckr_[po]at_[A-Za-z0-9_-]{20,}", "dckr_pat_{27}"),
    _rule("atlassian", "ATATT3", r"ATATT3[A-Za-z0-9_=-]{40,}", "ATATT3{180}"),
    _rule("bitbucket", "ATBB", r"ATBB[A-Za-z0-9]{28,}", "ATBB{32}", whole_word=True),
    _rule("rubygems", "rubygems_", r"rubygems_[0-9a-f]{40,}", "rubygems_{h:48}"),
    _rule("sonar", "sq", r"sq[apu]_[0-9a-f]{40}", "squ_{h:40}", whole_word=True),
    _rule("buildkite", "bkua_", r"bkua_[0-9a-f]{40}", "bkua_{h:40}"),
    _rule("circleci", "CCIPAT_", r"CCIPAT_[A-Za-z0-9_]{30,}", "CCIPAT_{22}_{h:40}"),
    # clouds
    _rule(
        "aws_key",
        "A",
        r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
        "AKIA{u:16}",
        whole_word=True,
    ),
    _rule("aws_session", "IQoJ", r"IQoJb3JpZ2lu[A-Za-z0-9+/=%]{60,}", "IQoJb3JpZ2lu{300}"),
    _rule("google_key", "AIza", r"AIza[A-Za-z0-9_-]{30,}", "AIzaSy{33}"),
    _rule("google_oauth", "ya29.", r"ya29\.[A-Za-z0-9_-]{30,}", "ya29.{120}", whole_word=True),
    _rule("google_client", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20,}", "GOCSPX-{28}"),
    _rule(
        "azure_client",
        "Q~",
        r"(?:(?<![A-Za-z0-9_.~-])|(?<=\\n))[A-Za-z0-9_.~-]{3}\dQ~[A-Za-z0-9_.~-]{30,40}",
        "{3}8Q~{34}",
    ),
    _rule("alibaba", "LTAI", r"LTAI[A-Za-z0-9]{12,}(?![A-Za-z0-9])", "LTAI{20}", whole_word=True),
    _rule("tencent", "AKID", r"AKID[A-Za-z0-9]{28,}", "AKID{32}", whole_word=True),
    _rule("digital_ocean", "do", r"do[opr]_v1_[0-9a-f]{32,}", "dop_v1_{h:64}"),
    _rule("databricks", "dapi", r"dapi[0-9a-f]{32}(?:-\d)?", "dapi{h:32}"),
    _rule("heroku", "HRKU-", r"HRKU-[A-Za-z0-9_-]{30,}", "HRKU-{60}"),
    _rule("fly", "fm2_", r"fm2_[A-Za-z0-9+/=_-]{40,}", "fm2_{100}", whole_word=True),
    _rule("netlify", "nfp_", r"nfp_[A-Za-z0-9]{30,}", "nfp_{36}", whole_word=True),
    _rule("vercel", "vc", r"vc[pikr]_[A-Za-z0-9]{24,}", "vcp_{40}", whole_word=True),
    _rule("supabase", "sb", r"sb(?:p|_secret|_publishable)_[A-Za-z0-9_]{20,}", "sbp_{h:40}", whole_word=True),
    _rule("planetscale", "pscale_", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{30,}", "pscale_tkn_{43}"),
    _rule("pulumi", "pul-", r"pul-[0-9a-f]{40}", "pul-{h:40}"),
    _rule("terraform", ".atlasv1.", r"[A-Za-z0-9]{10,20}\.atlasv1\.[A-Za-z0-9_-]{40,}", "{14}.atlasv1.{67}"),
    # secret stores, observability, networks
    _rule("vault", "hv", r"hv[sbr]\.[A-Za-z0-9_-]{20,}", "hvs.{90}", whole_word=True),
    _rule("doppler", "dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{20,}", "dp.pt.{43}", whole_word=True),
    _rule(
        "infisical",
        "st.",
        r"st\.[0-9a-f]{24}\.[0-9a-f]{24,}\.[0-9a-f]{24,}",
        "st.{h:24}.{h:32}.{h:32}",
        whole_word=True,
    ),
    _rule("one_password", "ops_eyJ", r"ops_eyJ[A-Za-z0-9_=-]{100,}", "ops_eyJ{300}"),
    _rule("age", "AGE-SECRET", r"AGE-SECRET-KEY-1[A-Z0-9]{40,}", "AGE-SECRET-KEY-1{u:58}"),
    _rule("tailscale", "tskey-", r"tskey-[a-z]+-[A-Za-z0-9-]{20,}", "tskey-auth-{17}-{32}"),
    _rule("grafana", "gl", r"gls?[ac]_[A-Za-z0-9_+/=]{30,}", "glsa_{32}_{h:8}"),
    _rule("new_relic", "NRAK-", r"NRAK-[A-Z0-9]{20,}", "NRAK-{u:27}"),
    _rule("sentry", "sntry", r"sntry[su]_[A-Za-z0-9+/=_]{30,}", "sntrys_{120}"),
    _rule("logfire", "pylf_v", r"pylf_v\d_[a-z]{2,8}_[A-Za-z0-9]{20,}", "pylf_v1_us_{43}"),
    _rule("prefect", "pn", r"pn[ub]_[A-Za-z0-9]{30,}", "pnu_{36}", whole_word=True),
    # payment, mail, chat, work
    _rule(
        "live_test_key",
        "_",
        r"[a-z]{2,12}_(?:live|test|prod)_[A-Za-z0-9]{16,}",
        "rk_live_{24}",
        whole_word=True,
    ),
    _rule("sk_underscore", "sk_", r"sk_[A-Za-z0-9]{32,}", "sk_{h:48}", whole_word=True),
    _rule("webhook_secret", "whsec_", r"whsec_[A-Za-z0-9+/]{16,}={0,2}", "whsec_{32}"),
    _rule("square", "sq0", r"sq0[a-z]{3}-[A-Za-z0-9_-]{22,}", "sq0atp-{22}"),
    _rule("sendgrid", "SG.", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", "SG.{22}.{43}"),
    _rule("mailgun", "key-", r"key-[0-9a-f]{32}(?![0-9a-f])", "key-{h:32}", whole_word=True),
    _rule("mailchimp", "-us", r"[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9])", "{h:32}-us14", whole_word=True),
    _rule("twilio", "SK", r"SK[0-9a-f]{32}(?![A-Za-z0-9])", "SK{h:32}", whole_word=True),
    _rule("slack", "xox", r"xox[abceoprs]-[A-Za-z0-9.-]{10,}", "xoxb-{d:12}-{d:12}-{24}"),
    _rule("slack_app", "xapp-", r"xapp-\d-[A-Za-z0-9-]{20,}", "xapp-1-{u:11}-{d:13}-{h:64}"),
    _rule("slack_hook", "hooks.slack.com", r"(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{20,}", ""),
    _rule("discord_hook", "/webhooks/", r"(?<=/webhooks/)\d{15,21}/[A-Za-z0-9_-]{40,}", ""),
    _rule(
        "discord_bot",
        ".",
        r"(?:(?<![A-Za-z0-9_.-])|(?<=\\n))[MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{25,}",
        "MT{24}.{6}.{38}",
    ),
    _rule("telegram", ":AA", r"(?<![0-9])\d{8,12}:AA[A-Za-z0-9_-]{30,}", "{d:10}:AA{33}"),
    _rule("notion", "ntn_", r"ntn_[A-Za-z0-9]{30,}", "ntn_{46}", whole_word=True),
    _rule("linear", "lin_", r"lin_(?:api|oauth)_[A-Za-z0-9]{24,}", "lin_api_{40}"),
    _rule("shopify", "shp", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}", "shpat_{h:32}"),
    _rule("postman", "PMAK-", r"PMAK-[0-9a-f-]{40,}", "PMAK-{h:24}-{h:34}"),
    _rule("figma", "figd_", r"figd_[A-Za-z0-9_-]{30,}", "figd_{40}"),
    _rule("airtable", "pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}", "pat{14}.{h:64}", whole_word=True),
    _rule(
        "hubspot", "pat-", r"pat-[a-z]{2}\d-[0-9a-f-]{30,}", "pat-na1-{h:8}-{h:4}-{h:4}-{h:4}-{h:12}", whole_word=True
    ),
    _rule("mapbox", "sk.eyJ", r"sk\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{10,}", "sk.eyJ{60}.{22}", whole_word=True),
    _rule(
        "jwt",
        "eyJ",
        # A left boundary, or an escaped newline, `=` or blank in front: without it one long run restarts everywhere.
        r"(?:(?<![A-Za-z0-9_-])|(?<=\\n)|(?<=%3D)|(?<=%20))"
        r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]{0,2048})?",
        "eyJhbGciOiJIUzI1NiJ9.eyJ{60}.{43}",
    ),
)

OPEN_TOKEN: Final = re.compile(
    r"(?:hf_|api_org_|sk-|sk_|gh[pousr]_|github_pat_|gl(?:pat|dt|rt)-|rpa_|xox[a-z]-|xapp-|npm_|pypi-|r8_|gsk_|dapi|"
    r"hvs\.|SG\.|do[opr]_v1_|dp\.pt\.|pplx-|xai-|nvapi-|lsv2_|pcsk_|tskey-|gls?[ac]_|NRAK-|ntn_|lin_api_|shpat_|PMAK-|"
    r"sbp_|pul-|AGE-SECRET-KEY-1|fw_|pylf_v1_|wandb_v1_|whsec_|dckr_pat_|figd_|tgp_v1_|GOCSPX-|ya29\.|AIza|AKIA|ASIA|"
    r"eyJ|IQoJ)[A-Za-z0-9_.+/=-]{0,4096}\Z"
    r"|(?<=/webhooks/)[\w/-]{0,200}\Z|(?<=/services/)[\w/]{0,200}\Z"
    r"|(?<![A-Za-z0-9])[MNO][A-Za-z0-9_-]{22,28}\.[\w.-]{0,60}\Z|\d{8,12}:AA[\w-]{0,40}\Z"
    r"|(?<![A-Za-z0-9])SK[0-9a-f]{6,}\Z"
)
"""A token that the text's end cuts off: its prefix with no minimum length."""

#!/bin/sh
# Fetches what the tests need and pip does not have: the ClickHouse server library and axe-core (npm), a browser (the
# system's package manager) and Prometheus' rule checker. What cannot be had is said; the tests that need it are then
# skipped by name.
set -u
cd "$(dirname "$0")/.." || exit 1

LIBRARY=@chdb/lib-linux-x64-gnu@26.7.3-stable.1   # ClickHouse 26.7 as a shared library; Node is not needed to run it
AXE=axe-core@4.14.1   # what a machine can check of a page's accessibility; runs in the browser

note() { echo "parts: $*" >&2; }

# One call for both, even where one is there: npm removes what a call does not name.
WANTED= MISSING=
want() {   # PACKAGE FILE
    WANTED="$WANTED $1"
    [ -f "node_modules/$2" ] || MISSING="$MISSING $1"
}
if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
    note "no ClickHouse server library for $(uname -s) $(uname -m): the tests against a server are skipped"
else
    [ -n "${CLICKHOUSE_LIBCHDB:-}" ] || want "$LIBRARY" @chdb/lib-linux-x64-gnu/libchdb.so
fi
[ -n "${AXE_CORE:-}" ] || want "$AXE" axe-core/axe.min.js
if [ -z "$MISSING" ]; then
    :
elif ! command -v npm >/dev/null 2>&1; then
    note "npm is missing: the tests with$MISSING are skipped"
else
    note "fetching$MISSING (the ClickHouse server library is 180 MB)"
    # shellcheck disable=SC2086 - a list of packages
    npm install --no-save --no-audit --no-fund --silent $WANTED ||
        note "npm could not fetch$MISSING: the tests with it are skipped"
fi

browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
if [ -n "$(browser)" ] && command -v chromedriver >/dev/null 2>&1; then
    :
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    note "installing chromium and its driver"
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q chromium chromium-driver; } >/dev/null 2>&1 ||
        note "apt-get could not install chromium: the browser tests are skipped"
else
    note "no chromium with chromedriver, and no right to install it: the browser tests are skipped"
fi
# Unpacked beside the virtual environment and not installed: the packages would start their servers.
debian() {   # PROGRAM PACKAGE
    if command -v "$1" >/dev/null 2>&1 || [ -x ".parts/usr/bin/$1" ]; then
        return
    elif command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1; then
        note "fetching $2"
        mkdir -p .parts
        { [ "$(id -u)" != 0 ] || apt-get update -q; } >/dev/null 2>&1
        (cd .parts && apt-get download -q "$2" && dpkg-deb -x "$2"_*.deb . && rm -f "$2"_*.deb) >/dev/null 2>&1 ||
            note "apt-get could not fetch $2: the tests with it are skipped"
    else
        note "no $1, and no apt-get to fetch it: the tests with it are skipped"
    fi
}
debian promtool prometheus   # and the server itself
debian prometheus-alertmanager prometheus-alertmanager
# Debian's Alertmanager reads its templates from this place alone.
TEMPLATES=/usr/share/prometheus/alertmanager
if [ ! -e "$TEMPLATES" ] && [ -d ".parts$TEMPLATES" ]; then
    { mkdir -p "$TEMPLATES" && cp -R ".parts$TEMPLATES/." "$TEMPLATES"; } 2>/dev/null ||
        note "no right to write $TEMPLATES: the tests with Alertmanager are skipped"
fi
exit 0

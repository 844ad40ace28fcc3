#!/bin/sh
# Known weaknesses, licences, and a bill of materials of what the server's image installs: audit.sh BIN
# Weaknesses can only be looked up where an advisory service is reached; that none was is said, and is no failure.
set -eu
bin=$1
cd "$(dirname "$0")/.."
mkdir -p var
"$bin/python" docker/dependencies.py licences
"$bin/python" -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml --output-reproducible \
    -o var/sbom.json docker/requirements.txt
rm -f var/weaknesses.json
"$bin/pip-audit" -r docker/requirements.txt --no-deps --disable-pip -f json -o var/weaknesses.json >/dev/null 2>&1 || true
exec "$bin/python" docker/dependencies.py weaknesses var/weaknesses.json

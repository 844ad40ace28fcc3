#!/bin/sh
# Makes a virtual environment: make_venv.sh PYTHON FOLDER. Debian ships Python without the venv module, so that is
# installed first where we may.
set -eu
python=$1
folder=$2
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get update -q >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -q python3-venv >&2
    else
        echo "Python's venv module is missing. Install it (Debian: apt-get install python3-venv), then run this again." >&2
        exit 1
    fi
fi
exec "$python" -m venv "$folder"

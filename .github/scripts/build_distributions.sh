#!/usr/bin/env bash
# Build the source distribution, and from it the wheel, with the setuptools of a given Python environment.
#
# usage: build_distributions.sh PYTHON FOLDER
# Building the wheel from the source distribution shows that nothing is missing from that; no build tool is downloaded.
set -euo pipefail

python=$1 folder=$2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$folder"
if [ -n "$(ls -A "$folder")" ]; then
    echo "$folder is not empty: an old distribution in it would be published along with the new ones." >&2
    exit 1
fi
"$python" -c 'import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])' "$folder"
"$python" -m pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir "$folder" "$folder"/*.tar.gz

#!/usr/bin/env bash
# Makes d3bot's own environment from the hashed lock, apart from the builds under test and from the job's own Python.
# Output: exe, the command `d3bot`.  Environment: PYTHON, the interpreter to make it from.
# -I keeps the checkout of the job, perhaps a stranger's, and its PYTHONPATH off the import path.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
lock=$root/.github/requirements.txt
home=${RUNNER_TEMP:?is set by Actions}/d3bot-environment
python=${PYTHON:-python3}

# The workflows say where they took d3bot from.  That must be a commit: a branch or a tag may be something else tomorrow.
# Without one it is the commit of the workflow itself, which only d3bot's own repository has.
from=${FROM_REPOSITORY:-} ref=${FROM_REF:-}
if [[ -n $ref || -n $from && $from != "${GITHUB_REPOSITORY:-}" ]] && [[ ! $ref =~ ^[0-9a-f]{40}$ ]]; then
  echo "::error title=d3bot::D3BOT_REF: give the full SHA of a commit of $from, no branch and no tag"
  exit 2
fi

if ! "$python" -I -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "::error title=d3bot::$python is no Python 3.11 or newer with venv; give the input python-version"
  exit 2
fi
# The steps of one job share it; the lock is copied last, so what was broken off is made anew.
if ! cmp -s "$lock" "$home/lock"; then
  echo "::group::d3bot's own environment"
  rm -rf "$home"
  "$python" -I -m venv "$home"
  "$home/bin/python" -I -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --requirement "$lock"
  cp "$lock" "$home/lock"
  echo "::endgroup::"
fi
# d3bot itself is what lies here: no build back end is needed.
site=$("$home/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n' "$root" > "$site/d3bot.pth"
printf '#!/bin/sh\nexec "%s" -I -m d3bot "$@"\n' "$home/bin/python" > "$home/bin/d3bot"
chmod +x "$home/bin/d3bot"
echo "exe=$home/bin/d3bot" >> "$GITHUB_OUTPUT"

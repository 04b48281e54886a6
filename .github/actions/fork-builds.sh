#!/usr/bin/env bash
# Finds or makes the two builds of a pull request of a library: its head, and its merge base as the baseline.
#   wheels there         wheels/base/*.whl and wheels/head/*.whl
#   BUILD_COMMAND given  runs in a checkout of each commit and leaves one wheel in dist/
#   STOCK given          a change of Python files alone: the stock build, and over it the changed files
# Environment: EXE, PYTHON, BASE_SHA, HEAD_SHA, BUILD_COMMAND, STOCK.  Outputs: base, head, merge-base,
# and changed, the file that lists what differs.
# Works in the folder of the checkout, which has the history of both commits.
set -euo pipefail

fail() { echo "::error title=d3bot::$1" >&2; exit 3; }
work=$RUNNER_TEMP/d3bot-fork
rm -rf "$work"
git worktree prune # a runner that is used again keeps the list of what was just removed
mkdir -p "$work"

merge_base=$(git merge-base "$BASE_SHA" "$HEAD_SHA") || fail "the pull request and its base have no commit in common"

git diff --name-only --no-renames "$merge_base" "$HEAD_SHA" > "$work/changed"

one_wheel() {
  shopt -s nullglob
  local wheels=("$1"/*.whl)
  [ "${#wheels[@]}" = 1 ] || fail "$1 holds ${#wheels[@]} wheels; there must be one"
  printf '%s' "${wheels[0]}"
}

if [ -d wheels/base ] && [ -d wheels/head ]; then
  base=$(one_wheel "$PWD/wheels/base")
  head=$(one_wheel "$PWD/wheels/head")
elif [ -n "$BUILD_COMMAND" ]; then
  for side in base head; do
    commit=$HEAD_SHA
    [ "$side" = head ] || commit=$merge_base
    git worktree add --detach "$work/$side" "$commit"
    echo "::group::build $side"
    (cd "$work/$side" && git submodule update --init --recursive && bash -euo pipefail -c "$BUILD_COMMAND") || fail "the build of $side failed"
    echo "::endgroup::"
  done
  base=$(one_wheel "$work/base/dist")
  head=$(one_wheel "$work/head/dist")
elif [ -n "$STOCK" ]; then
  others=$(git diff --name-only --no-renames "$merge_base" "$HEAD_SHA" -- 'torch' 'tensorflow' 'keras' ':!*.py')
  [ -z "$others" ] || fail "more than Python files of the library changed; give a build command"
  patch=$work/change.patch
  git diff --no-color --no-ext-diff --no-renames "$merge_base" "$HEAD_SHA" -- 'torch/*.py' 'tensorflow/*.py' 'keras/*.py' > "$patch"
  [ -s "$patch" ] || fail "no Python file of the library changed; there is nothing to check"
  "${PYTHON:-python3}" -I -m venv "$work/stock"
  "$work/stock/bin/python" -I -m pip install --quiet --disable-pip-version-check "$STOCK"
  # The same environment on both sides: the head differs by the changed files and by nothing else.
  own=$(dirname "$EXE")/python
  "$own" -I -c '
import sys
from pathlib import Path
from d3bot.builds.overlay import make_overlay
from d3bot.spec import SpecError
try:
    make_overlay(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
except SpecError as error:
    sys.exit(f"d3bot: {error}")
' "$patch" "$work/stock/bin/python" "$work/overlay" || fail "the change does not fit on $STOCK; give a build nearer to the merge base"
  base=python:$work/stock/bin/python
  head=overlay:$work/overlay+python:$work/stock/bin/python
else
  fail "no build: give wheels, a build command, or a stock build for changes of Python files"
fi
{
  echo "base=$base"
  echo "head=$head"
  echo "merge-base=$merge_base"
  echo "changed=$work/changed"
} >> "$GITHUB_OUTPUT"

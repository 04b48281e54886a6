#!/usr/bin/env bash
# The half that holds a token: turns the inputs of report/action.yml, given as environment, into one call of d3bot.
# It runs no build, and d3bot takes what the other half left for hostile data.
set -euo pipefail

fail() { echo "::error title=d3bot::$1"; exit 2; }
config=()
[ -z "$CONFIG" ] || config=(--config "$CONFIG")
# The file of the workflow that runs, also where it only calls another one.
workflow=${GITHUB_WORKFLOW_REF%%@*}
workflow=${WORKFLOW:-${workflow##*/}}
branch=${BRANCH:-$GITHUB_REF_NAME}

code=0
case $COMMAND in
  file)
    call=(file --tracker github --workflow "$workflow" --branch "$branch" "${config[@]}")
    if [ -n "$FAILED" ]; then call+=(--failed "$FAILED"); else call+=("$RUN_DIR"); fi
    "$EXE" "${call[@]}" || code=$?
    if [ "$code" = 1 ]; then
      echo "::notice title=d3bot::a budget kept findings back; the step summary says which, and the next nights file them"
      code=0
    fi ;;
  fetch)
    call=(fetch --name "$NAME" --out "$RUN_DIR")
    if [ -n "$RUN_ID" ]; then call+=(--run-id "$RUN_ID"); else call+=(--workflow "$workflow" --branch "$branch"); fi
    case $REQUIRED in
      true) call+=(--required) ;;
      false) ;;
      *) fail "required: give true or false" ;;
    esac
    "$EXE" "${call[@]}" || code=$? ;;
  post)
    call=(post "$RUN_DIR" "${config[@]}")
    [ -z "$SARIF" ] || call+=(--sarif "$SARIF")
    "$EXE" "${call[@]}" || code=$? ;;
  site)
    "$EXE" report "$RUN_DIR" --out "$SITE" || code=$? ;;
  approved)
    # Not approved is an answer; the jobs after this one read the output.
    "$EXE" approved --label "$LABEL" || code=$?
    if [ "$code" = 1 ]; then code=0; fi ;;
  *)
    fail "command: give file, fetch, post, site or approved" ;;
esac
exit "$code"

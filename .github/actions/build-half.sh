#!/usr/bin/env bash
# The half that runs builds: turns the inputs of action.yml, given as environment, into one call of d3bot.
# What d3bot reads from D3BOT_* itself (builds, fresh, settings, ...) is not repeated here.
set -euo pipefail

fail() { echo "::error title=d3bot::$1"; exit 2; }
need() {
  local name=${1#D3BOT_}
  [ -n "${!1:-}" ] || fail "the input ${name,,} is needed for command: $COMMAND"
}
case $FAIL_ON_NEW in true | false) ;; *) fail "fail-on-new: give true or false" ;; esac

config=()
[ -z "$CONFIG" ] || config=(--config "$CONFIG")

case $COMMAND in
  run)
    call=(run --out "$OUT" "${config[@]}") ;;
  plan)
    need SHARDS
    call=(plan --shards "$SHARDS")
    [ -z "${D3BOT_SEED:-}" ] || call+=(--seed "$D3BOT_SEED") ;;
  merge)
    need SHARDS
    shopt -s nullglob
    folders=("$PARTS"/*/)
    # A single artifact is unpacked into the folder itself.
    [ ! -e "$PARTS/run.json" ] || folders=("$PARTS")
    [ "${#folders[@]}" -gt 0 ] || { echo "::error title=d3bot::no shard left anything; see their logs"; exit 3; }
    call=(merge "${folders[@]}" --shards "$SHARDS" --out "$OUT" "${config[@]}")
    [ -z "${D3BOT_PREVIOUS:-}" ] || call+=(--previous "$D3BOT_PREVIOUS") ;;
  check)
    need HEAD
    need D3BOT_BASE
    call=(check --base "$D3BOT_BASE" --head "$HEAD" --baseline "$BASELINE" --out "$OUT" "${config[@]}")
    [ -z "$CHANGED" ] || call+=(--changed "$CHANGED") ;;
  retest)
    need KEY
    need D3BOT_PREVIOUS
    need D3BOT_BUILDS
    call=(retest "$D3BOT_PREVIOUS" "$KEY" --out "$OUT" "${config[@]}") ;;
  bisect)
    need KEY
    need D3BOT_PREVIOUS
    finding=$D3BOT_PREVIOUS/findings/$KEY
    [ -d "$finding" ] || finding=$D3BOT_PREVIOUS/fixed/$KEY
    call=(bisect "$finding" --out "$OUT" "${config[@]}")
    [ -z "$GOOD" ] || call+=(--good "$GOOD")
    [ -z "$BAD" ] || call+=(--bad "$BAD") ;;
  *)
    fail "command: give run, plan, merge, check, retest or bisect" ;;
esac

code=0
"$EXE" "${call[@]}" || code=$?
echo "exit-code=$code" >> "$GITHUB_OUTPUT"
# 1 means: something new, worse, or still failing.  Whoever reads the verdict need not fail the job as well.
if [ "$code" = 1 ] && [ "$FAIL_ON_NEW" = false ]; then exit 0; fi
exit "$code"

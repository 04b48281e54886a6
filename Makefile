# make nightly   one night on this machine: install the builds once, run, compare with the last night, report in runs/
# make test      everything a change must pass
#
# Needs Linux, GNU make and Python 3.11 or newer with venv.  Once .venv and the builds are there, neither needs a network.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BUILDS ?= torch==2.13.0 tensorflow-cpu==2.21.0
FRESH ?= 24
ifndef OUT
OUT := runs/$(shell date -u +%Y-%m-%dT%H-%M-%SZ)
endif

# A machine may have its own package indexes or folders of wheels: these two commands take what it is set up to take.
export D3BOT_INDEX_PIP_CONFIG ?= machine

BIN := .venv/bin
# A copy of the pyproject.toml that .venv was made from, written last.  Contents are compared, not times: a checkout
# touches files, and an environment that is up to date must not need the network.
MADE := .venv/made-from-pyproject.toml

.PHONY: attack chaos help nightly pairs test venv docs

help:
	@sed -n '1,4s/^# //p' Makefile

venv:
	@if ! cmp -s pyproject.toml $(MADE) || ! $(BIN)/python -c '' 2>/dev/null; then \
	  python=; \
	  for candidate in python3 python3.14 python3.13 python3.12 python3.11; do \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$python" ]; then echo "d3bot: no Python 3.11 or newer found; install one (Debian: apt-get install python3)" >&2; exit 2; fi; \
	  if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "d3bot: $$python has no venv; install it (Debian: apt-get install python3-venv)" >&2; exit 2; \
	  fi; \
	  echo "d3bot: making .venv with $$($$python --version)"; \
	  rm -rf .venv; \
	  "$$python" -m venv .venv; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'; \
	  cp pyproject.toml $(MADE); \
	fi

# d3bot's exit codes: 0 nothing new, 1 something new and confirmed, 2 wrong use, 3 no data or incomplete.  A night that
# found something did its work, so 1 is told in words and is no failure of make; automation that acts on the code calls
# d3bot itself.
nightly: venv
	@code=0; \
	$(BIN)/d3bot run $(foreach build,$(BUILDS),--build '$(build)') --seeds seeds --fresh $(FRESH) --previous latest --tracker runs/issues --out '$(OUT)' || code=$$?; \
	case $$code in \
	  0) echo "d3bot: nothing new; the report is $(OUT)/report.html" ;; \
	  1) echo "d3bot: SOMETHING NEW AND CONFIRMED; read $(OUT)/summary.md and $(OUT)/findings/" ;; \
	  *) echo "d3bot: the night gave no complete result (exit code $$code); the reason stands above" >&2; exit $$code ;; \
	esac

# The list of pairs that coverage is counted by, written anew; run it after a change to layers, features or settings.
pairs: venv
	@$(BIN)/python -m d3bot.generate.pairs

# The reference pages of docs/ that say what the code says: setting families, d3bot.toml.
docs: venv
	@$(BIN)/d3bot docs docs

# The engine under attack, at length: 500 trials, every tenth with a rank killed, hung, flooding, eating memory or forking.
attack: venv
	D3BOT_TEST_ATTACK=500 $(BIN)/python -m pytest tests/engine/test_under_attack.py

# Filing under attack, at length: 200 nights of every fault, two filers at once.
chaos: venv
	D3BOT_TEST_CHAOS_NIGHTS=200 $(BIN)/python -m pytest tests/github/test_github_chaos.py

test: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest

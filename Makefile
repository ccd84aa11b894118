# Needs git, make and python3.11 (and a network, or a pip that finds packages without one). `make` lists the targets.
PROFILE ?= mini
JOBS ?= 2
WORKERS ?=
LOG ?=
PYTHON ?= python3.11
ARGS ?=
SHELL := /bin/sh
export PATH := $(CURDIR)/.venv/bin:$(PATH)

PROFILES := mini $(notdir $(patsubst %/,%,$(dir $(wildcard profiles/*/overlay.yaml))))
OF := $(if $(filter grue grue-plan,$(MAKECMDGOALS)),mini real paper,$(PROFILES))
FOLDER := $(if $(filter mini,$(PROFILE)),.,profiles/$(PROFILE))
ifeq ($(filter $(PROFILE),$(OF)),)
$(error PROFILE=$(PROFILE): expected one of $(OF))
endif

.PHONY: help env reproduce reports pipelines plan adopt why test lab site lessons course study grue grue-plan bench clean
.DEFAULT_GOAL := help

help:
	@echo 'make reproduce [PROFILE=$(PROFILE)] [JOBS=$(JOBS)]   from text to the report; run again, it does only what changed'
	@echo '     PROFILE  smoke   about five minutes, every stage, numbers mean nothing'
	@echo '              mini    about an hour on two cores, generated reviews (the default)'
	@echo '              full    every value of every ablation of the first paper, hours on two cores'
	@echo '              follow_up  the second paper: samplers, DQN and the other learners at every value, hours on two cores'
	@echo '              imdb    hours on two cores, real film reviews'
	@echo '              pilot   what the settings of the next edition were chosen by, three quarters of an hour'
	@echo '              reviews real film reviews, every run from one base model (make it first: python -m workbook.stages.base_model train)'
	@echo '              reviews_pilot  what the settings of reviews are chosen by, an hour and a half'
	@echo '              settle  that edition: run draw by draw by python -m workbook.stages.settle, not by make'
	@echo '              paper   the published models and budgets, needs a GPU'
	@echo '              gpu     real film reviews, a base model of 30 million weights; without DVC there, docs/use/machines.md'
	@echo '     WORKERS local:4, tls://host:8786 or slurm:partition: seeds and models on Dask workers'
	@echo '     LOG     tensorboard, wandb, mlflow, dvclive: curves of runs as they come (.scratch/<profile>/followed)'
	@echo 'make reports [PROFILE=$(PROFILE)]               reports and ledger from the runs that are finished so far'
	@echo 'make plan [PROFILE=$(PROFILE)]                  what it would do and cost, and what it lacks; runs nothing'
	@echo 'make adopt PROFILE=... FROM=folder        bring home what a machine without DVC computed; checked before it is written'
	@echo 'make why [PROFILE=$(PROFILE)]                   what your edits would run again, and why; runs nothing'
	@echo 'make test [ARGS="-k name"]                the tests'
	@echo 'make lab                                  JupyterLab at the site: quick start, lessons, runs'
	@echo 'make site                                 the site: findings, lessons, course, reference; open site/index.html'
	@echo 'make lessons                              what the lessons give, for the site: those whose code has changed, a minute each'
	@echo 'make course                               the assignments as students get them and the package as a wheel: course/build'
	@echo 'make study                                the second human study with simulated raters: reports/study'
	@echo 'make grue [PROFILE=$(PROFILE)]                  the benchmark: reports/grue (mini, the default: generated rows, 45 to 120 minutes on two cores)'
	@echo '     PROFILE  real    real rows (RLNLP_MIRROR, or the hub), three draws of about an hour on two cores: reports/grue_real'
	@echo '              paper   T5-base and GPT-2 with the published budgets, needs a GPU: reports/grue_paper'
	@echo 'make grue-plan PROFILE=paper              what that needs and costs; runs nothing'
	@echo 'make bench                                speed, beside TRL (installed for this only)'
	@echo 'make clean [PROFILE=$(PROFILE)]                 remove what one profile generated; keeps reports, DVC cache and .venv'
	@echo 'Each makes its environment, .venv, the first time (a few minutes).'

# It also tells git, in this clone only, how to leave the outputs of notebooks, and what JupyterLab writes beside them about this
# machine's Python, out of commits (.gitattributes says of which notebooks).
LANGUAGE := codemirror_mode file_extension mimetype nbconvert_exporter pygments_lexer version
STRIP = '$(CURDIR)/.venv/bin/nbstripout' --keep-id --extra-keys '$(addprefix metadata.language_info.,$(LANGUAGE))' | sed 's/Python 3 (ipykernel)/Python 3/'

# The environment is whole when .venv/.ready holds the hash of the two files that define it and this folder's path. One that was
# moved, or whose making was interrupted, is made anew; one whose files changed is brought up to date.
env:
	@set -eu; want="$$(cat requirements.lock pyproject.toml | git hash-object --stdin) $(CURDIR)"; \
	have="$$(cat .venv/.ready 2>/dev/null || true)"; [ "$$have" != "$$want" ] || exit 0; \
	if [ -e .venv/.unfinished ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1 \
	  || { [ -n "$$have" ] && [ "$${have#* }" != "$(CURDIR)" ]; }; then rm -rf .venv; fi; \
	echo 'making the environment .venv (once; a few minutes; log: .venv/setup.log)'; began=$$(date +%s); \
	mkdir -p .venv; touch .venv/.unfinished; rm -f .venv/.ready; \
	if command -v uv >/dev/null 2>&1 \
	  && { [ -x .venv/bin/python ] || uv venv -q --seed --allow-existing --python $(PYTHON) .venv; } >>.venv/setup.log 2>&1 \
	  && uv pip install --python .venv/bin/python -r requirements.lock >>.venv/setup.log 2>&1; then :; else \
	  [ -x .venv/bin/python ] || command -v $(PYTHON) >/dev/null || { echo 'error: $(PYTHON) not found (set PYTHON=...)' >&2; exit 1; }; \
	  .venv/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv; \
	  .venv/bin/python -m pip install --disable-pip-version-check -r requirements.lock >>.venv/setup.log 2>&1 \
	    || { tail -n 15 .venv/setup.log >&2; echo 'error: installing failed; the same command tries again' >&2; exit 1; }; \
	fi; \
	.venv/bin/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e . >>.venv/setup.log 2>&1 \
	  || { tail -n 15 .venv/setup.log >&2; exit 1; }; \
	[ "$$(git rev-parse --show-toplevel 2>/dev/null)" != "$(CURDIR)" ] || git config filter.nbstripout.clean "$(STRIP)"; \
	echo "$$want" > .venv/.ready; rm -f .venv/.unfinished; echo "environment ready after $$(( $$(date +%s) - began )) s"

reproduce: env pipelines
	@exec .venv/bin/python -m workbook.stages.reproduce $(PROFILE) --jobs $(JOBS) --tied \
	  $(if $(WORKERS),--workers '$(WORKERS)') $(if $(filter 1,$(INSECURE)),--insecure) $(if $(LOG),--log '$(LOG)')

# Without runs (a fresh clone): every page and the ledger from the committed tables, in a minute or two. With runs: from those that
# are finished, for long profiles, between two sittings; `make reproduce` goes on afterwards.
reports: env pipelines
	@if [ -d $(FOLDER)/runs ]; then exec .venv/bin/python -m workbook.stages.reproduce $(PROFILE) --jobs $(JOBS) --tied --reports; \
	else exec .venv/bin/python -m workbook.stages.reports $(PROFILE); fi

# Status 3, which make calls an error: the settings are sound, and a model or data set is missing.
plan: env pipelines
	@exec .venv/bin/python -m workbook.stages.plan $(PROFILE) $(ARGS)

# What `python -m workbook.stages.away pack PROFILE folder` wrote elsewhere.
adopt: env pipelines
	@exec .venv/bin/python -m workbook.stages.adopt $(PROFILE) '$(or $(FROM),$(error make adopt needs FROM=folder, with the archive of away pack))'

# Compared with the last run, that is with the profile's dvc.lock.
why: env pipelines
	@exec .venv/bin/python -m workbook.stages.depends why $(PROFILE)

test: env
	@exec .venv/bin/python -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

# Texts open as pages, and nobody is asked about news: defaults of this environment's JupyterLab, which your own settings override.
# It opens at the site's home, which its server shows below /static/, with links into the lab: made where there is none, or where a
# page or a report is newer.
LAB := {"@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Markdown Preview"}}, \
        "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}
lab: env
	@mkdir -p .venv/share/jupyter/lab/settings && echo '$(LAB)' > .venv/share/jupyter/lab/settings/overrides.json
	@[ -f site/index.html ] && [ -z "$$(find docs reports claims.yaml README.md -type f -newer site/index.html -print -quit)" ] \
	  || .venv/bin/python -m workbook.site
	@exec .venv/bin/python -m jupyterlab --ServerApp.extra_static_paths="['$(CURDIR)/site']" --LabApp.default_url=/static/index.html \
	  --LabApp.news_url=None --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate \
	  $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS)

# SITE_URL: the address it will be served at; without one it works from a disk and anywhere.
site: env
	@exec .venv/bin/python -m workbook.site $(ARGS)

lessons: env
	@exec .venv/bin/python -m workbook.stages.lessons $(ARGS)

course: env
	@exec .venv/bin/python -m course.release $(ARGS)

study: env
	@exec .venv/bin/python -m workbook.stages.study_pipeline --jobs $(JOBS) --tied

grue: env
	@exec .venv/bin/python -m workbook.stages.grue_pipeline --profile $(PROFILE) --jobs $(JOBS) --tied

grue-plan: env
	@.venv/bin/python -m workbook.stages.grue_plan $(PROFILE)

bench: env
	@exec .venv/bin/python -m bench.run $(ARGS)

# What is made from the overlays of the profiles: their params.yaml, and the copy of dvc.yaml that DVC needs there.
pipelines: env
	@exec .venv/bin/python -m workbook.runs.profiles .

# Only what git ignores, only below the named folders: nothing tracked, nothing of another profile, no cache.
clean:
	@git clean -fdXq -- $(addprefix $(FOLDER)/,data models worlds variants tune runs build executed) .scratch/$(PROFILE) reports/$(PROFILE) \
	  .pytest_cache .hypothesis .ruff_cache rlnlp workbook tests bench
	@rm -rf .scratch/$(PROFILE)
	@echo 'removed what profile $(PROFILE) generated; its finished results are still in the DVC cache (.dvc/cache)'

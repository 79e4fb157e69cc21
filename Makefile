# "make" alone lists the targets.
GO      ?= go
FUZZTIME ?= 30s
CHECKS  ?= 5000
SEEDS   ?= 1000

# The examples that are modules of their own, because of what they require.
MODULES := examples/kv examples/prometheus examples/tracing

.DEFAULT_GOAL := help
.PHONY: help setup test test-kit test-deep test-postgres-versions lint bench bench-smoke fuzz generate

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what tests and linters need and is missing
	@tools/setup

test: ## test everything with the race detector; prints the time of each package
	$(GO) test -race -timeout 15m ./...
	@for module in $(MODULES); do echo "$$module"; $(GO) -C $$module test -race -timeout 15m ./... || exit 1; done

test-kit: ## the property kit on every backend and on the mutants, without the race detector; RAPID_CHECKS=1000 is ten times the default
	$(GO) test -count=1 -timeout 4h ./proptest/... ./backend/...
	$(GO) -C examples/kv test -count=1 -timeout 4h ./...
	$(GO) test -count=1 -timeout 30m -v -run '^TestMutatedStatementsAreKilled$$' ./backend/sqlite ./backend/postgres
	$(GO) test -count=1 -timeout 30m -v -run '^TestMutants$$' ./proptest

test-deep: ## test everything with CHECKS random cases a property instead of 100, and the engine with SEEDS simulated fleets
	RAPID_CHECKS=$(CHECKS) $(GO) test -race -count=1 -timeout 4h ./...
	$(GO) test -count=1 -timeout 1h -run '^TestFleetsFinishTheirRunsWhateverGoesWrong$$' ./lifecycle -sim.seeds=$(SEEDS)

test-postgres-versions: ## test the PostgreSQL backend on the oldest and the newest supported major
	@tools/test-postgres-versions

lint: bin/staticcheck ## check format, vet, staticcheck and the import rules
	@unformatted="$$(bin/gofumpt -l .)"; \
	if [ -n "$$unformatted" ]; then echo "run bin/gofumpt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	bin/staticcheck ./...
	@for module in $(MODULES); do (cd $$module && $(GO) vet ./... && ../../bin/staticcheck ./...) || exit 1; done
	cd bench && $(GO) vet ./... && ../bin/staticcheck ./...
	$(GO) test -count=1 -run 'Architecture|MainModule' .

# The linters have a module of their own, so that they are in nobody's build.
bin/staticcheck: tools/go.mod tools/go.sum
	GOBIN="$(CURDIR)/bin" $(GO) -C tools install tool
	@touch bin/staticcheck

bench: ## measure belay beside its peers and the raw limits, under an hour; BENCH='-only P1,P4 -quick' for less
	$(GO) -C bench run . $(BENCH)

bench-smoke: ## run each Go benchmark once, and check what is known of allocations
	$(GO) test -count=1 -run '^$$' -bench . -benchtime 1x \
		$$(grep -rl --include='*_test.go' --exclude-dir=bench '^func Benchmark' . | xargs -n 1 dirname | sort -u)
	$(GO) -C bench test -count=1 ./...

fuzz: ## fuzz every fuzz test for FUZZTIME
	@$(GO) list ./... | while read -r package; do \
		for test in $$($(GO) test -list '^Fuzz' "$$package" | grep '^Fuzz'); do \
			echo "$$package $$test"; \
			$(GO) test -run '^$$' -fuzz "^$$test\$$" -fuzztime $(FUZZTIME) "$$package" || exit 1; \
		done; \
	done

generate: ## regenerate generated docs and code
	$(GO) generate ./...

# The short way in. Meson does the building; `make help` lists what there is.

BUILD ?= build
PREFIX ?= /usr/local
SEED ?= 1
SIZE ?= 1
# of the sweeps under the sanitizers: another than theirs in `make test`, unless SEED is given
CHECK_SEED ?= $(if $(filter file,$(origin SEED)),3,$(SEED))
# of `make test`, `slow`, `asan` and `tsan`: SHARE=N/M runs the N-th of M parts (tools/share.py)
SHARE ?=
RUN_TESTS = exec tools/run-tests
# of builds with a sanitizer: a stack's lines are enough, and compile a fifth faster than all that debuggers want
LINES = -Dc_args=-g1
FUZZ_SECONDS ?= 60
# of `make run`: the folder of its stores, the gateway, the ports of the services, where the JSON API and the console listen
RUN ?= $(BUILD)/run
LISTEN ?= 127.0.0.1:8080
SERVICE ?= 9000
SHOP ?= 9001
HTTP ?=
CONSOLE ?= 127.0.0.1:7413

.PHONY: all help deps jars run tour test slow check asan tsan clang configurations fuzz everything durations bench bench-gateway bench-relay sweep storm model install deb deb-test tidy clean

all: $(BUILD)/build.ninja ## build the library, the program and the tests
	@ninja -C $(BUILD)

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

deps: ## install the Debian packages that are missing
	@tools/deps

jars: deps
	@python3 test/brokers/kafka.py fetch
	@python3 test/examples/toolchains.py fetch

$(BUILD)/build.ninja:
	@meson setup --prefix=$(PREFIX) $(BUILD) >/dev/null

run: deps all ## the gateway, a demo service behind it, and a list of things to try
	@demo/run $(BUILD)/src/cli/once $(RUN) --listen "$(LISTEN)" --service "$(SERVICE)" --shop "$(SHOP)" $(if $(HTTP),--http "$(HTTP)") --console "$(CONSOLE)"

tour: deps all ## a tour of `once run` on the embedded store
	@tools/tour $(BUILD)/src/cli/once

test: deps all jars ## the everyday tests (about 5 minutes)
	@$(RUN_TESTS) $(BUILD) $(if $(SHARE),--share $(SHARE)) --no-suite slow

slow: deps all jars ## the tests that take longer; SHARE=N/M: a part of them
	@$(RUN_TESTS) $(BUILD) $(if $(SHARE),--share $(SHARE)) --suite slow

check: ## the tests under the sanitizers: make asan, then make tsan
	@$(MAKE) --no-print-directory asan
	@$(MAKE) --no-print-directory tsan

# A share builds only the programs that its tests need.
asan: deps jars ## the tests under ASan and UBSan; SHARE=N/M
	@CC=clang meson setup $(LINES) -Db_sanitize=address,undefined -Db_lundef=false build-asan >/dev/null 2>&1 || true
	@$(if $(SHARE),:,ninja -C build-asan)
	@SEED=$(CHECK_SEED) ONCE_TEST_SECONDS=300 $(RUN_TESTS) build-asan $(if $(SHARE),--share $(SHARE)) --timeout-multiplier 5 --no-suite plain --no-suite sql --no-suite docs --no-suite model --no-suite postgres --no-suite slow

tsan: deps ## the threaded tests under TSan; SHARE=N/M
	@CC=clang meson setup $(LINES) -Db_sanitize=thread -Db_lundef=false build-tsan >/dev/null 2>&1 || true
	@ONCE_TEST_SECONDS=300 $(RUN_TESTS) build-tsan $(if $(SHARE),--share $(SHARE)) --timeout-multiplier 5 --suite conformance --suite daemon --suite threads --no-suite plain --no-suite postgres --no-suite slow

everything: ## all of the above, fuzz, tidy and the packages, with the time left (about 28 minutes); .ci/run runs a share of it
	@exec tools/run-stages

durations: ## write how long the tests took in the build folders into test/durations.txt, by which shares are balanced
	@tools/share.py

clang: deps ## does clang build it without a warning? (the tests: make check)
	@CC=clang meson setup -Dtests=none build-clang >/dev/null 2>&1 || true
	@ninja -C build-clang

configurations: deps ## the smallest and the largest configuration: both build, and a gateway of the smallest one serves
	@meson setup -Dauto_features=disabled -Dtests=none build-smallest >/dev/null 2>&1 || true
	@ninja -C build-smallest
	@ONCE_BIN=$$PWD/build-smallest/src/cli/once ONCE_NGINX_MODULE=$$PWD/build-smallest/src/gateway/ngx_http_once_module.so python3 test/gateway/smoke.py
	@test -e $(BUILD)/build.ninja || meson setup --prefix=$(PREFIX) $(BUILD) >/dev/null
	@meson configure -Dauto_features=enabled $(BUILD)
	@ninja -C $(BUILD)

fuzz: deps ## each fuzz target for FUZZ_SECONDS
	@CC=clang meson setup $(LINES) -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false build-fuzz >/dev/null 2>&1 || true
	@ninja -C build-fuzz fuzzers
	@tools/run-fuzzers build-fuzz $(FUZZ_SECONDS)

sweep: deps all ## the fault and crash sweeps, larger: make sweep SEED=7 SIZE=20
	@SEED=$(SEED) SIZE=$(SIZE) $(RUN_TESTS) $(BUILD) --suite fault --suite crash --suite pgfault --no-suite slow --timeout-multiplier 0

storm: deps all ## messages with relays that are killed, larger: make storm SEED=7 SIZE=100
	@SEED=$(SEED) SIZE=$(SIZE) ONCE_BIN=$(BUILD)/src/cli/once test/pg/with-postgres python3 test/outbox/storm.py webhook many

model: deps ## the model of the protocol, larger than in the tests: make model SIZE=2
	@model/check --size $(SIZE)

bench: deps ## how fast the stores are here, as ratios (a release build)
	@meson setup --buildtype=release -Dcrash_points=false build-release >/dev/null 2>&1 || true
	@ninja -C build-release
	@bench/store build-release
	@bench/postgres build-release

bench-gateway: deps ## the gateway against plain nginx, and what people write themselves, likewise
	@meson setup --buildtype=release -Dcrash_points=false build-release >/dev/null 2>&1 || true
	@ninja -C build-release
	@bench/gateway build-release --homemade

bench-relay: deps ## the relay against home-made ones, likewise; SINKS='URL ...' adds sinks
	@meson setup --buildtype=release -Dcrash_points=false build-release >/dev/null 2>&1 || true
	@ninja -C build-release
	@test/pg/with-postgres --durable bench/relay build-release

install: ## a release build, without crash points, into PREFIX (default /usr/local); DESTDIR is honoured
	@test -e build-install/build.ninja || meson setup --buildtype=release -Dcrash_points=false build-install >/dev/null
	@meson configure --prefix=$(PREFIX) build-install
	@meson install -C build-install

deb: deps ## the Debian packages, into build-deb/
	@tools/make-deb build-deb

deb-test: deps ## install, run, upgrade, remove and purge them in a Debian root of their own (as root)
	@PYTHONDONTWRITEBYTECODE=1 test/packages/packages.py build-deb-test

tidy: deps ## format, and look for what the compiler does not
	@tools/tidy

clean: ## remove all build folders
	@rm -rf build build-asan build-tsan build-clang build-smallest build-fuzz build-release build-install build-deb build-deb-test

# The commands of this project; `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run build test bench lint clean

# Builds and test tools live outside the checkout. Each checkout has a build directory of its own:
# cargo tells old from new by time alone, and would take another checkout's crates for this one's.
CACHE := $(or $(XDG_CACHE_HOME),$(shell echo ~)/.cache)/opensandbox
export CARGO_TARGET_DIR ?= $(CACHE)/target-$(shell echo "$(CURDIR)" | cksum | cut -d ' ' -f 1)
export PATH := $(PATH):$(shell echo ~)/.cargo/bin

OSB := target/release/osb

# Both programs are static and of one build, so that what they share is compiled once. Naming the
# target keeps these flags away from macros and build scripts. A panic ends the program, so nothing
# unwinds; the profile's `strip` does not reach packages that it names. Random numbers come from the kernel's
# call: without a shared C library the crate would open /dev/urandom, which an image may not have.
HOST := $(shell PATH="$(PATH)" rustc -vV 2>/dev/null | sed -n 's/^host: //p')
STATIC := $(CARGO_TARGET_DIR)/$(HOST)/release
STATIC_FLAGS := RUSTFLAGS='-C target-feature=+crt-static -C relocation-model=static -C force-unwind-tables=no -C strip=symbols --cfg getrandom_backend="linux_getrandom"'
RELEASE := $(STATIC_FLAGS) cargo build --release --locked --target $(HOST) \
  --package osb-execd --package osb-server --package osb-cli
DENY_VERSION := 0.20.2
DENY := $(CACHE)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ready build ## Start a server on 127.0.0.1:8080 and show a first sandbox
	@scripts/demo.sh $(OSB)

.PHONY: ready
ready:
	@scripts/ready.sh

build: ## Build target/release/osb
	@mkdir -p "$(CARGO_TARGET_DIR)" $(dir $(OSB))
	@# Another make may build at the same moment: whose binary is copied must not be a matter of luck.
	@exec 9>"$(CARGO_TARGET_DIR)/.osb-build"; flock 9; \
	$(RELEASE) --lib --bin execd; \
	OSB_EXECD="$(STATIC)/execd" $(RELEASE) --bin osb; \
	cp "$(STATIC)/osb" $(OSB).new; mv $(OSB).new $(OSB)

# Other builds carry the execd that `make build` made, instead of each making its own.
test lint: export OSB_EXECD = $(STATIC)/execd

test: build ## Run all tests, those with the published clients included
	@OSB="$$PWD/$(OSB)" tests/run $(SUITES)

bench: build ## Measure the promises of SPECIFICATION.md
	@OSB_EXECD="$(STATIC)/execd" $(STATIC_FLAGS) cargo build --quiet --release --locked --target $(HOST) --package osb-server --example pretend
	@$(STATIC_FLAGS) cargo run --quiet --release --locked --target $(HOST) --package xtask -- bench --osb $(OSB) --environments $(CACHE)/tests/environments --pretend $(STATIC)/examples/pretend $(BENCH)

lint: build $(DENY) ## Check formatting, lints, house rules, licences and generated files
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo xtask tidy
	cargo xtask spec --check
	$(DENY) --log-level error check bans licenses sources

$(DENY):
	cargo install cargo-deny --version $(DENY_VERSION) --locked --root $(CACHE)/tools/cargo-deny-$(DENY_VERSION) --target-dir $(CACHE)/tools/build
	@rm -rf $(CACHE)/tools/build

clean: ## Remove what was built, here and in the cache
	rm -rf target "$(CARGO_TARGET_DIR)"

# Every command a person types. `make help` lists them.

MODULE = build/ngx_http_ratelimit_module.so
FEEDER = build/ratelimit-feed

REDIS   ?=
MONITOR ?=
FEED    ?=
SAN     ?=
T       ?=
FAULT   ?=
NGX_SRC ?=
N       ?= 50
SEED    ?= 1
DIR     ?=

export NGX_SRC

ifneq ($(words $(CURDIR)),1)
$(error nginx cannot build in a path with blanks: $(CURDIR))
endif

.PHONY: build install run stop test test-full test-page coverage mutate unit fuzz sim chaos check bench plots format \
        clean help test-audit test-monitor feeder test-feed deb test-deb image \
        test-image

build:
	@tools/deps.sh build
	@tools/build.sh dynamic build/objs
	@cmp -s build/objs/$(notdir $(MODULE)) $(MODULE) \
	    || install -m 644 build/objs/$(notdir $(MODULE)) $(MODULE)

# rules from PostgreSQL
feeder:
	@tools/deps.sh feeder
	@$(MAKE) --no-print-directory -s $(FEEDER)

$(FEEDER): feeder/ratelimit-feed.c Makefile
	@mkdir -p build
	$(CC) -std=c11 -D_GNU_SOURCE -O2 -g -fPIE -pie -fstack-protector-strong \
	    -D_FORTIFY_SOURCE=2 -Wall -Wextra -Wno-unused-parameter \
	    -I"$$(pg_config --includedir)" $(if $(SAN),-fsanitize=$(SAN)) \
	    -Wl,-z,relro,-z,now -o $@ $< -lpq -lcurl

# as root: it builds nothing
install:
	@tools/install.sh

# packages for Debian
deb:
	@tools/deps.sh deb
	@tools/deb.sh

# a container image of them
image: deb
	@tools/deps.sh image
	@tools/image.sh

run: build $(if $(FEED),feeder)
	@tools/deps.sh run $(if $(MONITOR),monitor) $(FEED)
	@MONITOR="$(MONITOR)" FEED="$(FEED)" tools/run.sh start $(REDIS)

stop:
	@tools/run.sh stop

# A test of one file needs no unit tests. The targets of t/fuzz have sanitizers
# anyway.
test: $(if $(T),,unit $(if $(SAN),,fuzz)) $(if $(SAN),,build)
	@tools/deps.sh build test
	@SAN="$(SAN)" tools/test.sh $(T)

# the gateway beside the systems of others
test-audit: build
	@tools/deps.sh build test audit
	@tools/test.sh t/systems/kafka/*.t

test-monitor: build
	@tools/deps.sh build test monitor statsd
	@tools/test.sh t/systems/prometheus/*.t t/systems/statsd/*.t

test-feed: build feeder
	@tools/deps.sh build test run postgres
	@tools/test.sh t/systems/postgres/*.t

# the packages in a fresh Debian of this machine's release
test-deb: deb
	@tools/deps.sh build test
	@tools/test.sh t/systems/debian/*.t

# the image in a container of runc
test-image: image
	@tools/deps.sh build test
	@tools/test.sh t/systems/image/*.t

# what is random is long, and all faults are real ones
test-full: export RATELIMIT_FULL = yes
test-full:
	@$(MAKE) --no-print-directory test SAN="$(SAN)"
	@$(MAKE) --no-print-directory sim chaos SAN="$(SAN)"

# the status page in Chromium
test-page: $(if $(SAN),,build)
	@tools/deps.sh build test page
	@NODE_PATH=build/page/node_modules SAN="$(SAN)" \
	    tools/test.sh t/page/page.t

coverage:
	@tools/deps.sh build test
	@tools/coverage.sh $(T)

# breaks the code on purpose, in a copy: which tests notice
mutate:
	@tools/deps.sh build test
	@tools/mutate.pl $(N) $(SEED) $(DIR)

unit:
	@tools/deps.sh build test
	@tools/progress.pl 'unit tests' $(words $(wildcard t/unit/test_*.c)) \
	    '^ok test_(\S+)' $(MAKE) --no-print-directory -s -k -C t/unit \
	    -j$$(nproc) -O SAN="$(SAN)"

fuzz:
	@tools/deps.sh build test san
	@tools/progress.pl 'fuzz targets' $(words $(wildcard t/fuzz/fuzz_*.c)) \
	    '^fuzz: fuzz_(\S+)' $(MAKE) --no-print-directory -s -C t/fuzz -j2

sim:
	@tools/deps.sh build test
	@$(MAKE) --no-print-directory -s -C t/sim SAN="$(SAN)"
	@tools/progress.pl cells $$(awk '!/^#/ && NF { n = 1; \
	        for (i = 1; i <= NF; i++) n *= split($$i, x, ","); sum += n } \
	        END { print sum }' t/sim/standard.grid) \
	    '+\| (.*=.*)' build/sim/sim t/sim/standard.grid

chaos: $(if $(SAN),,build)
	@tools/deps.sh build test
	@SAN="$(SAN)" RATELIMIT_CHAOS=full RATELIMIT_FAULT="$(FAULT)" \
	    tools/test.sh t/chaos/chaos.t

check:
	@tools/deps.sh build check
	@tools/check.sh

bench: build
	@tools/deps.sh run bench
	@tools/progress.pl bench 0 '(?!)' bench/run.sh

plots: build
	@tools/plots.pl

format:
	@tools/check-style.sh fix

clean: stop
	@rm -rf build

help:
	@echo 'make                    builds $(MODULE)'
	@echo 'make NGX_SRC=<tree>     builds it against this nginx'
	@echo 'make install            installs it, in the folder that nginx -V names'
	@echo 'make feeder             builds build/ratelimit-feed: rules from PostgreSQL'
	@echo 'make deb                packages for Debian, in build/deb'
	@echo 'make image              a container image of them, in build/image'
	@echo 'make run                a limited gateway on 127.0.0.1:8080'
	@echo 'make run REDIS=cluster  two gateways that share one limit'
	@echo 'make run MONITOR=1      and Prometheus with the alerts beside it'
	@echo 'make run FEED=postgres  and PostgreSQL, whose tables have more rules'
	@echo 'make stop               ends what make run started'
	@echo 'make test               unit tests, fuzz targets and t/*/*.t'
	@echo 'make test T=t/http/key.t one file of them'
	@echo 'make test SAN=address,undefined  all, with sanitizers in nginx too'
	@echo 'make test-audit         decisions and changes, from nginx to Kafka'
	@echo 'make test-monitor       alerts, dashboard and StatsD, with a real Prometheus'
	@echo 'make test-feed          rules from a real PostgreSQL'
	@echo 'make test-deb           the packages, in a fresh Debian'
	@echo 'make test-image         the image, in a container'
	@echo 'make test-full          with long random sequences, and make sim and chaos'
	@echo 'make test-page          the status page in Chromium'
	@echo 'make coverage           the lines of src/ that the tests run'
	@echo 'make mutate             breaks 50 places of the code, one at a time'
	@echo 'make mutate N=9 SEED=2 DIR=src/core  nine others of a folder'
	@echo 'make unit               the unit tests alone'
	@echo 'make fuzz               what reads text of others, on any text, 10 s each'
	@echo 'make sim                leases against a perfect counter, in virtual time'
	@echo 'make chaos              real faults, one after the other, eight minutes'
	@echo 'make chaos FAULT=kill   those with that in their name'
	@echo 'make check              the static checks'
	@echo 'make bench              the benchmarks'
	@echo 'make plots              draws docs/plots anew'
	@echo 'make format             mends what make check says of the style'
	@echo 'make clean              removes build/'

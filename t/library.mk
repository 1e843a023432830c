# The sources of src/ and lua/ as a library, for programs that are not nginx:
# unit tests, fuzz targets, the simulator and benchmarks. A program links what
# it calls; a function that it defines itself takes the place of the library's.
#
# In:  ROOT, VARIANT (the folder of these flags: unit, unit-address ...), CC,
#      FLAGS (-O2, sanitizers, coverage)
# Out: CFLAGS, LIBRARY, LIBS

LIB     = $(ROOT)/build/lib/$(VARIANT)
LIBRARY = $(LIB)/libratelimit.a

# nginx's headers (nginx-dev), and what its configure finds out for them
NGX_TREE    := $(dir $(shell dpkg -L nginx-dev | grep '/conf_flags$$'))
NGX_OBJS     = $(abspath $(ROOT)/build/lib/nginx)
NGX_HEADERS  = $(NGX_OBJS)/ngx_auto_config.h
NGX_CFLAGS   = $(foreach dir,core event event/quic os/unix http http/modules http/v2 \
                   http/v3,-isystem $(NGX_TREE)src/$(dir)) -isystem $(NGX_OBJS)

FOLDERS := $(shell find $(ROOT)/src -type d)
SOURCES := $(shell find $(ROOT)/src -name '*.c')

LIB_OBJS = $(patsubst $(ROOT)/src/%.c,$(LIB)/%.o,$(SOURCES)) $(LIB)/lua_check.o \
           $(LIB)/lua_penalties.o $(LIB)/lua_rules.o

CFLAGS  = -std=c11 -D_GNU_SOURCE -g -Wall -Wextra -Werror -Wno-unused-parameter \
          -Wno-missing-field-initializers $(FLAGS) $(addprefix -I,$(FOLDERS)) \
          $(NGX_CFLAGS) $(shell pkg-config --cflags lua5.1)
CFLAGS := $(CFLAGS)
LIBS    = -Wl,--as-needed -lhiredis -ljansson -lssl -lcrypto \
          $(shell pkg-config --libs lua5.1) -lpthread -lm

$(LIBRARY): $(LIB_OBJS)
	@rm -f $@
	@ar rcs $@ $^

$(LIB)/%.o: $(ROOT)/src/%.c | $(NGX_HEADERS)
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) -MMD -MP -c -o $@ $<

$(LIB)/lua_%.o: $(LIB)/lua_%.c
	@$(CC) $(CFLAGS) -c -o $@ $<

$(LIB)/lua_check.c $(LIB)/lua_penalties.c $(LIB)/lua_rules.c: $(LIB)/lua_%.c: $(ROOT)/tools/embed-lua.sh \
		$(wildcard $(ROOT)/lua/*.lua)
	@mkdir -p $(@D)
	@sh $< $* $(ROOT)/lua/$*.lua > $@.tmp
	@mv $@.tmp $@

# variants that are made at the same time share it
$(NGX_HEADERS):
	@mkdir -p $(@D).$(VARIANT)
	@cd $(NGX_TREE) && bash -c '. ./conf_flags \
		&& ./configure --builddir=$(NGX_OBJS).$(VARIANT) "$${NGX_CONF_FLAGS[@]}"' \
		> $(@D).$(VARIANT)/configure.log
	@mv -T $(@D).$(VARIANT) $(@D)

-include $(LIB_OBJS:.o=.d)

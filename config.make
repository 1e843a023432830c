# What runs inside Redis becomes a C file of the build folder, again whenever
# a script changes.

ngx_ratelimit_scripts="$ngx_addon_dir/lua/token_bucket.lua \
                       $ngx_addon_dir/lua/check.lua"

cat << END                                                    >> $NGX_MAKEFILE

$NGX_OBJS/ngx_ratelimit_lua_check.c: $ngx_addon_dir/tools/embed-lua.sh \\
	`echo $ngx_ratelimit_scripts`
	sh $ngx_addon_dir/tools/embed-lua.sh `echo $ngx_ratelimit_scripts` \\
		> \$@.tmp
	mv \$@.tmp \$@

END

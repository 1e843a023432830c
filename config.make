# What runs inside Redis becomes a C file of the build folder, again whenever
# a script changes.

ngx_ratelimit_scripts=
for ngx_ratelimit_part in head token_bucket fixed_window sliding_window \
                          sliding_log concurrency check; do
    ngx_ratelimit_scripts="$ngx_ratelimit_scripts \
                           $ngx_addon_dir/lua/$ngx_ratelimit_part.lua"
done

cat << END                                                    >> $NGX_MAKEFILE

$NGX_OBJS/ngx_ratelimit_lua_check.c: $ngx_addon_dir/tools/embed-lua.sh \\
	`echo $ngx_ratelimit_scripts`
	sh $ngx_addon_dir/tools/embed-lua.sh check \\
		`echo $ngx_ratelimit_scripts` > \$@.tmp
	mv \$@.tmp \$@

$NGX_OBJS/ngx_ratelimit_lua_rules.c: $ngx_addon_dir/tools/embed-lua.sh \\
	$ngx_addon_dir/lua/rules.lua
	sh $ngx_addon_dir/tools/embed-lua.sh rules \\
		$ngx_addon_dir/lua/rules.lua > \$@.tmp
	mv \$@.tmp \$@

END

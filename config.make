# What runs inside Redis becomes a C file of the build folder, again whenever
# a script changes.

ngx_ratelimit_scripts=`echo $ngx_addon_dir/lua/*.lua`

for ngx_ratelimit_script in check rules; do
    cat << END                                                >> $NGX_MAKEFILE

$NGX_OBJS/ngx_ratelimit_lua_$ngx_ratelimit_script.c: \\
	$ngx_addon_dir/tools/embed-lua.sh $ngx_ratelimit_scripts
	sh $ngx_addon_dir/tools/embed-lua.sh $ngx_ratelimit_script \\
		$ngx_addon_dir/lua/$ngx_ratelimit_script.lua > \$@.tmp
	mv \$@.tmp \$@

END
done

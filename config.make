# What runs inside Redis becomes a C file of the build folder, again whenever
# a script changes.

ngx_ratelimit_scripts=`echo $ngx_addon_dir/lua/*.lua`

for ngx_ratelimit_script in check penalties rules; do
    cat << END                                                >> $NGX_MAKEFILE

$NGX_OBJS/ngx_ratelimit_lua_$ngx_ratelimit_script.c: \\
	$ngx_addon_dir/tools/embed-lua.sh $ngx_ratelimit_scripts
	sh $ngx_addon_dir/tools/embed-lua.sh $ngx_ratelimit_script \\
		$ngx_addon_dir/lua/$ngx_ratelimit_script.lua > \$@.tmp
	mv \$@.tmp \$@

END
done

# What runs in the browser: the script's files in this order.

ngx_ratelimit_js=

for ngx_ratelimit_script in dom client diff table plot dialog gateway traffic \
                            penalties clients form rules versions main; do
    ngx_ratelimit_js="$ngx_ratelimit_js $ngx_addon_dir/page/$ngx_ratelimit_script.js"
done

for ngx_ratelimit_kind in html css js; do

    case $ngx_ratelimit_kind in
        js) ngx_ratelimit_files=$ngx_ratelimit_js ;;
        *)  ngx_ratelimit_files=$ngx_addon_dir/page/page.$ngx_ratelimit_kind ;;
    esac

    cat << END                                                >> $NGX_MAKEFILE

$NGX_OBJS/ngx_ratelimit_page_$ngx_ratelimit_kind.c: \\
	$ngx_addon_dir/tools/embed-page.sh $ngx_ratelimit_files
	sh $ngx_addon_dir/tools/embed-page.sh $ngx_ratelimit_kind \\
		$ngx_ratelimit_files > \$@.tmp
	mv \$@.tmp \$@

END
done

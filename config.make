# What runs inside Redis becomes a C file of the build folder, again whenever
# a script changes.

ngx_rl_scripts=`echo $ngx_addon_dir/lua/*.lua`

for ngx_rl_script in check penalties rules; do
    cat << END                                                >> $NGX_MAKEFILE

$NGX_OBJS/ngx_rl_lua_$ngx_rl_script.c: \\
	$ngx_addon_dir/tools/embed-lua.sh $ngx_rl_scripts
	sh $ngx_addon_dir/tools/embed-lua.sh $ngx_rl_script \\
		$ngx_addon_dir/lua/$ngx_rl_script.lua > \$@.tmp
	mv \$@.tmp \$@

END
done

# What runs in the browser: the script's files in this order.

ngx_rl_js=

for ngx_rl_script in dom client diff table plot dialog gateway traffic \
                            penalties clients form rules versions main; do
    ngx_rl_js="$ngx_rl_js $ngx_addon_dir/page/$ngx_rl_script.js"
done

for ngx_rl_kind in html css js; do

    case $ngx_rl_kind in
        js) ngx_rl_files=$ngx_rl_js ;;
        *)  ngx_rl_files=$ngx_addon_dir/page/page.$ngx_rl_kind ;;
    esac

    cat << END                                                >> $NGX_MAKEFILE

$NGX_OBJS/ngx_rl_page_$ngx_rl_kind.c: \\
	$ngx_addon_dir/tools/embed-page.sh $ngx_rl_files
	sh $ngx_addon_dir/tools/embed-page.sh $ngx_rl_kind \\
		$ngx_rl_files > \$@.tmp
	mv \$@.tmp \$@

END
done

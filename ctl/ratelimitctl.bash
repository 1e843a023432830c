# completes the commands of ratelimitctl in bash

_ratelimitctl() {
    local words
    case ${COMP_WORDS[COMP_CWORD - 1]} in
        allow|deny|override) words='add remove' ;;
        -c|-f)
            mapfile -t COMPREPLY < <(compgen -f -- "$2")
            return
            ;;
        *)
            words='top who explain allow deny override diff apply nodes
                   -c -g -n -f -H --for --rule --id --owner --reason
                   --rejected --dry-run --json --help'
            ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$2")
}

complete -F _ratelimitctl ratelimitctl

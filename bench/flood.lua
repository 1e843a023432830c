-- The requests of flood.sh: wrk -s flood.lua ... -- <what> <keys> <uses>
--
-- known   each of the known clients, in turn, until each has come twice
-- flood   so many invented keys, each once
-- look    each known client once more, now the <uses>-th time; counts whose
--         X-RateLimit-Remaining says so
--
-- It ends wrk itself, which would go on to the end of its time, and prints how
-- many were sent, and of "look" how many counters were kept, and how many not.
-- A request in flight at the end may be lost, so "known" sends some more.

local FORMAT = "GET / HTTP/1.1\r\nHost: bench\r\nX-API-Key: %s%020d\r\n\r\n"
local MORE = 1000

local name, keys, uses, last
local sent, kept, lost = 0, 0, 0

local function finish()
    io.write(string.format("result %d %d %d\n", sent, kept, lost))
    io.flush()
    os.exit(0)
end

-- Of a thousand tokens, or of those of a new counter.

local function look(status, headers)
    local remaining = tonumber(headers["X-RateLimit-Remaining"])

    if status ~= 200 or not remaining then
        io.write("a request of a known client failed: ", status, "\n")
        os.exit(1)
    end

    if remaining <= 1000 - uses then
        kept = kept + 1
    else
        lost = lost + 1
    end

    if kept + lost == keys then
        finish()
    end
end

function init(args)
    name, keys = args[1] == "flood" and "invented" or "known", tonumber(args[2])
    uses = tonumber(args[3])
    last = args[1] == "known" and 2 * keys + MORE or keys

    -- only where it is needed: it costs wrk the parsing of headers

    if args[1] == "look" then
        response, last = look, -1
    end
end

function request()
    if sent == last then
        finish()
    end

    sent = sent + 1

    return FORMAT:format(name, sent % keys)
end

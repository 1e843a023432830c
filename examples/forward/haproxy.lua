-- Asks a gateway whether a request may pass: its method, path and headers go to
-- a location with "ratelimit". HAProxy 2.6 and later.

local gateway = "http://127.0.0.1:8080"

core.register_action("ratelimit", { "http-req" }, function(txn)
    local headers = txn.http:req_get_headers()
    headers["content-length"] = nil
    headers["transfer-encoding"] = nil
    headers["x-forwarded-for"] = { [0] = txn.f:src() }

    local asked = core.httpclient():get {
        url = gateway .. txn.f:path(), headers = headers, timeout = 200 }

    -- the gateway is away: the request passes
    if asked and (asked.status == 429 or asked.status == 403) then
        local retry = asked.headers["retry-after"]
        txn:set_var("txn.limited", asked.status)
        txn:set_var("txn.retry", retry and retry[0] or "1")
    end
end, 0)

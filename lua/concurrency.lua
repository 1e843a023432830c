-- Requests in flight as a sorted set of leases: a member for each request, its
-- score the deadline. A request that takes again renews its lease.

local function concurrency(key, now, cost, want, capacity, lease_us, name,
                           charge)
    error('not there')
end

-- What the script's parts share. tools/embed-lua.sh joins them in the order of
-- config.make; each is a local function, and check.lua calls them.

local frexp, pack, unpack_state = math.frexp, struct.pack, struct.unpack

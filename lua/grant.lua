-- What a counter takes that can pay: the cost, or as many as are wanted and
-- there; and of what is left then, up to ahead, but a share-th at most.

granted = want <= cost and cost or want < left and want or left

if share then
    local more = (left - granted) / share
    granted = granted + (more < ahead and more - more % 1 or ahead)
end

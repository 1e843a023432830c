-- A counter that can pay grants the cost, or as many as are wanted and there.
-- Then it grants up to ahead more, but at most a share-th of what is left.

granted = want <= cost and cost or want < left and want or left

if share then
    local more = (left - granted) / share
    granted = granted + (more < ahead and more - more % 1 or ahead)
end

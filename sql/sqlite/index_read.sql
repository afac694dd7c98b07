-- How far the key index reaches, and the newest fence.
SELECT closed_to, tail_to, fence_floor, ifnull((SELECT max(fence) FROM once_claim), 0) FROM once_index WHERE one = 1

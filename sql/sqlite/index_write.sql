-- ?1 closed_to, ?2 tail_to, ?3 fence_floor.
UPDATE once_index SET closed_to = ?1, tail_to = ?2, fence_floor = ?3 WHERE one = 1

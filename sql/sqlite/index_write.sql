-- ?1 sealed_to, ?2 tail_to, ?3 fence_floor.
UPDATE once_index SET sealed_to = ?1, tail_to = ?2, fence_floor = ?3 WHERE one = 1
